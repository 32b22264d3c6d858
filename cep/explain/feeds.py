"""What rules read from each other, as lines of an explanation and as arrows of a picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cep.compiler.compile import CompiledRule
from cep.program.chains import has_same_key
from cep.program.match_stream import MatchStream
from cep.schema.time_literals import print_duration


def feeds(rule: CompiledRule) -> Iterator[str]:
    """Yield how `rule` receives the matches that it reads."""
    for stream in _read(rule):
        yield f"  reads      each match of {stream.name} as an event at its end, after all other events"
        if stream.held_us:
            length = print_duration(stream.held_us)
            yield f"             a match can be found up to {length} after its end, and the rule waits for it"
        if not has_same_key(rule.program, stream):
            keys = ", ".join(stream.key)
            yield f"             {stream.name} has another key ({keys}): a batch on Spark brings its matches"
            yield "             together again; in a stream one key group has all events of both rules"


def fed(rules: Sequence[CompiledRule]) -> Iterator[tuple[int, int, str]]:
    """Yield which of `rules` reads which other: the number of the rule that is read, the number of the rule
    that reads it, and a label.
    """
    numbers = {rule.name: number for number, rule in enumerate(rules)}
    for number, rule in enumerate(rules):
        for stream in _read(rule):
            if stream.name in numbers:
                yield numbers[stream.name], number, f"matches of {stream.name}"


def _read(rule: CompiledRule) -> Iterable[MatchStream]:
    return (stream for stream in rule.program.streams if isinstance(stream, MatchStream))
