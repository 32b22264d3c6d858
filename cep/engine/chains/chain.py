"""Chain evaluates a rule set. All runners use it, whether or not rules read the matches of rules.

    chain = Chain(rules)
    late = chain.push(number, events)     # prepared events of program `number`
    chain.advance(time_us, put)           # `put` receives the matches of all programs
    chain.finish(put)

Without corrections there is a `Matcher` for each program. With them there is a `Corrector` for each program,
or for each group of programs that read each other's matches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from cep.engine.chains.fed_matchers import FedMatchers, Forward
from cep.engine.chains.linked import LinkedPrograms
from cep.engine.corrections.corrector import Corrector
from cep.engine.event_time.watermark import END_OF_TIME_US
from cep.engine.matching.matcher import Emit, Matcher
from cep.engine.matching.shedding import DropOrder, Dropped, DroppedEvents, shed_runs, shed_waiting
from cep.engine.prepare.predicates import prepare
from cep.engine.prepare.versions import extents, prepared_versions
from cep.program.program import Program
from cep.rule_set import Corrections, RuleSet
from cep.schema.stream import Stream

if TYPE_CHECKING:
    from cep.engine.tables.tables import GivenTable


class Chain:
    """All programs of `rules` over the events of any number of keys.

    - `tables`: the rows of static tables, by name. The mapping is read at each look-up.
    - `matchers`: the matchers restored from snapshots, one for each of `units_of(rules)`. Without them all
      start from the beginning.
    - `stage`: only the programs of this stage (`Chains.stages`) run; None: all of them.
    - `forward`: receives the events for programs of later stages, if `stage` is given.
    """

    def __init__(
        self,
        rules: RuleSet,
        matchers: Sequence[Matcher | Corrector] | None = None,
        *,
        tables: Mapping[str, GivenTable] | None = None,
        stage: int | None = None,
        forward: Forward | None = None,
    ) -> None:
        self.rules = rules
        self.units = units_of(rules, tables)
        self.matchers = (
            [_fresh(unit, rules.corrections, tables) for unit in self.units]
            if matchers is None
            else list(matchers)
        )
        self._fed: FedMatchers | None = None
        if rules.corrections is None:
            plain = [matcher for matcher in self.matchers if isinstance(matcher, Matcher)]
            self._fed = FedMatchers(rules.chains, plain, stage, forward)

    @property
    def watermark_us(self) -> int:
        """The event time that the inputs have reached."""
        return max(matcher.watermark_us for matcher in self.matchers)

    def push(self, number: int, events: pa.Table) -> pa.Table:
        """Add prepared events of program `number` in any order; return those that come too late."""
        if self._fed is not None:
            return self._fed.push(number, events)
        program = self.rules.programs[number]
        for unit, matcher in zip(self.units, self.matchers, strict=True):
            if unit is program:
                return matcher.push(events)
            if isinstance(unit, LinkedPrograms) and any(item is program for item in unit.programs):
                local = next(at for at, item in enumerate(unit.programs) if item is program)
                return unit.split(local, matcher.push(unit.joined(local, events)))
        raise AssertionError(number)

    def take_in(self, number: int, events: pa.Table, data: bytes | pa.Buffer | None = None) -> None:
        """Add prepared events of program `number` that `watermark_us` has not passed.

        `data`: the same events as bytes, for a chain that records its input.
        """
        if self._fed is None:  # these also decide what earlier late events change
            self.push(number, events)
        else:
            self._fed.matchers[number].take_in(events)

    def push_events(self, stream: Stream, events: pa.Table) -> None:
        """Add typed events of `stream`, or versions of a table, for all programs that read it.

        None of them is late.
        """
        for number, program in enumerate(self.rules.programs):
            if stream in program.streams:
                self.push(number, prepare(program, events, stream))
            for versions in prepared_versions(program, stream, events):
                self.push(number, versions)
            for extent in extents(program, stream, events):
                self.push(number, extent)

    def advance(
        self,
        watermark_us: int,
        put: Emit,
        *,
        in_parts: bool = True,
        put_beyond: Emit | None = None,
    ) -> None:
        """Advance event time to `watermark_us`; `put` receives the matches, one or more tables of each
        program.

        With `in_parts` a rule emits its matches in large parts (`Matcher.advance`). `put_beyond` receives
        what corrections add beyond `watermark_us` (`Corrector.advance`).
        """
        if self._fed is not None:
            self._fed.advance(watermark_us, put, in_parts=in_parts)
            return
        for matcher in self.matchers:
            assert isinstance(matcher, Corrector)
            put(matcher.advance(watermark_us, put if in_parts else None, put_beyond))

    def settle(self) -> None:
        """Do what the next events would have to wait for. It changes no result, and need not be called."""
        for matcher in self.matchers:
            if isinstance(matcher, Matcher):
                matcher.settle()

    def finish(self, put: Emit, *, in_parts: bool = True) -> None:
        """The input is complete: every window closes."""
        self.advance(END_OF_TIME_US, put, in_parts=in_parts)

    @property
    def open_runs(self) -> dict[str, int]:
        """Number of open runs of all keys, by rule."""
        return {name: n for matcher in self.matchers for name, n in matcher.open_runs.items()}

    @property
    def run_bytes(self) -> int:
        """The bytes of the open runs in memory; those of rules with corrections are not counted."""
        return sum(matcher.run_bytes for matcher in self.matchers if isinstance(matcher, Matcher))

    def shed_runs(self, most: int, order: DropOrder) -> Dropped:
        """Drop the open runs of all keys and rules beyond `most`; with corrections there is no such limit."""
        return shed_runs([each for each in self.matchers if isinstance(each, Matcher)], most, order)

    @property
    def waiting_events(self) -> dict[str, int]:
        """Number of waiting events of all keys by the first rule of a program.

        Versions of tables are not counted, unless late events correct matches.
        """
        return {
            each.program.rules[0].name: len(each.waiting_us())
            if isinstance(each, Matcher)
            else each.n_waiting
            for each in self.matchers
        }

    def shed_waiting(self, most: int, order: DropOrder) -> DroppedEvents:
        """Drop the waiting events of all keys and programs beyond `most`."""
        return shed_waiting([each for each in self.matchers if isinstance(each, Matcher)], most, order)

    def next_deadline_us(self) -> int | None:
        """Return the first time at which `advance` has something to do, or None."""
        if self._fed is not None:
            return self._fed.next_deadline_us()
        deadlines = (matcher.next_deadline_us() for matcher in self.matchers)
        return min((us for us in deadlines if us is not None), default=None)

    def duplicates_of(self) -> list[list[int]]:
        """Return how many repeated deliveries each program received, by its streams."""
        numbers: dict[int, list[int]] = {}
        for unit, matcher in zip(self.units, self.matchers, strict=True):
            met = list(matcher.counters.duplicates_of)
            for program in unit.programs if isinstance(unit, LinkedPrograms) else (unit,):
                numbers[id(program)] = met[: len(program.streams)]
                met = met[len(program.streams) :]
        return [numbers[id(program)] for program in self.rules.programs]


def units_of(
    rules: RuleSet, tables: Mapping[str, GivenTable] | None = None
) -> tuple[Program | LinkedPrograms, ...]:
    """Return the units that have their own state: programs; with corrections, those that matches connect."""
    if rules.corrections is None or not rules.chains.feeds:
        return rules.programs
    parts = [tuple(rules.programs[number] for number in part) for part in rules.chains.connected]
    return tuple(part[0] if len(part) == 1 else LinkedPrograms(part, tables) for part in parts)


def _fresh(
    unit: Program | LinkedPrograms, corrections: Corrections | None, tables: Mapping[str, GivenTable] | None
) -> Matcher | Corrector:
    if corrections is not None:
        return Corrector(unit, corrections, tables)
    assert isinstance(unit, Program)
    return Matcher(unit, tables)
