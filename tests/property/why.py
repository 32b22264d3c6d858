"""What `cep why` says, on random rules and streams.

    python -m tests.property.why --examples 5000

Its matches are those of a run. What it says was missing, added to the events or the tables, takes the
attempt further. What it says ended an attempt or removed a match, taken away, does so no more. A table at the
end says how often each reason was taken, and what became of it.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import given as given_a
from hypothesis import strategies as st

from cep.compiler import ir
from cep.compiler.automaton.build import build
from cep.compiler.compile import compile_rules, compile_sources
from cep.compiler.ir import DEFAULT_MAX_RUNS
from cep.compiler.lowering.parts import COMPARISONS
from cep.engine.kernels import layout as at
from cep.engine.matching.watched import Guard, Moment
from cep.errors import Source
from cep.explain.shown import show_bound, show_expression
from cep.expression import Call, Column, Expression, Joined, Literal, Type, Windowed, is_local, rebuild, walk
from cep.local.replay import Replay, replay
from cep.rule_set import RuleSet
from cep.why.answer import Answer, why
from cep.why.attempts import Chain
from cep.why.reasons import OF_CONDITION, OF_ENDING, OF_REFUSAL, Attempt, Found, Reason, Refusal, Why
from cep.why.summary import funnel
from tests.property.differential import stream_table
from tests.property.strategies.cases import cases
from tests.property.strategies.events import COLUMNS
from tests.property.tables import TableCase, Version, table_cases

SLOW = list(HealthCheck)

_PORTION = 250
"""Cases drawn with one seed."""

_GUARDED = frozenset(Guard) - {Guard.TAKEN, Guard.IGNORED}

TWO_BRANCHES = """RULE two FROM {stream} PARTITION BY k PATTERN a -> (((b -> c) WITHOUT m) | d)
DEFINE a AS w % 3 = 0, b AS w % 3 > 0, c AS w % 5 = 0, m AS w % 3 = 2, d AS w % 7 = 0"""
"""An event may begin one branch and be kept out of it: random rules have this once in thousands of cases."""

_OF_EVENT = frozenset((Reason.STRICT, Reason.BRANCH, Reason.EXCLUDED, Reason.ABSENCE))
"""Reasons of an event that ended an attempt."""


def replayed(given: TableCase, events: Sequence[dict[str, Any]]) -> Replay:
    """Return the only rule of a case over events, and over its tables if it has some."""
    case = given.case
    built, _ = build(case.rules)
    rules = RuleSet(compile_rules(case.rules, {case.stream.name: case.stream}))
    tables = {case.stream.name: stream_table(case.stream, events)}
    for table in given.tables:
        rows = [version.row for version in given.versions if version.table == table.name]
        tables[table.name] = stream_table(table, rows)
    return replay(built, rules, case.rules[0].name, tables)


def keys_of(found: Replay) -> list[tuple[Any, ...]]:
    names = list(found.watched.program.key_columns)
    keys = found.events.select(names).group_by(names).aggregate([]).to_pylist()
    return [tuple(key.values()) for key in keys]


def check(given: TableCase, counts: Counter[str]) -> None:
    """Check every answer of a case; count what was checked."""
    found = replayed(given, given.case.events)
    check_summary(found, counts)
    for key in keys_of(found):
        answer = Answer(found, key)
        check_conditions(answer, counts)
        told = why(found, key, limit=6)
        reported = found.of_key(found.matches, key, found.watched.program.key).column("match_id").to_pylist()
        assert {match.match_id for match in told.matches if match.removed_by is None} == set(reported)
        counts["matches"] += len(told.matches)
        for match in told.matches:
            if match.removed_by is not None:
                counts[f"{match.removed_by.reason}, {check_removed(given, key, match)}"] += 1
        for attempt in told.attempts:
            assert attempt.ending.reason in OF_ENDING
            check_limit(answer, attempt)
            counts[f"{attempt.ending.reason}, {check_ending(given, answer, attempt)}"] += 1
            for refusal in attempt.refusals:
                assert refusal.reason in OF_REFUSAL
                counts[f"{refusal.reason}, {check_refusal(given, answer, attempt, refusal)}"] += 1
        for at_us in answer.watched.time_us.tolist()[::4]:
            check_skipped(given, answer, why(found, key, at_us, limit=6), counts)


def check_skipped(given: TableCase, answer: Answer, told: Why, counts: Counter[str]) -> None:
    """Check that the match that skipped an attempt is one of the key, and what kept a run from starting."""
    for attempt in told.attempts:
        for refusal in attempt.refusals if not attempt.steps else ():
            counts[f"{refusal.reason}, {check_not_begun(given, answer, refusal)}"] += 1
        if attempt.ending.reason is Reason.SKIPPED:
            by = attempt.ending.event
            if by is None:
                counts["skipped, another run"] += 1
                continue
            first = {answer.lives.steps(chain)[0][1] for chain in answer.lives.matched}
            assert by.place in first, attempt
            counts["skipped, by a match"] += 1


def check_not_begun(given: TableCase, answer: Answer, refusal: Refusal) -> str:
    """Check that a run starts with the event without the event that kept it from starting."""
    if refusal.failed or refusal.because is None:
        return "not tried"
    mark, event = refusal.because.values["w"], refusal.event.values["w"]
    again = Answer(replayed(given, [one for one in given.case.events if one["w"] != mark]), answer.key)
    place = next(place for place, one in enumerate(again.watched.events.to_pylist()) if one["w"] == event)
    variable = again.watched.rule.variables.index(refusal.variable)
    if chain_of(again, [(variable, place)]) is not None:
        return "a run starts"
    later = again._refused_whole(place, next(again._waits(-1)))
    assert later is not None, refusal
    return "kept out by another"


def check_removed(given: TableCase, key: tuple[Any, ...], match: Found) -> str:
    """Check that a suppressed match is reported by the same rule without SUPPRESS."""
    rule = given.case.rules[0]
    free = replace(rule, report=replace(rule.report, suppress_us=0, n_per_day=0))
    told = why(replayed(with_rule(given, free), given.case.events), key, limit=0)
    assert match.match_id in {other.match_id for other in told.matches if other.removed_by is None}
    return "match"


def check_limit(answer: Answer, attempt: Attempt) -> None:
    """Check that the window of the rule is over if it ended the attempt, and not if the input did."""
    window, says = answer.rule.window, attempt.ending.says
    if not attempt.steps or not isinstance(window, ir.Window) or "of the parentheses" in says:
        return
    last_us = attempt.steps[0].event.time_us + window.span_us
    if says.startswith(f"WITHIN {show_bound(window)} was over"):
        assert last_us <= answer.replay.last_us, attempt
        assert attempt.ending.by_us is None or last_us + attempt.ending.by_us in answer.watched.time_us, (
            attempt
        )
    if attempt.ending.reason is Reason.OPEN:
        assert last_us > answer.replay.last_us, attempt


def check_ending(given: TableCase, answer: Answer, attempt: Attempt) -> str:
    """Check that the attempt continues without the limit or the event that ended it; return what happened."""
    ending, events = attempt.ending, given.case.events
    steps = [(step.variable, step.event.values["w"]) for step in attempt.steps]
    if ending.reason is Reason.LIMIT:
        rule = given.case.rules[0]
        free = replace(rule, report=replace(rule.report, max_runs=DEFAULT_MAX_RUNS))
        again = Answer(replayed(with_rule(given, free), events), answer.key)
    elif ending.reason in _OF_EVENT and ending.event is not None and ending.event.place > 0 and steps:
        mark = ending.event.values["w"]
        if mark in {of_step for _, of_step in steps}:
            return "its own last event"
        again = Answer(replayed(given, [event for event in events if event["w"] != mark]), answer.key)
    else:
        return "not tried"
    if not len(again.watched.time_us):
        return "not tried"
    places = {event["w"]: place for place, event in enumerate(again.watched.events.to_pylist())}
    names = again.watched.rule.variables
    chain = chain_of(again, [(names.index(name), places[mark]) for name, mark in steps])
    if chain is None and ending.reason is Reason.LIMIT and again.lives.matched:
        return "another match"  # of a run that the limit had dropped, too, and that skips this one
    assert chain is not None, attempt
    if chain in again.lives.matched:
        return "match"
    if chain in again.lives.parents:
        return "a step further"
    later = again.attempt(chain).ending
    assert Reason.LIMIT not in {ending.reason} & {later.reason}, attempt
    return "open" if later.reason is Reason.OPEN else "ended by another"


def check_summary(found: Replay, counts: Counter[str]) -> None:
    """Check the counts of `--summary` against the runs of each key, event by event."""
    waited, taken = Counter[str](), Counter[str]()
    for key in keys_of(found):
        answer = Answer(found, key)
        names = answer.watched.rule.variables
        for variable, _ in set(answer.lives.taken):
            taken[names[variable]] += 1
        directly_before = {moment.event: moment for moment in answer.watched.moments if moment.by_time}
        for event, moment in directly_before.items():
            if event < len(answer.watched.time_us):
                waited.update(candidates(answer, moment))
    summary = funnel(found)
    for step in summary.steps:
        assert step.n_taken == taken[step.variable]
        if step.variable not in {take.variable for take in found.watched.automaton.states[0].takes}:
            assert step.n_waited == waited[step.variable]
            counts["candidates for which a run waited"] += step.n_waited
    assert summary.n_matches == len(set(found.matches.column("match_id").to_pylist()))


def candidates(answer: Answer, moment: Moment) -> set[str]:
    """Return the variables for which a run waits, and whose local parts hold for the next event."""
    states = [answer.automaton.states[state] for state in moment.rows[:, at.STATE].tolist() if state >= 0]
    row, event = answer.watched.first_row(), np.array([moment.event])
    of_event = answer.watched.events.slice(moment.event, 1)
    return {
        name
        for name in {take.variable for state in states for take in state.takes}
        if answer.conditions.has_stream(name, of_event)[0]
        and answer.conditions.truths(
            name, row, event, [p for p in answer.replay.watched.parts[name] if is_local(p.condition.written)]
        ).all()
    }


def check_conditions(answer: Answer, counts: Counter[str]) -> None:
    """Check that the parts of a condition hold exactly where the engine's bits and bytecode do."""
    watched, random = answer.watched, Random(len(answer.watched.time_us))
    lives = sorted(answer.lives.lives)
    for chain in random.sample(lives, min(3, len(lives))):
        row = answer.lives.lives[chain].rows[0]
        for number, name in enumerate(watched.rule.variables):
            events = np.arange(len(watched.time_us))
            truths = answer.conditions.truths(name, row, events).all(axis=0)
            truths &= answer.conditions.has_stream(name, watched.events)
            of_engine = [watched.holds(row, number, event) for event in events.tolist()]
            assert truths.tolist() == of_engine, (name, chain)
            counts["conditions"] += len(of_engine)


