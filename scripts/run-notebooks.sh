#!/usr/bin/env bash
# Runs the notebooks of examples/notebooks from top to bottom and writes their outputs into them. A cell that fails ends it.
# usage: run-notebooks.sh [NOTEBOOK ...]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH="$root/python" TTR_LIBRARY="${TTR_LIBRARY:-$root/build/libttr_c.so}" OMP_NUM_THREADS=2 PYTHONDONTWRITEBYTECODE=1
# A kernel of Debian's Python, whatever else is on this machine.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/kernels/python3"
printf '{"argv": ["/usr/bin/python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "Python 3", "language": "python"}' \
  > "$work/kernels/python3/kernel.json"
export JUPYTER_PATH="$work" JUPYTER_DATA_DIR="$work" IPYTHONDIR="$work/ipython"
notebooks=()
for name in "$@"; do notebooks+=("$(realpath "$name")"); done
[ $# -gt 0 ] || notebooks=("$root"/examples/notebooks/*.ipynb)
cd "$root/examples/notebooks"
for notebook in "${notebooks[@]}"; do
  /usr/bin/python3 -m nbconvert --to notebook --execute --inplace --ExecutePreprocessor.timeout=900 "$notebook"
done
# What differs from run to run or names this machine is no output: times of cells, versions of the kernel.
/usr/bin/python3 - "${notebooks[@]}" << 'END'
import json
import sys

for path in sys.argv[1:]:
    with open(path) as file:
        notebook = json.load(file)
    notebook["metadata"] = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                            "language_info": {"name": "python"}}
    for cell in notebook["cells"]:
        cell["metadata"] = {}
    with open(path, "w") as file:
        json.dump(notebook, file, indent=1, ensure_ascii=False, sort_keys=True)
        file.write("\n")
END
