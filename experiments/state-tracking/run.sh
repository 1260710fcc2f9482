#!/usr/bin/env bash
# State tracking: formal languages and word problems of groups. README.md says what comes out; --quick takes seconds.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../common/sweep.sh.inc
source "$here/../common/sweep.sh.inc"
sweep parity
sweep groups
[ -n "$quick" ] || sweep s5
[ -n "$quick" ] || sweep modular
[ -n "$quick" ] || sweep parity-seeds
[ -n "$quick" ] || sweep s3-seeds
