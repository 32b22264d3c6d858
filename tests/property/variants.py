"""More streams for drawn and compiled rules, because drawing and compiling rules take most of the time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from tests.property.strategies.cases import Case, Step
from tests.property.strategies.events import SECOND_US, copies_agree

Pool = dict[str, list[Any]]
"""Column -> values that were drawn for it. A value that was drawn often is there often."""

_MAX_POOL = 500


def fill(pool: Pool, case: Case) -> None:
    """Add the values of a drawn case to `pool`."""
    for event in case.events:
        for column, value in event.items():
            known = pool.setdefault(column, [])
            if len(known) < _MAX_POOL:
                known.append(value)


def variants(case: Case, pool: Pool, random: Random, n: int) -> Iterator[Case]:
    """Yield `n` cases of the rules of `case` with other events in another delivery. No event is late."""
    for _ in range(n):
        events = _events(case, pool, random)
        if case.stream.deduplicate:
            events = copies_agree(events, case.stream)
            events += [dict(random.choice(events)) for _ in range(random.randrange(4))]
        held_us = [random.randrange(max(1, case.stream.lateness_us)) for _ in events]
        arrival = sorted(range(len(events)), key=lambda number: events[number]["ts"] + held_us[number])
        yield replace(
            case,
            events=tuple(events[number] for number in arrival),
            steps=_steps(len(events), random),
        )


def _events(case: Case, pool: Pool, random: Random) -> list[dict[str, Any]]:
    now_us = random.choice((0, 5 * SECOND_US))
    letter = random.randrange(4)
    keys = random.choice(([1], [1], [1], [1, 1, 1, 2], [1, 1, 2, None]))
    events = []
    for number in range(random.randint(6, max(6, len(case.events)))):
        now_us += random.choice((0, 1, 1, 1, 1, 2, 4)) * SECOND_US
        letter = (letter + random.choice((0, 1, 1, 1, 2, 3))) % 4
        event = {column: random.choice(values) for column, values in pool.items()}
        event |= {"ts": now_us, "w": 1 << number, "k": random.choice(keys)}
        if random.randrange(16):
            event["i"] = letter
        events.append(event)
    return events


def _steps(n_events: int, random: Random) -> tuple[Step, ...]:
    steps = []
    while n_events:
        size = random.randint(1, n_events)
        steps.append(Step(size, random.random() < 0.5, random.random() < 0.5, random.random() < 0.25))
        n_events -= size
    return tuple(steps)


def smaller(case: Case, fails: Callable[[Case], bool]) -> Case:
    """Return a smaller `case` that still fails, with fewer events and simpler deliveries."""
    at_once = replace(case, steps=(Step(len(case.events), advances=False, restores=False),))
    one_by_one = replace(case, steps=tuple(Step(1, advances=True, restores=True) for _ in case.events))
    for delivered, is_single in ((at_once, False), (one_by_one, True)):
        if not fails(delivered):
            continue
        case = delivered
        number = len(case.events)
        while number > 0:
            number -= 1
            events = case.events[:number] + case.events[number + 1 :]
            steps = case.steps[1:] if is_single else (Step(len(events), advances=False, restores=False),)
            less = replace(case, events=events, steps=steps)
            if events and fails(less):
                case = less
        break
    return case