def check_refusal(given: TableCase, answer: Answer, attempt: Attempt, refusal: Refusal) -> str:
    """Check that the attempt takes the event when it has what was missing; return what happened."""
    steps = [(step.variable, step.event.place) for step in attempt.steps]
    if refusal.reason is Reason.ROW:
        return check_row(given, answer, refusal)
    changed = changed_events(given, answer, attempt, refusal)
    if changed is None:
        return "not tried"
    events, mark = changed
    again = Answer(replayed(given, events), answer.key)
    place = next(place for place, event in enumerate(again.watched.events.to_pylist()) if event["w"] == mark)
    variable = again.watched.rule.variables.index(refusal.variable)
    if refusal.reason not in OF_CONDITION and place <= steps[-1][1]:
        return "before the last step"  # at its instant, by the tie breakers
    before = [step for step in steps if step[1] < place] if refusal.reason in OF_CONDITION else steps
    for n in range(len(before), -1, -1):  # an earlier form of the attempt may have refused it
        outcome = after_change(again, before[:n], variable, place)
        if outcome is not None:
            return outcome
    raise AssertionError(f"{refusal} of {steps}: the event is still refused")


def after_change(again: Answer, steps: Sequence[tuple[str, int]], variable: int, place: int) -> str | None:
    names = again.watched.rule.variables
    chain = chain_of(again, [(names.index(name), event) for name, event in steps])
    if chain is None:
        return None
    child = next(
        (
            number
            for number, parent in enumerate(again.lives.parents)
            if parent == chain and again.lives.taken[number] == (variable, place)
        ),
        None,
    )
    if child is not None:
        return "match" if child in again.lives.matched else "a step further"
    moment = next(m for m in again.watched.moments if m.event == place and not m.by_time)
    if len(moment.matches):
        return "another match"
    rows = again.watched.first_row()[None]
    if chain in again.lives.lives:  # as they were before the event
        history = again.lives.lives[chain].history
        moments = again.watched.moments
        rows = [
            of for number, of in history if (moments[number].event, not moments[number].by_time) <= (place, 0)
        ][-1]
    for row in rows:
        if row[at.STATE] == at.PENDING:
            return "decided already"
        early = again.watched.early_by_us(row, place) > 0
        if chain != -1 and (early or again.watched.guard(row, place)[0] in _GUARDED):
            return "guarded"
        state = again.automaton.states[int(row[at.STATE])]
        if any(take.variable == names[variable] and take.exclusions for take in state.takes):
            return "guarded"
        truths = again.conditions.truths(names[variable], row, np.array([place]))
        if not truths.all():
            return "not by this value alone"
        starts = again.automaton.states[0].takes
        if chain == -1 and any(take.look_behinds or take.exclusions for take in starts):
            return "guarded"
    return None


