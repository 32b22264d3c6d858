"""A stream of letters for tests of the engine: compact rules in, matches out."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from cep.compiler.compile import compile_sources
from cep.engine.prepare.predicates import prepare
from cep.errors import Source
from cep.program.program import Program
from cep.schema.stream import Field, Stream

STREAM = Stream(
    "events",
    (
        Field("k", "string"),
        Field("ts", "timestamp"),
        Field("id", "bigint"),
        Field("letter", "string"),
        Field("x", "double"),
        Field("n", "bigint"),
        Field("s", "string"),
    ),
    "ts",
    tie_break=("id",),
    lateness_us=0,
)

SECOND = 1_000_000


def program(
    pattern: str,
    clauses: str = "WITHIN 10 SECONDS",
    *,
    define: str = "a AS letter = 'a', b AS letter = 'b', c AS letter = 'c'",
    measures: str = "",
    after: str = "",
    stream: Stream = STREAM,
    name: str = "r",
) -> Program:
    """Compile one rule over the letters; variables that the pattern lacks may be left out of `define`."""
    text = f"RULE {name} FROM events PARTITION BY k PATTERN {pattern} {clauses} DEFINE {define}"
    if measures:
        text += f" MEASURES {measures}"
    (compiled,) = compile_sources([Source("test.cep", f"{text} {after}")], {"events": stream}).programs
    return compiled


def events(*rows: tuple[object, ...], stream: Stream = STREAM) -> pa.Table:
    """Return events of (key, seconds, letter[, x[, n[, s]]]), with ids in order."""
    names = ("k", "ts", "letter", "x", "n", "s")
    types = {"k": pa.string(), "ts": pa.int64(), "letter": pa.string(), "x": pa.float64(), "s": pa.string()}
    columns = {
        name: pa.array([row[at] if at < len(row) else None for row in rows], types.get(name, pa.int64()))
        for at, name in enumerate(names)
    }
    columns["ts"] = pa.array([int(float(str(row[1])) * SECOND) for row in rows], pa.int64())
    columns["id"] = pa.array(range(len(rows)), pa.int64())
    return pa.table({field.name: columns[field.name] for field in stream.fields})


def prepared(compiled: Program, *rows: tuple[object, ...]) -> pa.Table:
    """Return the prepared events of `rows`."""
    return prepare(compiled, events(*rows, stream=compiled.stream))


def spans(matches: pa.Table) -> list[tuple[str, float, float]]:
    """Return (key, start, end) of each match, times in seconds."""
    starts: Sequence[int] = matches["match_start"].cast(pa.int64()).to_pylist()
    ends: Sequence[int] = matches["match_end"].cast(pa.int64()).to_pylist()
    keys = matches["k"].to_pylist()
    return [(k, a / SECOND, b / SECOND) for k, a, b in zip(keys, starts, ends, strict=True)]
