"""A pattern of stages as the text of a rule."""

from __future__ import annotations

from dataclasses import replace

from tests.conformance.expressions import Scope, condition, quoted
from tests.conformance.reading import closed_by, may_be_empty
from tests.conformance.stages import (
    FOLLOWED_BY,
    FOLLOWED_BY_ANY,
    NEXT,
    NOT_FOLLOWED_BY,
    NOT_NEXT,
    Expression,
    Pattern,
    Skip,
    Stage,
    UntranslatableError,
)

_NOWHERE = "nowhere"
"""A variable that takes no event: the goal of a skip to a stage that takes none. It prunes nothing."""

_JOINTS = {NEXT: "", FOLLOWED_BY: "->", FOLLOWED_BY_ANY: "->>", NOT_NEXT: "", NOT_FOLLOWED_BY: "->"}


def rule_text(pattern: Pattern, fields: dict[str, str], measures: list[str], n_events: int) -> str:
    """Return the rule. `fields` are the columns and their kinds, `measures` show what a match took."""
    writer = _Writer(pattern, fields, n_events)
    window = pattern.window_ms
    clauses = [
        "RULE flink",
        "FROM events",
        "PARTITION BY case_key",
        f"PATTERN {writer.pattern_text()}",
        f"WITHIN < {_duration(window)}" if window else "",
        "DEFINE\n  " + ",\n  ".join(writer.definitions()),
        "MEASURES\n  " + ",\n  ".join(measures) if measures else "",
        "MATCH ALL",
        _skip(pattern.skip, writer.taken),
        "ON TIMEOUT" if window else "",
    ]
    return "\n".join(clause for clause in clauses if clause) + "\n"


def _skip(skip: Skip, taken: frozenset[str]) -> str:
    if skip.stage is not None and skip.stage not in taken:
        skip = Skip(skip.kind, _NOWHERE)
    match skip.kind:
        case "NO_SKIP":
            return "NO SKIP"
        case "SKIP_TO_NEXT":
            return "AFTER MATCH SKIP TO NEXT EVENT"
        case "SKIP_PAST_LAST_EVENT":
            return "AFTER MATCH SKIP PAST LAST EVENT"
        case _:
            assert skip.stage is not None
            return f"AFTER MATCH SKIP TO {skip.kind.rsplit('_', 1)[1]} {quoted(skip.stage)}"


def _duration(length_ms: int) -> str:
    return f"{length_ms} MILLISECONDS"


def _joint(contiguity: str, gap_ms: int | None) -> str:
    return _JOINTS[contiguity] + (f"[< {_duration(gap_ms)}]" if gap_ms else "")


class _Writer:
    def __init__(self, pattern: Pattern, fields: dict[str, str], n_events: int) -> None:
        self.pattern = pattern
        self.fields = fields
        self.n_events = n_events
        self.taken = frozenset(stage.name for stage in pattern.every_stage() if not stage.is_absence)
        self.skips_nowhere = pattern.skip.stage is not None and pattern.skip.stage not in self.taken

    # ------------------------------------------------------------ conditions

    def definitions(self) -> list[str]:
        found = [
            f"{quoted(stage.name)} AS {condition(stage.where, self._scope(stage.name))}"
            for stage in self.pattern.every_stage()
        ]
        return [*found, f"{_NOWHERE} AS FALSE"] if self.skips_nowhere else found

    def _scope(self, own: str | None) -> Scope:
        """Return the scope of a condition; an absence holds no events, so it has none of its own."""
        return Scope(self.fields, self.taken, own if own in self.taken else None, self.n_events)

    # ------------------------------------------------------------ pattern

    def pattern_text(self) -> str:
        """Return the pattern; one that may be empty as the ways to begin it, since a match has an event."""
        ways = [self.sequence(way, ends=True) for way in _not_empty(self.pattern.stages)]
        return " | ".join([*ways, _NOWHERE] if self.skips_nowhere else ways)

    def sequence(self, stages: tuple[Stage, ...], *, ends: bool) -> str:
        """Return stages one after another; `ends`: the pattern ends with the last one."""
        if ends and (ways := _ways_to_end(stages)):
            return " | ".join(self.sequence(way, ends=True) for way in ways)
        if ends:
            stages = _left_before_absence(stages)
        words: list[str] = []
        for number, stage in enumerate(stages):
            if stage.is_absence:
                words += self._absence(stage, ends=ends and number == len(stages) - 1)
                continue
            if number > 0:
                words.append(_joint(stage.contiguity, _gap_before(stage)))
            words.append(self._element(stage, ends=ends and number == len(stages) - 1))
        return " ".join(word for word in words if word)

    def _absence(self, stage: Stage, *, ends: bool) -> list[str]:
        negated = f"!{quoted(stage.name)}"
        if stage.contiguity == NOT_NEXT:
            if stage.gap_ms:
                raise UntranslatableError(
                    f"a limit on the gap before {stage.name}: the event that a strict absence looks at may "
                    "come at any time, since only events that are taken have a gap (docs/flink.md)"
                )
            return [negated]
        # Only at the end is there a state that the limit of a notFollowedBy applies to.
        limit = f"FOR < {_duration(stage.gap_ms)}" if stage.gap_ms and ends else ""
        return ["->", negated, limit]

    def _element(self, stage: Stage, *, ends: bool) -> str:
        body = f"({self.sequence(stage.stages, ends=ends)})" if stage.stages else quoted(stage.name)
        parts = [self._repeated(part, body) for part in _parts(stage)]
        text = f" {_JOINTS[stage.inner]} ".join(parts).replace("  ", " ")
        # What a greedy stage claims it claims also where it is left out.
        claims = "+" if _is_greedy(stage) else ""
        if not stage.optional:
            return f"({text})" if len(parts) > 1 else text
        if stage.least == 1 and len(parts) == 1:
            return self._repeated(replace(stage, least=0, greedy=_is_greedy(stage)), body)
        return f"({text})?{claims}"

    def _repeated(self, stage: Stage, body: str) -> str:
        low, high = stage.least, stage.most
        gap = stage.repeat_gap_ms
        bounds = {(1, 1): "", (0, 1): "?", (0, None): "*", (1, None): "+"}.get((low, high))
        if bounds is None:
            bounds = "{%s}" % (low if low == high else f"{low},{'' if high is None else high}")
        if not bounds:
            return body
        joint = _joint(stage.inner, gap) if high != 1 else ""
        until = f" UNTIL ({condition(stage.until, self._scope(None))})" if stage.until is not None else ""
        return f"{body}{joint}{bounds}{'+' if _is_greedy(stage) else ''}{until}"