def chain_of(answer: Answer, steps: Sequence[tuple[int, int]]) -> Chain | None:
    chain = -1
    for step in steps:
        found = [
            number
            for number, parent in enumerate(answer.lives.parents)
            if parent == chain and answer.lives.taken[number] == step
        ]
        if not found:
            return None
        chain = found[0]
    return chain


def check_row(given: TableCase, answer: Answer, refusal: Refusal) -> str:
    """Check that with a row valid at the event none is missing."""
    (failed, *_) = refusal.failed
    written = answer.replay.watched.parts[refusal.variable][failed.part].condition.written
    leaf = next(part for part in walk(written) if isinstance(part, Joined) and part.table in failed.says)
    (table,) = (table for table in given.tables if table.name == leaf.table)
    assert table.table is not None
    event = next(event for event in given.case.events if event["w"] == refusal.event.values["w"])
    values = [event[key.name] for key in leaf.keys if isinstance(key, Column)]
    if None in values:
        return "its key is NULL"
    row: dict[str, Any] = {"i": 1, "d": 1.5, "s": "p", "b": True, "at": event["ts"], "n": 9, "op": "c"}
    row |= dict(zip(table.table.key, values, strict=True))
    added = replace(given, versions=(*given.versions, Version(table.name, 0, row)))
    again = Answer(replayed(added, given.case.events), answer.key)
    place = next(
        place for place, one in enumerate(again.watched.events.to_pylist()) if one["w"] == event["w"]
    )
    failed_again = again.conditions.failed(refusal.variable, again.watched.first_row(), place)
    of_table = [one for one in failed_again if one.part == failed.part and one.reason is Reason.ROW]
    assert not any(f"`{table.name}`" in one.says for one in of_table), (refusal, failed_again)
    return "a row exists" if failed.part in {one.part for one in failed_again} else "the part holds"


