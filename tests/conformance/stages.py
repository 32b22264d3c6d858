"""The pattern of a case as Flink's builder makes it: stages with their defaults filled in.

A case describes a pattern in the words of Flink's Pattern API, as the fields of each stage or as the calls of
the builder in their order. Both become the same form here, or raise `UntranslatableError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

NEXT, FOLLOWED_BY, FOLLOWED_BY_ANY = "next", "followedBy", "followedByAny"
NOT_NEXT, NOT_FOLLOWED_BY = "notNext", "notFollowedBy"
CONTIGUITIES = (NEXT, FOLLOWED_BY, FOLLOWED_BY_ANY, NOT_NEXT, NOT_FOLLOWED_BY)

FIRST_AND_LAST, PREVIOUS_AND_CURRENT = "FIRST_AND_LAST", "PREVIOUS_AND_CURRENT"

Expression = Any
"""A literal, or a list of an operator and its operands, as the case writes it."""


class UntranslatableError(Exception):
    """The case cannot be written as a rule. The text of the error says why."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage. It repeats `least` to `most` times, or without an upper bound if `most` is None."""

    name: str
    stages: tuple[Stage, ...] = ()  # the stages of a group; a single stage has none
    contiguity: str = FOLLOWED_BY
    where: Expression = True
    least: int = 1
    most: int | None = 1
    has_quantifier: bool = False
    inner: str = FOLLOWED_BY  # contiguity between repetitions
    optional: bool = False
    greedy: bool = False
    until: Expression = None
    window_ms: int | None = None
    gap_ms: int | None = None  # PREVIOUS_AND_CURRENT
    repeat_gap_ms: int | None = None  # of oneOrMore(Duration), times(n, Duration)
    stands_for: str = ""  # the stage from which it was made

    @property
    def is_absence(self) -> bool:
        """Return whether the stage forbids events instead of taking them."""
        return self.contiguity in (NOT_NEXT, NOT_FOLLOWED_BY)

    @property
    def could_go_on(self) -> bool:
        """Return whether the stage could take more events where it can also end."""
        if self.most != self.least or self.optional:
            return True
        return bool(self.stages) and self.stages[-1].could_go_on

    @property
    def loops(self) -> bool:
        """Return whether the stage repeats without an upper bound."""
        return self.most is None


@dataclass(frozen=True, slots=True)
class Skip:
    """The skip strategy. SKIP_TO_FIRST and SKIP_TO_LAST have a `stage`."""

    kind: str = "NO_SKIP"
    stage: str | None = None


@dataclass(frozen=True, slots=True)
class Pattern:
    """A whole pattern."""

    stages: tuple[Stage, ...]
    skip: Skip = Skip()
    window_ms: int | None = None

    def every_stage(self) -> list[Stage]:
        """Return the single stages in order, including the stages of groups."""
        return [leaf for stage in self.stages for leaf in leaves_of(stage)]


def smallest_window(stages: tuple[Stage, ...]) -> int | None:
    """Return the smallest window of any stage. Flink ignores the window of the last stage of a group."""
    return min(_windows(stages), default=None)


def _windows(stages: tuple[Stage, ...]) -> list[int]:
    found = []
    for stage in stages:
        if stage.window_ms:
            found.append(stage.window_ms)
        if stage.stages:
            last = replace(stage.stages[-1], window_ms=None)
            found += _windows((*stage.stages[:-1], last))
    return found


def leaves_of(stage: Stage) -> list[Stage]:
    """Return the single stages of a group, or the stage itself."""
    return [leaf for inner in stage.stages for leaf in leaves_of(inner)] if stage.stages else [stage]


def build_pattern(given: Mapping[str, Any]) -> Pattern:
    """Return the pattern that Flink's builder would build.

    Raises
    ------
    UntranslatableError
        Flink refuses the pattern, or the case has a word that is not known here.
    """
    _only(given, ("stages", "within", "withinType", "skip"), "the pattern")
    stages = _read_stages(given["stages"], "")
    if given.get("within") is not None:
        stages = (*stages[:-1], _within(stages[-1], given["within"], given.get("withinType")))
    pattern = Pattern(stages, _read_skip(given.get("skip")), smallest_window(stages))
    _check(pattern)
    return pattern


