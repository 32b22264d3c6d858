"""What `cep why` says, on random rules and streams.

    python -m tests.property.why --examples 5000

Its matches are those of a run. What it says was missing, added to the events, takes the attempt further.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings

from cep.compiler.automaton.build import build
from cep.compiler.compile import compile_rules
from cep.compiler.lowering.parts import COMPARISONS
from cep.engine.kernels import layout as at
from cep.engine.matching.watched import Guard, Moment
from cep.expression import Call, Column, Type, Windowed, is_local
from cep.local.replay import Replay, replay
from cep.rule_set import RuleSet
from cep.why.answer import Answer, why
from cep.why.attempts import Chain
from cep.why.reasons import OF_CONDITION, Attempt, Reason, Refusal
from cep.why.summary import funnel
from tests.property.differential import stream_table
from tests.property.strategies.cases import Case, cases

SLOW = list(HealthCheck)

_GUARDED = frozenset(Guard) - {Guard.TAKEN, Guard.IGNORED}


def replayed(case: Case, events: Sequence[dict[str, Any]]) -> Replay:
    """Return the only rule of a case over events."""
    built, _ = build(case.rules)
    rules = RuleSet(compile_rules(case.rules, {case.stream.name: case.stream}))
    return replay(built, rules, case.rules[0].name, {case.stream.name: stream_table(case.stream, events)})


def keys_of(found: Replay) -> list[tuple[Any, ...]]:
    names = list(found.watched.program.key_columns)
    keys = found.events.select(names).group_by(names).aggregate([]).to_pylist()
    return [tuple(key.values()) for key in keys]


def check(case: Case, counts: Counter[str]) -> None:
    """Check every answer of a case; count what was checked."""
    found = replayed(case, case.events)
    check_summary(found, counts)
    for key in keys_of(found):
        answer = Answer(found, key)
        check_conditions(answer, counts)
        told = why(found, key, limit=6)
        reported = found.of_key(found.matches, key, found.watched.program.key).column("match_id").to_pylist()
        assert {match.match_id for match in told.matches if match.removed_by is None} == set(reported)
        counts["matches"] += len(told.matches)
        for attempt in told.attempts:
            counts[f"ended: {attempt.ending.reason}"] += 1
            for refusal in attempt.refusals:
                counts[f"refused: {refusal.reason}"] += 1
                outcome = check_refusal(case, answer, attempt, refusal)
                counts[f"{refusal.reason}, {outcome}"] += 1


def check_summary(found: Replay, counts: Counter[str]) -> None:
    """Check the counts of `--summary` against the runs of each key, event by event."""
    waited, taken = Counter[str](), Counter[str]()
    for key in keys_of(found):
        answer = Answer(found, key)
        names = answer.watched.rule.variables
        for variable, _ in set(answer.lives.taken):
            taken[names[variable]] += 1
        for moment in answer.watched.moments:
            if moment.by_time and moment.event < len(answer.watched.time_us):
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


def check_refusal(case: Case, answer: Answer, attempt: Attempt, refusal: Refusal) -> str:
    """Check that the attempt takes the event when it has what was missing; return what happened."""
    steps = [(step.variable, step.event.place) for step in attempt.steps]
    changed = changed_events(case, answer, attempt, refusal)
    if changed is None:
        return "not tried"
    events, mark = changed
    again = Answer(replayed(case, events), answer.key)
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


def changed_events(
    case: Case, answer: Answer, attempt: Attempt, refusal: Refusal
) -> tuple[list[dict[str, Any]], int] | None:
    """Return the events with what was missing, and the `w` of the changed or added one; None: unknown."""
    mark = refusal.event.values["w"]
    original = next(event for event in case.events if event["w"] == mark)
    if refusal.reason in OF_CONDITION:
        fixed = fixed_event(answer, refusal, original)
        if fixed is None:
            return None
        return [fixed if event["w"] == mark else event for event in case.events], mark
    if refusal.reason not in (Reason.LATE, Reason.ORDER, Reason.KEY) or not attempt.steps:
        return None
    parts = answer.replay.watched.parts[refusal.variable]
    if any(isinstance(value.written, Windowed) for part in parts for value in part.values):
        return None
    time_us = original["ts"] if refusal.reason is Reason.KEY else attempt.since_us + 1
    if refusal.reason is Reason.LATE:
        assert refusal.by_us is not None
        time_us = original["ts"] - refusal.by_us
    ended_by = attempt.ending.event
    if (attempt.until_us is not None and time_us > attempt.until_us) or (
        ended_by is not None and refusal.reason is Reason.ORDER and time_us >= ended_by.time_us
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
    if not isinstance(written, Call) or written.function not in COMPARISONS or failed.by is None:
        return None
    sides = written.args
    place = next((n for n, side in enumerate(sides) if isinstance(side, Column)), None)
    if place is None or sides[place].type not in (Type.BIGINT, Type.DOUBLE) or written.function == "<>":
        return None
    column = sides[place]
    assert isinstance(column, Column)
    fixed_names = {
        answer.replay.watched.program.stream.event_time,
        "t",
        "w",
        *answer.replay.watched.program.key,
    }
    if column.name in fixed_names or event[column.name] is None or not np.isfinite(event[column.name]):
        return None
    by = failed.by if place == 0 else -failed.by
    more = {"<": -1, ">": 1}.get(written.function, 0) * (1 if place == 0 else -1)
    return event | {column.name: event[column.name] - by + more}


def run(examples: int, first_seed: int) -> Counter[str]:
    counts: Counter[str] = Counter()

    @seed(first_seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=SLOW,
        phases=[Phase.generate],
    )
    @given(cases(max_rules=1, has_window_rules=False))
    def checked(case: Case) -> None:
        check(with_own_numbers(case), counts)
        counts["cases"] += 1

    checked()
    return counts


def with_own_numbers(case: Case) -> Case:
    """Return the case with a different `w` in each event, and a stream that drops no copies."""
    events = tuple(event | {"w": number} for number, event in enumerate(case.events))
    return replace(case, events=events, stream=replace(case.stream, deduplicate=False))


def shown(counts: Counter[str]) -> Iterator[str]:
    for name, number in sorted(counts.items()):
        yield f"{name:<40}{number:>8,}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("\n".join(shown(run(options.examples, options.seed))))


if __name__ == "__main__":
    main()
