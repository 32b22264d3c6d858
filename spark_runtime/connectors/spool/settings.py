"""The settings of a source of format `spool`. On the driver only."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from cep.errors import InputError
from cep.formats.registry import record_formats
from cep.settings.settings import Settings
from spark_runtime.connectors.spool.reading import EARLIEST, HEADER, LATEST, METADATA, SpoolReading
from spark_runtime.connectors.spool.source import SpoolSource
from spark_runtime.event_time.partitions import PER_FILE, PER_SOURCE, check_watermark_per
from spark_runtime.sources.columns import ColumnWords, columns_of, require_columns
from spark_runtime.sources.protocol import Source
from spark_runtime.sources.spec import SourceContext, SourceSpec, SourceType

_NOUN = "a message"
_TIMES = {"received": "time of receipt"}
_COLUMNS = ColumnWords(_NOUN, METADATA, HEADER, f"{HEADER}NAME")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class _SpoolType:
    """See `SourceType`."""

    settings = (
        "path",
        "from",
        "value",
        "columns",
        "max_events_per_trigger",
        "on_lost",
        "reader",
        "watermark_per",
    )

    def spec(self, settings: Settings) -> SourceSpec | None:
        """Return the spec, or None if a problem was noted."""
        before = len(settings.document.diagnostics)
        path = settings.path("path")
        if path is not None and "://" in path:
            settings.document.problem(
                "E0843",
                "a spool lies on a disk that Python can read",
                settings.found["path"],
                "not a local path",
                "name the folder that `cep spool` writes",
            )
        spec = SpoolSpec(
            path=path or "",
            begin=settings.word("from", (EARLIEST, LATEST), EARLIEST),
            value_format=settings.word("value", record_formats(), "json"),
            columns=columns_of(settings, _COLUMNS),
            max_events=settings.positive("max_events_per_trigger"),
            goes_on_without=settings.word("on_lost", ("fail", "go_on"), "fail") == "go_on",
            reader=_reader(settings),
            watermark_per=settings.text("watermark_per") or "" if "watermark_per" in settings else PER_SOURCE,
        )
        return spec if len(settings.document.diagnostics) == before else None


@dataclass(frozen=True, slots=True)
class SpoolSpec:
    """A spool; see `SpoolReading`."""

    path: str
    begin: str
    value_format: str
    columns: dict[str, str] = field(hash=False)
    max_events: int | None
    goes_on_without: bool
    reader: str
    watermark_per: str

    @property
    def place(self) -> str:
        """The path."""
        return self.path

    def open(self, context: SourceContext) -> Source:
        """Return the source."""
        stream = context.stream
        require_columns(self.columns, stream, _NOUN, _TIMES)
        if self.watermark_per == PER_FILE:
            raise InputError(
                "E0841",
                f"`watermark_per` of stream `{stream.name}` cannot be `{PER_FILE}`: a spool is in one order",
                f"write {PER_SOURCE}, or a column of the stream",
            )
        check_watermark_per(self.watermark_per, stream)
        if context.is_stream and not context.log:
            raise InputError(
                "E0843",
                f"stream `{stream.name}` reads a spool, and its checkpoint is not on a local disk",
                "name a local folder for `checkpoint`",
            )
        return SpoolSource(
            SpoolReading(
                stream=stream,
                folder=self.path,
                begin=self.begin,
                value_format=self.value_format,
                keys=context.keys,
                columns=self.columns,
                max_events=self.max_events,
                reader=self.reader,
                goes_on_without=self.goes_on_without,
                watermark_per=self.watermark_per,
                log=context.log if context.is_stream else "",
            )
        )


def _reader(settings: Settings) -> str:
    """Return the name under which the pipeline registers."""
    if "reader" not in settings:
        return ""
    name = settings.text("reader") or ""
    if name and not _NAME.fullmatch(name):
        settings.document.problem(
            "E0402",
            f"`reader` cannot be `{name}`",
            settings.found["reader"],
            "not the name of a file",
            "write letters, digits, `.`, `_` and `-`",
        )
    return name


SPOOL: SourceType = _SpoolType()
