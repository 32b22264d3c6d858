"""A pattern as Flink's compiler reads it. It ignores or changes some settings that the builder accepts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.conformance.stages import (
    NEXT,
    NOT_FOLLOWED_BY,
    NOT_NEXT,
    Pattern,
    Stage,
    build_pattern,
    smallest_window,
)


def read_pattern(given: Mapping[str, Any]) -> Pattern:
    """Return the pattern of a case as Flink reads it.

    Raises
    ------
    UntranslatableError
        Flink refuses the pattern, or the case has a word that this module does not know.
    """
    built = build_pattern(given)
    stages = _read_limits(tuple(_as_read(stage) for stage in built.stages))
    window_ms = smallest_window(stages)
    stages = _read_absences(stages, ends=True, has_window=window_ms is not None)
    stages = _read_forbidden(_without_plain_groups(stages), ends=True)
    return replace(built, stages=stages, window_ms=window_ms)


def _as_read(stage: Stage) -> Stage:
    """Return a group as Flink reads it: its first stage repeats as the group does.

    Flink ignores the settings of the first stage for its own repetitions (consecutive, allowCombinations). It
    also ignores the contiguity of a group that begins with another group: this contiguity is always strict.
    """
    if not stage.stages:
        return stage
    first, *others = stage.stages
    if first.stages:
        stage = replace(stage, contiguity=NEXT, inner=NEXT)
    elif first.has_quantifier:
        first = replace(first, inner=stage.inner)
    return replace(stage, stages=tuple(_as_read(one) for one in (first, *others)))


def _read_limits(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Return the stages with the limit before a notNext only where Flink reads it.

    Flink reads the limit when the event comes that the notNext tests. It does not read the limit behind a
    stage that could go on. If the pattern takes one event, the limit is the window of the whole pattern.
    """
    found: list[Stage] = []
    for stage in stages:
        stage = replace(stage, stages=_read_limits(stage.stages))
        if stage.contiguity == NOT_NEXT and stage.gap_ms and found[-1].could_go_on:
            stage = replace(stage, gap_ms=None)
        found.append(stage)
    if len(found) == 2 and found[1].contiguity == NOT_NEXT and found[1].gap_ms and _is_one_event(found[0]):
        limits = [limit for limit in (found[1].gap_ms, found[1].window_ms) if limit]
        found[1] = replace(found[1], gap_ms=None, window_ms=min(limits))
    return tuple(found)


def _is_one_event(stage: Stage) -> bool:
    """Return whether Flink has one state for the stage."""
    return not stage.stages and (stage.least, stage.most) == (1, 1)


def _read_absences(
    stages: tuple[Stage, ...], *, ends: bool, has_window: bool, goes_on: bool = False
) -> tuple[Stage, ...]:
    """Return the stages with the absences that Flink reads.

    `ends` says that the pattern ends with these stages, `goes_on` that it takes an event behind them. A state
    of Flink's automaton carries the absences right before it. An absence has no such state if another absence
    or the end of a group follows it. Flink reads such an absence between the repetitions of the stage before
    it. If that stage could go on, Flink also reads it at the very next event. Otherwise Flink ignores it once
    the stage before it is complete. A timed absence at the end of the pattern is read both between the
    repetitions and behind them.
    """
    found: list[Stage] = []
    for number, stage in enumerate(stages):
        is_last = number == len(stages) - 1
        more = goes_on or any(not one.is_absence for one in stages[number + 1 :])
        if stage.stages:
            inner_ends = ends and is_last and stage.most == 1
            inner = _read_absences(stage.stages, ends=inner_ends, has_window=has_window, goes_on=more)
            stage = replace(stage, stages=inner)
        if stage.contiguity != NOT_FOLLOWED_BY:
            found.append(stage)
            continue
        behind = next((one for one in stages[number + 1 :] if one.contiguity != NOT_FOLLOWED_BY), None)
        if behind is not None:
            is_read = behind.contiguity != NOT_NEXT
        else:
            is_read = is_last and ends and (has_window or bool(stage.gap_ms))
        before = found[-1]
        repeats = not before.is_absence and before.most != 1
        if repeats and (not is_read or (is_last and stage.gap_ms)):
            found[-1] = closed_by(before, stage)
        if is_read:
            found.append(stage)
        elif repeats and before.most != before.least and more:
            found.append(strict(stage))
    return tuple(found)


def strict(absence: Stage) -> Stage:
    """Return the absence as a notNext, which tests only the very next event."""
    return replace(absence, contiguity=NOT_NEXT, gap_ms=None, stands_for=absence.name)


def _without_plain_groups(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Return the stages with each group that occurs exactly once replaced by its own stages."""
    found: list[Stage] = []
    for stage in stages:
        inner = _without_plain_groups(stage.stages)
        if inner and not stage.optional and (stage.least, stage.most) == (1, 1):
            found += [replace(inner[0], contiguity=stage.contiguity), *inner[1:]]
        else:
            found.append(replace(stage, stages=inner))
    return tuple(found)


def closed_by(loop: Stage, absence: Stage) -> Stage:
    """Return the loop with an `until` that closes it at an event forbidden between its repetitions."""
    if absence.contiguity != NOT_FOLLOWED_BY or (loop.most == 1 and not loop.stages):
        return loop
    if loop.stages:
        *others, last = loop.stages
        return replace(loop, stages=(*others, closed_by(last, absence))) if loop.most == 1 else loop
    forbidden = ["and", absence.where, [">", ["count", loop.name], 0]]
    return replace(loop, until=forbidden if loop.until is None else ["or", loop.until, forbidden])


def may_be_empty(stage: Stage) -> bool:
    """Return whether the stage may take no event."""
    return stage.optional or (bool(stage.stages) and all(may_be_empty(inner) for inner in stage.stages))


def _read_forbidden(stages: tuple[Stage, ...], *, ends: bool) -> tuple[Stage, ...]:
    """Return the stages so that none takes an event that a notFollowedBy forbids.

    An event that completes the match is an exception.
    """
    found = list(stages)
    for number, absence in enumerate(stages):
        if absence.stages and absence.most == 1:
            inner = _read_forbidden(absence.stages, ends=ends and number == len(stages) - 1)
            found[number] = replace(found[number], stages=inner)
        if absence.contiguity != NOT_FOLLOWED_BY:
            continue
        before = found[number - 1]
        if not before.is_absence and before.most != 1:
            found[number - 1] = _not_again(before, absence)
        left_out: list[Stage] = []
        for place in range(number + 1, len(stages)):
            stage = found[place]
            if stage.is_absence or stage.stages:
                break
            if ends and all(may_be_empty(one) for one in stages[place + 1 :]):
                break  # an event taken here completes the match
            found[place] = _not_first(stage, absence, left_out)
            if not stage.optional:
                break
            left_out.append(stage)
    return tuple(found)


def _not_again(loop: Stage, absence: Stage) -> Stage:
    """Return a loop that takes a forbidden event only as its first event, as in Flink."""
    if loop.stages:
        return loop
    is_first = ["==", ["count", loop.name], 0]
    return replace(loop, where=["and", loop.where, ["or", is_first, ["not", absence.where]]])


def _not_first(stage: Stage, absence: Stage, left_out: list[Stage]) -> Stage:
    """Return a stage that does not take a forbidden event right behind the absence, as in Flink."""
    counts = [[">", ["count", one.name], 0] for one in (*left_out, stage) if one.optional or one.most != 1]
    return replace(stage, where=["and", stage.where, ["or", *counts, ["not", absence.where]]])