def _read_stages(given: Sequence[Mapping[str, Any]], prefix: str) -> tuple[Stage, ...]:
    if not given:
        raise UntranslatableError("a pattern needs a stage")
    return tuple(_read_stage(stage, number, prefix) for number, stage in enumerate(given))


def _read_stage(given: Mapping[str, Any], number: int, prefix: str) -> Stage:
    known = (
        "name", "group", "contiguity", "where", "quantifier", "optional", "greedy", "consecutive",
        "allowCombinations", "until", "within", "withinType", "calls",
    )  # fmt: skip
    _only(given, known, "a stage")
    contiguity = given.get("contiguity") or FOLLOWED_BY
    if contiguity not in CONTIGUITIES:
        raise UntranslatableError(f"contiguity {contiguity!r} is not known")
    contiguity = FOLLOWED_BY if number == 0 else contiguity
    name = given.get("name") or f"{prefix}group{number}"
    inner = _read_stages(given["group"]["stages"], f"{name}_") if given.get("group") else ()
    stage = Stage(name, stages=inner, contiguity=contiguity)
    calls = given["calls"] if "calls" in given else _calls(given)
    applied: list[str] = []
    for call in calls:
        stage = _apply(stage, call[0], tuple(call[1:]), applied)
        applied.append(call[0])
    return stage


def _calls(given: Mapping[str, Any]) -> list[list[Any]]:
    """Return the calls of the builder that are equivalent to the fields of a stage."""
    calls: list[list[Any]] = []
    if given.get("where") is not None:
        calls.append(["where", given["where"]])
    quantifier = given.get("quantifier") or "one"
    if isinstance(quantifier, str):
        quantifier = {} if quantifier == "one" else {quantifier: True}
    gap = [quantifier["within"]] if quantifier.get("within") is not None else []
    if quantifier.get("oneOrMore"):
        calls.append(["oneOrMore", *gap])
    if quantifier.get("timesOrMore") is not None:
        calls.append(["timesOrMore", quantifier["timesOrMore"], *gap])
    if quantifier.get("times") is not None:
        times = quantifier["times"]
        low, high = times if isinstance(times, list) else (times, times)
        calls.append(["times", low, high, *gap])
    if unknown := set(quantifier) - {"oneOrMore", "timesOrMore", "times", "within"}:
        raise UntranslatableError(f"quantifier {sorted(unknown)} is not known")
    calls += [
        [word] for word in ("optional", "greedy", "consecutive", "allowCombinations") if given.get(word)
    ]
    if given.get("until") is not None:
        calls.append(["until", given["until"]])
    if given.get("within") is not None:
        calls.append(["within", given["within"], given.get("withinType")])
    return calls


def _apply(stage: Stage, word: str, given: tuple[Any, ...], applied: list[str]) -> Stage:  # noqa: C901, PLR0912 - a case for each call of the API
    """Apply one call of the builder."""
    match word:
        case "where":
            return replace(stage, where=given[0] if stage.where is True else ["and", stage.where, given[0]])
        case "or":
            return replace(stage, where=["or", stage.where, given[0]])
        case "oneOrMore" | "timesOrMore" | "times":
            if stage.has_quantifier:
                _refuse(f"{stage.name} has two quantifiers")
            return _repeated(stage, word, given)
        case "optional":
            if "optional" in applied and stage.optional:
                _refuse(f"{stage.name} is made optional twice")
            return replace(stage, optional=True)
        case "greedy":
            if stage.stages:
                _refuse("a group is made greedy")
            return replace(stage, greedy=True)
        case "consecutive" | "allowCombinations":
            if not stage.has_quantifier:
                _refuse(f"{word} on {stage.name}, which does not repeat")
            other = "allowCombinations" if word == "consecutive" else "consecutive"
            if other in applied:
                _refuse(f"{stage.name} has both consecutive and allowCombinations")
            return replace(stage, inner=NEXT if word == "consecutive" else FOLLOWED_BY_ANY)
        case "until":
            if not stage.loops:
                _refuse(f"until on {stage.name}, which has no loop")
            if stage.until is not None:
                _refuse(f"{stage.name} has until twice")
            return replace(stage, until=given[0])
        case "within":
            return _within(stage, given[0], given[1] if len(given) > 1 else None)
        case _:
            raise UntranslatableError(f"the call {word} is not known")


