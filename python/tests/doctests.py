"""Runs the examples of the docstrings: doctests.py numpy|torch"""

import doctest
import importlib
import sys

MODULES = {
    "numpy": ["ttr", "ttr._plan", "ttr._describe", "ttr._stream", "ttr._regressor", "ttr._check", "ttr._random", "ttr._run"],
    "torch": ["ttr.torch._call", "ttr.torch.ops", "ttr.torch.fla", "ttr.torch.nn", "ttr.torch.nn._recipe"],
}

failed = 0
for name in MODULES[sys.argv[1]]:
    result = doctest.testmod(importlib.import_module(name))
    failed += result.failed
    if result.attempted == 0:
        print(f"{name} has no examples")
        failed += 1
sys.exit(1 if failed else 0)
