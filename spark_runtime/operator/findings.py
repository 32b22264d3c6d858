"""All results of the operator as one DataFrame: matches, late events, dead letters and counts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from cep.arguments import wrong_argument
from cep.counts import Counts
from cep.errors import InputError
from cep.program.program import missing_column
from spark_runtime.wire.output import (
    COUNTS,
    DEAD,
    KIND,
    LATE,
    MATCH,
    MATCHES_COLUMN,
    SHADOW,
    TEXT,
    carried_schema,
)
from spark_runtime.wire.parcels import table_of_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DEAD_LETTER, _COUNT = "dead_letter", "count"

_STREAM, _REASON, _RAW, _NAME, _OF = "_stream", "_reason", "_raw", "_name", "_of"
_N, _POSITION = "_n", "_position"

COLUMNS = {
    LATE: {"stream": _STREAM, "event": _RAW},
    _DEAD_LETTER: {"stream": _STREAM, "reason": _REASON, "raw": _RAW, "position": _POSITION},
    _COUNT: {"name": _NAME, "of": _OF, "n": _N},
}
"""Value of `kind`, also the name of the column that has a value -> its fields -> columns of `Unpacker`.

The remaining kinds are `MATCH`, and `SHADOW`, whose values are in the column `MATCH`, too.
"""

_BY_NAME = {
    "dead_letters": "reasons",
    "late": "late_of",
    "duplicates": "duplicates_of",
    "matches": "matches",
    "timeouts": "timeouts",
    "suppressed": "suppressed",
    "dropped_runs": "dropped_runs",
    "dropped_events": "dropped_events",
    "dropped_matches": "dropped_matches",
    "dropped_keys": "dropped_keys",
    "beyond": "beyond",
    "retracted": "retracted",
}
"""Name of a count -> the field of `cep.counts.Counts` that splits it."""


def match_column(number: int) -> str:
    """Return the name under which `Unpacker` yields a column of matches, whatever the column's own name."""
    return f"_match{number}"


@dataclass(frozen=True)
class Unpacker:
    """Turns the operator's output, in the workers, into a row for each match, text and count."""

    match_schema: pa.Schema
    shadow: frozenset[str] = frozenset()

    @property
    def schema(self) -> pa.Schema:
        """Columns of the rows that it yields; columns of matches have their `carried_type`."""
        texts = [(name, pa.string()) for name in (KIND, _STREAM, _REASON, _RAW, _NAME, _OF)]
        carried = [(match_column(n), field.type) for n, field in enumerate(carried_schema(self.match_schema))]
        return pa.schema([*texts, (_N, pa.int64()), (_POSITION, pa.int64()), *carried])

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Unpack batches of `OUTPUT_SCHEMA`."""
        schema = self.schema
        carried = carried_schema(self.match_schema)
        names = [match_column(number) for number in range(len(carried))]
        for batch in batches:
            rows: list[dict[str, Any]] = []
            kinds, texts, packed = (batch.column(name) for name in (KIND, TEXT, MATCHES_COLUMN))
            for kind, text, data in zip(kinds.to_pylist(), texts.to_pylist(), packed, strict=True):
                if kind == MATCH:
                    matches = table_of_bytes(data.as_buffer(), carried).rename_columns(names)
                    is_shadow = pc.is_in(matches.column(0), pa.array(sorted(self.shadow), pa.string()))
                    yield from _filled(
                        matches.append_column(KIND, pc.if_else(is_shadow, SHADOW, MATCH)), schema
                    )
                else:
                    rows += _rows(kind, text)
            if rows:
                fields = [field for field in schema if field.name not in names]
                yield from _filled(pa.Table.from_pylist(rows, pa.schema(fields)), schema)


def _rows(kind: str, text: str) -> Iterator[dict[str, Any]]:
    """Yield the rows that a text of the operator's output becomes."""
    if kind == COUNTS:
        counts = Counts.of_json(text)
        found = [(name, None, getattr(counts, name)) for name in ("events", "corrected", "uncorrected")]
        for name, field in _BY_NAME.items():
            found += [(name, of, n) for of, n in getattr(counts, field).items()]
        yield from ({KIND: _COUNT, _NAME: name, _OF: of, _N: n} for name, of, n in found if n)
    elif kind == DEAD:
        dead = json.loads(text)
        # Rows of a DataFrame have neither file nor line: their source is the stream, or a partition.
        at = dead["position"] if dead["position"] >= 0 else None
        found_dead = {_STREAM: dead["source"], _REASON: dead["reason"], _RAW: dead["raw"], _POSITION: at}
        yield {KIND: _DEAD_LETTER, **found_dead}
    else:
        yield {KIND: LATE, _STREAM: kind.removeprefix(f"{LATE}: "), _RAW: text}


def _filled(table: pa.Table, schema: pa.Schema) -> list[pa.RecordBatch]:
    """Return the rows as a batch with all columns of `schema`."""
    arrays = [
        table.column(field.name)
        if field.name in table.column_names
        else missing_column(field, table.num_rows)
        for field in schema
    ]
    batches: list[pa.RecordBatch] = pa.Table.from_arrays(arrays, schema=schema).to_batches()
    return batches


@dataclass(frozen=True, slots=True)
class Findings:
    """The parts of a result of `detect_all`, each with its own columns."""

    matches: DataFrame
    shadow: DataFrame
    late: DataFrame
    dead_letters: DataFrame
    counts: DataFrame


_ALL = ("kind", MATCH, *COLUMNS)


def split(found: DataFrame) -> Findings:
    """Return the parts of a DataFrame of `detect_all`, or of one of its micro-batches in `foreachBatch`.

    Raises InputError: it is none (E0827).
    """
    from pyspark.sql import DataFrame
    from pyspark.sql.utils import is_remote

    wanted = "a DataFrame that detect_all returned"
    if not isinstance(found, DataFrame):
        raise wrong_argument("found", found, wanted)
    # Spark Connect would ask its server for the columns, which a pipeline may not have created yet.
    lacking = [] if is_remote() else [name for name in _ALL if name not in found.columns]
    if lacking:
        raise InputError("E0827", f"found has no column `{lacking[0]}`", f"give {wanted}")
    column = {MATCH: MATCH, SHADOW: MATCH, **dict(zip(COLUMNS, COLUMNS, strict=True))}
    return Findings(*(found.where(f"kind = '{kind}'").select(f"{of}.*") for kind, of in column.items()))
