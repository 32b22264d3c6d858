"""Checks of the rows of a static table, whatever their source."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from cep.errors import InputError
from cep.schema.stream import Stream


def require_few(table: Stream, n_rows: int) -> None:
    """Raise InputError if a static table has more rows than it declares (E0619)."""
    assert table.table is not None
    most = table.table.max_rows
    if most is not None and n_rows > most:
        raise InputError(
            "E0619",
            f"the table `{table.name}` has more than {most:,} rows, it may have {most:,}",
            "raise `max_rows` of the table if each worker has memory for its rows",
        )


def require_keys(table: Stream, rows: pa.Table, where: str) -> None:
    """Raise InputError if a row has a NULL in its key (E0712)."""
    assert table.table is not None
    for name in table.table.key:
        if rows.column(name).null_count:
            row = pc.index(pc.is_null(rows.column(name)), True).as_py() + 1
            raise unusable(table, where, f"row {row:,} has no `{name}`, which is in the key")


def unusable(table: Stream, where: str, fact: str) -> InputError:
    """Return the error for a static table that cannot be used."""
    return InputError(
        "E0712",
        f"table `{table.name}` cannot be used: {fact} ({where})",
        "a static table is taken as a whole; repair it, or leave the row out",
    )
