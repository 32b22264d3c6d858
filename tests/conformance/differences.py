"""Where a rule differs from Flink on purpose: docs/flink.md gives the reasons, this page the patterns.

Each difference is decided from the pattern alone. Some touch a part of the answer only: the timeouts, or how
often one and the same match is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.conformance.conditions import excludes
from tests.conformance.reading import may_be_empty, read_pattern
from tests.conformance.stages import (
    FOLLOWED_BY_ANY,
    NOT_FOLLOWED_BY,
    NOT_NEXT,
    Pattern,
    Stage,
    UntranslatableError,
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One decision: its name in docs/flink.md, and the patterns it concerns."""

    name: str
    concerns: Callable[[Pattern], bool]
    only_timeouts: bool = False
    only_repeats: bool = False
    only_choice: bool = False  # matches begin with the same events, but are others


def differences_of(case: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield the differences that the case's pattern can show."""
    try:
        pattern = read_pattern(case["pattern"])
    except UntranslatableError:
        return
    yield from (one for one in DIFFERENCES if one.concerns(pattern))


# ---------------------------------------------------------------- absences


def _optional_end(pattern: Pattern) -> bool:
    """An absence, and something behind it that takes events, all of which may be left out."""

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
    """Say whether nothing in the whole pattern that takes events can follow `stage`."""
    leaves = pattern.every_stage()
    place = leaves.index(stage)
    return all(leaf.is_absence for leaf in leaves[place + 1 :]) and not _repeats_around(pattern.stages, stage)


def _repeats_around(stages: tuple[Stage, ...], leaf: Stage) -> bool:
    around = [stage for stage in stages if stage.stages and leaf in _leaves(stage)]
    return any(stage.most != 1 or _repeats_around(stage.stages, leaf) for stage in around)


def _leaves(stage: Stage) -> list[Stage]:
    return [leaf for inner in stage.stages for leaf in _leaves(inner)] if stage.stages else [stage]


def _absence_before_range(pattern: Pattern) -> bool:
    """A notFollowedBy, and behind it a stage that may occur n to m times."""

    def found(stages: tuple[Stage, ...]) -> bool:
        return any(
            before.contiguity == NOT_FOLLOWED_BY and not stage.loops and stage.most != stage.least
            for before, stage in pairwise(stages)
        ) or any(found(stage.stages) for stage in stages)

    return found(pattern.stages)


def _shared_event(pattern: Pattern) -> bool:
    """An absence and a stage before or behind it that the same event can satisfy."""
    leaves = pattern.every_stage()
    return any(
        leaf.is_absence and not excludes(leaf.where, other.where)
        for number, leaf in enumerate(leaves)
        for other in _neighbours(leaves, number)
    )


def _neighbours(leaves: list[Stage], number: int) -> Iterator[Stage]:
    """Yield the stages for which an event can be tested while the absence is: up to one that is necessary."""
    for side in (leaves[:number][::-1], leaves[number + 1 :]):
        for leaf in side:
            if leaf.is_absence:
                continue
            yield leaf
            if not leaf.optional:
                break


# ---------------------------------------------------------------- greedy and skip


def _greedy_before_option(pattern: Pattern) -> bool:
    """A greedy stage, and right behind it one that may be left out, or a notNext."""

    def found(stages: tuple[Stage, ...]) -> bool:
        return any(
            _is_greedy(stage) and (may_be_empty(behind) or behind.contiguity == NOT_NEXT)
            for stage, behind in pairwise(stages)
        ) or any(found(stage.stages) for stage in stages)

    return found(pattern.stages)


def _is_greedy(stage: Stage) -> bool:
    return stage.greedy and stage.most != stage.least


def _choice(pattern: Pattern) -> bool:
    """A skip strategy, and a pattern that can match several times from one start."""
    return pattern.skip.kind != "NO_SKIP" and any(
        stage.could_go_on or stage.contiguity == FOLLOWED_BY_ANY or stage.inner == FOLLOWED_BY_ANY
        for stage in pattern.every_stage()
    )


# ---------------------------------------------------------------- groups


def _greedy_and_until(pattern: Pattern) -> bool:
    """A greedy stage with `until`, or one of the two in a group that repeats."""

    def found(stages: tuple[Stage, ...], *, repeats: bool) -> bool:
        return any(
            (_is_greedy(stage) and stage.until is not None)
            or (repeats and (_is_greedy(stage) or stage.until is not None))
            or found(stage.stages, repeats=repeats or stage.most != 1)
            for stage in stages
        )

    return found(pattern.stages, repeats=False)


def _repeated_group(pattern: Pattern) -> bool:
    """A group that repeats: each way to cut the same events into repetitions is a match in Flink."""

    def found(stages: tuple[Stage, ...]) -> bool:
        return any(
            stage.stages and (stage.most != 1 or stage.optional or found(stage.stages)) for stage in stages
        )

    return found(pattern.stages)


def _behind_repeated_group(pattern: Pattern) -> bool:
    """A group that may go on or be left, and something behind it; or one whose repetitions may be empty."""

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
    """PREVIOUS_AND_CURRENT on a notNext: the limit of an event that is not taken."""
    return any(leaf.contiguity == NOT_NEXT and leaf.gap_ms for leaf in pattern.every_stage())


def _limit_behind_loop(pattern: Pattern) -> bool:
    """A limit on the gap before a stage that may be left out or is behind one that could go on."""

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
    Difference("an event both forbidden and wanted", _shared_event),
    Difference("absence before times(n, m)", _absence_before_range),
    Difference("greedy before an option", _greedy_before_option),
    Difference("greedy and until", _greedy_and_until),
    Difference("the order of matches that begin together", _choice, only_choice=True),
    Difference("the joint behind a repeated group", _behind_repeated_group),
    Difference("one match, reported more than once", _repeated_group, only_repeats=True),
    Difference("the limit of an event that is not taken", _limit_of_absence),
    Difference("a limit behind a loop or an option", _limit_behind_loop),
    Difference("timeouts of pruned runs", _pruned_timeouts, only_timeouts=True),
)
