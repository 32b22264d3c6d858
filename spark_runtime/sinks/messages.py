"""Turns rows into single messages for a sink, always in the same order and with the same keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

import pyarrow as pa

from cep.program.program import EVENT_NUMBER
from cep.rule_set import KIND, RETRACT, REVISION
from spark_runtime.sinks.json_rows import json_rows, value_texts
from spark_runtime.sinks.protocol import Collected, MicroBatch
from spark_runtime.wire.output import MATCH

_ORDER = ("match_end", "match_id", REVISION, EVENT_NUMBER)


@dataclass(frozen=True, slots=True)
class Message:
    """A row.

    - `key`: identifies the row, each time it is sent: the `match_id`, with the event number and the revision
      if the row has them; a hash for other rows.
    - `document`: the same for all revisions of a row; without revisions, the key.
    - `is_withdrawn`: whether the message withdraws a row that was sent.
    - `text`: the row as JSON.
    """

    key: str
    document: str
    is_withdrawn: bool
    text: str


def messages(batch: MicroBatch, rows: Collected) -> list[Message]:
    """Return the messages of a micro-batch; they are the same if the micro-batch is repeated."""
    return list(_of_matches(rows) if rows.output.kind == MATCH else _of_texts(batch, rows))


def _of_matches(rows: Collected) -> Iterator[Message]:
    from pyarrow.compute import sort_indices

    tables = list(rows.tables())
    if not tables:
        return
    table = pa.concat_tables(tables)
    order = [(name, "ascending") for name in _ORDER if name in table.column_names]
    table = table.take(sort_indices(table, order))
    ids: Sequence[str] = table.column("match_id").to_pylist()
    events, revisions = (
        value_texts(table.column(name)) if name in table.column_names else [None] * len(ids)
        for name in (EVENT_NUMBER, REVISION)
    )
    kinds = table.column(KIND).to_pylist() if KIND in table.column_names else [""] * len(ids)
    for match_id, event, revision, kind, text in zip(
        ids, events, revisions, kinds, json_rows(table), strict=True
    ):
        document = match_id if event is None else f"{match_id}-{event}"
        key = document if revision is None else f"{document}-r{revision}"
        yield Message(key, document, kind == RETRACT, text)


def _of_texts(batch: MicroBatch, rows: Collected) -> Iterator[Message]:
    """Yield late events or dead letters. A number distinguishes equal ones, in any order."""
    seen: Counter[str] = Counter()
    for text in sorted(rows.lines()):
        name = f"{batch.name} {rows.output.kind} {seen[text]} {text}"
        key = sha256(name.encode()).hexdigest()[:32]
        seen[text] += 1
        yield Message(key, key, False, text)
