#!/usr/bin/env bash
# The Python front on numpy alone: unit tests, examples of docstrings, types, and the wheel in a clean environment.
# usage: python_test.sh PROGRAM (libttr_c.so is beside it)
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$(dirname "$1")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ ! -e "$build/libttr_c.so" ]; then
  echo "there is no libttr_c.so beside $1; configure with TTR_C=ON" >&2
  exit 1
fi
export TTR_LIBRARY="$build/libttr_c.so" TTR_PROGRAM="$build/$(basename "$1")" PYTHONPATH="$root/python" PYTHONDONTWRITEBYTECODE=1
python=/usr/bin/python3

cd "$root/python/tests"
"$python" -m unittest -q test_numpy test_stream
"$python" doctests.py numpy

# Annotations: with the configuration of pyproject.toml.
(cd "$root" && mypy --cache-dir "$work/mypy")

# The wheel, built from the library at hand and installed without a network into an environment of its own.
"$python" -m pip wheel --quiet --no-index --no-deps --wheel-dir "$work" "$root"
"$python" -m venv --system-site-packages "$work/clean"
unset TTR_LIBRARY PYTHONPATH
"$work/clean/bin/python" -m pip install --quiet --no-index --no-deps "$work"/ttr-*.whl
cd "$work"
"$work/clean/bin/python" - "$work/clean" << 'END'
import sys
import numpy as np
import ttr
assert ttr.__file__.startswith(sys.argv[1]), ttr.__file__
assert ttr._library.lib._name.startswith(sys.argv[1]), ttr._library.lib._name
x = np.ones((1, 2, 1, 2))
assert ttr.forward("linear-attention", q=x, k=x, v=x, scale=1.0)[0, :, 0, 0].tolist() == [2.0, 4.0]
assert ttr.check("deltanet")
END

# Language models from the wheel: the library that it brought, and what that one needs.
if [ -e "$build/libttr_language_c.so" ]; then
  "$python" "$root/scripts/checkpoints/check.py" --write "$work/checkpoints" > /dev/null
  env -u TTR_LANGUAGE_LIBRARY "$work/clean/bin/python" - "$work/clean" "$work/checkpoints" << 'END'
import json
import sys
import numpy as np
import ttr
folder = sys.argv[2] + "/rwkv-7-gguf"
expected = json.load(open(folder + "/expected.json"))
model = ttr.load_model(folder + "/model.gguf")
assert ttr._language._library()._name.startswith(sys.argv[1]), ttr._language._library()._name
logits = np.array(expected["logits"])
assert np.abs(model.logits(expected["tokens"]) - logits).max() < 1e-4 * np.abs(logits).max()
for name in ("pcre2", "utf8proc"):  # not those of the system
    loaded = [line.split()[-1] for line in open("/proc/self/maps") if name in line]
    assert loaded and all(path.startswith(sys.argv[1]) for path in loaded), loaded
END
fi
echo "python: all passed"
