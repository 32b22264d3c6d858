"""Views: the join of tables, kept current row by row.

    VIEW name KEY k FROM accounts JOIN customers ON customer_id SELECT ...

A view is a rule over changes. A version of a table becomes an event for each key whose row it may change,
once for each instant (`cep.engine.tables.changes`). The event has the columns of the tables as they are at
its time and as they were directly before (`JoinedColumn.is_before`). It is taken if these differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cep.schema.stream import Field, Stream

CHANGE_US = "_us"
"""Column of a change: its time as BIGINT, microseconds since 1970."""

REVISION, KIND = "revision", "kind"
"""The additional columns of rows of matches that late events may correct, and of rows of views.

A row replaces those of its `match_id` with a lower revision. Its kind says whether it is valid or withdrawn.
"""


@dataclass(frozen=True, slots=True)
class ChangeStream(Stream):
    """The changes of the tables of views, named after the table in FROM. No source delivers them."""


def change_stream(table: Stream, key: Iterable[str]) -> ChangeStream:
    """Return the changes of views over `table` with the columns `key` of it."""
    fields = [field for name in key if (field := table.field(name)) is not None]
    return ChangeStream(name=table.name, fields=(*fields, Field(CHANGE_US, "bigint")), event_time=CHANGE_US)