def changed_events(
    given: TableCase, answer: Answer, attempt: Attempt, refusal: Refusal
) -> tuple[list[dict[str, Any]], int] | None:
    """Return the events with what was missing, and the `w` of the changed or added one; None: unknown."""
    mark = refusal.event.values["w"]
    case = given.case
    original = next(event for event in case.events if event["w"] == mark)
    if refusal.reason in OF_CONDITION:
        fixed = fixed_event(answer, refusal, original)
        if fixed is None:
            return None
        return [fixed if event["w"] == mark else event for event in case.events], mark
    if refusal.reason not in (Reason.LATE, Reason.ORDER, Reason.KEY, Reason.EARLY) or not attempt.steps:
        return None
    if refusal.reason is Reason.LATE and refusal.by_us is None:  # late by events, not by time
        return None
    parts = answer.replay.watched.parts[refusal.variable]
    if any(isinstance(value.written, Windowed) for part in parts for value in part.values):
        return None
    time_us = original["ts"] if refusal.reason is Reason.KEY else attempt.since_us + 1
    if refusal.reason is Reason.LATE:
        assert refusal.by_us is not None
        time_us = original["ts"] - refusal.by_us
    if refusal.reason is Reason.EARLY:
        assert refusal.by_us is not None
        time_us = original["ts"] + refusal.by_us
    ended_by = attempt.ending.event
    if (attempt.until_us is not None and time_us > attempt.until_us) or (
        ended_by is not None
        and refusal.reason in (Reason.ORDER, Reason.EARLY)
        and time_us >= ended_by.time_us
    ):
        return None  # there is no time between
    added = original | dict(zip(answer.replay.watched.program.key_columns, answer.key, strict=True))
    added |= {"ts": time_us, "w": 1 << 40, "t": 1000}
    return [*case.events, added], 1 << 40


