#!/usr/bin/env bash
# The slowest translation units of a build, from the log that ninja keeps in the build folder:
#
#   scripts/compile-times.sh build [N]      the N slowest (default 20), and the sums by target
#
# Seconds are what a compiler was at work, wall clock: on a busy machine, or where there are more jobs than cores, they are
# more than the processor's. An object that came from ccache counts what it took to fetch it; CCACHE_DISABLE=1 in front
# of the build measures the compiler.
set -euo pipefail
folder=${1:-build}
count=${2:-20}
log=$folder/.ninja_log
if [ ! -f "$log" ]; then
  echo "compile-times: there is no $log; build with CMake and Ninja first, or name the build folder" >&2
  exit 2
fi
if ! [[ $count =~ ^[1-9][0-9]*$ ]]; then
  echo "compile-times: '$count' is not a number of files; use 1 or more" >&2
  exit 2
fi
# begin, end (milliseconds), time of the file, output, hash of the command. The last line of an output counts.
awk -F '\t' -v count="$count" '
  NF == 5 && $4 ~ /\.o$/ { seconds[$4] = ($2 - $1) / 1000 }
  END {
    for (object in seconds) {
      name = object
      target = object
      if (sub(/\.dir\/.*/, "", target)) sub(/.*CMakeFiles\//, "", target)
      sub(/.*\.dir\//, "", name)
      sub(/\.o$/, "", name)
      gsub(/__\//, "../", name)
      printf "unit\t%9.2f\t%s\t%s\n", seconds[object], target, name
      sum[target] += seconds[object]
      units[target] += 1
      all += seconds[object]
      total += 1
    }
    for (target in sum) printf "target\t%9.2f\t%s\t%d units\n", sum[target], target, units[target]
    printf "target\t%9.2f\t%s\t%d units\n", all, "all", total
  }' "$log" | sort -t "$(printf '\t')" -k1,1r -k2,2rn | awk -F '\t' -v count="$count" '
  $1 == "unit" && ++shown <= count { printf "%9.2f s  %-16s %s\n", $2, $3, $4 }
  $1 == "target" { if (!sums++) print ""; printf "%9.2f s  %-16s %s\n", $2, $3, $4 }'
