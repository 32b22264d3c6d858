"""The settings of a source of format `spool`. Only for the driver."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cep.errors import InputError
from cep.formats.registry import record_formats
from cep.settings import declared
from cep.settings.declared import Declared, Wrong
from cep.settings.settings import Settings
from spark_runtime.connectors.spool.reading import EARLIEST, HEADER, LATEST, METADATA, SpoolReading
from spark_runtime.connectors.spool.source import SpoolSource
from spark_runtime.event_time.partitions import PER_FILE, PER_SOURCE, check_watermark_per
from spark_runtime.sources.columns import ColumnWords, columns_of, require_columns
from spark_runtime.sources.protocol import Source
from spark_runtime.sources.spec import SourceContext, SourceType

_NOUN = "a message"
_TIMES = {"received": "time of receipt"}
_COLUMNS = ColumnWords(_NOUN, METADATA, HEADER, f"{HEADER}NAME")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


_NOT_LOCAL = Wrong(
    "a spool lies on a disk that Python can read",
    "not a local path",
    "name the folder that `cep spool` writes",
    "E0843",
)
_NO_NAME = Wrong(
    "`reader` cannot be `{}`", "not the name of a file", "write letters, digits, `.`, `_` and `-`"
)


def _format(settings: Settings, name: str) -> str | None:
    return settings.word(name, record_formats())


@dataclass(frozen=True, slots=True)
class SpoolSpec:
    """A spool; see `SpoolReading`."""

    path: str = declared.path(valid=lambda path: "://" not in path, wrong=_NOT_LOCAL)
    begin: str = declared.choice((EARLIEST, LATEST), name="from")
    value_format: str = declared.own(_format, "json", name="value")
    columns: dict[str, str] = declared.own(lambda settings, _: columns_of(settings, _COLUMNS), {})
    max_events: int | None = declared.integer(None, at_least=1, name="max_events_per_trigger")
    goes_on_without: bool = declared.choice({"fail": False, "go_on": True}, name="on_lost")
    reader: str = declared.text("", valid=_NAME.fullmatch, wrong=_NO_NAME)
    watermark_per: str = declared.text(PER_SOURCE)

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


SPOOL: SourceType = Declared(SpoolSpec)
