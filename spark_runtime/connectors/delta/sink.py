"""Writes a Delta table: each micro-batch is one commit, which also contains its number. Only for the driver.

The number is the version of an application transaction with the name of the stream. So a micro-batch that is
repeated after a crash finds its number in the table's log and is skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from cep.errors import InputError
from cep.write_errors import require_folder
from spark_runtime.sinks.protocol import Collected, Guarantee, Mark, MicroBatch, Output
from spark_runtime.sources.secrets import all_replaced, without_secrets
from spark_runtime.wire.plan import IDENTITY_DIGITS


@dataclass(slots=True)
class DeltaSink:
    """A Delta table; see `TableSink`.

    `partition_by`: the columns by which its files are partitioned; it may be empty if the table exists.
    """

    output: Output
    path: str
    partition_by: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    _table: Any = field(default=None, repr=False)  # deltalake.DeltaTable
    _is_written: bool = False  # whether an earlier run has committed the micro-batch
    _rows: pa.Table | None = field(default=None, repr=False)  # of the micro-batch

    guarantee = Guarantee.EXACTLY_ONCE

    def check(self) -> None:
        """Create the table if it is missing; raise InputError if it does not fit."""
        for name in self.partition_by:
            self._require_partition(name)
        if self._is_local:
            require_folder(self.path, f"_probe-{os.getpid()}")
        with self._said():
            self._table = self._there()
            if self._table is None:
                self._make()
        self._require_columns()

    def last(self, run: str) -> Mark | None:
        """Return the micro-batch that the last commit of the stream recorded."""
        with self._said():
            self._table.update_incremental()
            number = self._table.transaction_version(self._name(run))
            plan = self._table.transaction_version(self._plan_name(run))
        if number is None:
            return None
        digits = "" if plan is None else f"{plan:0{IDENTITY_DIGITS}x}"
        return Mark(f"the Delta table `{self.path}`", number, digits)

    def begin(self, batch: MicroBatch) -> None:
        """Find out whether the micro-batch was written."""
        self._rows = None
        known = None if batch.run is None else self.last(batch.run)
        self._is_written = known is not None and known.is_of(batch)
        if batch.run is None:
            with self._said():
                self._table.update_incremental()

    def write_rows(self, batch: MicroBatch, rows: Collected) -> None:
        """Keep the rows, which `commit` writes."""
        if rows.n_rows and not self._is_written:
            self._rows = pa.concat_tables(rows.tables())

    def commit(self, batch: MicroBatch) -> None:
        """Write and commit the rows, with the number of the micro-batch; without rows, do nothing."""
        from deltalake import CommitProperties, Transaction, write_deltalake

        rows, self._rows = self._rows, None
        if rows is None:
            return
        noted = [] if batch.run is None else [Transaction(self._name(batch.run), batch.number)]
        if batch.run is not None and batch.plan:
            noted.append(Transaction(self._plan_name(batch.run), int(batch.plan, 16)))
        with self._said():
            write_deltalake(
                self._table,
                self._as_there(rows),
                mode="append",
                commit_properties=CommitProperties(app_transactions=noted),
            )

    def close(self) -> None:
        """Do nothing: each commit is complete by itself."""

    def _name(self, run: str) -> str:
        """Return the name of the application transaction: the same for all runs of a stream."""
        return f"cep-{run}-{self.output.kind}"

    def _plan_name(self, run: str) -> str:
        """Return the name of the transaction whose version is the plan of the micro-batch."""
        return f"{self._name(run)}-plan"

    # ------------------------------------------------------------ before anything runs

    @property
    def _is_local(self) -> bool:
        return "://" not in self.path

    def _there(self) -> Any:
        """Return the table, or None if it is missing."""
        from deltalake import DeltaTable

        options = all_replaced(self.options)
        is_there = DeltaTable.is_deltatable(self.path, options)
        return DeltaTable(self.path, storage_options=options) if is_there else None

    def _make(self) -> None:
        from deltalake import DeltaTable, Schema

        if self._is_local and any(Path(self.path).iterdir()):
            raise InputError(
                "E0872",
                f"`{self.path}` has files and is no Delta table",
                "name an empty folder, or the folder of a Delta table",
            )
        options = all_replaced(self.options)
        self._table = DeltaTable.create(
            self.path,
            Schema.from_arrow(self.output.schema),
            mode="ignore",  # another pipeline may have created it meanwhile
            partition_by=list(self.partition_by),
            storage_options=options,
        )

    def _require_partition(self, name: str) -> None:
        schema = self.output.schema
        if name in schema.names and not pa.types.is_nested(schema.field(name).type):
            return
        why = "is a list or an event" if name in schema.names else "is not there"
        raise InputError(
            "E0873",
            f"`partition_by` names the column `{name}`, which {why}",
            f"name some of these: {', '.join(schema.names)}",
        )

    def _require_columns(self) -> None:
        from deltalake import Schema

        there = {item.name: item for item in self._table.schema().fields}
        for item in Schema.from_arrow(self.output.schema).fields:
            found = there.pop(item.name, None)
            if found is None:
                raise self._misfit(f"has no column `{item.name}`")
            if found.type != item.type:
                raise self._misfit(
                    f"has a column `{item.name}` of type {_word(found.type)}, "
                    f"its values are of type {_word(item.type)}"
                )
        for item in there.values():
            if not item.nullable:
                raise self._misfit(f"has a column `{item.name}` that must have a value, and gets none")
        parts = tuple(self._table.metadata().partition_columns)
        if self.partition_by and self.partition_by != parts:
            raise self._misfit(f"is partitioned by {', '.join(parts) or 'nothing'}")

    def _misfit(self, what: str) -> InputError:
        return InputError("E0873", f"the Delta table `{self.path}` {what}", "name another `path`")

    def _as_there(self, rows: pa.Table) -> pa.Table:
        """Return rows with NULL in the columns that exist only in the table."""
        schema = pa.schema(self._table.schema().to_arrow())
        columns = [
            rows.column(item.name) if item.name in rows.column_names else pa.nulls(len(rows), item.type)
            for item in schema
        ]
        return pa.table(columns, names=schema.names)

    @contextmanager
    def _said(self) -> Iterator[None]:
        """Turn an error of deltalake into one that a user can act on."""
        from deltalake.exceptions import CommitFailedError, DeltaError

        try:
            yield
        except CommitFailedError as error:
            raise InputError(
                "E0879",
                f"the Delta table `{self.path}` does not take a commit: {self._shown(error)}",
                "one run at a time works on a checkpoint; the next run continues with this micro-batch",
            ) from error
        except (DeltaError, OSError, ValueError) as error:
            raise InputError(
                "E0872",
                f"`{self.path}` cannot be read or written as a Delta table: {self._shown(error)}",
                "check `path`, `options` and the rights of this user",
            ) from error

    def _shown(self, error: Exception) -> str:
        return without_secrets(error, [value for _, value in self.options])[:500]


def _word(kind: Any) -> str:
    """Return the name of a type of Delta."""
    return str(getattr(kind, "type", kind))
