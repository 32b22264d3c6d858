"""Keeps what a Python worker of Spark has loaded out of garbage collection."""

from __future__ import annotations

import gc
import sys

_n_modules = 0


def freeze_loaded() -> None:
    """Hide the modules that this worker has loaded from garbage collection.

    After each function, Spark's worker collects garbage before it takes the next one. Each time, it would
    examine all objects of pandas, numba and the kernels. That takes 100 ms, twice in each task of a stream.
    So each of our functions starts with this call. It does something only if modules were loaded since the
    last one: to freeze what calls leave would also keep garbage alive.
    """
    global _n_modules
    if len(sys.modules) != _n_modules:
        _n_modules = len(sys.modules)
        gc.freeze()
