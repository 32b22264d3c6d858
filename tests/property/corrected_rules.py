"""Corrections of drawn rules of any form: what stands after each call is what a batch reports.

`python -m tests.property.corrections` tries more of these cases than the gate does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import reject
from hypothesis import strategies as st

from cep.compiler import ir
from cep.compiler.compile import compile_sources
from cep.engine.corrections.corrector import Corrector
from cep.engine.event_time.watermark import START_OF_TIME_US
from cep.engine.matching.matcher import Matcher
from cep.engine.prepare.predicates import prepare
from cep.errors import RuleError, Source
from cep.program.program import Program
from cep.rule_set import Corrections
from cep.schema.stream import Stream
from tests.property.differential import canonical, programs_of, stream_table
from tests.property.strategies.cases import MAX_SIZE, Case, cases
from tests.property.strategies.events import FIELDS, MAX_EVENTS, SECOND_US, copies_agree
from tests.standing import Standing


@dataclass(frozen=True, slots=True)
class Delivery:
    """`n_events` more events; then event time goes on, and the corrector is restored, or not."""

    n_events: int
    advances: bool
    restores: bool


@dataclass(frozen=True, slots=True)
class Correction:
    """Rules, events in a random order of arrival, and how far behind the watermark they may come."""

    programs: tuple[Program, ...]
    stream: Stream
    events: tuple[dict[str, Any], ...]
    deliveries: tuple[Delivery, ...]
    bound: Corrections


@st.composite
def corrections(draw: st.DrawFn, max_events: int = MAX_EVENTS, max_size: int = MAX_SIZE) -> Correction:
    """Draw rules of any form."""
    case: Case = draw(cases(max_events=max_events, max_size=max_size))
    rules = tuple(replace(rule, report=draw(_limited(rule.report))) for rule in case.rules)
    return draw(delivered(programs_of(replace(case, rules=rules)), case.stream, case.events))


def _limited(report: ir.Report) -> st.SearchStrategy[ir.Report]:
    """Draw how many runs a key may have."""
    return st.sampled_from([report, report, replace(report, max_runs=1), replace(report, max_runs=3)])


PATTERNS = (
    *("a b", "a -> b", "a ->> b", "a b+ c", "a -> b+ -> c", "a ->> b+ ->> c", "a (b | c)+ d", "(a & b) -> c"),
    *("a -> !b -> c", "a !b", "a -> !b", "!b -> a -> c", "a -> !c FOR 2 SECONDS", "a b?", "a -> b{2}"),
    *("a ->[<= 2 SECONDS] b", "a -> (b -> c WITHIN 3 SECONDS)", "a -> b->+ UNTIL (i = 3) -> c"),
)
"""Patterns that match often, and whose matches late events take away."""


@st.composite
def lively(draw: st.DrawFn) -> Correction:
    """Draw a rule that has many matches, over a stream in which late events change them."""
    selection = draw(st.sampled_from(["EARLIEST", "ALL", "PREFERRED"]))
    skips = ["PAST LAST EVENT", "TO NEXT EVENT", "TO LAST a"]
    skip = draw(st.sampled_from(["NO SKIP", *(f"AFTER MATCH SKIP {skip}" for skip in skips)]))
    window = draw(st.sampled_from(["WITHIN 4 SECONDS"] * 3 + ["WITHIN 9 SECONDS", "WITHIN 5 EVENTS", ""]))
    rows = draw(st.sampled_from(["ONE ROW PER MATCH"] * 3 + ["ALL ROWS PER MATCH"]))
    timeouts = draw(st.sampled_from(["", "", "ON TIMEOUT"]))
    suppress = draw(st.sampled_from(["", "", "SUPPRESS FOR 3 SECONDS", "SUPPRESS AFTER 2 PER DAY"]))
    runs = draw(st.sampled_from(["", "", "MAX RUNS 2 PER KEY", "MAX RUNS 2 PER KEY ON OVERFLOW DROP NEWEST"]))
    pattern = draw(st.sampled_from(PATTERNS))
    defined = [f"{name} AS i = {i}" for i, name in enumerate("abcd") if re.search(rf"\b{name}\b", pattern)]
    text = (
        f"RULE lively FROM events PARTITION BY k MATCH {selection} PATTERN {pattern}"
        f" {window} DEFINE {', '.join(defined)} MEASURES COUNT(*) AS n,"
        f" SUM(a.w) AS w, ARRAY_AGG(a.i) AS l {rows} {timeouts} {suppress} {skip} {runs}"
    )
    tie_break = draw(st.sampled_from([(), ("t",)]))
    deduplicate = bool(tie_break) and draw(st.booleans())
    stream = Stream("events", FIELDS, "ts", tie_break, draw(st.integers(0, 2)) * SECOND_US, deduplicate)
    return draw(often_late(text, stream))


@st.composite
def often_late(draw: st.DrawFn, text: str, stream: Stream) -> Correction:
    """Draw events of `stream` of which many come late, for the rules of `text`."""
    try:
        programs = compile_sources([Source("lively.cep", text)], {"events": stream}).programs
    except RuleError:
        reject()
    random = Random(draw(st.integers(0, 2**32)))
    events: list[dict[str, Any]] = []
    now_us, letter = 0, 0
    for number in range(random.randrange(10, 50)):
        now_us += random.choice([0, 1, 1, 2]) * SECOND_US
        letter = (letter + random.choice([0, 1, 1, 1, 2, 3])) % 4
        event = {"k": random.choice([1, 1, 1, 2]), "g": "x", "ts": now_us, "w": 1 << number, "i": letter}
        events.append(event | {"t": number % 3, "d": 0.5, "s": "p", "b": None})
    if stream.deduplicate:
        events = copies_agree(events, stream)
    arrival = sorted(events, key=lambda event: event["ts"] + random.choice([0, 0, 0, 2, 6]) * SECOND_US)
    if random.random() < 0.2:
        random.shuffle(arrival)
    deliveries = []
    left = len(arrival)
    while left:
        size = random.randint(1, min(left, 4))
        deliveries.append(Delivery(size, random.random() < 0.8, random.random() < 0.3))
        left -= size
    return Correction(programs, stream, tuple(arrival), tuple(deliveries), draw(_bounds()))


def _bounds() -> st.SearchStrategy[Corrections]:
    within_us = st.sampled_from([SECOND_US, 3 * SECOND_US, 8 * SECOND_US, FOREVER_US])
    return st.builds(Corrections, within_us, st.sampled_from([0, 3, 10, 30, PLENTY, PLENTY, PLENTY]))


@st.composite
def delivered(
    draw: st.DrawFn, programs: tuple[Program, ...], stream: Stream, in_order: tuple[dict[str, Any], ...]
) -> Correction:
    """Draw how events arrive: in any order, or nearly in order."""
    events = draw(st.permutations(in_order))
    if draw(st.integers(0, 3)):  # most are in time
        held_us = [draw(st.sampled_from([0, 0, 0, 2, 6])) * SECOND_US for _ in in_order]
        order = sorted(range(len(held_us)), key=lambda at: in_order[at]["ts"] + held_us[at])
        events = [in_order[at] for at in order]
    left, deliveries = len(events), []
    while left:
        size = draw(st.integers(1, min(left, 4)))
        deliveries.append(Delivery(size, draw(st.integers(0, 3)) > 0, draw(st.integers(0, 2)) == 0))
        left -= size
    return Correction(programs, stream, tuple(events), tuple(deliveries), draw(_bounds()))


FOREVER_US = 10**12
PLENTY = 1000
"""More than there is to retain."""


def batch_rows(
    program: Program, case: Correction, events: Sequence[dict[str, Any]], until_us: int | None
) -> pa.Table:
    """Return what a matcher reports that gets all `events` at once, up to a time or to the end."""
    matcher = Matcher(program)
    matcher.push(prepare(program, stream_table(case.stream, events)))
    return matcher.finish() if until_us is None else matcher.advance(until_us)


def check(correction: Correction, tally: Counter[str] | None = None) -> None:
    """Compare with a batch after every call; count what was withdrawn."""
    for program in correction.programs:
        n_retracted = _check(program, correction)
        if tally is not None:
            tally["units"] += 1
            tally["rows withdrawn"] += n_retracted


def _check(program: Program, correction: Correction) -> int:
    case, bound = correction, correction.bound
    corrector = Corrector(program, bound)
    standing = Standing(lambda value: repr(canonical(value)))
    counted: list[dict[str, Any]] = []
    seen, newest_us, n_late, n_uncorrected = 0, START_OF_TIME_US, 0, 0
    for delivery in correction.deliveries:
        batch = case.events[seen : seen + delivery.n_events]
        seen += delivery.n_events
        final_us, watermark_us = corrector.final_us, corrector.watermark_us
        in_time = [event for event in batch if event["ts"] > final_us]
        late = corrector.push(prepare(program, stream_table(case.stream, batch)))
        too_late = [event for event in batch if event["ts"] <= final_us]
        assert late.num_rows == prepare(program, stream_table(case.stream, too_late)).num_rows
        beyond = [event for event in too_late if event["ts"] > watermark_us - bound.within_us]
        n_late += late.num_rows
        n_uncorrected += prepare(program, stream_table(case.stream, beyond)).num_rows
        counted += in_time
        if delivery.restores:
            corrector = Corrector.restore(program, corrector.snapshot(), bound)
        newest_us = max(newest_us, *(event["ts"] for event in batch))
        if delivery.advances:
            standing.read(corrector.advance(newest_us - case.stream.lateness_us).to_pylist())
            standing.check(batch_rows(program, case, counted, corrector.watermark_us).to_pylist())
            assert corrector.n_retained <= bound.max_retained
    standing.read(corrector.finish().to_pylist())
    expected = batch_rows(program, case, counted, None)
    standing.check(expected.to_pylist())
    counters = corrector.counters
    n_matches = sum(counters.matches.values()) + sum(counters.timeouts.values())
    assert n_matches == len(expected) or program.has_all_rows
    assert (counters.late, counters.uncorrected) == (n_late, n_uncorrected)
    if bound == Corrections(FOREVER_US, PLENTY):
        assert counters.late == 0
    return standing.n_retracted
