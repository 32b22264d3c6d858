"""Reads the pipeline file: YAML -> `Pipeline`, or every problem with its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from glob import glob, has_magic
from pathlib import Path
from typing import Protocol, TypeVar

import yaml

from cep.arguments import rule_names
from cep.diagnostics.diagnostic import in_order
from cep.diagnostics.limits import TooManyErrorsError
from cep.errors import CepError, Diagnostic, InputError, RuleError, SetupError, Source
from cep.formats.registry import FORMATS
from cep.packages import require_package
from cep.rule_set import Corrections, RuleSet
from cep.rulebook import compile_rulebook, load_rulebook, texts_of
from cep.schema.stream import Stream
from cep.schema.time_literals import parse_duration, print_duration
from cep.settings import declared
from cep.settings.declared import Wrong, declared_settings, read
from cep.settings.file_mode import FileMode
from cep.settings.schema_file import load_streams, read_streams
from cep.settings.settings import Settings, check_place, one_of
from cep.settings.source_file import read_source
from cep.settings.yaml_document import MAX_BYTES, Document
from spark_runtime.event_time.watermarks import Follows, WaitingLimit
from spark_runtime.operator.limits import Limits
from spark_runtime.pipeline.address import Address, read_address
from spark_runtime.pipeline.limit_settings import LimitSettings, not_with_corrections
from spark_runtime.pipeline.made import AVAILABLE_NOW, Pipeline, Reload
from spark_runtime.pipeline.other_files import require_pipeline
from spark_runtime.pipeline.source_entry import SourceEntry, check_entries, static_entries, static_file
from spark_runtime.pipeline.trust import WHOLE, Trust, check_spark_settings
from spark_runtime.sinks.log_settings import LogSpec, read_log
from spark_runtime.sinks.place import check_places
from spark_runtime.sinks.protocol import Output
from spark_runtime.sinks.registry import SINKS, SinkSpec, SinkType, check_columns, sink_names
from spark_runtime.sources.registry import SOURCES, source_names, source_type
from spark_runtime.wire.output import DEAD, LATE, MATCH

_CORRECT_WITHIN = "correct within "


def _trigger(settings: Settings, name: str) -> str | None:
    text = settings.text(name)
    if text is None or text == AVAILABLE_NOW:
        return text
    length_us = parse_duration(text)
    if length_us is None:
        _NO_TRIGGER.note(settings, name, text)
        return None
    return print_duration(length_us).lower()  # Spark accepts fewer spellings


def _metrics(settings: Settings, name: str) -> Address | None:
    try:
        require_package(f"`{name}`", "prometheus_client", "metrics")
    except SetupError as error:
        settings.problem(error.code, error.args[0], name, "cannot be used", error.help)
    return read_address(settings, name)


_NOT_WITHIN = Wrong(
    "`{}` is not a time within which matches are corrected",
    "expected a duration above 0",
    "write a number and a unit: correct within 1 hour",
    "E0409",
)
_NO_TRIGGER = Wrong(
    "`{}` is not a trigger",
    "expected available_now or a duration",
    'write available_now, or for example "10 seconds"',
    "E0409",
)
_NO_END = Wrong(
    "`{}` is not a time after which waits end",
    "expected a duration above 0",
    'write a number and a unit, for example "30 seconds"',
    "E0409",
)


_NO_LINEAGE = Wrong(
    "`{}` takes no events of OpenLineage",
    "expected an address with http or https, or a file",
    "write for example: lineage: http://127.0.0.1:5000",
    "E0409",
)


def _is_file_or_http(text: str) -> bool:
    is_http = text.startswith(("http://", "https://")) and "@" not in text  # a password would be shown
    return is_http or "://" not in text


def _texts(settings: Settings, name: str) -> tuple[tuple[str, str], ...]:
    entries = settings.document.mapping(settings.found[name], f"`{name}`") or []
    texts = [(entry.name, settings.document.text(entry.value, f"`{entry.name}`")) for entry in entries]
    return tuple((name, text) for name, text in texts if text is not None)


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """The settings of a pipeline file. Settings that are read `later` need other settings, or the rules."""

    streams: yaml.Node | None = declared.later()
    tables: yaml.Node | None = declared.later()
    rules: yaml.Node | None = declared.later()
    only: tuple[str, ...] = declared.names(())
    parameters: tuple[tuple[str, str], ...] = declared.own(_texts, ())
    source: yaml.Node | None = declared.later()
    sources: yaml.Node | None = declared.later()
    sinks: yaml.Node | None = declared.later()
    late: yaml.Node | None = declared.later()
    dead_letter: yaml.Node | None = declared.later()
    shadow: yaml.Node | None = declared.later()
    checkpoint: str = declared.path("")
    log: LogSpec | None = declared.own(read_log, None)
    trigger: str = declared.own(_trigger, AVAILABLE_NOW)
    finishes: bool = declared.choice({"finish": True}, False, name="at_end")
    watermark: Follows = declared.choice(Follows)
    max_waiting: int = declared.integer(WaitingLimit().events, at_least=1, name="max_waiting_events")
    goes_on: bool = declared.choice({"pause": False, "go_on": True}, name="at_max_waiting")
    end_waits_after_us: int | None = declared.duration(
        None, "us", above_zero=True, otherwise=_NO_END, name="end_waits_after"
    )
    is_stream: bool = declared.choice({"stream": True, "batch": False}, name="mode")
    tells_version: bool = declared.flag(False, name="rule_version")
    file_mode: FileMode = declared.file_mode()
    keeps_files: bool = declared.choice({"files": True, "inline": False}, name="state")
    state_memory_mb: int | None = declared.integer(None, at_least=1)
    metrics: Address | None = declared.own(_metrics, None)
    ui: Address | None = declared.own(read_address, None)
    lineage: str = declared.path("", valid=_is_file_or_http, wrong=_NO_LINEAGE)
    stuck_after_s: float = declared.duration(
        1800.0,
        "s",
        above_zero=True,
        name="stuck_after",
    )
    reload: Reload = declared.choice({item.value: item for item in Reload})
    down_after_s: float = declared.duration(300.0, "s", above_zero=True, name="down_after")
    limits: Limits = declared.nested(
        LimitSettings, lambda given, _: given.limits(), default=LimitSettings().limits()
    )
    spark: tuple[tuple[str, str], ...] = declared.own(_texts, ())


@dataclass(frozen=True, slots=True)
class LateSettings:
    """How matches are corrected; the other settings of `late` belong to a sink."""

    within_us: int | None = declared.duration(
        None, "us", above_zero=True, otherwise=_NOT_WITHIN, name="correct_within"
    )
    max_retained: int | None = declared.integer(
        None, at_least=1, needs=("correct_within", "nothing is retained", "add: correct_within: 1 hour")
    )


@dataclass(frozen=True, slots=True)
class OfAllSources:
    """The settings of all sources, in addition to `stream` or `table` and `format`."""

    idle_after_s: float | None = declared.duration(None, "s", name="idle_after")


class _HasSettings(Protocol):
    """A registered kind of source or sink."""

    @property
    def settings(self) -> tuple[str, ...]: ...


_T = TypeVar("_T", bound=_HasSettings)


def load_pipeline(path: str | Path, trust: Trust = WHOLE, shadow: str | Sequence[str] = ()) -> Pipeline:
    """Return the pipeline of the file at `path`, which is trusted to the given degree.

    `shadow` names rules that are shadow rules, whatever their status.

    Raises RuleError: the file, or the rules and streams that it names, are wrong; the error lists every
    problem.
    """
    path = Path(path)
    try:
        document = Document(read_source(path, MAX_BYTES), begins="rules", roots=trust.roots)
        require_pipeline(document.source)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise RuleError(
            [Diagnostic("E0840", f"the pipeline file `{path}` cannot be read: {reason}")]
        ) from error
    pipeline = None
    with suppress(TooManyErrorsError):  # the last diagnostic reports it
        pipeline = _Reader(document, path.resolve(), trust, shadow).pipeline()
    if pipeline is None or any(problem.is_error for problem in document.diagnostics):
        raise RuleError(in_order(document.diagnostics))
    return pipeline


def read_sink(text: str, folder: Path, trust: Trust, rules: RuleSet) -> SinkSpec:
    """Return the sink for matches that a text in the form of a pipeline file describes.

    Relative paths start at `folder`. Raises RuleError: the settings are wrong, or name columns that the
    matches of `rules` lack.
    """
    document = Document(Source("the sink", text), roots=trust.roots)
    root, sink = document.root(), None
    if root is not None:
        sink = _Reader(document, folder / "sink.yaml", trust, ())._sink(root, "the sink", MATCH)
    if sink is not None:
        check_columns(document, [(sink, (Output(MATCH, rules.schema_of(shadow=False)),))])
    if sink is None or document.diagnostics:
        raise RuleError(in_order(document.diagnostics))
    return sink


class _Reader:
    """Reads one document, which collects problems. Methods return None if something is invalid."""

    def __init__(self, document: Document, file: Path, trust: Trust, shadow: str | Sequence[str]) -> None:
        self.shadow = rule_names("shadow", shadow)
        self.document = document
        self.trust = trust
        self.folder = file.parent
        self.file = file

    def pipeline(self) -> Pipeline | None:
        document = self.document
        root = document.root()
        if root is None:
            return None
        entries = document.mapping(root, "the pipeline")
        if entries is None:
            return None
        has_several = any(entry.name == "sources" for entry in entries)
        needed = ("rules", "sources" if has_several else "source", "sinks")
        found = document.settings(root, "the pipeline", declared_settings(PipelineSettings), needed)
        if found is None or any(name not in found for name in needed):
            return None
        settings = Settings(document, self.folder, root, "the pipeline", found)
        sources = self._sources(found)
        sinks = self._sinks(found["sinks"])
        late, corrections = self._late(found["late"]) if "late" in found else (None, None)
        dead = None
        if "dead_letter" in found:
            dead = self._sink(found["dead_letter"], "`dead_letter`", DEAD)
        shadow = self._sink(found["shadow"], "`shadow`", MATCH) if "shadow" in found else None
        given = read(PipelineSettings, settings)
        if "spark" in found:
            check_spark_settings(document, found["spark"], self.trust)
        if given.is_stream and "checkpoint" not in found:
            document.problem(
                "E0404",
                "a stream needs `checkpoint`",
                root,
                "`checkpoint` is missing",
                "add: checkpoint: ...",
            )
        elif given.is_stream and given.finishes and given.trigger != AVAILABLE_NOW:
            settings.problem(
                "E0843",
                "`at_end` needs `trigger: available_now`",
                "at_end",
                "a stream without end never gets here",
                "add: trigger: available_now",
            )
        if given.log is not None and not given.is_stream:
            settings.problem(
                "E0843", "`log` with `mode: batch`", "log", "only a stream has a log", "remove it"
            )
        if "stuck_after" in settings and given.metrics is None and given.ui is None:
            settings.problem(
                "E0843", "`stuck_after` without `metrics`", "stuck_after", "nobody asks", "add: metrics: 9464"
            )
        for title, why, advice in () if corrections is None else not_with_corrections(given.limits):
            settings.problem("E0843", title, "limits", why, advice)
        compiled = self._rules(found, given, sources)
        if sources is None or sinks is None or compiled is None or document.diagnostics:
            return None
        rules, texts, warnings = compiled
        rules = rules.with_corrections(corrections)
        rules = rules.telling_version() if given.tells_version else rules
        static = static_entries(rules, sources)
        made = Pipeline(
            name=self.file.stem,
            rules=rules if given.end_waits_after_us is None else rules.telling_end(),
            texts=texts,
            warnings=warnings,
            sources=tuple(entry for name, entry in sources.items() if name not in static),
            sinks=sinks,
            late=late,
            dead_letter=dead,
            shadow=shadow,
            checkpoint=given.checkpoint,
            trigger=given.trigger,
            # A batch is always complete; the same file may declare it for its stream.
            finishes=given.finishes and given.is_stream,
            is_stream=given.is_stream,
            spark=given.spark,
            watermark=given.watermark,
            waiting=WaitingLimit(given.max_waiting, given.goes_on),
            end_waits_after_us=given.end_waits_after_us,
            tables=tuple(static_file(rules, sources[name]) for name in static),
            file=str(self.file),
            file_mode=given.file_mode,
            keeps_files=given.keeps_files,
            asks_for_files="state" in settings and given.keeps_files,
            state_memory_mb=given.state_memory_mb,
            sink_formats=tuple(_peeked_format(node) for node in _listed(found["sinks"])),
            metrics=given.metrics,
            ui=given.ui,
            lineage=given.lineage,
            stuck_after_s=given.stuck_after_s,
            reload=given.reload,
            down_after_s=given.down_after_s,
            rule_paths=self._watched(found),
            shadow_rules=self.shadow,
            log=given.log,
            limits=given.limits,
            relative=tuple(document.relative),
            schemas=tuple(document.schemas),
        )
        optional = (("late", late), ("dead_letter", dead), ("shadow", shadow), ("log", given.log))
        others = (found[name] for name, sink in optional if sink)
        nodes = [*_listed(found["sinks"]), *others]
        read_nodes = _listed(found["sources" if "sources" in found else "source"])
        specs = (entry.spec for entry in sources.values())
        check_places(
            document,
            [(node, *item) for node, item in zip(nodes, made.outputs(), strict=True)],
            (found["checkpoint"], given.checkpoint) if given.is_stream else None,
            zip(read_nodes, specs, strict=True),
        )
        check_columns(document, made.outputs())
        return made

    def _sources(self, found: dict[str, yaml.Node]) -> dict[str, SourceEntry] | None:
        """Return the sources, by stream."""
        if "sources" not in found:
            source = self._source(found["source"])
            return None if source is None else {source.stream: source}
        node = found["sources"]
        if "source" in found:
            self.document.problem(
                "E0843",
                "`source` and `sources` together",
                found["source"],
                "one or the other",
                "list all of them in `sources`",
            )
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            self.document.problem(
                "E0402", "`sources` must be a list", node, "not a list", "add: - {stream: ..., format: ...}"
            )
            return None
        sources: dict[str, SourceEntry] = {}
        is_sound = True
        for item in node.value:
            source = self._source(item)
            is_sound = is_sound and source is not None
            if source is not None and source.stream in sources:
                self.document.problem(
                    "E0843",
                    f"two sources for {'table' if source.is_table else 'stream'} `{source.stream}`",
                    item,
                    "the stream has one already",
                    "put the files into one directory",
                )
            elif source is not None:
                sources[source.stream] = source
        return sources if is_sound else None

    def _source(self, node: yaml.Node) -> SourceEntry | None:
        is_table = any(entry.name == "table" for entry in self.document.mapping(node, "`source`") or [])
        word = "table" if is_table else "stream"
        common = (word, "format")
        more = ("idle_after",)
        found = self._found(node, "`source`", (common, more), _settings_of_sources, source_type)
        stream = None if found is None else self.document.text(found[word], f"`{word}`")
        if found is None or stream is None:
            return None
        chosen = self._chosen(found, "a source of format", (*common, *more), source_type, source_names)
        if chosen is None:
            return None
        name, source = chosen
        settings = Settings(self.document, self.folder, node, "`source`", found)
        spec, idle_after_s = source.spec(settings), read(OfAllSources, settings).idle_after_s
        return None if spec is None else SourceEntry(name, stream, spec, node, idle_after_s, is_table)

    def _sinks(self, node: yaml.Node) -> tuple[SinkSpec, ...] | None:
        nodes = _listed(node)
        if not nodes:
            self.document.problem(
                "E0404", "the pipeline has no sink", node, "empty", "add: - {format: console}"
            )
        sinks = [self._sink(item, "a sink", MATCH) for item in nodes]
        sound = tuple(sink for sink in sinks if sink is not None)
        return sound if len(sound) == len(sinks) else None

    def _sink(self, node: yaml.Node, what: str, kind: str) -> SinkSpec | None:
        """Return the sink for a kind of output."""

        def lookup(name: str) -> SinkType:
            found = SINKS.get(name)
            if kind not in found.kinds:
                raise InputError("E0841", f"`{name}` takes no such output")
            return found

        found = self._found(node, what, (("format",), ()), _settings_of_sinks, lookup)
        if found is None:
            return None
        names = partial(sink_names, kind)
        chosen = self._chosen(found, "a sink of format", ("format",), lookup, names)
        if chosen is None:
            return None
        return chosen[1].spec(Settings(self.document, self.folder, node, what, found))

    def _found(
        self,
        node: yaml.Node,
        what: str,
        common: tuple[tuple[str, ...], tuple[str, ...]],
        of_others: Callable[[], tuple[str, ...]],
        lookup: Callable[[str], _HasSettings],
    ) -> dict[str, yaml.Node] | None:
        """Return the settings of a source or sink; None if a setting that all require is missing.

        `common` lists the settings that all require and those that all accept. The settings `of_others` pass
        here: `_chosen` reports those that the format does not have.
        """
        needed, more = common
        try:
            own = lookup(_peeked_format(node)).settings
        except CepError:  # `_chosen` reports it
            own = of_others()
        known = dict.fromkeys((*needed, *own, *more))
        found = self.document.settings(node, what, known, needed, of_others)
        return None if found is None or any(name not in found for name in needed) else found

    def _chosen(
        self,
        found: dict[str, yaml.Node],
        what: str,
        common: tuple[str, ...],
        lookup: Callable[[str], _T],
        names: Callable[[], tuple[str, ...]],
    ) -> tuple[str, _T] | None:
        """Return the kind that `format` names; report settings that it does not have."""
        document = self.document
        name = document.text(found["format"], "`format`")
        if name is None:
            return None
        try:
            chosen = lookup(name)
        except InputError:
            one_of(document, found["format"], "`format`", names())
            return None
        except SetupError as error:
            document.problem(error.code, error.args[0], found["format"], "cannot be used", error.help)
            return None
        for setting in found:
            if setting not in (*common, *chosen.settings):
                document.problem(
                    "E0843",
                    f"{what} {name} has no `{setting}`",
                    found[setting],
                    "not for this format",
                    "remove it",
                )
        return name, chosen

    def _late(self, node: yaml.Node) -> tuple[SinkSpec | None, Corrections | None]:
        """Return the sink of late events, and how matches are corrected: `late` is a text or settings."""
        if isinstance(node, yaml.MappingNode):
            return self._late_settings(node)
        text = self.document.text(node, "`late`")
        if text is None or text == "drop":
            return None, None
        if text.startswith(_CORRECT_WITHIN):
            settings = Settings(self.document, self.folder, node, "the pipeline", {"late": node})
            within = text.removeprefix(_CORRECT_WITHIN)
            length_us = parse_duration(within)
            if not length_us:
                _NOT_WITHIN.note(settings, "late", within.strip())
            return None, Corrections(length_us) if length_us else None
        self.document.problem(
            "E0841",
            f"`late` cannot be `{text}`",
            node,
            "not known",
            "write drop, correct within 1 hour, or {format: json, path: out/late}",
        )
        return None, None

    def _late_settings(self, node: yaml.MappingNode) -> tuple[SinkSpec | None, Corrections | None]:
        of_corrections = tuple(declared_settings(LateSettings))
        parts = [
            yaml.MappingNode(
                node.tag,
                [(key, value) for key, value in node.value if (key.value in of_corrections) == is_own],
                node.start_mark,
                node.end_mark,
            )
            for is_own in (True, False)
        ]
        own, of_sink = parts
        sink = self._sink(of_sink, "`late`", LATE) if of_sink.value or not own.value else None
        found = self.document.settings(own, "`late`", of_corrections)
        if found is None:
            return sink, None
        given = read(LateSettings, Settings(self.document, self.folder, own, "`late`", found))
        if given.within_us is None:
            return sink, None
        usual = Corrections(given.within_us)
        return sink, usual if given.max_retained is None else Corrections(given.within_us, given.max_retained)

    def _rules(
        self, found: dict[str, yaml.Node], given: PipelineSettings, sources: dict[str, SourceEntry] | None
    ) -> tuple[RuleSet, tuple[Source, ...], tuple[Diagnostic, ...]] | None:
        paths = self._rule_paths(found["rules"])
        streams = self._streams(found)
        if paths is None or self.document.diagnostics:
            return None
        try:
            rulebook = load_rulebook(paths, streams)
            compiled = compile_rulebook(rulebook, given.only, dict(given.parameters), self.shadow)
        except RuleError as error:
            self.document.diagnostics += error.diagnostics
            return None
        if sources is not None:
            place = found.get("sources") or found["source"]
            check_entries(self.document, compiled.rule_set, sources, place)
        is_changed = given.only or given.parameters or self.shadow
        texts = texts_of(compiled) if is_changed else rulebook.sources
        return compiled.rule_set, texts, compiled.warnings

    def _watched(self, found: dict[str, yaml.Node]) -> tuple[str, ...]:
        """Return the files, folders and patterns from which the rules come."""
        texts = [text for text, _ in self.document.texts(found["rules"], "`rules`") or ()]
        streams = found.get("streams")
        if isinstance(streams, yaml.ScalarNode):
            texts.append(str(streams.value))
        return (str(self.file), *(str(self.folder / text) for text in texts))

    def _rule_paths(self, node: yaml.Node) -> list[Path] | None:
        texts = self.document.texts(node, "`rules`")
        if texts is None:
            return None
        if not texts:
            self.document.problem("E0404", "the pipeline has no rules", node, "empty", "add: - rules.cep")
        paths: list[Path] = []
        for text, place in texts:
            if not check_place(self.document, place, str(self.folder / text)):
                continue
            names = sorted(glob(str(self.folder / text))) if has_magic(text) else [str(self.folder / text)]
            if not names:
                self.document.problem(
                    "E0844",
                    f"`{text}` names no file",
                    place,
                    "nothing there",
                    f"paths are taken from {self.folder} on",
                )
            paths += [Path(name) for name in names]
        return paths

    def _streams(self, found: dict[str, yaml.Node]) -> dict[str, Stream] | None:
        """Return the declared streams; None: each rule file has its own streams file."""
        if "streams" not in found and "tables" not in found:
            return None
        node = found.get("streams")
        if node is None or isinstance(node, yaml.MappingNode):  # views read only tables
            return read_streams(self.document, node, found.get("tables"))
        if "tables" in found:
            self.document.problem(
                "E0843",
                "`tables` beside a streams file",
                found["tables"],
                "declared apart from the streams",
                "declare the tables in the streams file; or the streams here, too: streams: {...}",
            )
            return {}
        text = self.document.text(node, "`streams`")
        if text is None:
            return {}
        if not check_place(self.document, node, str(self.folder / text)):
            return {}
        try:
            return load_streams(self.folder / text)
        except RuleError as error:
            self.document.diagnostics += error.diagnostics
            return {}


def _listed(node: yaml.Node) -> list[yaml.Node]:
    """Return the items of a list, or anything else as the only item."""
    return node.value if isinstance(node, yaml.SequenceNode) else [node]


def _peeked_format(node: yaml.Node) -> str:
    """Return `format` as written; an empty text if it is missing or not a text."""
    entries = node.value if isinstance(node, yaml.MappingNode) else []
    values = (value.value for key, value in entries if key.value == "format")
    return next((value for value in values if isinstance(value, str)), "")


def _settings_of_sources() -> tuple[str, ...]:
    """Return the settings of all sources of this package."""
    types = [*map(source_type, FORMATS.built_in), *map(source_type, SOURCES.built_in)]
    return tuple(name for kind in types for name in kind.settings)


def _settings_of_sinks() -> tuple[str, ...]:
    """Return the settings of all sinks of this package."""
    return tuple(name for kind in map(SINKS.get, SINKS.built_in) for name in kind.settings)
