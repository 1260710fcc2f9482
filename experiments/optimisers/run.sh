#!/usr/bin/env bash
# AdamW, Muon, SOAP and others on the same models. README.md says what comes out; --quick takes seconds.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../common/sweep.sh.inc
source "$here/../common/sweep.sh.inc"
sweep optimisers
