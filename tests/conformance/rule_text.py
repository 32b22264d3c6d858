"""A pattern of stages as the text of a rule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile

from tests.conformance.conditions import conjuncts, excludes, renamed
from tests.conformance.expressions import Scope, condition, quoted
from tests.conformance.reading import closed_by, may_be_empty, strict
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

_NOWHERE = Stage("nowhere", contiguity=NEXT, where=False, stands_for="nowhere")
"""A variable that takes no event. It is the target of a skip to a stage without events: it prunes nothing."""

_JOINTS = {NEXT: "", FOLLOWED_BY: "->", FOLLOWED_BY_ANY: "->>", NOT_NEXT: "", NOT_FOLLOWED_BY: "->"}


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, and its variables with their stages. Measures `taken_<number>_<word>` report their events."""

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
    """Return `element` behind a loop. Flink reads the limit only after it has ignored an event."""
    strict = f"{loop} {element}"
    return strict if joint.startswith("[") else f"({strict} | {loop} {joint} {element})"


class _Writer:
    def __init__(self, pattern: Pattern, fields: dict[str, str], n_events: int) -> None:
        self.pattern = pattern
        self.fields = fields
        self.n_events = n_events
        self.taken = frozenset(stage.name for stage in pattern.every_stage() if not stage.is_absence)
        self.skips_nowhere = pattern.skip.stage is not None and pattern.skip.stage not in self.taken
        self.others: dict[str, Stage] = {}  # additional variables that stand for a stage

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
        """Return the variable or the subset at which matching resumes."""
        name = self.pattern.skip.stage or ""
        return _NOWHERE.name if self.skips_nowhere else f"{name}_any" if self._of_target() else name

    def subset(self) -> str:
        """Return the SUBSET clause if the target of the skip is several variables."""
        name = self.pattern.skip.stage or ""
        members = ", ".join(quoted(one) for one in (name, *self._of_target()))
        return f"SUBSET {quoted(f'{name}_any')} = ({members})" if self._of_target() else ""

    # ------------------------------------------------------------ conditions

    def definitions(self) -> list[str]:
        stages = (*self.pattern.every_stage(), *self.others.values())
        return [f"{quoted(one.name)} AS {condition(one.where, self._scope(one.name))}" for one in stages]

    def _scope(self, own: str | None) -> Scope:
        """Return the scope of a condition. An absence takes no events, so its scope has no `own` stage."""
        taken = self.taken | self.others.keys()
        return Scope(self.fields, taken, own if own in taken else None, self.n_events)

    # ------------------------------------------------------------ pattern

    def pattern_text(self) -> str:
        """Return the text of the pattern.

        A match has at least one event, so a pattern that may be empty becomes the alternatives that are not.
        """
        ways = _not_empty(self.pattern.stages)
        if self.skips_nowhere:
            ways.append((_NOWHERE,))
        return " | ".join(self.sequence(way, ends=True) for way in ways)

    def sequence(self, stages: tuple[Stage, ...], *, ends: bool) -> str:
        """Return stages one after another. `ends` says that the pattern ends with the last stage."""
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
                    "come at any time, since only events that are taken have a gap (docs/start/flink.md)"
                )
            return [negated]
        # The limit of a notFollowedBy applies only to a state at the end of the pattern.
        limit = f"FOR < {_duration(stage.gap_ms)}" if stage.gap_ms and ends else ""
        return ["->", negated, limit]

    def _element(self, stage: Stage, *, ends: bool) -> str:
        if stage.stands_for:
            self.others[stage.name] = stage
        body = f"({self.sequence(stage.stages, ends=ends)})" if stage.stages else quoted(stage.name)
        parts = [self._repeated(part, body) for part in _parts(stage)]
        text = f" {_JOINTS[stage.inner]} ".join(parts).replace("  ", " ")
        # A greedy stage also excludes its events from the states behind it where it took none.
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
    """Return the alternatives that Flink has for a pattern that ends with optional stages.

    Behind an absence, a match without the optional stages is complete before the absence, so Flink ignores
    the absence. Behind a greedy stage, one of the optional stages must take an event, because no match can
    end with the last event of the greedy stage.
    """
    for number, stage in enumerate(stages):
        behind = tuple(one for one in stages[number + 1 :] if not one.is_absence)
        if not behind or not all(may_be_empty(one) for one in behind):
            continue
        if stage.is_absence and not stages[-1].is_absence:
            before = (*stages[: number - 1], closed_by(stages[number - 1], stage))
            absences = stages[number : len(stages) - len(behind)]
            ways = [(*before, *absences, *way) for way in _not_empty(behind)]
            return ways if _is_greedy(before[-1]) else [*_not_forbidden(before, absences), *ways]
        if _is_greedy(stage) and not stage.stages and not stages[number + 1].is_absence:
            ways = [(*stages[: number + 1], *way) for way in _not_empty(behind)]
            return [stages[:number], *ways] if stage.optional and number else ways
    return []


