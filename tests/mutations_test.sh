#!/usr/bin/env bash
# The list of mutations (scripts/mutations.py) fits the code: every old text occurs once. Running them takes an hour:
# `make mutate`.
# Usage: mutations_test.sh [PROGRAM]
set -uo pipefail
python3 "$(cd "$(dirname "$0")" && pwd)/../scripts/mutate.py" --list --verify
