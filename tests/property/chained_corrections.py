"""Corrections of rules over rules: what stands after each call is what a batch reports.

`python -m tests.property.corrections` tries more of these cases than the gate does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from cep.engine.chains.chain import units_of
from cep.engine.chains.linked import LinkedPrograms
from cep.engine.corrections.corrector import Corrector
from cep.engine.event_time.watermark import START_OF_TIME_US
from cep.engine.prepare.predicates import prepare
from cep.rule_set import Corrections, RuleSet
from cep.schema.stream import Stream
from tests.property.chains import Chained, chained
from tests.property.corrected_rules import PLENTY, Correction, delivered, often_late
from tests.property.differential import canonical, stream_table
from tests.property.strategies.events import FIELDS, SECOND_US
from tests.standing import Standing


@st.composite
def linked(draw: st.DrawFn) -> Correction:
    """Draw rules over rules, and events in any order or nearly in order."""
    drawn = draw(chained())
    # Rows of events of different streams cannot be in one table (E0615).
    rules = tuple(replace(rule, report=replace(rule.report, all_rows=False)) for rule in drawn.case.rules)
    case = Chained(replace(drawn.case, rules=rules))
    in_order = sorted(case.case.events, key=lambda event: event["ts"])
    return draw(delivered(case.rule_set.programs, case.case.stream, tuple(in_order)))


INNER = ("a -> b", "a ->> b", "a b", "a -> !b -> c", "a -> !b", "a -> b->+", "a -> b?", "a | b")
OUTER = ("m -> m2", "m -> c", "c -> m", "m -> !c", "m->+", "m -> !m2 FOR 3 SECONDS", "m c", "d -> m ->> m2")
LETTERS = {"a": 0, "b": 1, "c": 2, "d": 3}


@st.composite
def lively(draw: st.DrawFn) -> Correction:
    """Draw a rule with many matches, and one or two over them; late events change them."""
    modes = ["", "", "MATCH ALL", "MATCH PREFERRED", "MATCH ALL AFTER MATCH SKIP TO NEXT EVENT"]
    mode = st.sampled_from(modes)
    inner, outer = draw(st.sampled_from(INNER)), draw(st.sampled_from(OUTER))
    suppress = draw(st.sampled_from(["", "", "SUPPRESS FOR 2 SECONDS"]))
    timeouts = draw(st.sampled_from(["", "ON TIMEOUT"]))
    defined = ", ".join(f"{name} AS i = {i}" for name, i in LETTERS.items() if name in inner)
    text = f"""
RULE m FROM events PARTITION BY k PATTERN {inner} WITHIN 4 SECONDS {draw(mode)} {suppress} {timeouts}
DEFINE {defined} MEASURES COUNT(*) AS n, SUM(x.w) AS w SUBSET x = ({_taken(inner)})
RULE outer FROM MATCHES OF m{", events" if _reads_events(outer) else ""} PARTITION BY k PATTERN {outer}
WITHIN {draw(st.sampled_from(["3 SECONDS", "9 SECONDS"]))} {draw(mode)}
DEFINE {_over(outer)} MEASURES COUNT(*) AS n, LAST(m.n) AS last_n, LAST(m.match_id) AS last_id
"""
    if draw(st.booleans()):
        text += "RULE outer_2 FROM MATCHES OF outer PARTITION BY k PATTERN m->{2} WITHIN 9 SECONDS "
        text += "DEFINE m AS TRUE"
    stream = Stream("events", FIELDS, "ts", (), draw(st.integers(0, 2)) * SECOND_US)
    within_us = draw(st.sampled_from([3, 8, 8, 10**6])) * SECOND_US
    bound = Corrections(within_us, draw(st.sampled_from([30, PLENTY, PLENTY])))
    return replace(draw(often_late(text, stream)), bound=bound)


def _taken(pattern: str) -> str:
    return ", ".join(name for name in LETTERS if re.search(rf"(?<!!)\b{name}\b", pattern))


def _reads_events(pattern: str) -> bool:
    return any(name in pattern for name in LETTERS)


def _over(pattern: str) -> str:
    on = _reads_events(pattern)
    rules = [f"{name}{' ON m' if on else ''} AS TRUE" for name in re.findall(r"m2?", pattern)]
    events = [f"{name} ON events AS i = {i}" for name, i in LETTERS.items() if name in pattern]
    return ", ".join(dict.fromkeys([*rules, *events]))


def joined(unit: LinkedPrograms, case: Correction, events: Sequence[dict[str, Any]]) -> pa.Table:
    """Return events as those of all programs that read them."""
    table = stream_table(case.stream, events)
    parts = [unit.event_schema.empty_table()]
    for number, program in enumerate(unit.programs):
        if case.stream in program.streams:
            parts.append(unit.joined(number, prepare(program, table, case.stream)))
    return pa.concat_tables(parts)


def check(case: Correction, tally: Counter[str] | None = None) -> None:
    """Compare with a batch after every call."""
    rules = replace(RuleSet(case.programs), corrections=case.bound)
    for unit in units_of(rules):
        if isinstance(unit, LinkedPrograms):
            _check(unit, case, Counter() if tally is None else tally)


def _check(unit: LinkedPrograms, case: Correction, tally: Counter[str]) -> None:
    corrector = Corrector(unit, case.bound)
    standing = Standing(lambda value: repr(canonical(value)))
    counted: list[dict[str, Any]] = []
    seen, newest_us = 0, START_OF_TIME_US

    def batch(until_us: int | None) -> list[dict[str, Any]]:
        front = unit.matcher()
        front.take_in(joined(unit, case, counted))
        found: list[dict[str, Any]] = front.advance(2**60 if until_us is None else until_us).to_pylist()
        return found

    for delivery in case.deliveries:
        events = case.events[seen : seen + delivery.n_events]
        seen += delivery.n_events
        final_us = corrector.final_us
        corrector.push(joined(unit, case, events))
        counted += [event for event in events if event["ts"] > final_us]
        if delivery.restores:
            corrector = Corrector.restore(unit, corrector.snapshot(), case.bound)
        newest_us = max(newest_us, *(event["ts"] for event in events))
        if delivery.advances:
            rows = corrector.advance(newest_us - case.stream.lateness_us).to_pylist()
            standing.read(rows)
            standing.check(batch(corrector.watermark_us))
            tally["rows of readers withdrawn"] += sum(
                row["kind"] == "retract" and row["rule"].startswith("outer") for row in rows
            )
    standing.read(corrector.finish().to_pylist())
    standing.check(batch(None))
    tally["units"] += 1
    tally["rows withdrawn"] += standing.n_retracted
