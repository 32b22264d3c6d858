"""Intended differences from Flink. This module names the patterns; docs/start/flink.md gives the reasons.

Whether a difference can occur is decided from the pattern alone. Some differences can change only a part of
the answer (`Part`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise, takewhile
from typing import Any

from tests.conformance.conditions import excludes
from tests.conformance.reading import may_be_empty, read_pattern
from tests.conformance.stages import (
    FOLLOWED_BY_ANY,
    NEXT,
    NOT_FOLLOWED_BY,
    NOT_NEXT,
    Pattern,
    Stage,
    UntranslatableError,
    build_pattern,
    leaves_of,
)


class Part(Enum):
    """The part of an answer that a difference can change."""

    ALL = "all"
    TIMEOUTS = "the timeouts"
    MATCHED_TIMEOUTS = "timeouts of what is a match, too: only Flink reports them"
    REPEATS = "how often the same is reported"
    CHOICE = "which of the matches that begin together, and what comes of it"


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference: its name in docs/start/flink.md, and a test for the patterns that it concerns.

    The test sees the pattern as Flink reads it, or the pattern as it was built (`as_built`).
    """

    name: str
    concerns: Callable[[Pattern], bool]
    part: Part = Part.ALL
    as_built: bool = False


def differences_of(case: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield the differences that the case's pattern can show."""
    try:
        built, read = build_pattern(case["pattern"]), read_pattern(case["pattern"])
    except UntranslatableError:
        return
    yield from (one for one in DIFFERENCES if one.concerns(built if one.as_built else read))


# ---------------------------------------------------------------- absences


def _optional_end(pattern: Pattern) -> bool:
    """An absence followed by stages that take events and are all optional."""

    def found(stages: tuple[Stage, ...], *, ends: bool) -> bool:
        for number, stage in enumerate(stages):
            behind = stages[number + 1 :]
            may_end = ends and all(one.is_absence or may_be_empty(one) for one in behind)
            if stage.stages and found(stage.stages, ends=may_end):
                return True
            if stage.is_absence and may_end and not _ends_here(pattern, stage):
                return True
        return False

    return found(pattern.stages, ends=True)


def _ends_here(pattern: Pattern, stage: Stage) -> bool:
    """Return whether no stage of the whole pattern that takes events can follow `stage`."""
    leaves = pattern.every_stage()
    place = leaves.index(stage)
    return all(leaf.is_absence for leaf in leaves[place + 1 :]) and not _repeats_around(pattern.stages, stage)


def _repeats_around(stages: tuple[Stage, ...], leaf: Stage) -> bool:
    """Return whether a group with the stage repeats. Then Flink goes on with the first stage of the group."""
    around = [stage for stage in stages if stage.stages and leaf in leaves_of(stage)]
    return any(stage.most != 1 or _repeats_around(stage.stages, leaf) for stage in around)


def _pairs(stages: tuple[Stage, ...]) -> Iterator[tuple[Stage, Stage]]:
    """Yield each two stages of which one directly follows the other, inside and outside groups."""
    yield from pairwise(stages)
    for stage in stages:
        yield from _pairs(stage.stages)


def _absence_beside_choice(pattern: Pattern) -> bool:
    """A notFollowedBy beside a stage that may take one more event or a group that begins with an option."""
    return any(
        (before.contiguity == NOT_FOLLOWED_BY and (_is_range(stage) or _begins_with_option(stage)))
        or (stage.contiguity == NOT_FOLLOWED_BY and _may_take_one_more(leaves_of(before)[-1]))
        for before, stage in _pairs(pattern.stages)
    )


def _is_range(stage: Stage) -> bool:
    """Return whether Flink has states for the repetitions after the n-th, which are all optional."""
    return not stage.loops and stage.most != stage.least


def _begins_with_option(stage: Stage) -> bool:
    """Return whether a group can begin with several states of Flink. Only one of them carries the absence."""
    return bool(stage.stages) and _may_begin_behind(stage.stages[0])


def _may_begin_behind(stage: Stage) -> bool:
    """Return whether the stage, or the first stage of a group, is optional."""
    return stage.optional or (bool(stage.stages) and _may_begin_behind(stage.stages[0]))


def _may_take_one_more(stage: Stage) -> bool:
    """Return whether Flink ends the stage with an optional state."""
    return stage.could_go_on and not stage.loops


def _several_absences(pattern: Pattern) -> bool:
    """A stage that repeats, followed by several absences. One after the first absence is a notFollowedBy."""
    leaves = pattern.every_stage()
    return any(
        absence.contiguity == NOT_FOLLOWED_BY
        for number, stage in enumerate(leaves)
        if stage.most != 1
        for absence in list(takewhile(lambda one: one.is_absence, leaves[number + 1 :]))[1:]
    )


def _absence_ends_group(pattern: Pattern) -> bool:
    """A group at the end of a pattern with a window. It occurs several times and ends with an absence."""
    last = pattern.stages[-1]
    return (
        bool(last.stages)
        and last.most not in (None, 1)
        and leaves_of(last)[-1].contiguity == NOT_FOLLOWED_BY
        and bool(pattern.window_ms or leaves_of(last)[-1].gap_ms)
    )


def _shared_event(pattern: Pattern) -> bool:
    """An absence and a stage before or after it such that one event can satisfy both."""
    leaves = pattern.every_stage()
    return any(
        leaf.is_absence and not excludes(leaf.where, other.where)
        for number, leaf in enumerate(leaves)
        for other in (*_neighbours(leaves, number), *_again(pattern.stages, leaf))
    )


def _neighbours(leaves: list[Stage], number: int) -> Iterator[Stage]:
    """Yield the stages for which an event can be tested beside the absence, up to a necessary stage."""
    for side in (leaves[:number][::-1], leaves[number + 1 :]):
        yield from _up_to_necessary(side)


def _up_to_necessary(leaves: list[Stage]) -> Iterator[Stage]:
    """Yield the stages for which Flink tests one event: the optional stages, and the stage after them."""
    for leaf in leaves:
        if leaf.is_absence:
            continue
        yield leaf
        if not leaf.optional:
            break


def _again(stages: tuple[Stage, ...], absence: Stage) -> Iterator[Stage]:
    """Yield the stages with which a group right before the absence can begin its next repetition."""
    for before, stage in _pairs(stages):
        if stage == absence and before.stages and before.most != 1:
            yield from _up_to_necessary(leaves_of(before))


def _open_before_end(pattern: Pattern) -> bool:
    """A notFollowedBy at the end of a pattern with a window, after a stage that could go on."""
    leaves = pattern.every_stage()
    taking = [stage for stage in leaves if not stage.is_absence]
    ends = leaves[-1].contiguity == NOT_FOLLOWED_BY and pattern.window_ms is not None
    return ends and taking[-1].could_go_on


# ---------------------------------------------------------------- greedy and skip


def _greedy_before_option(pattern: Pattern) -> bool:
    """A greedy stage directly followed by an optional stage or by a group that begins with one."""
    return any(_is_greedy(stage) and _may_begin_behind(behind) for stage, behind in _pairs(pattern.stages))


def _greedy_ends_option(pattern: Pattern) -> bool:
    """An optional group that ends with a greedy stage."""
    return any(
        group.stages and group.optional and _is_greedy(leaves_of(group)[-1]) for group in pattern.stages
    )


def _is_greedy(stage: Stage) -> bool:
    return stage.greedy and stage.most != stage.least


def _choice(pattern: Pattern) -> bool:
    """A pattern with a skip strategy that can match several times from one start."""
    return pattern.skip.kind != "NO_SKIP" and any(
        stage.could_go_on or stage.contiguity == FOLLOWED_BY_ANY or stage.inner == FOLLOWED_BY_ANY
        for stage in pattern.every_stage()
    )


# ---------------------------------------------------------------- groups


def _greedy_and_until(pattern: Pattern) -> bool:
    """A greedy stage with `until`, or a stage with one of the two in a group that repeats."""

    def found(stages: tuple[Stage, ...], *, repeats: bool) -> bool:
        return any(
            (_is_greedy(stage) and stage.until is not None)
            or (repeats and (_is_greedy(stage) or stage.until is not None))
            or found(stage.stages, repeats=repeats or stage.most != 1)
            for stage in stages
        )

    return found(pattern.stages, repeats=False)


def _until_of_group(pattern: Pattern) -> bool:
    """A group with `until` that can ignore an event before or after its first stage."""
    return any(
        stage.stages
        and stage.until is not None
        and ((number > 0 and stage.contiguity != NEXT) or len(stage.stages) > 1 or stage.stages[0].most != 1)
        for number, stage in enumerate(pattern.stages)
    )


def _repeated_group(pattern: Pattern) -> bool:
    """A group that repeats. In Flink each way to divide the same events into repetitions is a match."""

    def found(stages: tuple[Stage, ...]) -> bool:
        return any(
            stage.stages and (stage.most != 1 or stage.optional or found(stage.stages)) for stage in stages
        )

    return found(pattern.stages)


def _behind_repeated_group(pattern: Pattern) -> bool:
    """A group that may repeat or end before another stage, or a group whose repetitions may be empty."""

    def found(stages: tuple[Stage, ...], *, is_last: bool) -> bool:
        for number, stage in enumerate(stages):
            last = is_last and number == len(stages) - 1
            if stage.stages and stage.most != stage.least and not last:
                return True
            if stage.stages and stage.most != 1 and all(may_be_empty(one) for one in stage.stages):
                return True
            if stage.stages and found(stage.stages, is_last=last and stage.most == 1):
                return True
        return False

    return found(pattern.stages, is_last=True)


# ---------------------------------------------------------------- time


def _limit_of_absence(pattern: Pattern) -> bool:
    """PREVIOUS_AND_CURRENT on a notNext, so a limit for an event that is not taken."""
    return any(leaf.contiguity == NOT_NEXT and leaf.gap_ms for leaf in pattern.every_stage())


def _limit_behind_loop(pattern: Pattern) -> bool:
    """A limit on the gap before a stage that is optional or follows a stage that could go on."""

    def found(stages: tuple[Stage, ...]) -> bool:
        for before, stage in zip((None, *stages), stages, strict=False):
            limited = (stage.gap_ms and not stage.has_quantifier) or stage.repeat_gap_ms
            open_before = before is not None and (before.could_go_on or before.is_absence)
            if limited and (open_before or stage.optional or stage.most != stage.least):
                return True
            if found(stage.stages):
                return True
        return False

    return found(pattern.stages)


def _pruned_timeouts(pattern: Pattern) -> bool:
    """A window and a skip strategy that prunes."""
    return pattern.skip.kind != "NO_SKIP" and bool(pattern.window_ms)


DIFFERENCES = (
    Difference("absence before an optional end", _optional_end),
    Difference("an event both forbidden and wanted", _shared_event, as_built=True),
    Difference("absence next to a choice", _absence_beside_choice, as_built=True),
    Difference("several absences in a row", _several_absences, as_built=True),
    Difference("absence at the end of a group", _absence_ends_group, as_built=True),
    Difference("a match and a timeout of the same events", _open_before_end, part=Part.MATCHED_TIMEOUTS),
    Difference("greedy before an option", _greedy_before_option),
    Difference("greedy at the end of an option", _greedy_ends_option, as_built=True),
    Difference("greedy and until", _greedy_and_until),
    Difference("the until of a group", _until_of_group, as_built=True),
    Difference("the order of matches with the same start", _choice, part=Part.CHOICE),
    Difference("the joint after a repeated group", _behind_repeated_group),
    Difference("one match, reported more than once", _repeated_group, part=Part.REPEATS),
    Difference("the limit of an event that is not taken", _limit_of_absence),
    Difference("a limit after a loop or an option", _limit_behind_loop),
    Difference("timeouts of pruned runs", _pruned_timeouts, part=Part.TIMEOUTS),
)
