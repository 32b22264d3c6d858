"""Hashes of keys."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cep.arrays import I64
from cep.engine.order.ordering import hash_column, text_hashes


def key_hashes(keys: pa.Array) -> I64:
    """Return (n,) int64: a hash of each key, a text or an int64; equal keys have equal hashes."""
    if pa.types.is_string(keys.type):
        return text_hashes(keys)
    hashes = np.zeros(len(keys), np.uint64)
    hash_column(keys, hashes)
    return hashes.view(np.int64)
