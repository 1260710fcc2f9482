#!/usr/bin/env bash
# Bias and variance of the regressions behind the layers: writes table.md and plot.svg beside this file (seconds), with --quick into build.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=bias_variance
# shellcheck source-path=SCRIPTDIR source=../common/run.sh.inc
source "$here/../common/run.sh.inc"
