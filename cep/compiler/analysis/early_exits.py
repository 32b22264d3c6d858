"""A warning about conditions behind a loop that compare with one of its events.

A relaxed loop can be left after each of its repetitions. So ``ip = failed.ip`` behind ``failed->{3,}`` holds
if any of its events, from the third on, has that ip: the loop ends there.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from cep.compiler.pattern_shape import summary
from cep.diagnostics.report import Report
from cep.language import ast


def warn_of_early_exits(sequence: ast.Sequence, rule: ast.Rule, report: Report) -> None:
    """Report conditions behind the loops of `sequence` that the end of the loop can be chosen to fit."""
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
                        f"put a + behind the quantifier, so that the loop takes every `{name}` it can; "
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
