#!/usr/bin/env bash
# Solvers of one regression problem, from one step to the exact solution, at equal size of state. README.md says what comes out; --quick takes seconds.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../common/sweep.sh.inc
source "$here/../common/sweep.sh.inc"
sweep solvers
[ -n "$quick" ] || sweep descent
