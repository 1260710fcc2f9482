#!/usr/bin/env bash
# Figure 3 of the test-time regression paper, trained, and the ablation of its convolution: results/, with --quick into build.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../common/sweep.sh.inc
source "$here/../common/sweep.sh.inc"
sweep capacity
sweep convolution
[ -n "$quick" ] || sweep longer