def fixed_event(answer: Answer, refusal: Refusal, event: dict[str, Any]) -> dict[str, Any] | None:
    """Return the event with the value that its only failed part needs; None: it is not a plain column."""
    if len(refusal.failed) != 1:
        return None
    failed = refusal.failed[0]
    written = answer.replay.watched.parts[refusal.variable][failed.part].condition.written
    if not isinstance(written, Call) or written.function not in COMPARISONS:
        return None
    sides = written.args
    place = next((n for n, side in enumerate(sides) if isinstance(side, Column)), None)
    if place is None:
        return None
    column, other = sides[place], sides[1 - place]
    assert isinstance(column, Column)
    program = answer.replay.watched.program
    if column.name in {program.stream.event_time, *program.stream.tie_break, "t", "w", *program.key}:
        return None
    known = other.value if isinstance(other, Literal) else failed.values.get(show_expression(other))
    if failed.reason in (Reason.CASE, Reason.TYPE):
        return None if known is None else event | {column.name: known}
    if sides[place].type not in (Type.BIGINT, Type.DOUBLE) or written.function == "<>":
        return None
    more = {"<": -1, ">": 1}.get(written.function, 0) * (1 if place == 0 else -1)
    if failed.reason is Reason.NULL:
        if event[column.name] is not None or not isinstance(known, int | float) or not np.isfinite(known):
            return None
        return event | {column.name: known + more}
    if failed.by is None or event[column.name] is None or not np.isfinite(event[column.name]):
        return None
    return event | {column.name: event[column.name] - (failed.by if place == 0 else -failed.by) + more}


def plain_cases() -> st.SearchStrategy[TableCase]:
    """Return a strategy of cases without tables."""
    drawn = cases(max_rules=1, has_window_rules=False)
    return drawn.map(lambda case: with_own_numbers(TableCase(case, (), (), frozenset())))


@st.composite
def drawn_cases(draw: st.DrawFn) -> TableCase:
    """Draw a case; some have tables, few runs for a key, texts that are nearly equal, or `TWO_BRANCHES`."""
    given = draw(table_cases() if draw(st.integers(0, 4)) == 0 else plain_cases())
    random = Random(draw(st.integers(0, 2**16)))
    if random.random() < 0.25:
        rule = given.case.rules[0]
        given = with_rule(given, replace(rule, report=replace(rule.report, max_runs=random.choice([1, 2]))))
    given = with_own_numbers(with_near_texts(given, random) if random.random() < 0.4 else given)
    if not given.tables and random.random() < 0.05:
        source, streams = Source("two", TWO_BRANCHES), {given.case.stream.name: given.case.stream}
        text = replace(source, text=source.text.format(stream=given.case.stream.name))
        given = with_rule(given, compile_sources([text], streams).rules[0].typed)
    return given