def _ways_to_end(stages: tuple[Stage, ...]) -> list[tuple[Stage, ...]]:
    """Return the alternatives of stages that end the pattern with an absence before what may be left out.

    Left out, Flink does not look at the absence either: the match is complete before it.
    """
    for number, stage in enumerate(stages):
        behind = tuple(one for one in stages[number:] if not one.is_absence)
        if not stage.is_absence or not behind or not all(may_be_empty(one) for one in behind):
            continue
        before = (*stages[: number - 1], closed_by(stages[number - 1], stage))
        absences = stages[number : len(stages) - len(behind)]
        ways = [(*before, *absences, *way) for way in _not_empty(behind)]
        # Behind a notNext, the last event itself must not be what it forbids.
        return ways if _always_forbidden(before[-1], absences) else [before, *ways]
    return []


def _always_forbidden(last: Stage, absences: tuple[Stage, ...]) -> bool:
    while last.stages:
        last = last.stages[-1]
    return any(
        one.contiguity == NOT_NEXT and _conjuncts(one.where) <= _conjuncts(last.where) for one in absences
    )


def _conjuncts(expression: Expression) -> set[str]:
    if expression is True or expression == ["true"]:
        return set()
    if isinstance(expression, list) and expression[0] == "and":
        return {part for inner in expression[1:] for part in _conjuncts(inner)}
    return {repr(expression)}


def _left_before_absence(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Return stages that end with `a+ -> !b` as Flink reads them: another event must have ended the loop."""
    *before, loop, absence = (None, *stages) if len(stages) > 1 else (None, None, *stages)
    if loop is None or absence.contiguity != NOT_FOLLOWED_BY or loop.is_absence or not loop.could_go_on:
        return stages
    return (
        *before[1:],
        closed_by(loop, absence),
        replace(absence, contiguity=NOT_NEXT, gap_ms=None),
        absence,
    )


def _not_empty(stages: tuple[Stage, ...]) -> list[tuple[Stage, ...]]:
    """Return the sequences that take an event and together say what `stages` says, apart from taking none."""
    if not all(may_be_empty(stage) for stage in stages):
        return [stages]
    return [
        (first, *stages[number + 1 :])
        for number, stage in enumerate(stages)
        for first in _taking(replace(stage, optional=False))
    ]


def _taking(stage: Stage) -> list[Stage]:
    """Return `stage` as a group whose body takes an event, once for each way to begin the body."""
    if not stage.stages:
        return [stage]
    ways = _not_empty(stage.stages)
    if len(ways) > 1 and stage.most != 1:
        raise UntranslatableError(
            f"a loop of {stage.name}, of which every part may be left out, at the start"
        )
    return [replace(stage, stages=way) for way in ways]


def _is_greedy(stage: Stage) -> bool:
    """Say whether `greedy` has an effect: it has none on a fixed number of events."""
    return stage.greedy and stage.least != stage.most


def _gap_before(stage: Stage) -> int | None:
    """Return the limit of the gap before a stage's first event."""
    if not stage.has_quantifier:
        return stage.gap_ms
    return stage.repeat_gap_ms if stage.loops or stage.most != 1 else None


def _parts(stage: Stage) -> list[Stage]:
    """Split a stage whose repetitions have a limit: Flink reads it up to the last necessary one.

    `times(n, d)` limits the gaps before the first n - 1 events, `timesOrMore(n, d)` and `times(n, m, d)`
    those before the first n; the others are free.
    """
    if not stage.repeat_gap_ms:
        return [stage]
    free = replace(stage, repeat_gap_ms=None, optional=False)
    n_limited = stage.least - 1 if stage.least == stage.most else stage.least
    if n_limited < 2:
        return [free]
    limited = replace(stage, least=n_limited, most=n_limited, optional=False)
    if stage.least == stage.most:
        return [limited, replace(free, least=1, most=1)]
    return [limited, replace(free, least=0, most=None if stage.most is None else stage.most - n_limited)]
