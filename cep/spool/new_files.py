"""The mode of the files that this process creates."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def umask(bits: int) -> Iterator[None]:
    """In this context, remove `bits` from the mode of files that this process or its children create."""
    before = os.umask(bits)
    try:
        yield
    finally:
        os.umask(before)
