#!/usr/bin/env bash
# Recall against bytes of state, for fourteen layers, and its spread over seeds: results/, with --quick into build.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../common/sweep.sh.inc
source "$here/../common/sweep.sh.inc"
sweep mqar
[ -n "$quick" ] || sweep seeds
