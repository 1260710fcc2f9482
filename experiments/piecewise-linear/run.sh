#!/usr/bin/env bash
# Builds and runs the experiment; writes table.md, results.json and plot.svg beside this file.
#   experiments/piecewise-linear/run.sh            the whole sweep: about a minute on two cores
#   experiments/piecewise-linear/run.sh --quick    a small one: about a second, into build/piecewise-linear-quick
# Other options go to the program; --help lists them. With TTR=path/to/ttr nothing is built: the program of the same
# build folder runs.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
if [ -n "${TTR:-}" ]; then
  build=$(dirname "$TTR")
else
  build=$root/build
  command -v cmake >/dev/null || { echo "run.sh: cmake is missing; 'make build' in $root installs it" >&2; exit 2; }
  {
    [ -f "$build/CMakeCache.txt" ] || (cd "$root" && cmake --preset release)
    cmake --build "$build" --target piecewise_linear
  } >&2
fi
program=$build/experiments/piecewise-linear/piecewise_linear
[ -x "$program" ] || { echo "run.sh: there is no program $program; build the target piecewise_linear" >&2; exit 2; }

out=$here
for option in "$@"; do
  [ "$option" != --quick ] || out=$build/piecewise-linear-quick
done
mkdir -p "$out"
# A later --out on the command line wins.
exec "$program" --out "$out" "$@"
