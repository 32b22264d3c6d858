"""Syntax trees -> canonical rule text: ``parse(print_rule(rule))`` gives `rule` again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import assert_never

from cep.errors import Span
from cep.language import ast
from cep.language.grammar import CLAUSE_WORDS, RESERVED, STATUSES
from cep.schema.time_literals import print_duration, print_timestamp

_QUOTED_WORDS = RESERVED | CLAUSE_WORDS | frozenset(("BY", "END", "FOR", "JOIN", "PERMUTE"))


def print_rules(rules: Iterable[ast.Rule]) -> str:
    """Return the text of a rule file."""
    return "\n".join(print_rule(rule) for rule in rules)


def print_rule(rule: ast.Rule) -> str:
    """Return the text of one rule, with the clauses in their usual order and a final line end."""
    lines = [f"{'VIEW' if rule.is_view else 'RULE'} {_name(rule.name)}"]
    lines += _head(rule)
    lines.append(f"FROM {', '.join(_source(rule, number) for number in range(len(rule.streams)))}")
    lines += map(_join, rule.joins)
    if rule.is_view:
        return "\n".join([*lines, *_view(rule)]) + "\n"
    lines.append(f"PARTITION BY {', '.join(_key_part(part) for part in rule.key)}")
    lines += _what_is_found(rule)
    if rule.subsets:
        items = [f"{_name(s.name)} = ({', '.join(_name(name) for name in s.members)})" for s in rule.subsets]
        lines.append(f"SUBSET {', '.join(items)}")
    if rule.lets:
        items = [
            f"{_name(let.name)}{'' if let.stream is None else f' ON {_name(let.stream)}'} = "
            f"{print_expression(let.expression)}"
            for let in rule.lets
        ]
        lines += ["LET", ",\n".join(f"  {item}" for item in items)]
    if rule.definitions:
        heads = [_definition_head(definition) for definition in rule.definitions]
        width = max(map(len, heads))
        items = [
            head if item.condition is None else f"{head:<{width}} AS {print_expression(item.condition)}"
            for head, item in zip(heads, rule.definitions, strict=True)
        ]
        lines += ["DEFINE", ",\n".join(f"  {item}" for item in items)]
    lines += _conditions_of_window(rule)
    if rule.measures:
        items = [f"{print_expression(m.expression)} AS {_name(m.name)}" for m in rule.measures]
        lines += ["MEASURES", ",\n".join(f"  {item}" for item in items)]
    if rule.mode is not None:
        lines.append(f"MATCH {rule.mode}")
    if rule.skip is not None:
        target = f" {_name(rule.skip.variable)}" if rule.skip.variable is not None else ""
        word = "" if rule.skip.target is ast.SkipTarget.NO_SKIP else "SKIP "
        lines.append(f"AFTER MATCH {word}{rule.skip.target}{target}")
    lines += _report(rule.report)
    return "\n".join(lines) + "\n"


def _head(rule: ast.Rule) -> Iterator[str]:
    """Yield the clauses that say what a rule is."""
    if rule.title is not None:
        yield f"  TITLE {_quote(rule.title.text)}"
    if rule.severity is not None:
        yield f"  SEVERITY {rule.severity}"
    if rule.tags:
        yield f"  TAGS {', '.join(_tag(tag) for tag in rule.tags)}"
    if rule.status is not None:
        yield f"  STATUS {rule.status}"
    if rule.parameters:
        items = [f"{_name(one.name)} = {_constant(one.value)}" for one in rule.parameters]
        yield f"PARAM {', '.join(items)}"


def _source(rule: ast.Rule, number: int) -> str:
    """Return a name in FROM; MATCHES OF precedes the name of a rule."""
    return f"{'MATCHES OF ' if number in rule.matches else ''}{_name(rule.streams[number])}"


def _view(rule: ast.Rule) -> Iterator[str]:
    yield f"KEY {', '.join(_key_part(part) for part in rule.key)}"
    if rule.where is not None:
        yield f"WHERE {print_expression(rule.where)}"
    items = [f"{print_expression(m.expression)} AS {_name(m.name)}" for m in rule.measures]
    yield from ("SELECT", ",\n".join(f"  {item}" for item in items))


def _what_is_found(rule: ast.Rule) -> Iterator[str]:
    if rule.windowing is not None:
        yield f"WINDOW {print_windowing(rule.windowing)}"
        return
    yield f"PATTERN {print_pattern(rule.pattern)}"
    if rule.window is not None:
        yield f"WITHIN {_window(rule.window)}"


def _conditions_of_window(rule: ast.Rule) -> Iterator[str]:
    if rule.where is not None:
        yield f"WHERE {print_expression(rule.where)}"
    if rule.having is not None:
        yield f"HAVING {print_expression(rule.having)}"


def _report(report: ast.Report) -> Iterator[str]:
    if report.rows is not None:
        yield f"{report.rows} PER MATCH"
    if report.timeout is not None:
        yield "ON TIMEOUT"
    if report.suppression is not None:
        n_per_day = report.suppression.n_per_day
        length = f"FOR {_duration(report.suppression.length_us)}"
        yield f"SUPPRESS {length if n_per_day is None else f'AFTER {_number(n_per_day)} PER DAY'}"
    if report.limit is not None:
        overflow = f" ON OVERFLOW {report.limit.overflow}" if report.limit.overflow is not None else ""
        yield f"MAX RUNS {_number(report.limit.n_runs)} PER KEY{overflow}"


def _join(join: ast.Join) -> str:
    pairs = [
        " = ".join(print_expression(column) for column in (pair.left, pair.right) if column is not None)
        for pair in join.pairs
    ]
    return f"{join.kind} {_name(join.table)} ON {' AND '.join(pairs)}"


def _key_part(part: ast.KeyPart) -> str:
    return " = ".join(print_expression(column) for column in part.columns)


def _definition_head(definition: ast.Definition) -> str:
    """Return what precedes AS."""
    head = _name(definition.variable)
    if definition.stream is not None:
        head += f" ON {_name(definition.stream)}"
    match definition.key:
        case ():
            return head
        case (column,):
            return f"{head} BY {_name(column)}"
        case columns:
            return f"{head} BY ({', '.join(map(_name, columns))})"


def print_pattern(pattern: ast.Pattern) -> str:
    """Return the text of a pattern, with the parentheses it needs."""
    match pattern:
        case ast.Step(variable=variable):
            is_of_clause = variable.text.upper() in STATUSES  # after a variable `status`
            return f"`{variable.text}`" if is_of_clause else _name(variable)
        case ast.Absence(variables=variables):
            text = f"!{_names(variables)}"
            return text if pattern.period is None else f"{text} FOR {_window(pattern.period)}"
        case ast.Sequence(items=items):
            first, *rest = items
            text = _element(first.pattern)
            for item in rest:
                joint = f"{item.joint}{_gap(item.gap)}"
                text += f" {joint} " if joint else " "
                text += _element(item.pattern)
            return text
        case ast.Alternation(branches=branches):
            return " | ".join(_grouped(branch, ast.Alternation) for branch in branches)
        case ast.Permutation(parts=parts, joint=ast.Joint.STRICT):
            return f"PERMUTE({', '.join(print_pattern(part) for part in parts)})"
        case ast.Permutation(parts=parts):
            return " & ".join(
                f"({print_pattern(part)})" if _is_conjunction(part) else _grouped(part, ast.Alternation)
                for part in parts
            )
        case ast.Repetition(body=body):
            inner = _element(body, ast.Repetition, ast.Absence)
            joint = f"{pattern.joint}{_gap(pattern.gap)}"
            until = "" if pattern.until is None else f" UNTIL ({print_expression(pattern.until)})"
            distinct = "" if pattern.distinct is None else f" DISTINCT BY {_name(pattern.distinct)}"
            quantifier = _quantifier(pattern.least, pattern.most)
            return f"{inner}{joint}{quantifier}{pattern.greed}{distinct}{until}"
        case ast.Group(body=body, window=window):
            return f"({print_pattern(body)} WITHIN {_window(window)})"
        case ast.Anchored(body=body):
            inner = _grouped(body, ast.Alternation, ast.Anchored)
            return f"^ ({inner})" if _is_conjunction(body) else f"^ {inner}"
        case ast.Without(body=body, variables=variables):
            return f"({print_pattern(body)} WITHOUT {_names(variables)})"
        case _:
            assert_never(pattern)


def _names(variables: tuple[ast.Name, ...]) -> str:
    """Return one variable, or several in parentheses."""
    names = " | ".join(_name(variable) for variable in variables)
    return f"({names})" if len(variables) > 1 else names


def _element(pattern: ast.Pattern, *kinds: type[object]) -> str:
    """Return the text of a part of a sequence; `kinds` need parentheses, in addition to the usual ones."""
    text = _grouped(pattern, ast.Sequence, ast.Alternation, ast.Anchored, *kinds)
    return f"({text})" if _is_conjunction(pattern) else text


def _is_conjunction(pattern: ast.Pattern) -> bool:
    return isinstance(pattern, ast.Permutation) and pattern.joint is not ast.Joint.STRICT


def _grouped(pattern: ast.Pattern, *kinds: type[object]) -> str:
    text = print_pattern(pattern)
    return f"({text})" if isinstance(pattern, kinds) else text


def _gap(gap: ast.Gap | None) -> str:
    if gap is None:
        return ""
    first = _duration(gap.first_us)
    return f"[{gap.sign} {first}]" if gap.second_us is None else f"[{first}, {_duration(gap.second_us)}]"


def _window(window: ast.Window | ast.EventWindow) -> str:
    if isinstance(window, ast.EventWindow):
        return f"{_number(window.count)} {'EVENT' if window.count == 1 else 'EVENTS'}"
    return f"{'' if window.inclusive else '< '}{_duration(window.length_us)}"


def _quantifier(least: int, most: int | None) -> str:
    """Return the text of a quantifier."""
    if isinstance(least, ast.ParameterValue) or isinstance(most, ast.ParameterValue):
        if least is most:
            return f"{{{_number(least)}}}"
        return f"{{{_number(least)},{'' if most is None else _number(most)}}}"
    match least, most:
        case 0, 1:
            return "?"
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case _, None:
            return f"{{{least},}}"
        case _ if least == most:
            return f"{{{least}}}"
        case 0, _:
            return f"{{,{most}}}"
        case _:
            return f"{{{least},{most}}}"


def print_expression(node: ast.Expression) -> str:  # noqa: C901, PLR0912 - a case for each kind of node
    """Return the text of an expression; operands that are not simple are in parentheses."""
    match node:
        case ast.Constant():
            return _constant(node)
        case ast.Column(variable=variable, table=table, name=name):
            return ".".join(_name(part) for part in (variable, table, name) if part is not None)
        case ast.Events(variable=variable):
            return "*" if variable is None else f"{_name(variable)}.*"
        case ast.Function(name=name, args=args):
            return f"{name.text}({', '.join(_arguments(args, is_distinct=node.is_distinct))})"
        case ast.Windowed():
            return _windowed(node)
        case ast.Cast(operand=operand, kind=kind):
            return f"CAST({print_expression(operand)} AS {kind.text.upper()})"
        case ast.Unary(operator="not", operand=operand):
            return f"NOT {_operand(operand)}"
        case ast.Unary(operand=operand):
            inner = print_expression(operand)
            return f"-{inner}" if isinstance(operand, ast.Column | ast.Function) else f"-({inner})"
        case ast.Binary(operator=operator, left=left, right=right):
            return f"{_operand(left)} {operator} {_operand(right)}"
        case ast.Junction(operator=operator, terms=terms):
            return f" {operator.upper()} ".join(
                f"({print_expression(term)})" if isinstance(term, ast.Junction) else print_expression(term)
                for term in terms
            )
        case ast.Between(operand=operand, low=low, high=high, negated=negated):
            return f"{_operand(operand)} {_not(negated)}BETWEEN {_operand(low)} AND {_operand(high)}"
        case ast.In(operand=operand, items=items, negated=negated):
            listed = ", ".join(print_expression(item) for item in items)
            return f"{_operand(operand)} {_not(negated)}IN ({listed})"
        case ast.Like(operand=operand, operator=operator, pattern=pattern, negated=negated):
            return f"{_operand(operand)} {_not(negated)}{operator} {_text(pattern)}"
        case ast.Is(operand=operand, what=what, negated=negated):
            word = "NULL" if what is None else str(what).upper()
            return f"{_operand(operand)} IS {_not(negated)}{word}"
        case ast.Case(operand=operand, whens=whens, otherwise=otherwise):
            parts = ["CASE"]
            if operand is not None:
                parts.append(print_expression(operand))
            parts += [
                f"WHEN {print_expression(when.condition)} THEN {print_expression(when.value)}"
                for when in whens
            ]
            if otherwise is not None:
                parts.append(f"ELSE {print_expression(otherwise)}")
            return " ".join([*parts, "END"])
        case _:
            assert_never(node)


_SIMPLE = ast.Constant | ast.Column | ast.Events | ast.Function | ast.Windowed | ast.Case | ast.Cast


def _arguments(args: tuple[ast.Expression, ...], *, is_distinct: bool) -> list[str]:
    shown = [print_expression(arg) for arg in args]
    if is_distinct:
        # Without parentheses `DISTINCT - x` would be a column minus another one.
        shown[0] = f"DISTINCT {shown[0]}" if isinstance(args[0], ast.Column) else f"DISTINCT ({shown[0]})"
    return shown


def _windowed(node: ast.Windowed) -> str:
    text = f"{node.name.text}({', '.join(_arguments(node.args, is_distinct=node.is_distinct))})"
    if node.condition is not None:
        text += f" FILTER (WHERE {print_expression(node.condition)})"
    return text if node.over is None else f"{text} OVER {print_over(node.over)}"


def print_windowing(windowing: ast.Windowing) -> str:
    """Return what follows WINDOW."""
    gap = " GAP" if windowing.kind is ast.WindowKind.SESSION else ""
    text = f"{windowing.kind}{gap} {_duration(windowing.length_us)}"
    if windowing.every_us is not None:
        text += f" EVERY {_duration(windowing.every_us)}"
    if windowing.most_us is not None:
        text += f" MAX {_duration(windowing.most_us)}"
    if windowing.offset_us is not None:
        text += f" OFFSET {_duration(windowing.offset_us)}"
    if windowing.zone is not None:
        text += f" ZONE {_text(windowing.zone)}"
    return text if windowing.table is None else f"{text} FOR EACH {_name(windowing.table)}"


def print_over(over: ast.Over) -> str:
    """Return the text of a window."""
    text = over.kind.value
    if over.count is not None:
        text += f" {_number(over.count)} {'EVENT' if over.count == 1 else 'EVENTS'}"
    if over.length_us is not None:
        text += f" {_duration(over.length_us)}"
    if over.offset_us is not None:
        text += f" OFFSET {_duration(over.offset_us)}"
    if over.zone is not None:
        text += f" ZONE {_text(over.zone)}"
    if over.step_us is not None:
        text += f" BY {_duration(over.step_us)}"
    return text


def _operand(node: ast.Expression) -> str:
    text = print_expression(node)
    return text if isinstance(node, _SIMPLE) else f"({text})"


def _not(negated: bool) -> str:
    return "NOT " if negated else ""


def _constant(node: ast.Constant) -> str:
    value = node.value
    match node.kind:
        case ast.Kind.NULL:
            return "NULL"
        case ast.Kind.BOOLEAN:
            return "TRUE" if value else "FALSE"
        case ast.Kind.INTEGER | ast.Kind.DECIMAL:
            return repr(value)
        case ast.Kind.TEXT:
            return _quote(str(value))
        case ast.Kind.TIMESTAMP:
            assert isinstance(value, int)
            return f"TIMESTAMP '{print_timestamp(value)}'"
        case ast.Kind.INTERVAL:
            assert isinstance(value, int)
            return _duration(value)
        case _:
            assert_never(node.kind)


def print_name(text: str) -> str:
    """Return a name as it is written: in backticks if a rule would not read it as a name otherwise."""
    plain = re.fullmatch(r"[^\W\d]\w*", text) and text.upper() not in _QUOTED_WORDS
    return text if plain else "`" + text.replace("`", "``") + "`"


def _number(value: int) -> str:
    """Return a number, or the name of the parameter in its place."""
    return _name(value.name) if isinstance(value, ast.ParameterValue) else str(value)


def _duration(length_us: int) -> str:
    """Return a duration, or the name of the parameter in its place."""
    return _number(length_us) if isinstance(length_us, ast.ParameterValue) else print_duration(length_us)


def _text(text: ast.Text) -> str:
    """Return a text in quotes, or the name of the parameter in its place."""
    return _quote(text.text) if text.parameter is None else _name(text.parameter)


def _name(name: ast.Name) -> str:
    return print_name(name.text)


def _tag(tag: str) -> str:
    return _name(ast.Name(tag, _NOWHERE)) if re.fullmatch(r"[^\W\d]\w*", tag) else _quote(tag)


_NOWHERE = Span(0, 0)


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
