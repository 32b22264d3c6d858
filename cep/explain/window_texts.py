"""Windowed columns of compiled rules as text."""

from __future__ import annotations

from cep.compiler.lowering.shared import conjuncts
from cep.explain.shown import show_duration, show_expression, show_over
from cep.expression import Call, Column, Expression, Frame, Literal, RoleTest, Window, rebuild
from cep.program.program import Program
from cep.program.windows import WindowColumn


def text_of_window(program: Program, column: WindowColumn) -> str:
    """Return a windowed column as it is written in a rule: ``SUM(amount) OVER LAST 1 HOUR``.

    One of a window rule is followed by its WINDOW.
    """
    argument = "*"
    if column.argument is not None:
        kind = column.argument_type
        assert kind is not None
        argument = show_expression(_written(program, Column(column.argument, kind)))
    text = column.function.shown(argument, column.parameter)
    parts = [] if column.counts is None or column.counts == column.within else _parts(program, column.counts)
    if parts:
        text += f" FILTER (WHERE {' AND '.join(map(show_expression, parts))})"
    if column.window.is_whole:
        return f"{text} WINDOW {_whole(column.window)}"
    return f"{text} OVER {show_over(column.window)}"


def _whole(window: Window) -> str:
    """Return the windows of a window rule in the rule language's words."""
    length = show_duration(window.length)
    match window.frame:
        case Frame.SESSION:
            return f"SESSION GAP {length}" + (
                f" MAX {show_duration(window.most_us)}" if window.most_us else ""
            )
        case Frame.HOPPING:
            offset = f" OFFSET {show_duration(window.offset_us)}" if window.offset_us else ""
            return f"HOPPING {length} EVERY {show_duration(window.every_us)}{offset}"
        case _:
            return show_over(window)


def _written(program: Program, expression: Expression) -> Expression:
    """Return an expression with what the columns contain that the compiler has added."""
    named = dict((*program.derived, *program.joins.derived, *program.computed))
    joined = {
        one.name: f"{program.joins.tables[one.table].table.name}.{one.column}"
        for one in program.joins.columns
    }

    def read(leaf: Expression) -> Expression:
        if not isinstance(leaf, Column):
            return leaf
        if leaf.name in named:
            return _written(program, named[leaf.name])
        return Column(joined.get(leaf.name, leaf.name), leaf.type)

    return rebuild(expression, read)


def _parts(program: Program, place: tuple[int, int]) -> list[Expression]:
    """Return the parts of a condition, without the test of which stream an event belongs to."""
    word, bit = place
    refined = (*program.joins.refined, *program.refined)
    whole = [program.predicates[word][bit], *(rest for *of, rest in refined if (*of,) == place)]
    return [_written(program, part) for one in whole for part in conjuncts(one) if not _is_given(part)]


def _is_given(part: Expression) -> bool:
    """Return whether a part is always TRUE, or only tests which stream an event belongs to."""
    if isinstance(part, Call) and part.function == "or":
        return all(isinstance(arg, RoleTest) for arg in part.args)
    return isinstance(part, RoleTest) or (isinstance(part, Literal) and part.value is True)