_NEAR = {"p": ("p", "P", " p"), "q": ("7", "07", "7.0")}
"""Texts of the drawn cases, and texts that are nearly equal to one another."""


def with_near_texts(given: TableCase, random: Random) -> TableCase:
    """Return the case with texts that differ in case, in blanks or in how a number is written."""
    case, rule = given.case, given.case.rules[0]

    def near(leaf: Expression) -> Expression:
        if isinstance(leaf, Literal) and leaf.type is Type.STRING and leaf.value in _NEAR:
            return replace(leaf, value=_NEAR[str(leaf.value)][0])
        return leaf

    known = Call(
        "=", (COLUMNS["s"], Literal(random.choice(_NEAR[random.choice("pq")]), Type.STRING)), Type.BOOLEAN
    )
    variables = tuple(
        item
        if item.predicate is None
        else replace(
            item,
            predicate=known if random.random() < 0.3 else rebuild(item.predicate, near),
        )
        for item in rule.variables
    )
    texts = [text for of_one in _NEAR.values() for text in of_one]
    events = tuple(event | {"s": random.choice(texts)} for event in case.events)
    return replace(given, case=replace(case, rules=(replace(rule, variables=variables),), events=events))


def with_rule(given: TableCase, rule: ir.Rule) -> TableCase:
    return replace(given, case=replace(given.case, rules=(rule,)))


def run(examples: int, first_seed: int, *, plain: bool = False) -> Counter[str]:
    """Check cases, `plain` ones without tables, limits and nearly equal texts; return the counts."""
    counts: Counter[str] = Counter()

    @seed(first_seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=SLOW,
        phases=[Phase.generate],
    )
    @given_a(plain_cases() if plain else drawn_cases())
    def checked(drawn: TableCase) -> None:
        check(drawn, counts)
        counts["cases"] += 1

    checked()
    return counts


def with_own_numbers(given: TableCase) -> TableCase:
    """Return the case with a different `w` in each event, and a stream that drops no copies."""
    case = given.case
    events = tuple(event | {"w": number} for number, event in enumerate(case.events))
    stream = replace(case.stream, deduplicate=False)
    return replace(given, case=replace(case, events=events, stream=stream))


def never_taken(counts: Counter[str]) -> set[Reason]:
    """Return the reasons of the closed list that no case had."""
    return {reason for reason in Reason if not taken(counts, reason)}


def taken(counts: Counter[str], reason: Reason) -> dict[str, int]:
    """Return how often what became of a reason."""
    of_reason = {name: n for name, n in counts.items() if name.startswith(f"{reason}, ")}
    return {name.partition(", ")[2]: n for name, n in sorted(of_reason.items(), key=lambda item: -item[1])}


def shown(counts: Counter[str]) -> Iterator[str]:
    for name in ("cases", "matches", "conditions", "candidates for which a run waited"):
        yield f"{name:<36}{counts[name]:>8,}"
    for reason in Reason:
        outcomes = taken(counts, reason)
        what = ", ".join(f"{name} {n:,}" for name, n in outcomes.items()) or "never"
        yield f"{reason:<12}{sum(outcomes.values()):>8,}  {what}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", help="a file with the table so far, after each portion of cases")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for number, first in enumerate(range(0, options.examples, _PORTION)):
        counts += run(min(_PORTION, options.examples - first), options.seed + number)
        print(f"{counts['cases']:,} cases", file=sys.stderr, flush=True)
        if options.out:
            Path(options.out).write_text("\n".join(shown(counts)) + "\n")
    print("\n".join(shown(counts)))
    if missing := never_taken(counts):
        parser.exit(1, f"never taken: {', '.join(sorted(missing))}\n")


if __name__ == "__main__":
    main()
