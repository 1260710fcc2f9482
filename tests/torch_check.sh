#!/usr/bin/env bash
# What needs PyTorch and scikit-learn: operations, modules, the estimator, the bench on small shapes. `make test-torch`.
# usage: torch_check.sh BUILD (libttr_c.so and ttr are in it)
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
export TTR_LIBRARY="$build/libttr_c.so" PYTHONPATH="$root/python" PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=2
python=/usr/bin/python3

cd "$root/python/tests"
"$python" -m unittest -q test_ops test_ops_edges test_ops_golden test_nn test_sklearn
"$python" doctests.py torch
"$python" "$root/scripts/make-op-stubs.py" --check
"$python" "$root/bench/torch/ops.py" --quick --json > /dev/null
echo "torch: all passed"
