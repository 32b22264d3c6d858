"""Corrections under random orders of arrival: what stands after every call is what a batch reports.

`check` compares, value by value, the rows of a `Corrector` that is fed in parts with the rows of a matcher
that gets at once all that has been counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from cep.engine.chains.chain import units_of
from cep.engine.chains.linked import LinkedPrograms
from cep.engine.corrections.corrector import Corrector
from cep.engine.corrections.evaluated import Evaluated, OneProgram
from cep.engine.event_time.watermark import END_OF_TIME_US, START_OF_TIME_US
from cep.engine.prepare.predicates import prepare
from cep.engine.prepare.versions import extents, prepared_versions
from cep.program.match_stream import MatchStream
from cep.program.program import MATCH, Program
from cep.rule_set import KIND, RETRACT, REVISION, RuleSet
from cep.schema.stream import Stream
from tests.property.differential import stream_table
from tests.property.strategies.late import FOREVER_US, PLENTY, Arrival, Late
from tests.standing import Standing

Row = dict[str, Any]


def check(case: Late, tally: Counter[str] | None = None) -> None:
    """Compare with a batch after every call; count what was withdrawn."""
    rules = case.rule_set()
    for unit in units_of(rules):
        evaluated = OneProgram(unit) if isinstance(unit, Program) else unit
        _Comparison(evaluated, case, rules, Counter() if tally is None else tally).run()


def events_of(unit: Evaluated, stream: Stream, rows: Sequence[Row]) -> Iterator[pa.Table]:
    """Yield events of a stream, or versions of a table, as those of all programs that read them."""
    table = stream_table(stream, rows)
    for number, program in enumerate(unit.programs):
        found = [prepare(program, table, stream)] if stream in program.streams else []
        found += prepared_versions(program, stream, table)
        found += extents(program, stream, table)
        yield from (unit.joined(number, one) if isinstance(unit, LinkedPrograms) else one for one in found)


class _Comparison:
    """A corrector beside a matcher that gets everything at once."""

    def __init__(self, unit: Evaluated, case: Late, rules: RuleSet, tally: Counter[str]) -> None:
        self.unit = unit
        self.case = case
        self.tally = tally
        self.inputs = case.inputs
        self.lateness_us = rules.lateness_us
        self.corrector = Corrector(unit, case.bound)
        self.standing = Standing(exact)
        self.counted: list[Arrival] = []
        self.n_late = 0
        self.newest_us = START_OF_TIME_US

    def run(self) -> None:
        """Deliver all arrivals."""
        at = 0
        for cut in self.case.cuts:
            self.take_in(self.case.arrivals[at : at + cut.n])
            at += cut.n
            if cut.restores:
                saved = self.corrector.snapshot()
                self.corrector = Corrector.restore(self.unit, saved, self.case.bound)
            if cut.advances:
                self.advance(self.newest_us - self.lateness_us, compares=cut.compares)
                assert self.corrector.n_retained <= self.case.bound.max_retained
        self.advance(END_OF_TIME_US, compares=True)
        self.tally["units"] += 1
        assert self.corrector.counters.late == self.n_late
        if self.case.bound.within_us == FOREVER_US and self.case.bound.max_retained == PLENTY:
            assert self.n_late == 0

    def take_in(self, arrivals: Sequence[Arrival]) -> None:
        """Push arrivals, and find out which are counted."""
        final_us = self.corrector.final_us
        for name, stream in self.inputs.items():
            rows = [arrival.row for arrival in arrivals if arrival.name == name]
            if not rows:
                continue
            self.newest_us = max(self.newest_us, *(row[stream.event_time] for row in rows))
            in_time = [row for row in rows if row[stream.event_time] > final_us]
            too_late = [row for row in rows if row[stream.event_time] <= final_us]
            for events in events_of(self.unit, stream, in_time) if in_time else ():
                assert self.corrector.push(events).num_rows == 0
            if too_late and name == self.case.stream.name:
                for events in _plain_events(self.unit, stream, too_late):
                    assert self.corrector.push(events).num_rows == events.num_rows
                    self.n_late += self.unit.n_counted(events)
            self.counted += [Arrival(name, row) for row in in_time]

    def advance(self, until_us: int, *, compares: bool) -> None:
        """Let event time go on; what stands must be what a batch reports."""
        rows = self.corrector.advance(until_us).to_pylist()
        self.standing.read(rows)
        self.count(rows)
        if not compares:
            return
        batch = self.unit.matcher()
        for name, stream in self.inputs.items():
            of_input = [arrival.row for arrival in self.counted if arrival.name == name]
            for events in events_of(self.unit, stream, of_input) if of_input else ():
                batch.take_in(events)
        reached_us = self.corrector.watermark_us
        expected = batch.advance(reached_us) if reached_us > START_OF_TIME_US else None
        self.standing.check([] if expected is None else expected.to_pylist())
        if until_us == END_OF_TIME_US:
            mine, others = self.corrector.counters, batch.counters
            assert (mine.matches, mine.timeouts) == (others.matches, others.timeouts)

    def count(self, rows: Sequence[Row]) -> None:
        """Count what was withdrawn, by what it is of."""
        again = {(row["match_id"], row[REVISION]) for row in rows if row[KIND] == MATCH}
        for row in rows:
            if row[KIND] == RETRACT:
                self.tally["rows withdrawn"] += 1
                self.tally[f"withdrawn of {self.about[row['rule']]}"] += 1
                if (row["match_id"], row[REVISION] + 1) in again:
                    self.tally["rows withdrawn whose match stays"] += 1
                    self.tally[f"values changed of {self.about[row['rule']]}"] += 1

    @property
    def about(self) -> dict[str, str]:
        """What each rule is."""
        return {rule.name: _about(program, rule) for program in self.unit.programs for rule in program.rules}


def _about(program: Program, rule: Any) -> str:
    if any(isinstance(stream, MatchStream) for stream in program.streams):
        return "rules over rules"
    if rule.windowed is not None:
        return "window rules"
    return "patterns with tables" if program.joins.tables else "patterns"


def _plain_events(unit: Evaluated, stream: Stream, rows: Sequence[Row]) -> Iterator[pa.Table]:
    """Yield `rows` in one table of all programs, as the operator hands them over."""
    table = stream_table(stream, rows)
    for number, program in enumerate(unit.programs):
        if stream in program.streams:
            events = prepare(program, table, stream)
            yield unit.joined(number, events) if isinstance(unit, LinkedPrograms) else events


def exact(value: Any) -> str:
    """Return a value as text, to the last bit: all NaN are equal, 0.0 and -0.0 are not."""
    return repr(value)
