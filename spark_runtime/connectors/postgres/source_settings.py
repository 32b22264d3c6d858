"""The settings of a source of format `postgres`. On the driver only; psycopg is not needed to read them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from cep.errors import InputError
from cep.settings.settings import Settings
from spark_runtime.connectors.postgres.connection import Connection
from spark_runtime.connectors.postgres.connection_settings import CONNECTION, connection_of
from spark_runtime.connectors.postgres.reading import (
    BEFORE,
    COMMIT_TIME,
    COPY,
    METADATA,
    NOW,
    PostgresReading,
)
from spark_runtime.connectors.postgres.source import PostgresSource
from spark_runtime.sources.columns import ColumnWords, columns_of, require_columns
from spark_runtime.sources.protocol import Source
from spark_runtime.sources.spec import SourceContext, SourceSpec, SourceType

_SLOT = re.compile(r"[a-z0-9_]{1,63}")
_ON_UNCHANGED = ("dead_letter", "null")
_NOUN = "a change"
_COLUMNS = ColumnWords(_NOUN, METADATA, BEFORE, f"{BEFORE}COLUMN")


class _PostgresType:
    """See `SourceType`."""

    settings = (
        *CONNECTION,
        "tables",
        "slot",
        "publication",
        "from",
        "create",
        "columns",
        "max_events_per_trigger",
        "max_bytes_per_trigger",
        "on_unchanged",
    )

    def spec(self, settings: Settings) -> SourceSpec | None:
        """Return the spec, or None if a problem was noted."""
        before = len(settings.document.diagnostics)
        settings.require_package("psycopg", "postgres")
        connection = connection_of(settings)
        slot = _slot(settings)
        spec = PostgresSpec(
            connection=connection or Connection(()),
            tables=_tables(settings),
            slot=slot,
            publication=(settings.text("publication") if "publication" in settings else None) or slot,
            begin=settings.word("from", (COPY, NOW), COPY),
            creates=_creates(settings),
            columns=columns_of(settings, _COLUMNS),
            max_events=settings.positive("max_events_per_trigger"),
            max_bytes=settings.positive("max_bytes_per_trigger"),
            nulls_unchanged=settings.word("on_unchanged", _ON_UNCHANGED, _ON_UNCHANGED[0]) == "null",
        )
        if spec.begin == COPY and not spec.creates:
            settings.document.problem(
                "E0843",
                "`from: copy` and `create: false` together",
                settings.found["create"],
                "a copy needs the moment at which its slot is made",
                "say from: now, which begins where the slot stands, or create: true",
            )
        return spec if len(settings.document.diagnostics) == before else None


@dataclass(frozen=True, slots=True)
class PostgresSpec:
    """Tables of a database; see `PostgresReading`."""

    connection: Connection
    tables: tuple[str, ...]
    slot: str
    publication: str
    begin: str
    creates: bool
    columns: dict[str, str] = field(hash=False)
    max_events: int | None
    max_bytes: int | None
    nulls_unchanged: bool

    @property
    def place(self) -> str:
        """The tables and the slot. The server may get another address; the slot knows its own log."""
        return f"{','.join(self.tables)} by {self.slot}"

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
                publication=self.publication if context.is_stream else "",
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


def _tables(settings: Settings) -> tuple[str, ...]:
    """Return schema and name of each table."""
    node = settings.found.get("tables")
    if node is None:
        settings.text("tables")  # notes that it is missing
        return ()
    texts = settings.document.texts(node, "`tables`") or []
    return tuple(dict.fromkeys(text if "." in text else f"public.{text}" for text, _ in texts))


def _slot(settings: Settings) -> str:
    node = settings.found.get("slot")
    text = None if node is None else settings.document.text(node, "`slot`")
    if node is None or text is None:
        return ""
    if _SLOT.fullmatch(text) is None:
        settings.document.problem(
            "E0402",
            f"`{text}` cannot be the name of a slot",
            node,
            "not a name of a slot",
            "write up to 63 small letters, digits and _",
        )
    return text


def _creates(settings: Settings) -> bool:
    node = settings.found.get("create")
    return node is None or settings.document.boolean(node, "`create`") is not False


POSTGRES: SourceType = _PostgresType()
