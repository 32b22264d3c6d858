"""Functions of values, typed."""

from __future__ import annotations

from collections.abc import Sequence

from cep.compiler.checker import NULL, NUMBERS, Checker, as_double
from cep.errors import Span
from cep.expression import Expression, Type
from cep.language import ast
from cep.language.diagnostics import did_you_mean

AGGREGATES = ("FIRST", "LAST", "COUNT", "SUM", "AVG", "MIN", "MAX", "STDDEV")

_ARITY: dict[str, tuple[int, int | None]] = {
    "ABS": (1, 1),
    "CEIL": (1, 1),
    "COALESCE": (1, None),
    "CONTAINS": (2, 2),
    "DOUBLE": (1, 1),
    "ENDSWITH": (2, 2),
    "FLOOR": (1, 1),
    "GREATEST": (2, None),
    "LEAST": (2, None),
    "LENGTH": (1, 1),
    "LOWER": (1, 1),
    "SQRT": (1, 1),
    "STARTSWITH": (2, 2),
    "UPPER": (1, 1),
}
"""Functions of values and how many arguments they take."""

_LATER_FUNCTIONS = {
    "PREV": "LAST(v.x, 1) is the event before the last one taken as v",
    "NEXT": "give the next event a variable of its own",
    "CLASSIFIER": "COUNT(v.*) > 0 says whether v was taken",
    "MATCH_NUMBER": "every match has its own match_id",
}


class FunctionChecker(Checker):
    """Types calls of functions."""

    def function(self, node: ast.Function) -> Expression | None:
        """Return a call, typed."""
        name = node.name.text
        if name not in _ARITY:
            self._unknown_function(name, node)
            return None
        least, most = _ARITY[name]
        if not least <= len(node.args) <= (len(node.args) if most is None else most):
            self.wrong_count(node, f"{least} or more" if most is None else str(least))
            return None
        args = [self.infer(arg) for arg in node.args]
        spans = [arg.span for arg in node.args]
        match name:
            case "COALESCE" | "LEAST" | "GREATEST":
                same = self.unify(args, spans)
                if same is None or same[0] is NULL:
                    return None if same is None else NULL
                if name != "COALESCE" and same[0].type is Type.BOOLEAN:
                    self.refuse_type(name, same[0].type, spans[0], "a type that has an order")
                    return None
                return self.call(name.lower(), same, same[0].type, node.span)
            case "CONTAINS" | "STARTSWITH" | "ENDSWITH":
                return self.call_with(name, args, spans, (Type.STRING,), Type.BOOLEAN, node.span)
            case "LOWER" | "UPPER":
                return self.call_with(name, args, spans, (Type.STRING,), Type.STRING, node.span)
            case "LENGTH":
                return self.call_with(name, args, spans, (Type.STRING,), Type.BIGINT, node.span)
            case "ABS":
                kinds = (*NUMBERS, Type.INTERVAL)
                return self.call_with(name, args, spans, kinds, None, node.span)
            case _:
                return self._numeric(name, args, spans, node.span)

    def _numeric(
        self, name: str, args: Sequence[Expression | None], spans: Sequence[Span], span: Span
    ) -> Expression | None:
        checked = self.of_types(name, args, spans, NUMBERS)
        if checked is None:
            return None
        (value,) = checked
        match name:
            case "DOUBLE":
                return as_double(value)
            case "SQRT":
                return self.call("sqrt", [as_double(value)], Type.DOUBLE, span)
            case _:  # FLOOR, CEIL: a BIGINT is its own
                return (
                    value
                    if value.type is Type.BIGINT
                    else self.call(name.lower(), [value], Type.BIGINT, span)
                )

    def _unknown_function(self, name: str, node: ast.Function) -> None:
        if name in _LATER_FUNCTIONS:
            self.problem(
                "E0150",
                f"{name}: not supported yet",
                node.name.span,
                "part of the language to come",
                _LATER_FUNCTIONS[name],
            )
            return
        known = (*_ARITY, *AGGREGATES)
        help_text = did_you_mean(name, known, "functions")
        if name in ("IF", "IIF", "NVL", "IFNULL"):
            other = "CASE WHEN c THEN x ELSE y END" if name in ("IF", "IIF") else "COALESCE(x, y)"
            help_text = f"write {other}"
        self.problem(
            "E0204",
            f"there is no function `{node.name.text}`",
            node.name.span,
            "not a function of the rule language",
            help_text,
        )

    def wrong_count(self, node: ast.Function, needs: str) -> None:
        """Report a call with too few or too many arguments."""
        name = node.name.text
        plural = "" if needs == "1" else "s"
        self.problem(
            "E0205",
            f"{name} takes {needs} argument{plural}, not {len(node.args)}",
            node.span,
            f"{len(node.args)} given",
            f"give {name} {needs} argument{plural}",
        )
