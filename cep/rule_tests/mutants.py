"""Small changes of a rule, one at a time: a bound, an operator, a joint, a dropped condition.

A change that no case notices shows what the cases do not test (DeMillo, Lipton and Sayward, IEEE Computer
11(4), 1978).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from cep.compiler.compile import compile_sources
from cep.compiler.pattern_shape import variable_names
from cep.errors import CepError, Source, Span
from cep.language import ast
from cep.language.printer import print_expression, print_rule, print_rules
from cep.rule_set import RuleSet
from cep.rule_tests.cases import RuleTests
from cep.rule_tests.checking import passes
from cep.schema.time_literals import print_duration

_OTHER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "=": "<>", "<>": "="}
"""Each comparison and the one that is nearest to it."""

_COUNTS = 20
"""Whole numbers below this are changed by one, others by a tenth."""

_PARTS = ("parameters", "pattern", "window", "lets", "definitions", "where", "having", "windowing", "report")
"""The parts of a rule that are changed: those that decide what is found."""

_NO_OTHERS = {
    "name",
    "variable",
    "variables",
    "distinct",
    "stream",
    "key",
    "zone",
    "kind",
    "limit",
    "offset_us",
}
"""Fields that are not changed: names, and what a change would make another rule."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A rule with one change.

    `source` and `span`: the place of the change in the text of the rule. `says`: what was changed, such as
    ``< becomes <=``.
    """

    rule: str
    source: Source
    span: Span
    says: str
    tree: ast.Rule


@dataclass(frozen=True, slots=True)
class Mutated:
    """How many changes were tried, and those that no case noticed."""

    n_tried: int
    unnoticed: tuple[Mutant, ...]


Change = tuple[Any, Span, str]
"""What replaces a node, the place of the change, and the text that describes it."""


def mutate(tests: RuleTests) -> Mutated:
    """Try each small change of the rules, and return those with which all cases still pass."""
    n_tried, unnoticed = 0, []
    for rule in tests.compiled.rules:
        for mutant in mutants(rule.tree) if rule.name in tests.names else ():
            changed = _compiled(tests, mutant)
            if changed is None:
                continue
            n_tried += 1
            if all(passes(changed, tests, case) for case in tests.cases):
                unnoticed.append(mutant)
    return Mutated(n_tried, tuple(unnoticed))


def mutants(rule: ast.Rule) -> Iterator[Mutant]:
    """Yield a rule with each small change, in the order of its text."""
    found: dict[str, Mutant] = {print_rule(rule): Mutant("", rule.source, rule.span, "", rule)}
    for part in _PARTS:
        for changed, span, says in _changes(getattr(rule, part), rule.span):
            tree = replace(rule, **{part: changed})
            if part == "pattern":
                used = variable_names(changed)
                kept = tuple(one for one in rule.definitions if one.variable.text in used)
                tree = replace(tree, definitions=kept)
            found.setdefault(print_rule(tree), Mutant(rule.name.text, rule.source, span, says, tree))
    yield from sorted(list(found.values())[1:], key=lambda mutant: mutant.span.start)


def _compiled(tests: RuleTests, mutant: Mutant) -> RuleSet | None:
    """Return the rules of a test file with one of them changed; None: the changed rule is not valid."""
    trees = [
        mutant.tree if rule.tree.name == mutant.tree.name else rule.tree for rule in tests.compiled.rules
    ]
    rules = tests.compiled.rule_set
    try:
        return compile_sources([Source("changed.cep", print_rules(trees))], rules.inputs).rule_set
    except CepError:
        return None


def _changes(node: Any, place: Span) -> Iterator[Change]:
    """Yield each changed form of a node, of itself and of what is inside it."""
    if isinstance(node, tuple):
        for number, item in enumerate(node):
            for changed, span, says in _changes(item, place):
                yield (*node[:number], changed, *node[number + 1 :]), span, says
    elif is_dataclass(node):
        place = getattr(node, "span", place)
        yield from _own_changes(node, place)
        for part in fields(node):
            if part.name not in _NO_OTHERS and not part.name.endswith("span"):
                for changed, span, says in _changes(getattr(node, part.name), place):
                    yield replace(node, **{part.name: changed}), span, says  # type: ignore[type-var]


def _own_changes(  # noqa: C901, PLR0912 - a case for each kind of node
    node: Any, span: Span
) -> Iterator[Change]:
    match node:
        case ast.Constant(kind=ast.Kind.INTEGER | ast.Kind.DECIMAL, value=value):
            for other in _other_numbers(value):
                yield replace(node, value=other), span, f"{value} becomes {other}"
        case ast.Constant(kind=ast.Kind.INTERVAL, value=int(value)):
            for other in _other_times(value):
                yield replace(node, value=other), span, _durations(value, other)
        case ast.Binary(operator=operator, operator_span=sign) if operator in _OTHER:
            yield replace(node, operator=_OTHER[operator]), sign, f"{operator} becomes {_OTHER[operator]}"
        case ast.Junction(terms=terms):
            for number, term in enumerate(terms):
                rest = (*terms[:number], *terms[number + 1 :])
                dropped = f"without {print_expression(term)}"
                yield rest[0] if len(rest) == 1 else replace(node, terms=rest), term.span, dropped
        case ast.Unary(operator="not", operand=operand):
            yield operand, span, "without NOT"
        case ast.Sequence(items=items):
            yield from _changed_sequences(node, items)
        case ast.Repetition() if not (_is_named(node.least) or _is_named(node.most)):
            yield from _changed_loops(node)
        case ast.Suppression(n_per_day=int(n_per_day)):
            for other in _other_numbers(n_per_day):
                yield replace(node, n_per_day=int(other)), span, f"{n_per_day} becomes {other}"
        case (
            ast.Window(length_us=length_us)
            | ast.Windowing(length_us=length_us)
            | ast.Suppression(length_us=length_us)
        ):
            for other in _other_times(length_us):
                yield replace(node, length_us=other), span, _durations(length_us, other)
        case ast.EventWindow(count=count):
            yield from _changed_counts(node, count, span)
        case ast.Over(length_us=length_us, count=count) if length_us is not None or count is not None:
            for other in () if length_us is None else _other_times(length_us):
                yield replace(node, length_us=other), span, _durations(length_us or 0, other)
            yield from () if count is None else _changed_counts(node, count, span)
        case ast.Gap(first_us=first_us):
            for other in _other_times(first_us):
                yield replace(node, first_us=other), span, _durations(first_us, other)


def _changed_counts(node: Any, count: int, span: Span) -> Iterator[Change]:
    for other in _other_numbers(count):
        yield replace(node, count=int(other)), span, f"{count} becomes {other}"


def _changed_sequences(node: ast.Sequence, items: tuple[ast.Item, ...]) -> Iterator[Change]:
    """Yield a sequence with another joint, or without an absence."""
    for number, item in enumerate(items):
        span = item.pattern.span
        if number:
            joint = ast.Joint.STRICT if item.joint is ast.Joint.NEXT and not item.gap else ast.Joint.NEXT
            if item.joint is not joint:
                changed = replace(item, joint=joint)
                says = f"directly after instead of {item.joint}" if joint is ast.Joint.STRICT else (
                    f"{joint} instead of {item.joint or 'directly after'}")  # fmt: skip
                yield replace(node, items=(*items[:number], changed, *items[number + 1 :])), span, says
        if isinstance(item.pattern, ast.Absence) and len(items) > 2:
            rest = (*items[:number], *items[number + 1 :])
            yield replace(node, items=rest), span, f"without {item.pattern.text}"


def _changed_loops(node: ast.Repetition) -> Iterator[Change]:
    least, most, span = node.least, node.most, node.quantifier_span
    if most is None or most > least:
        yield replace(node, least=least + 1), span, f"at least {least + 1} instead of {least}"
        if least:
            yield replace(node, least=least - 1), span, f"at least {least - 1} instead of {least}"
    elif least > 1:
        yield replace(node, least=least - 1, most=least - 1), span, f"{least} becomes {least - 1}"
    if most is not None and most > 1:
        more = most + 1
        yield replace(node, least=more if most == least else least, most=more), span, f"{most} becomes {more}"


def _is_named(value: object) -> bool:
    """Return whether a parameter is in the place of a number: the parameter itself is changed, once."""
    return isinstance(value, ast.ParameterValue)


def _other_numbers(value: Any) -> tuple[int | float, ...]:
    if _is_named(value):
        return ()
    if isinstance(value, int) and not isinstance(value, bool):
        step = 1 if abs(value) < _COUNTS else abs(value) // 10
        return (value - step, value + step) if value - step >= 0 else (value + step,)
    return (round(value * 0.9, 12), round(value * 1.1, 12)) if value else (0.1,)


def _other_times(length_us: int) -> tuple[int, ...]:
    """Return a tenth less and a tenth more."""
    is_tried = length_us >= 10 and not _is_named(length_us)
    return (length_us - length_us // 10, length_us + length_us // 10) if is_tried else ()


def _durations(length_us: int, other_us: int) -> str:
    return f"{print_duration(length_us)} becomes {print_duration(other_us)}"
