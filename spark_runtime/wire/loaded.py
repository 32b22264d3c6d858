"""Keeps what a Python worker of Spark has loaded out of garbage collection."""

from __future__ import annotations

import gc

_calls = 0


def freeze_loaded() -> None:
    """Hide the modules that this worker has loaded from garbage collection.

    After each function, Spark's worker collects garbage before it takes the next one. Each time, it would
    examine all objects of pandas, numba and the kernels. That takes 100 ms, twice in each task of a stream.
    So each of our functions starts with this call. The first calls load more modules. Later calls do nothing,
    because they would also keep garbage alive.
    """
    global _calls
    if _calls < _LOADING_CALLS:
        _calls += 1
        gc.freeze()


_LOADING_CALLS = 3
