"""The mode of the files that this process creates."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def umask(bits: int) -> Iterator[None]:
    """Meanwhile remove `bits` from the mode of files that this process, or one that it starts, creates."""
    before = os.umask(bits)
    try:
        yield
    finally:
        os.umask(before)
