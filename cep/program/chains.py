"""Which programs read the matches of which rules, and the resulting order, delays and stages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from cep.program.fingerprint import rule_meaning
from cep.program.match_stream import MatchStream
from cep.program.program import Program


@dataclass(frozen=True, slots=True)
class Feed:
    """Matches of the rule `stream.name` of one program that are events of `stream` in another.

    Programs have numbers. With `same_key`, a match and the event that it becomes have the same key, so they
    belong to one key group.
    """

    source: int
    target: int
    stream: MatchStream
    same_key: bool


@dataclass(frozen=True)
class Chains:
    """Which matches the programs of a rule set read of each other.

    Parameters
    ----------
    programs
        Each program after those whose matches it reads, as `cep.compiler.lowering.lower` returns them.
    """

    programs: tuple[Program, ...]

    @cached_property
    def feeds(self) -> tuple[Feed, ...]:
        """All feeds, by target; a rule outside the programs feeds none."""
        return tuple(
            Feed(source, number, stream, has_same_key(program, stream))
            for number, program in enumerate(self.programs)
            for stream in program.streams
            if isinstance(stream, MatchStream) and (source := self._source(stream, number)) is not None
        )

    @cached_property
    def lags_us(self) -> tuple[int, ...]:
        """How far the event time of each program lags behind that of its inputs.

        After event time has reached w in the programs that it reads, no match that ends at or before w -
        `held_us` can come any longer.
        """
        lags = [0] * len(self.programs)
        for feed in self.feeds:
            lags[feed.target] = max(lags[feed.target], lags[feed.source] + feed.stream.held_us)
        return tuple(lags)

    @cached_property
    def stages(self) -> tuple[int, ...]:
        """The stage of each program, from 0: a program with a different key comes in a later stage.

        Programs of one stage that feed each other have the same key. They can run in one key group.
        """
        stages = [0] * len(self.programs)
        for feed in self.feeds:
            stages[feed.target] = max(stages[feed.target], stages[feed.source] + (not feed.same_key))
        return tuple(stages)

    @property
    def n_stages(self) -> int:
        """Number of stages."""
        return max(self.stages, default=0) + 1

    @cached_property
    def gathered(self) -> frozenset[int]:
        """The programs that are connected, through any number of feeds, with a feed by a different key.

        Where key groups are separate, as in a stream on Spark, one group has all their events.
        """
        across = {feed.source for feed in self.feeds if not feed.same_key}
        return frozenset(number for part in self.connected if across & set(part) for number in part)

    @cached_property
    def connected(self) -> tuple[tuple[int, ...], ...]:
        """The programs in parts that no feed connects; the parts and their programs are in order."""
        part_of = list(range(len(self.programs)))
        for feed in self.feeds:
            first, other = sorted((part_of[feed.source], part_of[feed.target]))
            part_of = [first if part == other else part for part in part_of]
        return tuple(
            tuple(number for number, of in enumerate(part_of) if of == part)
            for part in dict.fromkeys(part_of)
        )

    def _source(self, stream: MatchStream, target: int) -> int | None:
        """Return the program that has the rule of `stream`."""
        found = [
            number
            for number, program in enumerate(self.programs[:target])
            if any(rule.name == stream.name for rule in program.rules)
        ]
        if len(found) > 1:  # combined rule sets with two rules of the same name
            found = [at for at in found if rule_meaning(self.programs[at], stream.name) == stream.meaning]
        return found[0] if found else None


def has_same_key(program: Program, stream: MatchStream) -> bool:
    """Return whether `program` partitions the matches of `stream` by the key of their rule."""
    return {role.key for role in program.roles_of(stream).values()} == {stream.key}
