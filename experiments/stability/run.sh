#!/usr/bin/env bash
# How large the answers of linear memories get: writes table.md and plot.svg beside this file (seconds), with --quick into build.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=stability
# shellcheck source-path=SCRIPTDIR source=../common/run.sh.inc
source "$here/../common/run.sh.inc"
