"""The matches of a rule as a stream that other rules read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cep.expression import Type
from cep.program.views import ChangeStream
from cep.schema.stream import Field, Stream

MATCH_TIME = "match_end"
"""The event time of a match."""

_DDL = {
    Type.BOOLEAN: "boolean",
    Type.BIGINT: "bigint",
    Type.DOUBLE: "double",
    Type.STRING: "string",
    Type.TIMESTAMP: "timestamp",
    Type.INTERVAL: "bigint",  # microseconds
    Type.OPAQUE: "string",  # JSON
}


@dataclass(frozen=True, slots=True, repr=False)
class MatchStream(Stream):
    """The matches of the rule `name`. No source delivers them: they are found in the same run.

    `held_us`: a match may be found up to this many microseconds of event time after its end. `meaning`: the
    meaning of the rule's stored state (`cep.program.identity`); empty until the rule is compiled.
    """

    key: tuple[str, ...] = ()
    held_us: int = 0
    meaning: bytes = b""


def match_stream(
    name: str, key: Iterable[tuple[str, Type]], measures: Iterable[tuple[str, Type]], held_us: int
) -> MatchStream:
    """Return the matches of rule `name` as a stream, with the columns that they have in the output.

    Lists are not columns of it. Matches of equal end are in the order of the output: by start, key and id.
    """
    key = tuple(key)
    fields = [Field("rule", "string")]
    fields += [Field(column, _DDL[kind]) for column, kind in key]
    fields += [Field("match_id", "string"), Field("match_start", "timestamp"), Field(MATCH_TIME, "timestamp")]
    fields += [Field(column, _DDL[kind]) for column, kind in measures]
    names = tuple(column for column, _ in key)
    return MatchStream(
        name=name,
        fields=tuple(fields),
        event_time=MATCH_TIME,
        tie_break=("match_start", *names, "match_id"),
        key=names,
        held_us=held_us,
    )


def inputs_of(streams: Iterable[Stream]) -> tuple[Stream, ...]:
    """Return the streams whose events come from outside."""
    return tuple(stream for stream in streams if not isinstance(stream, MatchStream | ChangeStream))
