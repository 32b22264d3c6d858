"""The settings that all logs of messages share. On the driver only."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import yaml

from cep.errors import InputError
from cep.formats.payloads.registry import payload_format
from cep.formats.protocol import FormatWithColumns, RecordFormat
from cep.schema.stream import Stream
from cep.schema.time_literals import parse_timestamp
from cep.settings.settings import Settings
from spark_runtime.connectors.message_logs.log import HEADER, MessageLog
from spark_runtime.connectors.message_logs.options import Options
from spark_runtime.connectors.message_logs.reading import EARLIEST, LATEST, Begin, MessageReading
from spark_runtime.connectors.message_logs.source import MessageSource
from spark_runtime.connectors.message_logs.value_settings import value_format
from spark_runtime.sources.columns import ColumnWords, columns_of, require_columns
from spark_runtime.sources.spec import SourceContext

SHARED = ("from", "value", "columns", "max_events_per_trigger", "on_lost")
"""Their names."""

_NOUN = "a message"
_TIMES = {"timestamp": "timestamp", "commit_time": "commit time"}

TOMBSTONES = "tombstones"
"""A setting of logs whose messages may have no value."""

PASS_OVER, DEAD_LETTER, DELETE = "pass_over", "dead_letter", "delete"
"""What messages without a value are."""


@dataclass(frozen=True, slots=True)
class MessageSpec:
    """A log, and how it is read; see `SourceSpec` and `MessageReading`.

    Parameters
    ----------
    place
        What a checkpoint belongs to: the log, without the addresses of its servers.
    """

    place: str
    log: MessageLog
    begin: Begin = field(hash=False)
    value_format: RecordFormat
    columns: dict[str, str] = field(hash=False)
    max_events: int | None
    goes_on_without: bool
    has_dead_tombstones: bool = False
    deletes: bool = False

    def formatted(self, stream: Stream) -> tuple[RecordFormat, dict[str, str]]:
        """Return the format of the values, with the columns that it has a word for, and the other columns.

        Raises
        ------
        InputError
            The stream does not have the columns, or not in types that they can be of.
        """
        require_columns(self.columns, stream, _NOUN, _TIMES)
        if not isinstance(self.value_format, FormatWithColumns):
            return self.value_format, self.columns
        own = {name: what for name, what in self.columns.items() if self.value_format.has_word(what)}
        columns = {name: what for name, what in self.columns.items() if name not in own}
        return self.value_format.with_columns(own), columns

    def open(self, context: SourceContext) -> MessageSource:
        """Return the source."""
        if self.deletes:
            _require_key(self.columns, context.stream)
        value_format, columns = self.formatted(context.stream)
        return MessageSource(
            MessageReading(
                stream=context.stream,
                log=self.log,
                begin=self.begin,
                value_format=value_format,
                keys=context.keys,
                columns=columns,
                max_events=self.max_events,
                goes_on_without=self.goes_on_without,
                has_dead_tombstones=self.has_dead_tombstones,
                deletes=self.deletes,
                start_file=context.log,
            )
        )


def message_spec(
    settings: Settings,
    place: str,
    log: MessageLog,
    metadata: Sequence[str],
    names: PositionNames | None,
    *,
    has_headers: bool = False,
) -> MessageSpec:
    """Return the spec of a log; problems are noted in `settings`.

    Parameters
    ----------
    metadata
        What may be a column besides the value. With ``headers``, so may be each header.
    has_headers
        Whether each header may be a column also without ``headers``.
    names
        How `from` names partitions; None: positions cannot be given.
    """
    value = value_format(settings) or payload_format("json")
    tombstones = settings.word(TOMBSTONES, (PASS_OVER, DEAD_LETTER, DELETE), PASS_OVER)
    return MessageSpec(
        place=place,
        log=log,
        begin=_begin(settings, names),
        value_format=value,
        columns=columns_of(
            settings,
            _words(
                metadata,
                value if isinstance(value, FormatWithColumns) else None,
                has_headers=has_headers or "headers" in metadata,
            ),
        ),
        max_events=settings.positive("max_events_per_trigger"),
        goes_on_without=settings.word("on_lost", ("fail", "go_on"), "fail") == "go_on",
        has_dead_tombstones=tombstones == DEAD_LETTER,
        deletes=tombstones == DELETE,
    )


@dataclass(frozen=True, slots=True)
class PositionNames:
    """How `from` names partitions and their positions.

    Parameters
    ----------
    example
        What to write: ``offsets: {0: 100, 1: 250}``.
    origin
        The partition that a name means, as the log names it; None: it is unclear, or none.
    problem
        What is unclear, and what to write.
    """

    example: str
    origin: Callable[[str], str | None]
    problem: tuple[str, str]


def names_of(settings: Settings, name: str) -> tuple[str, ...]:
    """Return a text or a list of texts, each once; it is a problem if it is missing."""
    node = settings.found.get(name)
    if node is None:
        settings.text(name)  # notes that it is missing
        return ()
    return tuple(dict.fromkeys(text for text, _ in settings.document.texts(node, f"`{name}`") or []))


def options_of(settings: Settings, names: Sequence[str]) -> Options:
    """Return the options of a client, some of `names`. `${NAME}` in them is not replaced here."""
    node = settings.found.get("options")
    entries = [] if node is None else settings.document.mapping(node, "`options`") or []
    found = []
    for entry in entries:
        if entry.name not in names:
            settings.document.problem(
                "E0841",
                f"there is no option `{entry.name}`",
                entry.value,
                "not known",
                f"write {', '.join(names)}",
            )
        elif not isinstance(entry.value, yaml.ScalarNode):
            settings.document.text(entry.value, f"`{entry.name}`")  # notes that it is no text
        else:
            found.append((entry.name, str(entry.value.value)))
    return Options(tuple(sorted(found)))


def _begin(settings: Settings, names: PositionNames | None) -> Begin:
    """Return where a stream begins."""
    node = settings.found.get("from")
    if node is None:
        return EARLIEST
    if isinstance(node, yaml.MappingNode) and names is not None:
        return _positions(settings, node, names)
    text = settings.document.text(node, "`from`")
    if text is None or text in (EARLIEST, LATEST):
        return text or EARLIEST
    at_us = parse_timestamp(text)
    if at_us is None:
        time = "a time such as 2024-05-01T12:00:00Z"
        settings.document.problem(
            "E0841",
            f"`from` cannot be `{text}`",
            node,
            "not known",
            f"write earliest, latest or {time}"
            if names is None
            else f"write earliest, latest, {time}, or {names.example}",
        )
        return EARLIEST
    return at_us


def _positions(settings: Settings, node: yaml.MappingNode, names: PositionNames) -> dict[str, int]:
    found = {}
    for entry in settings.document.mapping(node, "`from`") or []:
        position = settings.document.integer(entry.value, f"`{entry.name}`")
        name = names.origin(entry.name)
        if name is None:
            label, help_text = names.problem
            label = label if entry.name.isdecimal() else "not known"
            settings.document.problem(
                "E0841", f"`{entry.name}` is no partition", entry.value, label, help_text
            )
        elif position is not None:
            found[name] = position
    return found


def numbered(logs: Sequence[str], noun: str) -> PositionNames:
    """Return how `from` names numbered partitions: by number if there is one log, else ``orders[0]``."""

    def origin(name: str) -> str | None:
        if name.isdecimal() and len(logs) == 1:
            return f"{logs[0]}[{name}]"
        return name if re.fullmatch(r".+\[\d+\]", name) else None

    problem = (f"of which {noun}?", f"write {noun} and number: {{orders[0]: 100}}")
    return PositionNames("offsets: {0: 100, 1: 250}", origin, problem)


def _words(metadata: Sequence[str], value: FormatWithColumns | None, *, has_headers: bool) -> ColumnWords:
    """Return what may be a column besides the value; the format of the value may have more."""
    return ColumnWords(
        _NOUN,
        metadata,
        HEADER if has_headers else "",
        f"{HEADER}NAME" if has_headers else "",
        () if value is None else value.words,
        (lambda word: False) if value is None else value.has_word,
    )


def _require_key(columns: dict[str, str], stream: Stream) -> None:
    """Raise InputError unless messages without a value say which row of a table they delete, and when."""
    if stream.table is None or stream.table.op is None:
        raise InputError(
            "E0843",
            f"`tombstones: {DELETE}`, and `{stream.name}` is no table with a column `op`",
            f"write {PASS_OVER} or {DEAD_LETTER}; or declare the table with `op`",
        )
    missing = [name for name in (*stream.table.key, stream.event_time) if name not in columns]
    if missing:
        raise InputError(
            "E0843",
            f"`tombstones: {DELETE}`, and a message without a value has no `{missing[0]}` of "
            f"table `{stream.name}`",
            f"take the key and the event time from the message: columns: {{key: {stream.table.key[0]}, "
            f"timestamp: {stream.event_time}}}",
        )