def _greedy_before_strict_absence(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Return `a++ !b` as `a+ !b nowhere? !a`, because a greedy stage excludes only the event of the notNext.

    An absence right behind a loop also holds between its repetitions. `nowhere?` keeps `!a` apart from the
    loop.
    """
    found = list(stages)
    for number, stage in reversed(list(enumerate(stages))):
        absences = takewhile(lambda one: one[1].is_absence, enumerate(stages[number + 1 :], number + 2))
        tests = [behind for behind, one in absences if one.contiguity == NOT_NEXT and not one.stands_for]
        if _is_greedy(stage) and not stage.stages and tests:
            found[number] = replace(stage, greedy=False)
            claim = Stage(stage.name, contiguity=NOT_NEXT)
            found[tests[-1] : tests[-1]] = [replace(_NOWHERE, optional=True), claim]
    return tuple(found)


def _not_forbidden(stages: tuple[Stage, ...], absences: tuple[Stage, ...]) -> list[tuple[Stage, ...]]:
    """Return the stages without a last event that a notNext behind them forbids, because Flink tests it."""
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
    # The pattern must not ignore an event that the stage could take, but not as its last event.
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
    """Return stages that end with `a+ -> !b` as Flink reads them: another event must end the loop."""
    *before, absence = stages
    if absence.contiguity != NOT_FOLLOWED_BY or before[-1].is_absence or not before[-1].could_go_on:
        return stages
    return (*before[:-1], closed_by(before[-1], absence), strict(absence), absence)


def _not_empty(stages: tuple[Stage, ...]) -> list[tuple[Stage, ...]]:
    """Return sequences that together match the same as `stages`, except for the match without an event."""
    if not all(stage.is_absence or may_be_empty(stage) for stage in stages):
        return [stages]
    return [
        (first, *stages[number + 1 :])
        for number, stage in enumerate(stages)
        if not stage.is_absence
        for first in _taking(replace(stage, optional=False))
    ]


def _taking(stage: Stage) -> list[Stage]:
    """Return a variant of `stage` for each way to begin its body with an event."""
    if not stage.stages:
        return [stage]
    ways = _not_empty(stage.stages)
    if len(ways) > 1 and stage.most != 1:
        raise UntranslatableError(
            f"a loop of {stage.name}, of which every part may be left out, at the start"
        )
    return [replace(stage, stages=way) for way in ways]


def _is_greedy(stage: Stage) -> bool:
    """Return whether `greedy` has an effect. It has no effect on a fixed number of events."""
    return stage.greedy and stage.least != stage.most


def _gap_before(stage: Stage) -> int | None:
    """Return the limit of the gap before the first event of a stage. Flink drops it for an optional stage."""
    if stage.optional:
        return None
    if not stage.has_quantifier:
        return stage.gap_ms
    return stage.repeat_gap_ms if stage.loops or stage.most != 1 else None


def _parts(stage: Stage) -> list[Stage]:
    """Split a stage whose repetitions have a limit, because Flink reads the limit only for some of them.

    `times(n, d)` limits the gaps before the first n - 1 events. `timesOrMore(n, d)` and `times(n, m, d)`
    limit the gaps before the first n events. All other gaps have no limit.
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
