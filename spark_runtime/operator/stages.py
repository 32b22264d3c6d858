"""Rules over rules by another key, in a batch: stages one behind the other, with a shuffle before each.

What an earlier stage finds goes through the later ones as it is, in parcels `FOUND`. So everything is
computed once, and all of it comes out of the last stage.

Executors read this: it imports nothing of the compiler.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from spark_runtime.wire.layout import FOUND, PROGRAM, TEXT
from spark_runtime.wire.output import KIND, MATCHES_COLUMN, OUTPUT_SCHEMA
from spark_runtime.wire.parcels import EVENTS, PARCEL_SCHEMA


def later_parcels(
    parcels: pa.RecordBatch, stages: Sequence[int], stage: int
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the parcels of a batch that are for this stage, and those that later ones need."""
    numbers = np.asarray(parcels.column(PROGRAM))
    later = np.flatnonzero(np.array(stages) > stage)
    is_later = np.isin(numbers, later) | (numbers == FOUND)
    return parcels.filter(pa.array(~is_later)), parcels.filter(pa.array(is_later))


def as_parcels(output: Iterable[pa.RecordBatch], label: int) -> Iterator[pa.RecordBatch]:
    """Return output of the operator (`OUTPUT_SCHEMA`) as parcels of key group `label`."""
    for batch in output:
        n = batch.num_rows
        rows = zip(batch.column(KIND).to_pylist(), batch.column(TEXT).to_pylist(), strict=True)
        columns = [
            pa.array([label] * n, pa.int32()),
            pa.nulls(n, pa.int64()),
            pa.array([FOUND] * n, pa.int32()),
            pa.array([json.dumps(row) for row in rows], pa.string()),
            batch.column(MATCHES_COLUMN),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=PARCEL_SCHEMA)


def as_output(parcels: pa.RecordBatch) -> pa.RecordBatch:
    """Return the output of the operator that `as_parcels` made these parcels of."""
    rows = [json.loads(text) for text in parcels.column(TEXT).to_pylist()]
    columns = [
        pa.array([kind for kind, _ in rows], pa.string()),
        pa.array([text for _, text in rows], pa.string()),
        parcels.column(EVENTS),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=OUTPUT_SCHEMA)
