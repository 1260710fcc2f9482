#!/usr/bin/env bash
# Recall without training: writes table.md and plot.svg beside this file (under a minute), with --quick into build.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=recall
# shellcheck source-path=SCRIPTDIR source=../common/run.sh.inc
source "$here/../common/run.sh.inc"
