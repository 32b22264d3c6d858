"""The settings that all logs of messages share. Only for the driver."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import yaml

from cep.errors import CepError, InputError
from cep.formats.payloads.registry import PAYLOADS, payload_format, payload_names
from cep.formats.protocol import FormatWithColumns, RecordFormat
from cep.schema.stream import Stream
from cep.schema.time_literals import parse_timestamp
from cep.settings import declared
from cep.settings.settings import Settings, one_of, path_of
from spark_runtime.connectors.message_logs.log import HEADER, MessageLog
from spark_runtime.connectors.message_logs.options import Options
from spark_runtime.connectors.message_logs.reading import EARLIEST, LATEST, Begin, MessageReading
from spark_runtime.connectors.message_logs.source import MessageSource
from spark_runtime.sinks.place import Place
from spark_runtime.sources.columns import ColumnWords, columns_of, require_columns
from spark_runtime.sources.schema_registry import SchemaRegistry, is_address
from spark_runtime.sources.spec import SourceContext

_NOUN = "a message"
_TIMES = {"timestamp": "timestamp", "commit_time": "commit time"}

PASS_OVER, DEAD_LETTER, DELETE = "pass_over", "dead_letter", "delete"
"""How messages without a value are handled."""

TOMBSTONES = (PASS_OVER, DEAD_LETTER, DELETE)


def _reads_nothing(place: Place) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class MessageSpec:
    """A log, and the settings for reading it; see `SourceSpec` and `MessageReading`.

    - `place`: the place to which a checkpoint belongs: the log, without the addresses of its servers.
    - `reads`: returns whether the log contains what an output writes to a place (`PlacedSource`).
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
    reads: Callable[[Place], bool] = field(default=_reads_nothing, compare=False)

    def formatted(self, stream: Stream) -> tuple[RecordFormat, dict[str, str]]:
        """Return the format of the values, with the columns that it provides itself, and the other columns.

        Raises InputError: the stream lacks the columns, or their types do not fit.
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


_SECRETS = ("user", "password")
_REGISTRY = ("registry", *_SECRETS)


def value_format(settings: Settings, name: str) -> RecordFormat | None:
    """Return the format of the setting; None if a problem was reported.

    `value` is a name, or a mapping with `format` and the settings of the format::

        value: {format: avro, registry: "http://localhost:8081"}
    """
    node = settings.found[name]
    try:
        if not isinstance(node, yaml.MappingNode):
            known = settings.word(name, payload_names())
            return None if known is None else payload_format(known)
        return _with_settings(settings, node)
    except CepError as error:
        settings.problem(error.code, str(error.args[0]), name, "cannot be used", error.help)
        return None


def _with_settings(settings: Settings, node: yaml.MappingNode) -> RecordFormat | None:
    document = settings.document
    before = len(document.diagnostics)
    entries = {entry.name: entry.value for entry in document.mapping(node, "`value`") or []}
    if "format" not in entries:
        document.problem("E0404", "`value` has no `format`", node, "`format` is missing", "add: format: avro")
        return None
    name = one_of(document, entries.pop("format"), "`format` of `value`", payload_names())
    if name is None:
        return None
    files = PAYLOADS.get(name).files if name in PAYLOADS.names else ()
    given: dict[str, str] = {}
    for key, value in entries.items():
        text: str | None
        if key in files:
            text = path_of(document, value, f"`{key}`", settings.folder)
            document.schemas.append(str(settings.folder / str(value.value)))
        elif key in _SECRETS and isinstance(value, yaml.ScalarNode):
            text = str(value.value)  # may be an environment variable
        else:
            text = document.text(value, f"`{key}`")
        if text is not None:
            given[key] = text
    texts = {key: given.pop(key) for key in _REGISTRY if key in given}
    registry = None
    if "registry" in texts:
        registry = SchemaRegistry(texts["registry"], texts.get("user", ""), texts.get("password", ""))
        if not is_address(registry.url):
            document.problem(
                "E0841",
                "`registry` is no address",
                entries["registry"],
                "not known",
                'for example: registry: "https://registry:8081"; name and password are `user` and `password`',
            )
    elif texts:
        document.problem(
            "E0843", f"`{next(iter(texts))}` without `registry`", node, "has no effect", "remove it"
        )
    if len(document.diagnostics) > before:
        return None
    return payload_format(name, given, registry)


@dataclass(frozen=True, slots=True)
class MessageSettings:
    """The settings that all logs share; `begin` and `columns` depend on the log."""

    begin: yaml.Node | None = declared.later(name="from")
    value: RecordFormat = declared.own(value_format, payload_format("json"))
    columns: yaml.Node | None = declared.later()
    max_events: int | None = declared.integer(None, at_least=1, name="max_events_per_trigger")
    goes_on_without: bool = declared.choice({"fail": False, "go_on": True}, name="on_lost")

    def message_spec(
        self,
        settings: Settings,
        place: str,
        log: MessageLog,
        metadata: Sequence[str],
        names: PositionNames | None,
        *,
        has_headers: bool = False,
        tombstones: str = PASS_OVER,
        reads: Callable[[Place], bool] = _reads_nothing,
    ) -> MessageSpec:
        """Return the spec of a log; report problems in `settings`.

        - `place`, `log`, `reads`: see `MessageSpec`.
        - `metadata`: what may be a column in addition to the value. With ``headers``, each header may be one,
          too.
        - `names`: how `from` names partitions; None: positions cannot be given.
        - `has_headers`: whether each header may be a column even without ``headers``.
        """
        with_columns = self.value if isinstance(self.value, FormatWithColumns) else None
        words = _words(metadata, with_columns, has_headers=has_headers or "headers" in metadata)
        return MessageSpec(
            place=place,
            log=log,
            begin=EARLIEST if self.begin is None else _begin(settings, self.begin, names),
            value_format=self.value,
            columns=columns_of(settings, words),
            max_events=self.max_events,
            goes_on_without=self.goes_on_without,
            has_dead_tombstones=tombstones == DEAD_LETTER,
            deletes=tombstones == DELETE,
            reads=reads,
        )


@dataclass(frozen=True, slots=True)
class PositionNames:
    """How `from` names partitions and their positions.

    `example`: an example of correct input: ``offsets: {0: 100, 1: 250}``. `origin`: returns the log's name
    for the partition that a name stands for; None if it is unclear or unknown. `problem`: the text of the
    error, and the help.
    """

    example: str
    origin: Callable[[str], str | None]
    problem: tuple[str, str]


def options_of(known: Sequence[str]) -> Callable[[Settings, str], Options]:
    """Return a function that reads the options of a client, which must be among `known`."""
    return lambda settings, name: Options(tuple(sorted(declared.read_texts(settings, name, known=known))))


def _begin(settings: Settings, node: yaml.Node, names: PositionNames | None) -> Begin:
    """Return where a stream starts."""
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
    """Return how `from` names numbered partitions: by number for one log, as ``orders[0]`` for several."""

    def origin(name: str) -> str | None:
        if name.isdecimal() and len(logs) == 1:
            return f"{logs[0]}[{name}]"
        return name if re.fullmatch(r".+\[\d+\]", name) else None

    problem = (f"of which {noun}?", f"write {noun} and number: {{orders[0]: 100}}")
    return PositionNames("offsets: {0: 100, 1: 250}", origin, problem)


def _words(metadata: Sequence[str], value: FormatWithColumns | None, *, has_headers: bool) -> ColumnWords:
    """Return what may be a column in addition to the value; the format of the value may add more."""
    return ColumnWords(
        _NOUN,
        metadata,
        HEADER if has_headers else "",
        f"{HEADER}NAME" if has_headers else "",
        () if value is None else value.words,
        (lambda word: False) if value is None else value.has_word,
    )


def _require_key(columns: dict[str, str], stream: Stream) -> None:
    """Raise InputError unless messages without a value identify the row that they delete, and the time."""
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
