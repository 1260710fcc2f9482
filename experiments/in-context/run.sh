#!/usr/bin/env bash
# Regression in context, trained: linear, and piecewise by the length of a segment. README.md says what comes out; --quick takes seconds.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../common/sweep.sh.inc
source "$here/../common/sweep.sh.inc"
sweep piecewise
[ -n "$quick" ] || sweep linear
[ -n "$quick" ] || sweep recall
[ -n "$quick" ] || sweep permutations
[ -n "$quick" ] || sweep seeds
