"""The settings that all logs of messages share. On the driver only."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec

import yaml

from cep.errors import InputError
from cep.expression import Type
from cep.formats.payloads.registry import payload_format
from cep.formats.protocol import FormatWithColumns, RecordFormat
from cep.schema.stream import Stream
from cep.schema.time_literals import parse_timestamp
from spark_runtime.settings import Settings
from spark_runtime.sources.messages.log import HEADER, MessageLog
from spark_runtime.sources.messages.options import Options
from spark_runtime.sources.messages.reading import EARLIEST, LATEST, Begin, MessageReading
from spark_runtime.sources.messages.source import MessageSource
from spark_runtime.sources.messages.value_settings import value_format
from spark_runtime.sources.spec import SourceContext

SHARED = ("from", "value", "columns", "max_events_per_trigger", "on_lost")
"""Their names."""

TOMBSTONES = "tombstones"
"""A setting of logs whose messages may have no value."""


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

    def open(self, context: SourceContext) -> MessageSource:
        """Return the source."""
        _require_columns(self.columns, context.stream)
        value_format, columns = self.value_format, self.columns
        if isinstance(value_format, FormatWithColumns):
            own = {name: what for name, what in columns.items() if value_format.has_word(what)}
            columns = {name: what for name, what in columns.items() if name not in own}
            value_format = value_format.with_columns(own)
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
                start_file=context.log,
            )
        )


def message_spec(
    settings: Settings,
    place: str,
    log: MessageLog,
    metadata: Sequence[str],
    names: PositionNames | None,
) -> MessageSpec:
    """Return the spec of a log; problems are noted in `settings`.

    Parameters
    ----------
    metadata
        What may be a column besides the value. With ``headers``, so may be each header.
    names
        How `from` names partitions; None: positions cannot be given.
    """
    value = value_format(settings) or payload_format("json")
    return MessageSpec(
        place=place,
        log=log,
        begin=_begin(settings, names),
        value_format=value,
        columns=_columns(settings, metadata, value if isinstance(value, FormatWithColumns) else None),
        max_events=settings.positive("max_events_per_trigger"),
        goes_on_without=settings.word("on_lost", ("fail", "go_on"), "fail") == "go_on",
        has_dead_tombstones=settings.word(TOMBSTONES, ("pass_over", "dead_letter"), "pass_over")
        == "dead_letter",
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


def options_of(settings: Settings, names: Sequence[str], secret: Sequence[str]) -> Options:
    """Return the options of a client. `${NAME}`, a variable of the environment, is not replaced here.

    Parameters
    ----------
    names
        The options that there are.
    secret
        Those whose values no message shows.
    """
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
    return Options(tuple(sorted(found)), tuple(secret))


def has_package(settings: Settings, package: str, extra: str) -> bool:
    """Return whether a package is installed; if not, it is a problem of the pipeline file."""
    if find_spec(package) is not None:
        return True
    name = settings.found["format"]
    assert isinstance(name, yaml.ScalarNode)
    settings.document.problem(
        "E0683",
        f"{settings.what} of format {name.value} needs the package `{package}`, which is not installed",
        name,
        "cannot be used",
        f"pip install 'spark-cep[{extra}]'",
    )
    return False


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


def _columns(settings: Settings, metadata: Sequence[str], value: FormatWithColumns | None) -> dict[str, str]:
    """Return what is a column besides the value, by the name of the column."""
    node = settings.found.get("columns")
    if node is None:
        return {}
    has_headers = "headers" in metadata
    found: dict[str, str] = {}
    for entry in settings.document.mapping(node, "`columns`") or []:
        column = settings.document.text(entry.value, f"`{entry.name}`")
        is_word = value is not None and value.has_word(entry.name)
        if not is_word and entry.name not in metadata and not (has_headers and entry.name.startswith(HEADER)):
            others = f" or {HEADER}NAME" if has_headers else ""
            others = f", {', '.join(value.words)}{others}" if value is not None else others
            settings.document.problem(
                "E0841",
                f"a message has no `{entry.name}`",
                entry.value,
                "not known",
                f"write {', '.join(metadata)}{others}",
            )
        elif column is not None and column in found:
            settings.document.problem(
                "E0843", f"column `{column}` is there twice", entry.value, "already given", "keep one of them"
            )
        elif column is not None:
            found[column] = entry.name
    return found


def _require_columns(columns: dict[str, str], stream: Stream) -> None:
    """Raise InputError unless the stream has the columns, in types that they can be of."""
    for name, what in columns.items():
        declared = stream.field(name)
        if declared is None:
            raise InputError(
                "E0841",
                f"stream `{stream.name}` has no column `{name}`, which is to be the {what} of a message",
                f"declare it, or write one of {', '.join(f.name for f in stream.fields)}",
            )
        if what in ("timestamp", "commit_time") and declared.type is not Type.TIMESTAMP:
            raise InputError(
                "E0843",
                f"column `{name}` is {declared.ddl}, and is to be the {what.replace('_', ' ')} of a message",
                "declare it as timestamp",
            )
