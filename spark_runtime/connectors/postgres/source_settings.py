"""The settings of a source of format `postgres`. Only for the driver; reading them does not need psycopg."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cep.errors import InputError
from cep.settings import declared
from cep.settings.declared import Declared, Wrong
from cep.settings.settings import Settings
from spark_runtime.connectors.postgres.connection_settings import EXTRA, PACKAGE, Access, table_place
from spark_runtime.connectors.postgres.reading import (
    BEFORE,
    COMMIT_TIME,
    COPY,
    METADATA,
    NOW,
    PostgresReading,
)
from spark_runtime.connectors.postgres.source import PostgresSource
from spark_runtime.sinks.place import Place
from spark_runtime.sources.columns import ColumnWords, columns_of, require_columns
from spark_runtime.sources.protocol import Source
from spark_runtime.sources.spec import SourceContext, SourceSpec, SourceType

_SLOT = re.compile(r"[a-z0-9_]{1,63}")
_NOUN = "a change"
_COLUMNS = ColumnWords(_NOUN, METADATA, BEFORE, f"{BEFORE}COLUMN")


_NO_SLOT = Wrong(
    "`{}` cannot be the name of a slot", "not a name of a slot", "write up to 63 small letters, digits and _"
)


def _tables(settings: Settings, name: str) -> tuple[str, ...]:
    """Return schema and name of each table."""
    found = settings.names(name) or ()
    return tuple(dict.fromkeys(table if "." in table else f"public.{table}" for table in found))


@dataclass(frozen=True, slots=True)
class PostgresSpec(Access):
    """Tables of a database; see `PostgresReading`."""

    tables: tuple[str, ...] = declared.own(_tables, (), required=True)
    slot: str = declared.text("", valid=_SLOT.fullmatch, wrong=_NO_SLOT)
    publication: str = declared.text("")  # empty: named like the slot
    begin: str = declared.choice((COPY, NOW), name="from")
    creates: bool = declared.flag(True, name="create")
    columns: dict[str, str] = declared.own(lambda settings, _: columns_of(settings, _COLUMNS), {})
    max_events: int | None = declared.integer(None, at_least=1, name="max_events_per_trigger")
    max_bytes: int | None = declared.integer(None, at_least=1, name="max_bytes_per_trigger")
    nulls_unchanged: bool = declared.choice({"dead_letter": False, "null": True}, name="on_unchanged")

    @property
    def place(self) -> str:
        """The tables and the slot. The address of the server may change; the slot identifies its log."""
        return f"{','.join(self.tables)} by {self.slot}"

    def reads(self, place: Place) -> bool:
        """Return whether a place is one of the tables."""
        tables = (table.partition(".")[::2] for table in self.tables)
        return any(table_place(self.connection, *names).name == place.name for names in tables)

    def open(self, context: SourceContext) -> Source:
        """Return the source."""
        require_columns(self.columns, context.stream, _NOUN, {COMMIT_TIME: "commit time"})
        if context.is_stream and not self.slot:
            raise InputError(
                "E0843",
                f"the source of stream `{context.stream.name}` has no `slot`",
                "name a replication slot that no other pipeline has; only mode: batch needs none",
            )
        return PostgresSource(
            PostgresReading(
                stream=context.stream,
                connection=self.connection,
                tables=self.tables,
                slot=self.slot if context.is_stream else "",
                publication=(self.publication or self.slot) if context.is_stream else "",
                begin=self.begin,
                creates=self.creates,
                keys=context.keys,
                columns=self.columns,
                max_events=self.max_events,
                max_bytes=self.max_bytes,
                nulls_unchanged=self.nulls_unchanged,
                log=context.log,
            )
        )

    def checked(self, settings: Settings) -> PostgresSpec:
        """Return the spec; report settings that exclude each other."""
        if self.begin == COPY and not self.creates:
            settings.problem(
                "E0843",
                "`from: copy` and `create: false` together",
                "create",
                "a copy needs the moment at which its slot is made",
                "say from: now, which begins where the slot stands, or create: true",
            )
        return self


class _OfSlot(Declared[SourceSpec]):
    """Its position is also that of a replication slot, which only moves forward."""

    bound_by = "its replication slot keeps the log only from the last position of this checkpoint on"


POSTGRES: SourceType = _OfSlot(PostgresSpec, PostgresSpec.checked, package=PACKAGE, extra=EXTRA)
