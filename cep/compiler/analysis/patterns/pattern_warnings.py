"""Warnings about a pattern: what is legal but probably not intended."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, pairwise

from cep.compiler.analysis.patterns.time_limits import has_limits
from cep.compiler.pattern_shape import can_wait_for_ever, summary, variable_names
from cep.diagnostics.report import Reporter
from cep.language import ast
from cep.language.printer import print_pattern

_MAX_SHOWN = 40
"""Characters of the body of a loop in a help."""


def warn_of_pattern(rule: ast.Rule, role_of: Mapping[str, int], report: Reporter) -> None:
    """Report what is odd in the pattern of `rule`; `role_of` has the roles of its variables, if any."""
    written = rule.pattern
    while isinstance(written, ast.Anchored | ast.Without):
        written = written.body
    undefined = variable_names(written).keys() - {one.variable.text for one in rule.definitions}
    is_said = rule.report.timeout is not None and not has_limits(rule)  # by E0331
    if rule.window is None and not is_said and can_wait_for_ever(written, undefined):
        report(
            "W0501",
            "nothing bounds how long a run of this rule lives",
            written.span,
            "waits for ever",
            "add WITHIN and a time after the pattern",
        )
    for node in ast.walk(written):
        if isinstance(node, ast.Sequence):
            _check_sequence(node, rule, role_of, report)
            _check_guarded_loops(node, is_start=node is written, report=report)
            _warn_of_early_exits(node, rule, report)
    _check_tail(written, report)


def _check_sequence(
    sequence: ast.Sequence, rule: ast.Rule, role_of: Mapping[str, int], report: Reporter
) -> None:
    for item, after in zip(sequence.items, sequence.items[1:], strict=False):
        node = item.pattern
        if isinstance(node, ast.Repetition):
            _check_claims(node, after.pattern, rule, role_of, report)
        if (
            isinstance(node, ast.Repetition)
            and node.most is None
            and node.least <= 1
            and node.joint is ast.Joint.STRICT
            and after.joint is not ast.Joint.STRICT
        ):
            sign, bounds = f"{'+' if node.least else '*'}{node.greed}", f"{{{node.least},}}{node.greed}"
            report(
                "W0504",
                "a strict loop before an arrow",
                node.quantifier_span,
                "the repetitions must follow one another directly",
                f"write ->{sign} if other events may come between them, {bounds} if not",
            )
        if (
            isinstance(node, ast.Absence)
            and item.joint is not ast.Joint.STRICT
            and node.period is None
            and after.joint is ast.Joint.STRICT
            and not summary(after.pattern).nullable
        ):
            report(
                "W0506",
                f"`{node.text}` has no effect",
                node.span,
                "the next step follows directly: nothing can come between",
                "put an arrow after it",
            )


def _check_guarded_loops(sequence: ast.Sequence, *, is_start: bool, report: Reporter) -> None:
    """Warn of ``-> !m -> up->{4}``: the absence holds only up to the first repetition."""
    items = sequence.items
    for number, (item, after) in enumerate(pairwise(items)):
        absence, loop = item.pattern, after.pattern
        if (
            not isinstance(absence, ast.Absence)
            or absence.period is not None
            or item.joint is ast.Joint.STRICT
            or (is_start and number == 0)
            or not isinstance(loop, ast.Repetition)
            or loop.joint is ast.Joint.STRICT
            or loop.most == 1
        ):
            continue
        end = loop.body.items if isinstance(loop.body, ast.Sequence) else ()
        if _absent(items[number + 2 :]) | _absent(reversed(end)) >= set(absence.variables):
            continue
        report(
            "W0513",
            f"`{absence.text}` holds up to the first repetition only",
            absence.span,
            "the loop passes over such events",
            _guarded_loop(item, after),
        )


def _absent(items: Iterable[ast.Item]) -> set[ast.Name]:
    """Return the variables of the absences that `items` start with."""
    found: set[ast.Name] = set()
    for item in items:
        if not isinstance(item.pattern, ast.Absence):
            break
        found |= set(item.pattern.variables)
    return found


def _guarded_loop(item: ast.Item, after: ast.Item) -> str:
    """Return how to write that the absence `item` also holds in the loop `after`, or only up to it."""
    loop = after.pattern
    assert isinstance(loop, ast.Repetition)
    if len(print_pattern(loop.body)) > _MAX_SHOWN:
        loop = dataclasses.replace(loop, body=ast.Step(ast.Name("v", loop.span), loop.span))
    again = ast.Item(loop.joint, loop.body, loop.gap)
    guarded = ast.Sequence((ast.Item(ast.Joint.STRICT, loop.body), item), loop.span)
    inside: tuple[ast.Item, ...]
    if loop.greed is ast.Greed.POSSESSIVE:  # which would leave no event for the last repetition
        inside = (ast.Item(ast.Joint.STRICT, loop), item)
    else:
        inside = (*_fewer(loop, guarded), again)
    outside = (ast.Item(ast.Joint.STRICT, loop.body), *_fewer(loop, loop.body, again))
    return f"write {_after_absence(item, after, inside)} if it holds in the loop, too, " + (
        f"{_after_absence(item, after, outside)} if not"
    )


def _fewer(loop: ast.Repetition, body: ast.Pattern, first: ast.Item | None = None) -> tuple[ast.Item, ...]:
    """Return `loop` over `body` with one repetition fewer; `first` has the joint before it."""
    most = None if loop.most is None else loop.most - 1
    least = max(loop.least - 1, 0)
    joint, gap = (ast.Joint.STRICT, None) if first is None else (first.joint, first.gap)
    if least == most == 1:
        return (ast.Item(joint, body, gap),)
    return (ast.Item(joint, dataclasses.replace(loop, body=body, least=least, most=most), gap),)


def _after_absence(item: ast.Item, after: ast.Item, items: tuple[ast.Item, ...]) -> str:
    """Return the text of `item` and of `items` after it; they are optional if the loop they replace is."""
    loop = after.pattern
    assert isinstance(loop, ast.Repetition)
    rest: ast.Pattern = ast.Sequence(items, loop.span)
    if loop.least == 0:
        strict, greedy = ast.Joint.STRICT, ast.Greed.GREEDY
        rest = ast.Repetition(rest, 0, 1, strict, greedy, loop.quantifier_span, loop.span)
        items = (ast.Item(after.joint, rest, after.gap),)
    else:
        first, *others = items
        items = (dataclasses.replace(first, joint=after.joint, gap=after.gap), *others)
    absence = ast.Item(ast.Joint.STRICT, item.pattern)
    return f"{item.joint} {print_pattern(ast.Sequence((absence, *items), loop.span))}"


def _check_claims(
    loop: ast.Repetition, after: ast.Pattern, rule: ast.Rule, role_of: Mapping[str, int], report: Reporter
) -> None:
    """Warn if a possessive loop claims every event that what follows it can start with."""
    if loop.greed is not ast.Greed.POSSESSIVE or loop.least == loop.most or loop.until is not None:
        return
    claims, wanted = set(summary(loop.body).first), set(summary(after).first)
    if (
        wanted
        and not summary(after).nullable
        and all(_is_claimed(name, claims, rule, role_of) for name in wanted)
    ):
        report(
            "W0509",
            "this loop leaves nothing for what follows it",
            loop.quantifier_span,
            "a possessive loop claims every event it could begin with",
            "drop the last `+`, or let the conditions exclude each other",
        )


def _is_claimed(name: str, claims: set[str], rule: ast.Rule, role_of: Mapping[str, int]) -> bool:
    """Return whether each event for which `name` holds is obviously one of `claims`."""
    conditions = {one.variable.text: one.condition for one in rule.definitions}
    terms = {one: set(_terms(condition)) for one, condition in conditions.items() if condition is not None}
    return any(
        role_of.get(claim, -1) == role_of.get(name, -1)
        and (claim == name or terms.get(claim, set()) <= terms.get(name, set()))
        for claim in claims
    )


def _check_tail(pattern: ast.Pattern, report: Reporter) -> None:
    if not isinstance(pattern, ast.Sequence):
        return
    optional: ast.Pattern | None = None
    for item in reversed(pattern.items):
        if isinstance(item.pattern, ast.Absence):
            if optional is not None and item.pattern.period is None:
                report(
                    "W0505",
                    f"what follows `{item.pattern.text}` may be left out",
                    optional.span,
                    f"taken, it ends the watch `{item.pattern.text}`; left out, the window's end decides",
                    "make it necessary, or leave it out",
                )
            return
        if not summary(item.pattern).nullable:
            return
        optional = item.pattern


def _terms(condition: ast.Expression) -> tuple[ast.Expression, ...]:
    """Return what AND joins in `condition`."""
    if isinstance(condition, ast.Junction) and condition.operator == "and":
        return condition.terms
    return (condition,)


def _warn_of_early_exits(sequence: ast.Sequence, rule: ast.Rule, report: Reporter) -> None:
    """Report conditions after the loops of `sequence` that the end of the loop can be chosen to fit.

    A relaxed loop can be left after each of its repetitions. So ``ip = failed.ip`` after ``failed->{3,}``
    holds if any of its events, from the third on, has that ip: the loop ends there.
    """
    conditions = {one.variable.text: one.condition for one in rule.definitions if one.condition is not None}
    keys = {column.name.text for part in rule.key for column in part.columns}
    for number, item in enumerate(sequence.items):
        loop = item.pattern
        behind = islice(sequence.items, number + 1, None)
        after = next((one for one in behind if not isinstance(one.pattern, ast.Absence)), None)
        if (
            not isinstance(loop, ast.Repetition)
            or not isinstance(loop.body, ast.Step)
            or loop.joint is ast.Joint.STRICT
            or loop.least == loop.most
            or loop.greed is ast.Greed.POSSESSIVE
            or after is None
            or after.joint is ast.Joint.STRICT
        ):
            continue
        name = loop.body.variable.text
        own = conditions.get(name)
        same = set() if own is None else {column for _, column, _ in _equalities(own)}
        for variable in sorted(set(summary(after.pattern).first) - {name}):
            condition = conditions.get(variable)
            for of, column, node in () if condition is None else _equalities(condition):
                if of == name and column not in same and column not in keys:
                    report(
                        "W0514",
                        f"`{name}.{column}` may be of any `{name}`, because the loop can end at each",
                        node.span,
                        f"true as soon as one `{name}` fits, not only the last one",
                        f"put a + after the quantifier, so that the loop takes every `{name}` it can; "
                        f"or write LAST({name}.{column}) if any is meant",
                    )


def _equalities(condition: ast.Expression) -> Iterator[tuple[str, str, ast.Expression]]:
    """Yield the columns that AND-ed comparisons for equality name: variable (or ""), column, place."""
    if isinstance(condition, ast.Junction) and condition.operator == "and":
        for term in condition.terms:
            yield from _equalities(term)
    elif isinstance(condition, ast.Binary) and condition.operator == "=":
        for side in (condition.left, condition.right):
            if isinstance(side, ast.Column):
                yield "" if side.variable is None else side.variable.text, side.name.text, side
