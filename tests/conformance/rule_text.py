"""A pattern of stages as the text of a rule."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.conformance.conditions import conjuncts, excludes, renamed
from tests.conformance.expressions import Scope, condition, quoted
from tests.conformance.reading import closed_by, may_be_empty
from tests.conformance.stages import (
    FOLLOWED_BY,
    FOLLOWED_BY_ANY,
    NEXT,
    NOT_FOLLOWED_BY,
    NOT_NEXT,
    Pattern,
    Stage,
    UntranslatableError,
)

_NOWHERE = "nowhere"
"""A variable that takes no event: the goal of a skip to a stage that takes none. It prunes nothing."""

_JOINTS = {NEXT: "", FOLLOWED_BY: "->", FOLLOWED_BY_ANY: "->>", NOT_NEXT: "", NOT_FOLLOWED_BY: "->"}


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, and the variables whose events measures `taken_<number>_<word>` report, with their stages."""

    text: str
    variables: tuple[tuple[str, str], ...]


def write_rule(pattern: Pattern, fields: dict[str, str], n_events: int, n_words: int) -> Rule:
    """Return the rule of a pattern. `fields` are the columns and their kinds."""
    writer = _Writer(pattern, fields, n_events)
    pattern_text = writer.pattern_text()
    variables = writer.variables()
    measures = [
        f"SUM({quoted(name)}.event_bits{word}) AS taken_{number}_{word}"
        for number, (name, _) in enumerate(variables)
        for word in range(n_words)
    ]
    window = pattern.window_ms
    clauses = [
        "RULE flink",
        "FROM events",
        "PARTITION BY case_key",
        f"PATTERN {pattern_text}",
        f"WITHIN < {_duration(window)}" if window else "",
        writer.subset(),
        "DEFINE\n  " + ",\n  ".join(writer.definitions()),
        "MEASURES\n  " + ",\n  ".join(measures) if measures else "",
        "MATCH ALL",
        _skip(pattern.skip.kind, writer.skip_target()),
        "ON TIMEOUT" if window or "[< " in pattern_text else "",
    ]
    return Rule("\n".join(clause for clause in clauses if clause) + "\n", variables)


def _skip(kind: str, target: str) -> str:
    match kind:
        case "NO_SKIP":
            return "NO SKIP"
        case "SKIP_TO_NEXT":
            return "AFTER MATCH SKIP TO NEXT EVENT"
        case "SKIP_PAST_LAST_EVENT":
            return "AFTER MATCH SKIP PAST LAST EVENT"
        case _:
            return f"AFTER MATCH SKIP TO {kind.rsplit('_', 1)[1]} {quoted(target)}"


def _duration(length_ms: int) -> str:
    return f"{length_ms} MILLISECONDS"


def _joint(contiguity: str, gap_ms: int | None) -> str:
    return _JOINTS[contiguity] + (f"[< {_duration(gap_ms)}]" if gap_ms else "")


def _free_if_next(loop: str, joint: str, element: str) -> str:
    """Return `element` behind a loop: Flink looks at the limit once an event has been passed over."""
    strict = f"{loop} {element}"
    return strict if joint.startswith("[") else f"({strict} | {loop} {joint} {element})"


