"""The text of a drawn rule as an author would write it, so that parser and analyzer are compared too."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

from cep.compiler import ir
from cep.expression import (
    ALL_EVENTS,
    FUNCTIONS,
    Aggregate,
    Call,
    Column,
    Expression,
    Frame,
    Joined,
    Literal,
    Type,
    Windowed,
    is_windowed,
    walk,
)
from tests.property.strategies.patterns import untils_of

_JOINTS = {ir.Contiguity.STRICT: " ", ir.Contiguity.NEXT: " -> ", ir.Contiguity.ANY: " ->> "}
_INNER = {ir.Contiguity.STRICT: "", ir.Contiguity.NEXT: "->", ir.Contiguity.ANY: "->>"}


def rule_text(rule: ir.Rule) -> str:
    """Return the text of `rule`."""
    untils = {
        variable.name: _expression(variable.predicate)
        for variable in rule.variables
        if variable.name in untils_of(rule.pattern) and variable.predicate is not None
    }
    definitions = [_definition(rule, item) for item in rule.variables if item.name not in untils]
    definitions = [text for text in definitions if " " in text]
    measures = [f"{_expression(measure.expression)} AS {measure.name}" for measure in rule.measures]
    lines = [f"RULE {rule.name}", f"FROM {', '.join(rule.streams)}", f"PARTITION BY {_key(rule)}"]
    if rule.windowing is not None:
        joins = dict.fromkeys(_joins(rule))
        return "\n".join([*lines, *joins, *_window_clauses(rule.windowing, measures, rule.report)])
    lines += dict.fromkeys(_joins(rule))
    lines.append(f"PATTERN {_pattern(rule.pattern, untils)}")
    if rule.window is not None:
        lines.append(f"WITHIN {_window(rule.window)}")
    if rule.subsets:
        unions = [f"{subset.name} = ({', '.join(subset.members)})" for subset in rule.subsets]
        lines.append("SUBSET " + ", ".join(unions))
    lets = dict.fromkeys(_lets(rule))
    if lets:
        lines.append("LET " + ",\n  ".join(lets))
    if definitions:
        lines.append("DEFINE " + ",\n  ".join(definitions))
    lines.append("MEASURES " + ",\n  ".join(measures))
    lines.append(f"MATCH {rule.selection.upper()}")
    target = f" {rule.skip.variable}" if rule.skip.variable else ""
    lines.append(f"AFTER MATCH SKIP {rule.skip.kind.upper()}{target}".replace("SKIP NO SKIP", "NO SKIP"))
    if rule.report.all_rows:
        lines.append("ALL ROWS PER MATCH")
    if rule.report.timeouts:
        lines.append("ON TIMEOUT")
    lines += _suppression(rule.report)
    return "\n".join(lines)


def _suppression(report: ir.Report) -> Iterator[str]:
    if report.suppress_us:
        yield f"SUPPRESS FOR {report.suppress_us} MICROSECONDS"
    if report.n_per_day:
        yield f"SUPPRESS AFTER {report.n_per_day} PER DAY"


def _window_clauses(windowing: ir.Windowing, measures: list[str], report: ir.Report) -> Iterator[str]:
    """Yield the clauses of a window rule."""
    window = windowing.window
    text = f"{window.length} MICROSECONDS"
    each = "" if windowing.table is None else f" FOR EACH {windowing.table.name}"
    match window.frame:
        case Frame.SESSION:
            most = f" MAX {window.most_us} MICROSECONDS" if window.most_us else ""
            yield f"WINDOW SESSION GAP {text}{most}"
        case Frame.HOPPING:
            offset = f" OFFSET {window.offset_us} MICROSECONDS"
            yield f"WINDOW HOPPING {text} EVERY {window.every_us} MICROSECONDS{offset}{each}"
        case _:
            zone = f" ZONE '{window.zone}'" if window.zone else ""
            yield f"WINDOW TUMBLING {text} OFFSET {window.offset_us} MICROSECONDS{zone}{each}"
    if windowing.where is not None:
        yield f"WHERE {_expression(windowing.where)}"
    if windowing.having is not None:
        yield f"HAVING {_expression(windowing.having)}"
    if measures:
        yield "MEASURES " + ",\n  ".join(measures)
    yield from _suppression(report)


def _joins(rule: ir.Rule) -> Iterator[str]:
    """Yield the joins of the tables that the rule reads."""
    keys = {table.name: table.table.key for table in rule.tables if table.table is not None}
    for expression in rule.expressions:
        for leaf in walk(expression):
            if isinstance(leaf, Joined):
                columns = [column.name for column in leaf.keys if isinstance(column, Column)]
                pairs = zip(columns, keys[leaf.table], strict=True)
                on = " AND ".join(f"{column} = {leaf.table}.{name}" for column, name in pairs)
                yield f"JOIN {leaf.table} ON {on}"


def _lets(rule: ir.Rule) -> Iterator[str]:
    """Yield the definitions of what aggregates read of windows."""
    expressions = [variable.predicate for variable in rule.variables if variable.predicate is not None]
    expressions += [measure.expression for measure in rule.measures]
    for expression in expressions:
        for part in walk(expression):
            if isinstance(part, Aggregate) and part.argument is not None and is_windowed(part.argument):
                (stream,) = {node.stream for node in walk(part.argument) if isinstance(node, Windowed)}
                on = f" ON {stream}" if stream else ""
                yield f"{_let_name(part.argument)}{on} = {_expression(part.argument)}"


def _let_name(expression: Expression) -> str:
    return f"let_{zlib.crc32(repr(expression).encode()):08x}"


def _windowed(windowed: Windowed) -> str:
    argument = "*" if windowed.argument is None else _expression(windowed.argument)
    match windowed.function:
        case "DISTINCT":
            text = f"COUNT(DISTINCT {argument})"
        case "LAG" | "PERCENTILE":
            number = int(windowed.parameter) if windowed.function == "LAG" else windowed.parameter
            text = f"{windowed.function}({argument}, {number!r})"
        case name:
            text = f"{name}({argument})"
    if windowed.condition is not None:
        text += f" FILTER (WHERE {_expression(windowed.condition)})"
    window = windowed.window
    if window.is_whole:
        return text
    length = f"{window.length} EVENTS" if window.frame is Frame.EVENTS else f"{window.length} MICROSECONDS"
    match window.frame:
        case Frame.ALL:
            return f"{text} OVER ALL"
        case Frame.TUMBLING:
            return f"{text} OVER TUMBLING {length} OFFSET {window.offset_us} MICROSECONDS"
        case Frame.SESSION:
            return f"{text} OVER SESSION {length}"
        case _:
            step = f" BY {window.step_us} MICROSECONDS" if window.step_us else ""
            return f"{text} OVER {'PREVIOUS' if window.previous else 'LAST'} {length}{step}"


def _is_bound(rule: ir.Rule) -> bool:
    """Return whether variables of the rule have their own columns for the key."""
    return bool(rule.roles) and rule.roles[0].key != rule.key


def _key(rule: ir.Rule) -> str:
    if not rule.roles or _is_bound(rule):
        return ", ".join(rule.key)
    columns = zip(*(role.key for role in rule.roles), strict=True)
    streams = [role.stream for role in rule.roles]
    return ", ".join(
        " = ".join(f"{stream}.{column}" for stream, column in zip(streams, part, strict=True))
        for part in columns
    )


def _definition(rule: ir.Rule, variable: ir.Variable) -> str:
    """Return the definition of a variable, or only its name if it needs no definition."""
    text = variable.name
    if variable.role >= 0:
        role = rule.roles[variable.role]
        text += f" ON {role.stream}" if len(rule.streams) > 1 else ""
        text += f" BY ({', '.join(role.key)})" if _is_bound(rule) else ""
    return text if variable.predicate is None else f"{text} AS {_expression(variable.predicate)}"


def _pattern(node: ir.Node, untils: Mapping[str, str]) -> str:  # noqa: C901, PLR0912 - a case for each kind
    match node:
        case ir.Take(variable=name):
            return name
        case ir.Absent(variable=name):
            return f"!{name}"
        case ir.TimedAbsence(variables=(name,), period=period):
            return f"!{name} FOR {_window(period)}"
        case ir.TimedAbsence(variables=names, period=period):
            return f"!({' | '.join(names)}) FOR {_window(period)}"
        case ir.Group(body=body, window=window):
            return f"({_pattern(body, untils)} WITHIN {_window(window)})"
        case ir.Anchored(body=body):
            return f"^ ({_pattern(body, untils)})"
        case ir.Without(body=body, variables=names):
            return f"({_pattern(body, untils)} WITHOUT ({' | '.join(names)}))"
        case ir.Sequence(items=items):
            parts = [_atom(items[0].node, untils)]
            parts += [
                _JOINTS[item.contiguity].rstrip() + _gap(item.gap) + " " + _atom(item.node, untils)
                for item in items[1:]
            ]
            return "".join(parts)
        case ir.Alternation(branches=branches):
            return " | ".join(_atom(branch, untils) for branch in branches)
        case ir.Permutation(parts=members, contiguity=ir.Contiguity.STRICT):
            return f"PERMUTE({', '.join(_pattern(member, untils) for member in members)})"
        case ir.Permutation(parts=members):
            return " & ".join(_atom(member, untils) for member in members)
        case ir.Repeat():
            most = "" if node.max is None else node.max
            greed = {ir.Greed.GREEDY: "", ir.Greed.RELUCTANT: "?", ir.Greed.POSSESSIVE: "+"}[node.greed]
            until = f" UNTIL ({untils[node.until]})" if node.until is not None else ""
            inner = _pattern(node.body, untils)
            inner = inner if isinstance(node.body, ir.Take) else f"({inner})"
            if node.distinct is not None:
                until = f" DISTINCT BY {_expression(node.distinct)}{until}"
            return f"{inner}{_INNER[node.contiguity]}{_gap(node.gap)}{{{node.min},{most}}}{greed}{until}"


def _gap(gap: ir.Gap | None) -> str:
    match gap:
        case None:
            return ""
        case ir.Gap(low_us=0, limit_us=int() as limit_us, inclusive=inclusive):
            return f"[{'<=' if inclusive else '<'} {limit_us} MICROSECONDS]"
        case ir.Gap(low_us=low_us, high_us=None):
            return f"[>= {low_us} MICROSECONDS]"
        case ir.Gap(low_us=low_us, high_us=high_us):
            return f"[{low_us} MICROSECONDS, {high_us} MICROSECONDS]"


def _window(window: ir.Window | ir.EventWindow) -> str:
    if isinstance(window, ir.EventWindow):
        return f"{window.count} EVENTS"
    return f"{'<=' if window.inclusive else '<'} {window.length_us} MICROSECONDS"


def _atom(node: ir.Node, untils: Mapping[str, str]) -> str:
    text = _pattern(node, untils)
    return (
        f"({text})" if isinstance(node, ir.Sequence | ir.Alternation | ir.Permutation | ir.Anchored) else text
    )


def _expression(expression: Expression, prefix: str = "") -> str:  # noqa: C901, PLR0912 - a case for each kind
    match expression:
        case Literal():
            return _literal(expression)
        case Column(name=name):
            return prefix + name.rpartition(".")[2]  # without the stream
        case Aggregate(argument=None, variable=name) if name == ALL_EVENTS:
            return "COUNT(*)"
        case Aggregate(kind=kind, variable=name, argument=None):
            return f"{kind}({name}.*)"
        case Aggregate(kind="DISTINCT", variable=name, argument=argument) if argument is not None:
            return f"COUNT(DISTINCT {_expression(argument, name + '.')})"
        case Aggregate(kind="VALUES", variable=name, argument=argument) if argument is not None:
            return f"({_expression(argument, name + '.')})"
        case Aggregate(kind=kind, variable=name, argument=argument, offset=offset):
            assert argument is not None
            place = f", {offset}" if offset else ""
            if is_windowed(argument):
                return f"{kind}({name}.{_let_name(argument)}{place})"
            return f"{kind}({_expression(argument, name + '.')}{place})"
        case Windowed():
            return _windowed(expression)
        case Joined(table=table, column=column):
            return f"{prefix}{table}.{column}"
        case Call(function="coalesce", args=(Column(name=name), *_)) if "." in name:  # of any of its streams
            return prefix + name.rpartition(".")[2]
        case Call(function="floor", args=(Call(args=(quotient, _)),), type=Type.INTERVAL):
            assert isinstance(quotient, Call)
            return _of_interval(quotient, prefix)
        case Call(function="/", args=(Call(function="double", args=(time,)), _)) if (
            time.type is Type.INTERVAL
        ):
            return _of_interval(expression, prefix)
        case Call():
            return _call(expression.function, [_expression(arg, prefix) for arg in expression.args])
    raise AssertionError(expression)


def _of_interval(call: Call, prefix: str) -> str:
    """Return the text of a product or quotient of INTERVALs, which is computed in DOUBLE."""
    sides = [
        part.args[0] if isinstance(part, Call) and part.function == "double" else part for part in call.args
    ]
    return _call(call.function, [_expression(side, prefix) for side in sides])


def _literal(literal: Literal) -> str:
    match literal.value:
        case None:
            return "NULL"
        case bool() as value:
            return str(value).upper()
        case str() as value:
            return "'" + value.replace("'", "''") + "'"
        case value if literal.type is Type.INTERVAL:
            return f"INTERVAL '{value}' MICROSECONDS"
        case value if literal.type is Type.TIMESTAMP:
            time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)
            return f"TIMESTAMP '{time:%Y-%m-%d %H:%M:%S.%f}'"
        case value:
            return f"({value!r})" if value < 0 else repr(value)


def _call(function: str, args: list[str]) -> str:
    match function:
        case "and" | "or":
            return "(" + f" {function.upper()} ".join(args) + ")"
        case "not":
            return f"(NOT {args[0]})"
        case "is_null" | "is_not_null":
            return f"({args[0]} {function.upper().replace('_', ' ')})"
        case "in":
            return f"({args[0]} IN ({', '.join(args[1:])}))"
        case "negate":
            return f"(- {args[0]})"
        case "text":
            return f"CAST({args[0]} AS STRING)"
        case "parse_bigint" | "parse_double":
            return f"CAST({args[0]} AS {function.removeprefix('parse_')})"
        case "double":
            return f"({args[0]} * 1.0)"  # the analyzer makes both sides DOUBLE
        case "case":
            return f"CASE WHEN {args[0]} THEN {args[1]} ELSE {args[2]} END"
        case "in_taken":
            return f"({args[0]} IN {args[1]})"
        case _ if function in FUNCTIONS and function.isidentifier():
            return f"{function.upper()}({', '.join(args)})"
        case _:
            return f"({args[0]} {function} {args[1]})"
