"""Static tables whose rows come later, before any event does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cep.program.program import Program
from cep.schema.text_values import event_table_schema

if TYPE_CHECKING:
    from cep.engine.tables.tables import GivenTable


def not_given(programs: Iterable[Program]) -> dict[str, GivenTable]:
    """Return the static tables of programs without rows."""
    joined = (of.table for program in programs for of in program.joins.tables)
    static = [table for table in joined if table.is_static]
    if not static:  # then what looks up tables is not loaded
        return {}
    from cep.engine.tables.tables import GivenTable

    return {table.name: GivenTable(table, event_table_schema(table).empty_table()) for table in static}
