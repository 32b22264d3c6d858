"""A pipeline as read from its file: `pipeline_file` reads it, `runs` runs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from cep.errors import Diagnostic, InputError, Source
from cep.formats.dead_letter import DEAD_LETTER_SCHEMA
from cep.formats.late_events import declared_schema
from cep.rule_set import RuleSet
from cep.schema.time_literals import parse_duration
from cep.settings.file_mode import PRIVATE, FileMode
from spark_runtime.event_time.watermarks import Follows, WaitingLimit
from spark_runtime.operator.limits import Limits
from spark_runtime.pipeline.address import Address
from spark_runtime.pipeline.packaged import lasting_name
from spark_runtime.pipeline.source_entry import SourceEntry
from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.sinks.log_settings import LogSpec
from spark_runtime.sinks.owner import Owner
from spark_runtime.sinks.protocol import AnySink, Output
from spark_runtime.sinks.registry import SinkContext, SinkSpec
from spark_runtime.sources.protocol import Source as EventSource
from spark_runtime.sources.protocol import SparkSource
from spark_runtime.sources.spec import SourceContext
from spark_runtime.tables.content import timed_inputs
from spark_runtime.tables.static import StaticFile
from spark_runtime.wire.output import DEAD, MATCH, late_kind

AVAILABLE_NOW = "available_now"


class Reload(StrEnum):
    """When a stream takes changed rules."""

    AFTER_APPROVAL = "after approval"
    ON_CHANGE = "on change"
    NEVER = "never"


WithOutputs = tuple[SinkSpec, Sequence[Output]]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A valid pipeline file, with compiled rules and absolute paths."""

    name: str
    rules: RuleSet
    texts: tuple[Source, ...]  # from which the rules were compiled
    warnings: tuple[Diagnostic, ...]
    sources: tuple[SourceEntry, ...]
    sinks: tuple[SinkSpec, ...]
    late: SinkSpec | None
    dead_letter: SinkSpec | None
    shadow: SinkSpec | None
    checkpoint: str
    trigger: str  # "available_now", or an interval
    finishes: bool
    is_stream: bool
    spark: tuple[tuple[str, str], ...]
    watermark: Follows = Follows.SLOWEST
    waiting: WaitingLimit = field(default_factory=WaitingLimit)
    end_waits_after_us: int | None = None
    tables: tuple[StaticFile, ...] = ()  # static ones only
    file: str = ""
    file_mode: FileMode = PRIVATE
    sink_formats: tuple[str, ...] = ()  # of `sinks`, in their order
    metrics: Address | None = None
    ui: Address | None = None
    lineage: str = ""  # an address or a file; empty: nowhere
    stuck_after_s: float = 0.0
    keeps_files: bool = True  # of large state, where the checkpoint is on a disk or on S3
    asks_for_files: bool = False  # on whatever storage the checkpoint is
    state_memory_mb: int | None = None  # of warm state on a machine; None: a quarter of its memory
    reload: Reload = Reload.AFTER_APPROVAL
    down_after_s: float = 300.0  # of a continuous stream: how long it may be down without a gap
    shadow_rules: tuple[str, ...] = ()  # that are shadow rules, whatever their status
    log: LogSpec | None = None  # of a stream
    limits: Limits = field(default_factory=Limits)  # of a stream
    rule_paths: tuple[str, ...] = ()  # files, folders and patterns from which the rules come
    relative: tuple[str, ...] = ()  # other paths that are relative to the file, as it has them
    schemas: tuple[str, ...] = ()  # files with schemas of messages

    def with_rules(self, rules: RuleSet, texts: tuple[Source, ...]) -> Pipeline:
        """Return the pipeline with other rules, and with those of its sources that the rules read."""
        sources = tuple(entry for entry in self.sources if entry.stream in rules.inputs)
        tables = tuple(
            replace(file, table=rules.tables[file.table.name])
            for file in self.tables
            if file.table.name in rules.tables
        )
        return replace(self, rules=rules, texts=texts, warnings=(), sources=sources, tables=tables)

    @property
    def is_live(self) -> bool:
        """Whether it is a stream that waits for new input."""
        return self.is_stream and self.trigger != AVAILABLE_NOW

    @property
    def interval_s(self) -> float | None:
        """Seconds from the start of a micro-batch to that of the next one; None: as fast as possible."""
        return (parse_duration(self.trigger) or 0) / 1e6 if self.is_live else None

    @property
    def owner(self) -> Owner:
        """The owner that distinguishes its results from those of other pipelines."""
        sources = {entry.stream: (entry.name, entry.spec.place) for entry in self.sources}
        static = {table.table.name: (table.file_format, lasting_name(table.path)) for table in self.tables}
        return Owner(lasting_name(self.file), sources | static)

    def outputs(self) -> Iterator[WithOutputs]:
        """Yield each sink with its outputs."""
        yield from _with_outputs(self.rules, self.sinks, self.late, self.dead_letter, self.shadow)
        if self.log is not None:
            yield self.log, (_matches(self.rules, is_shadow=False),)

    def sink_names(self) -> Iterator[str]:
        """Yield a name for people of each of `opened_sinks`: its format, ``kafka-2``, ``late``."""
        seen: Counter[str] = Counter()
        for number, (spec, outputs) in enumerate(self.outputs()):
            if number < len(self.sinks):
                name = self.sink_formats[number]
                seen[name] += 1
                name = name if seen[name] == 1 else f"{name}-{seen[name]}"
            else:
                others = {"late": self.late, "dead_letter": self.dead_letter, "shadow": self.shadow}
                others |= {"log": self.log}
                name = next(name for name, other in others.items() if other is spec)
            yield from [name] * len(outputs)

    def opened_sinks(self, context: SinkContext) -> Iterator[tuple[SinkSpec, AnySink]]:
        """Yield the sink of each output, with its settings; write nothing yet."""
        if self.log is not None:
            stored = StoredRules.of(self.texts, self.rules)
            context = replace(context, stored=(stored.version, stored.to_json()))
        for spec, outputs in self.outputs():
            yield from ((spec, spec.open(output, context)) for output in outputs)

    def opened_source(
        self, entry: SourceEntry, log: str, *, has_begun: bool = False
    ) -> EventSource | SparkSource:
        """Return a source; read nothing yet. `log` and `has_begun`: see `SourceContext`.

        Raises InputError: only Spark can read it, and its stream needs a feature that Spark lacks.
        """
        stream = self.rules.inputs[entry.stream]
        keys, by_time = self.rules.keys_of(stream), self.watermark is Follows.SLOWEST
        context = SourceContext(stream, keys, self.is_stream, self.is_live, by_time, log, has_begun)
        source = entry.spec.open(context)
        if not isinstance(source, EventSource) and stream.device_clock is not None:
            raise InputError(
                "E0846",
                f"stream `{entry.stream}` has a `device_clock`, and only Spark can read its source",
                "copy the files to a disk of this machine, and keep the checkpoint on one",
            )
        return source


def _with_outputs(
    rules: RuleSet,
    sinks: Sequence[SinkSpec],
    late: SinkSpec | None,
    dead_letter: SinkSpec | None,
    shadow: SinkSpec | None,
) -> Iterator[WithOutputs]:
    """Yield each sink with its outputs; `late` has one output for each stream."""
    yield from ((spec, (_matches(rules, is_shadow=False),)) for spec in sinks)
    if late is not None:
        yield late, list(_late(rules))
    if dead_letter is not None:
        yield dead_letter, (Output(DEAD, DEAD_LETTER_SCHEMA),)
    if shadow is not None:
        yield shadow, (_matches(rules, is_shadow=True),)


def _matches(rules: RuleSet, *, is_shadow: bool) -> Output:
    names = rules.names(shadow=is_shadow) if rules.shadow or is_shadow else None
    return Output(MATCH, rules.schema_of(shadow=is_shadow), rules=names, is_shadow=is_shadow)


def _late(rules: RuleSet) -> Iterator[Output]:
    streams = timed_inputs(rules)
    for name, stream in streams.items():
        folder = "" if len(streams) == 1 else f"stream={name}"
        yield Output(late_kind(name), declared_schema(stream), stream, folder)