class _Writer:
    def __init__(self, pattern: Pattern, fields: dict[str, str], n_events: int) -> None:
        self.pattern = pattern
        self.fields = fields
        self.n_events = n_events
        self.taken = frozenset(stage.name for stage in pattern.every_stage() if not stage.is_absence)
        self.skips_nowhere = pattern.skip.stage is not None and pattern.skip.stage not in self.taken
        self.others: dict[str, Stage] = {}  # variables that stand for a stage beside its own

    def variables(self) -> tuple[tuple[str, str], ...]:
        """Return the variables that take events, and their stages."""
        names = [stage.name for stage in self.pattern.every_stage() if not stage.is_absence]
        return (
            *zip(names, names, strict=True),
            *((name, one.stands_for) for name, one in self.others.items()),
        )

    def _of_target(self) -> list[str]:
        return [name for name, stage in self.others.items() if stage.stands_for == self.pattern.skip.stage]

    def skip_target(self) -> str:
        """Return the variable, or the subset of them, that matching resumes at."""
        name = self.pattern.skip.stage or ""
        return _NOWHERE if self.skips_nowhere else f"{name}_any" if self._of_target() else name

    def subset(self) -> str:
        """Return the clause for a target of several variables."""
        name = self.pattern.skip.stage or ""
        members = ", ".join(quoted(one) for one in (name, *self._of_target()))
        return f"SUBSET {quoted(f'{name}_any')} = ({members})" if self._of_target() else ""

    # ------------------------------------------------------------ conditions

    def definitions(self) -> list[str]:
        stages = (*self.pattern.every_stage(), *self.others.values())
        found = [f"{quoted(one.name)} AS {condition(one.where, self._scope(one.name))}" for one in stages]
        return [*found, f"{_NOWHERE} AS FALSE"] if self.skips_nowhere else found

    def _scope(self, own: str | None) -> Scope:
        """Return the scope of a condition; an absence holds no events, so it has none of its own."""
        taken = self.taken | self.others.keys()
        return Scope(self.fields, taken, own if own in taken else None, self.n_events)

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
        stages = _greedy_before_strict_absence(stages)
        words: list[str] = []
        for number, stage in enumerate(stages):
            if stage.is_absence:
                words += self._absence(stage, ends=ends and number == len(stages) - 1)
                continue
            element = self._element(stage, ends=ends and number == len(stages) - 1)
            gap_ms = _gap_before(stage)
            if number == 0:
                words.append(element)
            elif gap_ms and stages[number - 1].loops:
                words[-1] = _free_if_next(words[-1], _joint(stage.contiguity, gap_ms), element)
            else:
                words += [_joint(stage.contiguity, gap_ms), element]
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
        if stage.stands_for:
            self.others[stage.name] = stage
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
    """Return the alternatives of stages that end the pattern with what may be left out, as Flink has them.

    Behind an absence: left out, the absence is not looked at either; the match is complete before it. Behind
    a greedy stage: that must not be left out, since the last event of the stage is claimed.
    """
    for number, stage in enumerate(stages):
        behind = tuple(one for one in stages[number + 1 :] if not one.is_absence)
        if not behind or not all(may_be_empty(one) for one in behind):
            continue
        if stage.is_absence:
            before = (*stages[: number - 1], closed_by(stages[number - 1], stage))
            absences = stages[number : len(stages) - len(behind)]
            ways = [(*before, *absences, *way) for way in _not_empty(behind)]
            return ways if _is_greedy(before[-1]) else [*_not_forbidden(before, absences), *ways]
        if _is_greedy(stage) and not stage.stages and not stages[number + 1].is_absence:
            ways = [(*stages[: number + 1], *way) for way in _not_empty(behind)]
            return [stages[:number], *ways] if stage.optional and number else ways
    return []


def _greedy_before_strict_absence(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Return `a++ !b` as `a+ !a !b`: a greedy stage claims the event that a notNext tests, and no other."""
    found: list[Stage] = []
    for stage in stages:
        if stage.contiguity == NOT_NEXT and found and _is_greedy(found[-1]) and not found[-1].stages:
            found[-1] = replace(found[-1], greedy=False)
            found.append(replace(stage, name=found[-1].name))
        found.append(stage)
    return tuple(found)


def _not_forbidden(stages: tuple[Stage, ...], absences: tuple[Stage, ...]) -> list[tuple[Stage, ...]]:
    """Return the stages where the last event is not what a notNext behind it forbids: Flink tests it."""
    *others, last = stages
    strict = [one for one in absences if one.contiguity == NOT_NEXT and not one.stands_for]
    if last.stages or all(excludes(one.where, last.where) for one in strict):
        return [stages]
    if any(conjuncts(one.where) <= conjuncts(last.where) for one in strict):
        return []
    variable = f"{last.name}_last"
    where = ["and", last.where, *(["not", one.where] for one in strict)]
    once = replace(
        last, name=variable, where=renamed(where, last.name, variable), stands_for=last.name, most=1
    )
    # What the stage, but not as the last one, could take is not passed over.
    barred = [replace(last, contiguity=NOT_FOLLOWED_BY)] if last.contiguity == FOLLOWED_BY and others else []
    first = [] if barred and others[-1].could_go_on else barred
    if (last.least, last.most, last.optional) == (1, 1, False):
        return [(*others, *first, once)]
    if last.until is not None or last.optional or last.repeat_gap_ms or last.least > 1:
        return [stages]
    longer = replace(last, most=None if last.most is None else last.most - 1)
    barred = [replace(last, contiguity=NOT_FOLLOWED_BY)] if last.inner == FOLLOWED_BY else []
    end = replace(once, where=where, contiguity=last.inner)
    return [(*others, *first, once), (*others, longer, *strict, *barred, end)]


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
    """Return the limit of the gap before a stage's first event; Flink forgets it if it may be left out."""
    if stage.optional:
        return None
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
