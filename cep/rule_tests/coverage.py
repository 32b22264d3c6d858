"""Which transitions of the automaton the cases of a test file take, and which no case takes.

The runs are those of the engine, event by event (`cep.engine.matching.watched`), as in `cep why`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from cep.compiler import ir
from cep.compiler.automaton.build import Built
from cep.compiler.automaton.nfa import Nfa, State
from cep.compiler.compile import CompiledRule
from cep.engine.kernels import layout as at
from cep.engine.matching.watched import Guard, Moment, Watched, WatchedMatcher
from cep.errors import RuleError
from cep.local.replay import Replay, replay
from cep.rule_tests.cases import Case, RuleTests
from cep.rule_tests.delivery import all_tables

_FAR_US = 1 << 61
_MOST_RUNS = 1_000
"""Open runs that are examined at one event."""


@dataclass(frozen=True, slots=True)
class Transition:
    """A transition of a rule: the state, what happens there, and the variable by which it happens."""

    rule: str
    state: int
    guard: Guard | None  # None: a limit in time ends a run
    variable: str


@dataclass(frozen=True, slots=True)
class Covered:
    """How many of all transitions the cases take, and those that no case takes, as text."""

    n_taken: int
    n_all: int
    missing: tuple[str, ...]


def coverage(tests: RuleTests) -> Covered:
    """Return which transitions the cases take together. Window rules and views have none."""
    wanted: dict[Transition, str] = {}
    taken: set[Transition] = set()
    for rule in tests.compiled.rules:
        if rule.name in tests.names and rule.typed.windowing is None and rule.typed.viewing is None:
            wanted |= dict(_transitions(rule))
            for case in tests.cases:
                taken |= _taken(tests, rule, case)
    missing = [text for transition, text in wanted.items() if transition not in taken]
    return Covered(len(wanted) - len(missing), len(wanted), tuple(missing))


# ---------------------------------------------------------------- what there is


def _transitions(rule: CompiledRule) -> Iterator[tuple[Transition, str]]:
    """Yield each transition with what a case does that takes it."""
    name, automaton = rule.name, rule.automaton
    ways = _ways(automaton)
    for number, state in enumerate(automaton.states):
        if number not in ways:
            continue
        place = f" after {ways[number]}" if ways[number] else ""
        for guard, variable in _of_state(number, state):
            what = f"takes `{variable}`{place}" if guard is Guard.TAKEN else f"has `{variable}`{place}"
            yield Transition(name, number, guard, variable), f"{name}: no case {what}"
    limited = isinstance(rule.typed.window, ir.Window) or automaton.groups
    if limited and not all(state.closes for state in automaton.states[1:]):
        yield Transition(name, 0, None, ""), f"{name}: no case has an attempt that a limit in time ends"


def _of_state(number: int, state: State) -> Iterator[tuple[Guard, str]]:
    yield from dict.fromkeys((Guard.TAKEN, take.variable) for take in state.takes)
    if number:
        yield from ((Guard.NOT_NEXT, variable) for variable in state.not_next)
        yield from ((Guard.NOT_FOLLOWED_BY, variable) for variable in state.not_followed_by)


def _ways(automaton: Nfa) -> dict[int, str]:
    """Return for each state that a run can reach the variables that it has taken on a shortest way."""
    ways: dict[int, tuple[str, ...]] = {0: ()}
    left = [0]
    for number in left:  # grows while it is read
        state = automaton.states[number]
        after = [(take.variable, successor) for take in state.takes for successor in take.after]
        after += [("", successor) for successor in state.timed_absence.after] if state.timed_absence else []
        after += [("", target) for _, target in state.releases]
        for variable, successor in after:
            if successor >= 0 and successor not in ways:
                ways[successor] = (*ways[number], variable) if variable else ways[number]
                left.append(successor)
    return {number: _path(way) for number, way in ways.items()}


def _path(way: tuple[str, ...]) -> str:
    parts = []
    for name, repeated in groupby(way):
        n = len(list(repeated))
        parts.append(f"`{name}`" if n == 1 else f"{n} `{name}`")
    return ", ".join(parts)


# ---------------------------------------------------------------- what a case does


def _taken(tests: RuleTests, rule: CompiledRule, case: Case) -> set[Transition]:
    built = [Built(one.typed, one.automaton) for one in tests.compiled.rules]
    rules = tests.compiled.rule_set
    try:
        replayed = replay(built, rules, rule.name, all_tables(rules, case))
    except RuleError:  # with the registers that watching needs, the rule is too large
        return set(dict(_transitions(rule)))
    found: set[Transition] = set()
    for watched in _watched(replayed):
        found |= set(_transitions_of(watched, rule))
    return found


def _watched(replayed: Replay) -> Iterator[Watched]:
    """Yield what happens to the events of each key."""
    names = list(replayed.watched.program.key_columns)
    columns = [replayed.events.column(name).to_pylist() for name in names]
    for key in dict.fromkeys(zip(*columns, strict=True)):  # grouping by Arrow loads its data sets
        events = replayed.of_key(replayed.events, list(key), names)
        matcher = WatchedMatcher(replayed.watched.program, replayed.static)
        watched = matcher.watch([events, *replayed.versions], -_FAR_US, _FAR_US)
        if watched is not None:
            yield watched


def _transitions_of(watched: Watched, rule: CompiledRule) -> Iterator[Transition]:
    names, states = watched.rule.variables, rule.automaton.states
    first = watched.first_row()
    before: Moment | None = None
    for moment in watched.moments:
        if moment.event == len(watched.time_us):
            break  # the end of the input ends whatever is open
        if moment.by_time:
            gone = 0 if before is None else len(before.rows) - len(moment.rows) - len(moment.matches)
            if gone > 0:
                yield Transition(rule.name, 0, None, "")
        else:
            open_rows = [] if before is None else list(before.rows[:_MOST_RUNS])
            for row in [first, *open_rows]:
                state = int(row[at.STATE])
                if state == at.PENDING:
                    continue
                guard, number = watched.guard(row, moment.event)
                if guard is Guard.TAKEN:
                    for variable in {take.variable for take in states[state].takes}:
                        if watched.holds(row, names.index(variable), moment.event):
                            yield Transition(rule.name, state, guard, variable)
                elif number >= 0:
                    yield Transition(rule.name, state, guard, names[number])
        before = moment