def _repeated(stage: Stage, word: str, given: tuple[Any, ...]) -> Stage:
    # A quantifier replaces an `optional` that was called before it.
    stage = replace(stage, has_quantifier=True, optional=False, greedy=False)
    if word == "oneOrMore":
        return replace(stage, least=1, most=None, repeat_gap_ms=given[0] if given else None)
    if word == "timesOrMore":
        least, gap = given[0], given[1] if len(given) > 1 else None
        if least < 1:
            _refuse(f"timesOrMore({least})")
        return replace(stage, least=least, most=None, repeat_gap_ms=gap)
    low, high = given[0], given[1] if len(given) > 1 else given[0]
    gap = given[2] if len(given) > 2 else None
    if high < low or high < 1:
        _refuse(f"times({low}, {high})")
    return replace(stage, least=max(low, 1), most=high, optional=low == 0, repeat_gap_ms=gap)


def _within(stage: Stage, length_ms: int, kind: str | None) -> Stage:
    if kind in (None, FIRST_AND_LAST):
        return replace(stage, window_ms=length_ms)
    if kind == PREVIOUS_AND_CURRENT:
        return replace(stage, gap_ms=length_ms)
    raise UntranslatableError(f"withinType {kind!r} is not known")


def _read_skip(given: Any) -> Skip:
    if given is None:
        return Skip()
    if isinstance(given, str):
        given = {"type": given}
    kind, stage = given["type"], given.get("stage")
    # With `throwOnMiss`, a skip without a target ends the Flink job. A rule resumes as documented instead.
    if kind in ("NO_SKIP", "SKIP_TO_NEXT", "SKIP_PAST_LAST_EVENT"):
        return Skip(kind)
    if kind in ("SKIP_TO_FIRST", "SKIP_TO_LAST"):
        return Skip(kind, stage)
    raise UntranslatableError(f"skip {kind!r} is not known")


def _check(pattern: Pattern) -> None:
    """Refuse the patterns that Flink refuses, because they have no meaning as a rule either."""
    leaves = pattern.every_stage()
    names = [stage.name for stage in leaves]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        _refuse(f"two stages are called {doubled[0]}")
    if pattern.skip.stage is not None and pattern.skip.stage not in names:
        _refuse(f"the skip names {pattern.skip.stage}, which is no stage")
    _check_absences(pattern.stages)
    last = pattern.stages[-1]
    if last.contiguity == NOT_FOLLOWED_BY and not (pattern.window_ms or last.gap_ms):
        _refuse(f"{last.name} forbids an event for ever")
    gaps = [stage.gap_ms for stage in leaves if stage.gap_ms and not stage.has_quantifier]
    gaps += [stage.repeat_gap_ms for stage in leaves if stage.repeat_gap_ms]
    if pattern.window_ms is not None and any(gap > pattern.window_ms for gap in gaps):
        _refuse("the limit of a gap is larger than the window")


def _check_absences(stages: tuple[Stage, ...]) -> None:
    for before, stage in zip((None, *stages), stages, strict=False):
        _check_absences(stage.stages)
        if not stage.is_absence:
            continue
        if stage.has_quantifier or stage.optional or stage.greedy or stage.stages:
            _refuse(f"{stage.name} forbids an event and has a quantifier or is a group")
        if before is not None and before.optional:
            _refuse(f"{stage.name} forbids an event behind {before.name}, which is optional")


def _refuse(what: str) -> None:
    raise UntranslatableError(f"Flink refuses the pattern: {what}")


def _only(given: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    if unknown := sorted(set(given) - set(known)):
        raise UntranslatableError(f"{what} has fields that are not known: {', '.join(unknown)}")
