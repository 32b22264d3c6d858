"""The outputs of a pipeline, each with its sink: matches, late events, dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cep.formats.dead_letter import DEAD_LETTER_SCHEMA
from cep.formats.late_events import declared_schema
from cep.rule_set import RuleSet
from spark_runtime.operator.output import DEAD, MATCH, late_kind
from spark_runtime.sinks.protocol import Output
from spark_runtime.sinks.registry import SinkSpec
from spark_runtime.tables.content import timed_inputs

WithOutputs = tuple[SinkSpec, Sequence[Output]]


def with_outputs(
    rules: RuleSet, sinks: Sequence[SinkSpec], late: SinkSpec | None, dead_letter: SinkSpec | None
) -> Iterator[WithOutputs]:
    """Yield each sink with its outputs; `late` has one for each stream."""
    yield from ((spec, (Output(MATCH, rules.match_schema),)) for spec in sinks)
    if late is not None:
        yield late, list(_late(rules))
    if dead_letter is not None:
        yield dead_letter, (Output(DEAD, DEAD_LETTER_SCHEMA),)


def _late(rules: RuleSet) -> Iterator[Output]:
    streams = timed_inputs(rules)
    for name, stream in streams.items():
        folder = "" if len(streams) == 1 else f"stream={name}"
        yield Output(late_kind(name), declared_schema(stream), stream, folder)
