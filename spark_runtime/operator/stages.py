"""Rules over rules by another key, in a batch: successive stages with a shuffle before each.

The results of a stage pass through the later stages unchanged, in parcels of `Contents.OUTPUT`. So
everything is computed once, and the last stage returns all of it.

Executors import this module: it imports nothing of the compiler.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from spark_runtime.wire.output import KIND, MATCHES_COLUMN, OUTPUT_SCHEMA, TEXT
from spark_runtime.wire.parcels import DATA, Contents, parcels, which


def later_parcels(
    batch: pa.RecordBatch, stages: Sequence[int], stage: int
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the parcels of a batch that are for this stage, and those that later stages need."""
    later = [number for number, of_program in enumerate(stages) if of_program > stage]
    is_later = which(batch, Contents.EVENTS, later) | which(batch, Contents.OUTPUT)
    return batch.filter(pa.array(~is_later)), batch.filter(pa.array(is_later))


def as_parcels(output: Iterable[pa.RecordBatch], label: int) -> Iterator[pa.RecordBatch]:
    """Return the operator's output (`OUTPUT_SCHEMA`) as parcels of key group `label`."""
    for batch in output:
        rows = zip(batch.column(KIND).to_pylist(), batch.column(TEXT).to_pylist(), strict=True)
        texts = [json.dumps(row) for row in rows]
        yield parcels([label] * len(texts), Contents.OUTPUT, texts=texts, data=batch.column(MATCHES_COLUMN))


def as_output(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the operator's output from which `as_parcels` made these parcels."""
    rows = [json.loads(text) for text in batch.column(TEXT).to_pylist()]
    columns = [
        pa.array([kind for kind, _ in rows], pa.string()),
        pa.array([text for _, text in rows], pa.string()),
        batch.column(DATA),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=OUTPUT_SCHEMA)
