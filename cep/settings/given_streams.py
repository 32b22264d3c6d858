"""Streams that a program declares itself: the checks of the streams file that the types do not do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from cep.arguments import wrong_argument
from cep.diagnostics.diagnostic import did_you_mean
from cep.errors import Diagnostic, InputError, RuleError
from cep.expression import Type
from cep.schema.stream import (
    DDL_TYPES,
    UNITS,
    CsvLayout,
    DeviceClock,
    Field,
    Stream,
    TableSettings,
    canonical_ddl,
)
from cep.schema.time_formats import ZONE_ADVICE, FormatError, read_format, zones

_NONE = type(None)
_OF_STREAM: Mapping[str, tuple[type, ...]] = {
    "name": (str,),
    "event_time": (str,),
    "lateness_us": (int,),
    "min_valid_us": (int,),
    "max_valid_us": (int,),
    "max_ahead_us": (int,),
    "deduplicate": (bool,),
    "csv": (CsvLayout,),
    "device_clock": (DeviceClock, _NONE),
    "table": (TableSettings, _NONE),
}
"""Setting of a stream -> its types."""
_OF_FIELD: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("name", "ddl", "unit", "format", "zone"), (str,)),
    **dict.fromkeys(("path", "element"), (tuple,)),
}
"""Setting of a column -> its types."""


def sound_streams(streams: Mapping[Any, Stream]) -> Mapping[str, Stream]:
    """Return streams that a program declares, by name.

    Raises InputError: a setting is of another type (E0827). RuleError: settings have values that a streams
    file cannot give them; the error has every problem of all streams.
    """
    for name, stream in streams.items():
        _require_types(stream)
        if name != stream.name:
            raise InputError(
                "E0827",
                f"streams has the stream `{stream.name}` as {name!r}",
                f"give it under its own name: {{{stream.name!r}: ...}}",
            )
    if problems := list(chain.from_iterable(map(_problems, streams.values()))):
        raise RuleError(problems)
    return streams


def _require_types(stream: Stream) -> None:
    where = f"stream {stream.name!r}"
    _require_kinds(stream, _OF_STREAM, where)
    for name, kind in {"fields": Field, "tie_break": str}.items():
        value = getattr(stream, name)
        if not isinstance(value, tuple) or not all(isinstance(item, kind) for item in value):
            raise wrong_argument(f"`{name}` of {where}", value, f"a tuple of {kind.__name__}")
    for field in stream.fields:
        _require_kinds(field, _OF_FIELD, f"column {field.name!r} of {where}")


def _require_kinds(of: Stream | Field, kinds: Mapping[str, tuple[type, ...]], where: str) -> None:
    for name, allowed in kinds.items():
        value = getattr(of, name)
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            raise wrong_argument(f"`{name}` of {where}", value, f"a value of type {allowed[0].__name__}")


@lru_cache(maxsize=1024)
def _problems(stream: Stream) -> Sequence[Diagnostic]:
    return tuple(_found(stream))


def _found(stream: Stream) -> Iterator[Diagnostic]:
    names = [field.name for field in stream.fields]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Diagnostic("E0405", f"{_of(stream)} has the column `{name}` twice", help="remove one of them")
    if not names:
        yield Diagnostic(
            "E0404", f"{_of(stream)} has no column", help="add columns: Field('ts', 'timestamp')"
        )
    for field in stream.fields:
        yield from _of_field(stream, field)
    settings = [] if stream.is_static else [("event_time", stream.event_time)]
    settings += [("tie_break", name) for name in stream.tie_break]
    if stream.table is not None:
        settings += [("key", name) for name in stream.table.key]
        settings += [] if stream.table.op is None else [("op", stream.table.op)]
    if stream.device_clock is not None:
        settings += [("device_clock", name) for name in stream.device_clock.columns]
    for setting, name in settings:
        column = stream.field(name)
        if column is None:
            fact = f"`{setting}` of {_of(stream)} names `{name}`, which is not one of its columns"
            yield Diagnostic("E0407", fact, help=did_you_mean(name, names, "columns"))
        elif setting == "event_time" and column.ddl != "timestamp":
            fact = f"the event time `{name}` of {_of(stream)} is {column.ddl}, not timestamp"
            yield Diagnostic("E0408", fact, help="declare it as timestamp, or name another column")
        elif column.type is Type.OPAQUE:
            fact = f"`{setting}` of {_of(stream)} names `{name}`, which is {column.ddl}"
            yield Diagnostic("E0402", fact, help="name columns of single values")
    if min(stream.lateness_us, stream.max_ahead_us) < 0:
        fact = f"`lateness_us` or `max_ahead_us` of {_of(stream)} is negative"
        yield Diagnostic("E0409", fact, help="give a number of microseconds from 0")
    if stream.min_valid_us >= stream.max_valid_us:
        fact = f"`min_valid_us` of {_of(stream)} is not before `max_valid_us`"
        yield Diagnostic("E0410", fact, help="give two points in time, the earlier one first")


def _of_field(stream: Stream, field: Field) -> Iterator[Diagnostic]:
    where = f"column `{field.name}` of {_of(stream)}"
    ddl = canonical_ddl(field.ddl)
    if ddl != field.ddl:
        help_text = did_you_mean(field.ddl, DDL_TYPES, "types") if ddl is None else f"write {ddl}"
        yield Diagnostic("E0406", f"{where}: there is no column type `{field.ddl}`", help=help_text)
    if field.unit and field.unit not in UNITS:
        help_text = did_you_mean(field.unit, UNITS, "units")
        yield Diagnostic("E0420", f"{where}: there is no unit `{field.unit}`", help=help_text)
    if field.zone and field.zone not in zones():
        yield Diagnostic(
            "E0417", f"{where}: there is no time zone `{field.zone}`", help=f"write {ZONE_ADVICE}"
        )
    try:
        if field.format:
            read_format(field.format)
    except FormatError as error:
        yield Diagnostic("E0419", f"{where}: {error.problem}", help=error.help)


def _of(stream: Stream) -> str:
    return f"{'stream' if stream.table is None else 'table'} `{stream.name}`"
