"""numpy masks that mark some rows of an Arrow column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import Mask


def where_true(flags: Any) -> Mask:
    """Return a mask of the rows where `flags` is TRUE. A row with NULL is not marked."""
    return np.asarray(pc.fill_null(flags, fill_value=False).to_numpy(zero_copy_only=False), dtype=bool)


def where_false(flags: Any) -> Mask:
    """Return a mask of the rows where `flags` is FALSE. A row with NULL is not marked."""
    return where_true(pc.invert(flags))


def null_where(bad: Mask, values: pa.Array) -> pa.Array:
    """Return `values` with NULL in the rows that `bad` marks."""
    if not bad.any():
        return values
    return pc.if_else(pa.array(bad), pa.scalar(None, values.type), values)
