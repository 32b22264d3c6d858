"""Why: the matches of a key, and the attempts that came furthest, each with what it missed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from cep.arrays import I64
from cep.compiler import ir
from cep.compiler.automaton.nfa import ACCEPT, LookBehind, State
from cep.compiler.automaton.pattern_graph import NOT_FIRST
from cep.engine.kernels import layout as at
from cep.engine.matching.watched import Guard, WatchedMatcher
from cep.engine.state.runs import n_registers
from cep.explain.shown import show_bound, show_duration
from cep.local.replay import Replay, key_text, rows_of_key, time_text, times_of
from cep.program.program import STREAM_COLUMN
from cep.why.attempts import NOTHING, Chain, Lives, distances
from cep.why.conditions import Conditions, duration_text, shown_value
from cep.why.reasons import Attempt, Ending, Event, Failed, Found, Reason, Refusal, Step, Why

MAX_EVENTS = 20_000
"""Events of a key that are watched; of a key with more, those around a time."""

_MOST_EXAMINED = 2_000
"""Events of one wait that are examined: the nearest to its end."""

_NEAREST = 3
"""Refused events of an attempt that are reported."""

_AROUND = 10
"""Events before and after a time at which nothing was open."""

_FAR_US = 1 << 61


@dataclass(frozen=True, slots=True)
class Wait:
    """What a run of a chain waited for: to take one of the events from `first` to before `end`.

    It waited from `since_us`, up to and including `until_us` (`layout.NEVER`: no time ends it).
    """

    chain: Chain
    variable: str
    row: I64
    first: int
    end: int
    since_us: int
    until_us: int


def why(replay: Replay, key: Sequence[Any], at_us: int | None = None, limit: int = 3) -> Why:
    """Return why a rule matched for a key, or how far it came.

    Parameters
    ----------
    key
        The values of the key columns (`Replay.key_of`).
    at_us
        Only the attempts and matches that were open at this event time, in microseconds. None: of all times.
    limit
        The maximum number of attempts: those that came furthest.
    """
    answer = Answer(replay, tuple(key), at_us)
    matches = answer.matches()
    chosen, n_attempts = answer.chosen(at_us, limit)
    if at_us is not None:
        matches = [match for match in matches if match.start_us <= at_us <= match.end_us]
    return Why(
        replay.watched.rule.name,
        dict(zip(replay.keys.names, map(shown_value, key, replay.keys.kinds), strict=True)),
        len(answer.watched.time_us),
        tuple(matches),
        tuple(answer.attempt(chain) for chain in chosen),
        n_attempts,
    )


def _range(replay: Replay, times: I64, at_us: int | None) -> tuple[int, int]:
    """Return the first and the last time to watch."""
    if len(times) <= MAX_EVENTS:
        return -_FAR_US, _FAR_US
    window = replay.watched.rule.window
    ordered = np.sort(times)
    middle = len(ordered) - 1 if at_us is None else int(np.searchsorted(ordered, at_us))
    if at_us is not None and isinstance(window, ir.Window):
        first_us, last_us = at_us - window.span_us, at_us + window.span_us
        n = int(np.searchsorted(ordered, last_us, "right") - np.searchsorted(ordered, first_us))
        if n <= MAX_EVENTS:
            return first_us, last_us
    first = max(0, min(middle - MAX_EVENTS // 2, len(ordered) - MAX_EVENTS))
    return int(ordered[first]), int(ordered[min(first + MAX_EVENTS, len(ordered)) - 1])


class Answer:
    """The runs of a key under observation, and what there is to say about each.

    Parameters
    ----------
    replay, key, at_us
        See `why`.
    """

    def __init__(self, replay: Replay, key: tuple[Any, ...], at_us: int | None = None) -> None:
        self.replay = replay
        self.rule = replay.watched.rule
        self.automaton = replay.watched.automaton
        self.key = key
        self.at_us = at_us
        program = replay.watched.program
        is_of_key = rows_of_key(replay.events, key, program.key_columns)
        events = replay.events.filter(pa.array(is_of_key))
        self.range_us = _range(replay, times_of(events), at_us)
        matcher = WatchedMatcher(program, replay.static)
        identities = replay.identities(key, is_of_key)
        watched = matcher.watch([events, *replay.versions], *self.range_us, identities)
        assert watched is not None, "the key has an event"
        self.watched = watched
        self.lives = Lives(watched)
        self.conditions = Conditions(replay, watched)
        self.distances = distances(self.automaton)
        self._made_of: dict[Chain, tuple[I64, bool]] = {}

    # ------------------------------------------------------------ matches

    def matches(self) -> list[Found]:
        """Return all matches in order of their end, with those that SUPPRESS removed."""
        names = self.replay.watched.program.key_columns
        keys = [pa.array([value], self.watched.events.schema.field(name).type)
                for name, value in zip(names, self.key, strict=True)]  # fmt: skip
        reported = set(self._reported_ids())
        found: list[Found] = []
        until: Found | None = None
        for match_id, start_us, end_us, is_timeout, chain in self.lives.ids(self.rule.name, keys):
            removed = None if match_id in reported else self._suppressed(match_id, end_us, until)
            steps = tuple(self._steps(chain))
            one = Found(match_id, start_us, end_us, steps, is_timeout, removed)
            found.append(one)
            until = one if removed is None and not is_timeout else until
        missing = reported - {match.match_id for match in found}
        assert not missing or self.range_us[0] > -_FAR_US, "the watched runs have all matches"
        return sorted(found, key=lambda match: (match.end_us, match.start_us, match.match_id))

    def _reported_ids(self) -> list[str]:
        names = self.replay.watched.program.key
        table = self.replay.of_key(self.replay.matches, self.key, names)
        ids: list[str] = table.column("match_id").to_pylist()
        return ids

    def _suppressed(self, match_id: str, end_us: int, before: Found | None) -> Ending:
        length_us = self.replay.suppress_us
        assert before is not None, f"match {match_id} is not reported"
        if self.replay.n_per_day:
            says = f"match {before.match_id} was the last of its day: "
            says += f"SUPPRESS AFTER {self.replay.n_per_day} PER DAY"
            return Ending(Reason.SUPPRESSED, says, match_id=before.match_id)
        by_us = before.end_us + length_us - end_us
        says = f"too soon by {duration_text(by_us)} after match {before.match_id}: "
        says += f"SUPPRESS FOR {show_duration(length_us)}"
        return Ending(Reason.SUPPRESSED, says, by_us=by_us, match_id=before.match_id)

    # ------------------------------------------------------------ attempts

    def chosen(self, at_us: int | None, limit: int) -> tuple[list[Chain], int]:
        """Return the chains of the attempts that came furthest, and of how many."""
        leaves = [chain for chain in self.lives.leaves() if chain in self.lives.lives or self._is_seen(chain)]
        if at_us is None and self.lives.matched:  # a match says enough about what it skipped
            leaves = [chain for chain in leaves if self._ending(chain).reason is not Reason.SKIPPED]
        if at_us is not None:
            leaves = [chain for chain in leaves if self._start_us(chain) <= at_us <= self._end_us(chain)]
        ranked = sorted(leaves, key=self._rank)
        longest: list[Chain] = []
        seen: set[tuple[int, int]] = set()
        for chain in ranked:  # those with the same first event differ little
            steps = self.lives.steps(chain)
            if steps[0] not in seen:
                seen.add(steps[0])
                longest.append(chain)
        ranked = (longest + [chain for chain in ranked if chain not in longest])[:limit]
        is_matched = bool(self.lives.matched) if at_us is None else self._is_matched(at_us)
        return ranked or ([NOTHING] if limit and not is_matched else []), len(leaves)

    def _is_seen(self, chain: Chain) -> bool:
        """Return whether the last event of a chain is one of those that were watched."""
        return self.lives.taken[chain][1] in self._moment_of

    @cached_property
    def _moment_of(self) -> dict[int, int]:
        """The number of the moment of each event."""
        moments = enumerate(self.watched.moments)
        return {moment.event: number for number, moment in moments if not moment.by_time}

    def _is_matched(self, at_us: int) -> bool:
        """Return whether a match was open at a time."""
        return any(
            self._start_us(chain) <= at_us <= int(self.watched.time_us[self.lives.taken[chain][1]])
            for chain in self.lives.matched
        )

    def _rank(self, chain: Chain) -> tuple[bool, int, int, int]:
        steps = self.lives.steps(chain)
        return self._ending(chain).reason is Reason.SKIPPED, self._missing(chain), -len(steps), steps[0][1]

    def _missing(self, chain: Chain) -> int:
        return min(self.distances[state] for state in self._rows(chain)[:, at.STATE].tolist())

    def _rows(self, chain: Chain) -> I64:
        """Return the runs of a chain when they were last open, or as its last event made them."""
        if chain == NOTHING:
            return self.watched.first_row()[None]
        life = self.lives.lives.get(chain)
        return self._made(chain)[0] if life is None else life.rows

    def _made(self, chain: Chain) -> tuple[I64, bool]:
        """Return the runs of a chain that ended at its last event, and whether a limit ended all of them."""
        if chain not in self._made_of:
            variable, event = self.lives.taken[chain]
            parent = self.lives.parents[chain]
            rows = self.watched.first_row()[None]
            if parent != NOTHING:
                number = self._moment_of[event]
                rows = next(of for at_, of in reversed(self.lives.lives[parent].history) if at_ < number)
            made = [one for row in rows if row[at.STATE] != at.PENDING
                    for one in self.watched.successors(row, variable, event)]  # fmt: skip
            self._made_of[chain] = np.stack([row for row, _ in made]), all(is_over for _, is_over in made)
        return self._made_of[chain]

    def _start_us(self, chain: Chain) -> int:
        return int(self.watched.time_us[self.lives.steps(chain)[0][1]])

    def _end_us(self, chain: Chain) -> int:
        life = self.lives.lives.get(chain)
        if life is None:
            return int(self.watched.time_us[self.lives.steps(chain)[-1][1]])
        if life.ended is None:
            return _FAR_US
        event = self.watched.moments[life.ended].event
        return int(self.watched.time_us[event]) if event < len(self.watched.time_us) else _FAR_US

    def attempt(self, chain: Chain) -> Attempt:
        """Return an attempt with what it missed."""
        steps = tuple(self._steps(chain))
        rows = self._rows(chain)
        waits = list(self._waits(chain))
        ending = self._ending(chain)
        until_us = self._until_us(rows) if chain != NOTHING else None
        refusals, n_refused = self._refusals(waits, steps)
        of_end: dict[str, Wait] = {}
        for wait in waits:
            of_end.setdefault(wait.variable, wait)
        last = [wait for wait in of_end.values() if wait.chain == chain and not self._may_exclude(wait)]
        nearby = self._elsewhere(last, steps, ending) if steps else ()
        since_us = int(self.watched.time_us[0])
        if steps:
            since_us = max((wait.since_us for wait in of_end.values()), default=steps[-1].event.time_us)
        return Attempt(
            steps=steps,
            missing=self._missing(chain),
            waits_for=self._waits_for(rows),
            since_us=since_us,
            until_us=until_us,
            ending=ending,
            refusals=(*refusals, *nearby),
            n_refused=n_refused,
        )

    def _waits_for(self, rows: I64) -> tuple[str, ...]:
        names: dict[str, None] = {}
        for number in rows[:, at.STATE].tolist():
            if number == at.PENDING:
                names["its turn"] = None
            if number in (at.PENDING, ACCEPT):
                continue
            state = self.automaton.states[number]
            names |= dict.fromkeys(take.variable for take in state.takes)
            names |= {"the end of an absence": None} if state.timed_absence is not None else {}
            names |= {"the end of the window": None} if state.closes else {}
            names |= {"the next event": None} if state.accepts_after_ignore else {}
        return tuple(names)

    def _until_us(self, rows: I64) -> int | None:
        """Return the event time after which the last of the runs ends; None: no time ends it."""
        found = [self._deadline(row) for row in rows if row[at.STATE] not in (at.PENDING, ACCEPT)]
        until_us = max(found, default=at.NEVER)
        return until_us if until_us < _FAR_US else None

    def _deadline(self, row: I64) -> int:
        """Return the last time at which a run may take an event, or its timed absence is not yet over."""
        rule = self.watched.rule
        if rule.is_timed:
            return int(row[at.REGISTER + n_registers(rule) + at.DEADLINE_US])
        return self._limit(row, self.automaton.states[int(row[at.STATE])])[0]

    def _limit(self, row: I64, state: State) -> tuple[int, str]:
        """Return the last time at which a run may wait in a state, and the limit that says so."""
        rule, window = self.watched.rule, self.rule.window
        limits: list[tuple[int, str]] = [(at.NEVER, "no limit")]
        if isinstance(window, ir.Window):
            limits.append((int(row[at.START_US]) + window.span_us, f"WITHIN {show_bound(window)}"))
        if rule.is_timed:
            clock = at.REGISTER + n_registers(rule)
            if state.gap is not None and state.gap.limit_us is not None and state.gap.high_us is not None:
                last_us = int(row[clock + at.LAST_US])
                limits.append(
                    (last_us + state.gap.high_us, f"the gap of {show_duration(state.gap.limit_us)}")
                )
            for number in state.limits:
                group = self.automaton.groups[number].window
                if isinstance(group, ir.Window):
                    opened = int(row[clock + at.GROUP_CLOCK + number])
                    limits.append((opened + group.span_us, f"WITHIN {show_bound(group)} of the parentheses"))
        return min(limits)

    # ------------------------------------------------------------ what ended it

    def _outside(self, at_us: int) -> str:
        """Return between which times the events of the key are, if that is not around `at_us`."""
        first_us, last_us = int(self.watched.time_us[0]), int(self.watched.time_us[-1])
        if first_us <= at_us <= last_us:
            return ""
        return f": the events of the key are from {time_text(first_us)} to {time_text(last_us)}"

    def _ending(self, chain: Chain) -> Ending:
        if chain == NOTHING:
            if self.at_us is None:
                return Ending(Reason.OPEN, "no event began a run")
            return Ending(
                Reason.OPEN, f"no run was open at {time_text(self.at_us)}{self._outside(self.at_us)}"
            )
        life = self.lives.lives.get(chain)
        if life is None:
            return self._ended_at_once(chain)
        if life.ended is None:
            return Ending(Reason.OPEN, "the input ended")
        rows = sorted(life.rows, key=lambda row: self.distances[int(row[at.STATE])])
        endings = [self._ending_of(row, life.ended) for row in rows]
        if chain in self.lives.timed_out and endings[0].reason is Reason.SKIPPED:
            return Ending(Reason.WINDOW, "a limit ended it, and it is reported as a timeout")
        if chain in self.lives.timed_out and endings[0].reason is Reason.OPEN:
            return replace(endings[0], says=f"{endings[0].says}, and it is reported as a timeout")
        return endings[0]

    def _ended_at_once(self, chain: Chain) -> Ending:
        """Return what ended a run at the event that it took last."""
        number = self._moment_of[self.lives.taken[chain][1]]
        made, is_over = self._made(chain)
        if is_over:
            return Ending(Reason.WINDOW, "it took the last event that a limit allows")
        is_complete = ACCEPT in made[:, at.STATE]
        if not is_complete and self._skipping(number) is None and self._drops(number):
            return Ending(Reason.LIMIT, f"MAX RUNS {self.rule.report.max_runs} PER KEY")
        return self._skipped(number)

    def _ending_of(self, row: I64, number: int) -> Ending:
        moment = self.watched.moments[number]
        if row[at.STATE] == at.PENDING:
            return self._skipped(number)
        if not moment.by_time:
            return self._ended_by(row, moment.event, number)
        limit = self._limit_over(row, moment.at_us)
        if limit is None and (moment.at_us < _FAR_US or self._skipping(number) is not None):
            return self._skipped(number)
        if limit is None:
            return Ending(Reason.OPEN, "the input ended")
        if moment.event < len(self.watched.time_us):
            by_us = int(self.watched.time_us[moment.event]) - moment.at_us
            says = f"{limit} was over; the next event of the key came {duration_text(by_us)} later"
            return Ending(Reason.WINDOW, says, by_us=by_us)
        left_us = moment.at_us - max(self.replay.last_us, int(self.watched.time_us[-1]))
        if left_us <= 0:
            return Ending(Reason.WINDOW, f"{limit} was over; no further event of the key came")
        return Ending(Reason.OPEN, f"the input ended, {duration_text(left_us)} before {limit} was over")

    def _limit_over(self, row: I64, at_us: int) -> str | None:
        """Return the limit that is over for a run at a time; None: none is, or it ends there with a match."""
        state = self.automaton.states[int(row[at.STATE])]
        states, absence = [state], state.timed_absence
        if absence is not None:
            began_us = int(row[at.REGISTER + n_registers(self.watched.rule) + at.MOMENT_US])
            if began_us + absence.period.span_us <= at_us:
                if ACCEPT in absence.after:
                    return None
                states = [self.automaton.states[number] for number in absence.after]
        limits = [(*self._limit(row, of), of.closes) for of in states]
        until_us, limit, _ = max(limits)
        is_complete = any(closes and of_one <= at_us for of_one, _, closes in limits)
        return None if is_complete or until_us > at_us else limit

    def _ended_by(self, row: I64, event: int, number: int) -> Ending:
        guard, variable = self.watched.guard(row, event)
        name = self.watched.rule.variables[variable] if variable >= 0 else None
        of = self.event(event)
        match guard:
            case Guard.EXCLUDED:
                return Ending(Reason.EXCLUDED, f"an event came for which `{name}` holds", None, of, name)
            case Guard.NOT_NEXT | Guard.NOT_FOLLOWED_BY:
                directly = "directly after it " if guard is Guard.NOT_NEXT else ""
                says = f"{directly}an event came for which `{name}` holds, which must not come"
                return Ending(Reason.ABSENCE, says, None, of, name)
            case Guard.STRICT:
                return Ending(Reason.STRICT, "another event came directly after the last one", None, of)
            case Guard.BEGINS:
                says = f"an event came that begins another branch, as `{name}`"
                return Ending(Reason.BRANCH, says, None, of, name)
            case Guard.LAST_EVENT if self._closes_after(row):
                return self._skipped(number)
            case Guard.LAST_EVENT:
                return Ending(Reason.WINDOW, "it was the last event that a limit allows", None, of)
            case Guard.TAKEN | Guard.IGNORED:
                if self._drops(number) and self._skipping(number) is None:
                    return Ending(
                        Reason.LIMIT,
                        f"MAX RUNS {self.rule.report.max_runs} PER KEY: it was dropped",
                        None,
                        of,
                    )
                return self._skipped(number)

    def _closes_after(self, row: I64) -> bool:
        """Return whether a limit in events completes a run that ignores the last event."""
        state = self.automaton.states[int(row[at.STATE])]
        return self.automaton.states[state.next].closes

    def _drops(self, number: int) -> bool:
        moments = self.watched.moments
        return moments[number].n_dropped > (moments[number - 1].n_dropped if number else 0)

    def _skipping(self, number: int) -> Chain | None:
        """Return the chain of a match that was found at a moment; None: there was no match."""
        moment = self.watched.moments[number]
        found = moment.matches[moment.matches[:, at.MATCH_TIMED_OUT] == 0]
        if not len(found):
            return None
        return self.lives.of(found[:, at.MATCH_REGISTER + self.watched.rule.node_register])[0]

    def _skipped(self, number: int) -> Ending:
        chain = self._skipping(number)
        if chain is None:
            return Ending(
                Reason.SKIPPED, "another run with the same events, or a preferred one, took its place"
            )
        event = self.event(self.lives.steps(chain)[0][1])
        return Ending(
            Reason.SKIPPED, f"skipped by the match that began at {time_text(event.time_us)}", None, event
        )

    # ------------------------------------------------------------ events that were refused

    def _waits(self, chain: Chain) -> Iterator[Wait]:
        """Yield what the runs of a chain waited for, and what they waited for before that and still do."""
        life = self.lives.lives.get(chain)
        n = len(self.watched.time_us)
        if chain == NOTHING:
            row, first = self.watched.first_row(), 0
            if self.at_us is not None:
                place = int(np.searchsorted(self.watched.time_us, self.at_us))
                first, n = max(0, place - _AROUND), min(n, place + _AROUND)
            for name in dict.fromkeys(take.variable for take in self.automaton.states[0].takes):
                yield Wait(chain, name, row, first, n, -_FAR_US, at.NEVER)
            return
        wanted = self._shortest(self._rows(chain))
        if life is None:
            end = self.lives.taken[chain][1] + 1
            for row in self._made(chain)[0]:
                for name in self._shortest(row[None]):
                    since_us, until_us = self._since_us(chain, row), self._deadline(row)
                    yield Wait(chain, name, row, end, end, since_us, until_us)
            end, chain = end - 1, self.lives.parents[chain]
        else:
            end = n if life.ended is None else self._first_event(life.ended)
        while chain != NOTHING and chain in self.lives.lives:
            waits = list(self._waits_of(chain, wanted, end))
            yield from waits
            wanted = list(dict.fromkeys(wait.variable for wait in waits))
            end = self.lives.taken[chain][1]
            chain = self.lives.parents[chain]

    def _waits_of(self, chain: Chain, wanted: Sequence[str], end: int) -> Iterator[Wait]:
        """Yield what the runs of a chain waited for among `wanted`, before event `end`, the last first."""
        for number, rows in reversed(self.lives.lives[chain].history):
            first = max(self._first_event(number), self.lives.taken[chain][1] + 1)
            found: dict[str, I64] = {}
            for row in rows:
                takes = () if row[at.STATE] == at.PENDING else self.automaton.states[int(row[at.STATE])].takes
                found |= {take.variable: row for take in takes if take.variable not in found}
            for name in wanted:
                if name in found:
                    row = found[name]
                    since_us, until_us = self._since_us(chain, row), self._deadline(row)
                    yield Wait(chain, name, row, first, end, since_us, until_us)
            end = min(end, first)

    def _first_event(self, number: int) -> int:
        """Return the first event after a moment."""
        moment = self.watched.moments[number]
        return moment.event + (not moment.by_time)

    def _since_us(self, chain: Chain, row: I64) -> int:
        """Return from when a run waits: since its last event, or since the absence after it is over."""
        last_us = int(self.watched.time_us[self.lives.taken[chain][1]])
        if not self.watched.rule.is_timed:
            return last_us
        return max(last_us, int(row[at.REGISTER + n_registers(self.watched.rule) + at.MOMENT_US]))

    def _shortest(self, rows: I64) -> list[str]:
        """Return the variables that runs wait for on the shortest way to a match."""
        takes = [
            (min((self.distances[after] for after in take.after), default=0), take.variable)
            for number in rows[:, at.STATE].tolist()
            if number not in (at.PENDING, ACCEPT)
            for take in self.automaton.states[number].takes
        ]
        least = min(takes, default=(0, ""))[0]
        return list(dict.fromkeys(name for far, name in takes if far == least))

    def _refusals(self, waits: Sequence[Wait], steps: Sequence[Step]) -> tuple[list[Refusal], int]:
        """Return the nearest of the events that were refused, and how many there were."""
        used = {step.event.place for step in steps}
        ranked: list[tuple[int, int, int, Wait]] = []
        n_refused = 0
        for number, wait in enumerate(waits):
            first = max(wait.first, wait.end - _MOST_EXAMINED)
            events = np.array([event for event in range(first, wait.end) if event not in used], np.int64)
            if not len(events):
                continue
            of_stream = self.conditions.has_stream(wait.variable, self.watched.events)[events]
            events = events[of_stream]
            truths = self.conditions.truths(wait.variable, wait.row, events)
            failed = len(truths) - truths.sum(axis=0)
            n_refused += len(events)
            order = np.lexsort((events, failed))[: 10 * _NEAREST]
            ranked += [(int(failed[place]), number, int(events[place]), wait) for place in order.tolist()]
        ranked.sort(key=lambda item: item[:3])
        refusals: list[Refusal] = []
        for failed_parts, _, event, wait in ranked[: 10 * _NEAREST]:
            one = self._refusal(event, wait) if failed_parts else self._refused_whole(event, wait)
            if one is None:
                n_refused -= 1
            else:
                refusals.append(one)
        return sorted(refusals, key=_nearness)[:_NEAREST], n_refused

    def _refusal(self, event: int, wait: Wait) -> Refusal:
        failed = self.conditions.failed(wait.variable, wait.row, event)
        first = failed[0]
        return Refusal(self.event(event), wait.variable, first.reason, first.says, failed)

    def _refused_whole(self, event: int, wait: Wait) -> Refusal | None:
        """Return why an event for which the condition holds was refused; None: a run took it."""
        if wait.chain == NOTHING:
            return self._not_begun(event, wait)
        early_us = self.watched.early_by_us(wait.row, event)
        if early_us > 0:
            says = f"{duration_text(early_us)} before the gap begins"
            return Refusal(self.event(event), wait.variable, Reason.EARLY, says, (), early_us)
        number = self.watched.rule.variables.index(wait.variable)
        if (wait.chain, (number, event)) in self._takes:
            return None
        guard, by = self.watched.guard(wait.row, event)
        by = by if by >= 0 else self.watched.keeps_out(wait.row, event)
        if by < 0 or guard in (Guard.TAKEN, Guard.BEGINS):
            return None
        is_absence = guard in (Guard.NOT_NEXT, Guard.NOT_FOLLOWED_BY)
        return self._kept_out(event, wait.variable, by, Reason.ABSENCE if is_absence else Reason.EXCLUDED)

    def _kept_out(self, event: int, variable: str, by: int, reason: Reason) -> Refusal:
        name = self.watched.rule.variables[by]
        says = f"`{variable}` holds, but the pattern keeps it out here: `{name}` holds, too"
        return Refusal(self.event(event), variable, reason, says)

    def _not_begun(self, event: int, wait: Wait) -> Refusal | None:
        """Return why no run began with an event for which the condition holds; None: one did."""
        of, names = self.event(event), self.watched.rule.variables
        if (NOTHING, (names.index(wait.variable), event)) in self._takes or event not in self._moment_of:
            return None
        takes = [take for take in self.automaton.states[0].takes if take.variable == wait.variable]
        for look_behind in (look_behind for take in takes for look_behind in take.look_behinds):
            met = self._last_met(look_behind, event)
            if met is not None:
                says = f"an event came before for which `{look_behind.variable}` holds, which must not come"
                return Refusal(of, wait.variable, Reason.ABSENCE, says, because=self.event(met))
        by = self.watched.keeps_out(wait.row, event)
        if by >= 0 and names[by] == NOT_FIRST:
            says = "`^` asks for the first event of the key"
            return Refusal(of, wait.variable, Reason.ANCHOR, says, because=self.event(0))
        if by >= 0:
            return self._kept_out(event, wait.variable, by, Reason.EXCLUDED)
        chain = self._skipping(self._moment_of[event])
        if chain is None:
            return None
        first = self.event(self.lives.steps(chain)[0][1])
        says = f"no run may start here: it was skipped by the match that began at {time_text(first.time_us)}"
        return Refusal(of, wait.variable, Reason.SKIPPED, says)

    def _last_met(self, look_behind: LookBehind, event: int) -> int | None:
        """Return the last event that breaks an absence before a run that would begin with `event`."""
        within, times = look_behind.period or self.rule.window, self.watched.time_us
        first = event - 1 if look_behind.adjacent else 0
        if isinstance(within, ir.EventWindow):
            first = max(first, event - within.count + 1)
        if isinstance(within, ir.Window):
            first = max(first, int(np.searchsorted(times, times[event] - within.span_us)))
        events = np.arange(max(first, 0), event)
        truths = self.conditions.truths(look_behind.variable, self.watched.first_row(), events)
        of_stream = self.conditions.has_stream(look_behind.variable, self.watched.events)[events]
        met = events[truths.all(axis=0) & of_stream]
        return int(met[-1]) if len(met) else None

    @cached_property
    def _takes(self) -> set[tuple[Chain, tuple[int, int]]]:
        return set(zip(self.lives.parents, self.lives.taken, strict=True))

    def _elsewhere(self, waits: Sequence[Wait], steps: Sequence[Step], ending: Ending) -> Iterator[Refusal]:
        """Yield events that have what was missing, but came too late, too early, or for another key."""
        last = steps[-1].event
        for wait in waits:
            if ending.reason is Reason.WINDOW:
                for event in self._satisfying(wait, wait.end, wait.end + _MOST_EXAMINED):
                    by_us = int(self.watched.time_us[event]) - wait.until_us
                    if by_us > 0:
                        says = f"too late by {duration_text(by_us)}"
                        yield Refusal(self.event(event), wait.variable, Reason.LATE, says, (), by_us)
                        break
                    if ending.by_us is None:
                        says = "after the last event that the limit allows"
                        yield Refusal(self.event(event), wait.variable, Reason.LATE, says)
                        break
            if wait.chain not in self.lives.lives:
                continue  # it ended as soon as it began to wait
            earlier = self._satisfying(wait, last.place - _MOST_EXAMINED, last.place)
            before = [event for event in earlier if event not in {step.event.place for step in steps}]
            if before and wait.variable not in {step.variable for step in steps}:
                by_us = last.time_us - int(self.watched.time_us[before[-1]])
                says = f"{duration_text(by_us)} before `{steps[-1].variable}`, which it should follow"
                yield Refusal(self.event(before[-1]), wait.variable, Reason.ORDER, says, (), by_us)
            until_us = wait.until_us
            if ending.event is not None:
                until_us = min(until_us, ending.event.time_us - 1)
            yield from self._of_other_key(wait, until_us)

    def _may_exclude(self, wait: Wait) -> bool:
        """Return whether the pattern may exclude an event for which the condition holds, as UNTIL does."""
        state = self.automaton.states[int(wait.row[at.STATE])]
        takes = [take for take in state.takes if take.variable == wait.variable]
        return bool(state.exclusions) or any(take.exclusions for take in takes)

    def _satisfying(self, wait: Wait, first: int, end: int) -> list[int]:
        """Return the events from `first` to before `end` for which the whole condition holds."""
        events = np.arange(max(first, 0), min(end, len(self.watched.time_us)))
        if not len(events) or not self.replay.watched.parts[wait.variable]:
            return []
        of_stream = self.conditions.has_stream(wait.variable, self.watched.events)[events]
        truths = self.conditions.truths(wait.variable, wait.row, events)
        found: list[int] = events[truths.all(axis=0) & of_stream].tolist()
        return found

    def _of_other_key(self, wait: Wait, until_us: int) -> Iterator[Refusal]:
        times = times_of(self.replay.events)
        inside = (times > wait.since_us) & (times <= until_us)
        rows = np.flatnonzero(inside)[:_MOST_EXAMINED]
        if not len(rows) or not self.replay.watched.parts[wait.variable]:
            return
        others = self.replay.events.take(pa.array(rows))
        truths = self.conditions.truths_of_others(wait.variable, wait.row, others)
        if truths is None:
            return
        names = self.replay.watched.program.key_columns
        is_other = np.zeros(len(rows), np.bool_)
        for name, value in zip(names, self.key, strict=True):
            is_other |= np.array([item != value for item in others.column(name).to_pylist()], np.bool_)
        found = np.flatnonzero(
            truths.all(axis=0) & is_other & self.conditions.has_stream(wait.variable, others)
        )
        if len(found):
            place = int(found[np.argmin(times[rows[found]])])
            values = (others.column(name)[place].as_py() for name in names)
            key = ", ".join(map(key_text, values, self.replay.keys.kinds))
            event = self._event_of(others, place, -1, int(times[rows[place]]))
            yield Refusal(event, wait.variable, Reason.KEY, f"it has the key {key}")

    # ------------------------------------------------------------ events

    def _steps(self, chain: Chain) -> Iterator[Step]:
        for variable, event in self.lives.steps(chain):
            yield Step(self.watched.rule.variables[variable], self.event(event))

    def event(self, place: int) -> Event:
        """Return an event of the key by its place."""
        return self._event_of(self.watched.events, place, place, int(self.watched.time_us[place]))

    def _event_of(self, table: pa.Table, row: int, place: int, time_us: int) -> Event:
        program = self.replay.watched.program
        stream = program.streams[table.column(STREAM_COLUMN)[row].as_py() if len(program.streams) > 1 else 0]
        values = {
            field.name: shown_value(
                table.column(program.column_of(stream, field.name))[row].as_py(), field.type
            )
            for field in stream.fields
            if field.name != stream.event_time
        }
        return Event(place, time_us, values, stream.name if len(program.streams) > 1 else "")


def _nearness(refusal: Refusal) -> tuple[int, float, int]:
    """Return what orders refusals: fewer parts failed, by less, earlier."""
    return (
        len(refusal.failed),
        max((_far(failed) for failed in refusal.failed), default=0.0),
        refusal.event.place,
    )


def _far(failed: Failed) -> float:
    return abs(float(failed.by)) if failed.by is not None else float("inf")
