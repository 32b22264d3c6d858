"""Rules over rules, plainly: matches become events, then the next rule is run ("Rules over rules")."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cep.compiler import ir
from cep.schema.stream import Stream
from tests.oracle.expressions import Event
from tests.oracle.matches import Match, find_matches
from tests.oracle.partitions import event_of

IdOf = Callable[[ir.Rule, Match], str]
"""Returns the id of a match. The oracle does not know how ids are made."""


def find_chained(
    rules: Sequence[ir.Rule],
    streams: Mapping[str, Stream],
    events: Mapping[str, Sequence[Event]],
    id_of: IdOf,
) -> dict[str, list[Match]]:
    """Return the matches of each rule by its name; a rule comes behind those whose matches it reads.

    `events` are those of each declared stream, in the order of arrival; none is late.
    """
    known = {name: list(of_stream) for name, of_stream in events.items()}
    declared = dict(streams)
    found: dict[str, list[Match]] = {}
    for rule in rules:
        declared |= {stream.name: stream for stream in rule.matches}
        read = [declared[name] for name in rule.streams]
        rows = [
            event_of(stream, columns) if len(read) > 1 else columns
            for stream in read
            for event in known[stream.name]
            for columns in [{field.name: event[field.name] for field in stream.fields}]  # lists are none
        ]
        found[rule.name] = find_matches(rule, read, rows)
        known[rule.name] = [
            event_of_match(rule, match, id_of(rule, match))
            for match in found[rule.name]
            if not match.is_timeout
        ]
    return found


def event_of_match(rule: ir.Rule, match: Match, match_id: str) -> dict[str, Any]:
    """Return a match as an event: its time is `match_end`."""
    return {
        "rule": rule.name,
        **dict(zip(rule.key, match.key, strict=True)),
        "match_id": match_id,
        "match_start": match.start_us,
        "match_end": match.end_us,
        **match.measures,
    }
