"""Functions of values, typed."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from cep.compiler.aggregates import AGGREGATES
from cep.compiler.typing.checker import NULL, NUMBERS, Checker, as_double, names_zone, shown
from cep.diagnostics.diagnostic import suggestion
from cep.errors import Span
from cep.expression import Call, Expression, Literal, Type
from cep.language import ast
from cep.language.foreign import NO_RANKS, OF_RANKS
from cep.program.opcodes import TRUNC_UNITS

_TEXT, _TIME, _WHOLE = (Type.STRING,), (Type.TIMESTAMP,), (Type.BIGINT,)


@dataclass(frozen=True, slots=True)
class Signature:
    """A function that its types define: its name in `cep.expression`, its argument and result types."""

    function: str
    takes: tuple[tuple[Type, ...], ...]
    gives: Type
    is_double: bool = False  # numbers are passed to it as DOUBLE


SIGNATURES: dict[str, Signature] = {
    **{name: Signature(name.lower(), (_TEXT,), Type.STRING) for name in ("LOWER", "UPPER", "REVERSE")},
    **{name: Signature(name.lower(), (_TEXT,), Type.STRING) for name in ("TRIM", "LTRIM", "RTRIM")},
    **{
        name: Signature(name.lower(), (_TEXT, _TEXT), Type.BOOLEAN)
        for name in ("CONTAINS", "STARTSWITH", "ENDSWITH")
    },
    "LENGTH": Signature("length", (_TEXT,), Type.BIGINT),
    "RIGHT": Signature("right", (_TEXT, _WHOLE), Type.STRING),
    "REPLACE": Signature("replace", (_TEXT, _TEXT, _TEXT), Type.STRING),
    "INSTR": Signature("instr", (_TEXT, _TEXT), Type.BIGINT),
    **{
        name: Signature(name.lower(), (NUMBERS,), Type.DOUBLE, is_double=True)
        for name in ("SQRT", "EXP", "LN", "LOG2", "LOG10", "SIGN")
    },
    "POWER": Signature("power", (NUMBERS, NUMBERS), Type.DOUBLE, is_double=True),
    **{
        name: Signature(name.lower(), (NUMBERS,), Type.DOUBLE, is_double=True)
        for name in ("SIN", "COS", "TAN", "ASIN", "ACOS", "ATAN")
    },
    "ATAN2": Signature("atan2", (NUMBERS, NUMBERS), Type.DOUBLE, is_double=True),
    "DISTANCE_KM": Signature("distance_km", (NUMBERS,) * 4, Type.DOUBLE, is_double=True),
    **{
        name: Signature(name.lower(), (_TIME,), Type.BIGINT)
        for name in ("YEAR", "QUARTER", "MONTH", "DAY", "DAYOFWEEK", "WEEKDAY", "DAYOFYEAR")
    },
    **{name: Signature(name.lower(), (_TIME,), Type.BIGINT) for name in ("HOUR", "MINUTE", "SECOND")},
    **{
        name: Signature(name.lower(), (_TIME,), Type.BIGINT)
        for name in ("UNIX_SECONDS", "UNIX_MILLIS", "UNIX_MICROS")
    },
    **{
        name: Signature(name.lower(), (_WHOLE,), Type.TIMESTAMP)
        for name in ("TIMESTAMP_SECONDS", "TIMESTAMP_MILLIS", "TIMESTAMP_MICROS")
    },
}
"""Functions whose types say all."""

SYNONYMS = {
    "CEILING": "CEIL",
    "DAYOFMONTH": "DAY",
    "IFNULL": "COALESCE",
    "IIF": "IF",
    "LCASE": "LOWER",
    "NVL": "COALESCE",
    "POSITION": "LOCATE",
    "POW": "POWER",
    "SIGNUM": "SIGN",
    "SUBSTR": "SUBSTRING",
    "UCASE": "UPPER",
}
"""Other names of functions, as Spark has them."""

_ARITY: dict[str, tuple[int, int | None]] = {
    **{name: (len(signature.takes), len(signature.takes)) for name, signature in SIGNATURES.items()},
    "ABS": (1, 1),
    "CEIL": (1, 1),
    "COALESCE": (1, None),
    "CONCAT": (1, None),
    "DATE_TRUNC": (2, 2),
    "DEGREES": (1, 1),
    "DOUBLE": (1, 1),
    "FLOOR": (1, 1),
    "FROM_UTC_TIMESTAMP": (2, 2),
    "GREATEST": (2, None),
    "IF": (3, 3),
    "ISNAN": (1, 1),
    "LEAST": (2, None),
    "LEFT": (2, 2),
    "LOCATE": (2, 2),
    "MOD": (2, 2),
    "NULLIF": (2, 2),
    "PI": (0, 0),
    "PREV": (1, 2),
    "RADIANS": (1, 1),
    "ROUND": (1, 2),
    "SPLIT_PART": (3, 3),
    "SUBSTRING": (2, 3),
    "TO_UTC_TIMESTAMP": (2, 2),
}
"""Functions of values and how many arguments they take."""

FUNCTION_NAMES = (*_ARITY, *SYNONYMS)
"""Every name of a function of values."""

MAX_PLACES = 15
"""Of ROUND: a DOUBLE has no more digits that are sure."""

_OTHER_FUNCTIONS = {
    "LAG": "write PREV(x, 1), or LAG(x, 1) OVER LAST 1 HOUR; LAST(v.x, 1) is of the events taken as v only",
    "SEEN": "say in which events: SEEN(x) OVER PREVIOUS 90 DAYS",
    **dict.fromkeys(("MEDIAN", "PERCENTILE"), "it needs OVER: MEDIAN(x) OVER PREVIOUS 200 EVENTS"),
    **dict.fromkeys(("NEXT", "LEAD"), "give the next event a variable of its own"),
    "FIRST_VALUE": "write FIRST(v.x), or FIRST_VALUE(x) OVER LAST 1 HOUR",
    "LAST_VALUE": "write LAST(v.x), or LAST_VALUE(x) OVER PREVIOUS 1 HOUR",
    "CLASSIFIER": "COUNT(v.*) > 0 says whether v was taken",
    "MATCH_NUMBER": "every match has its own match_id",
    "LOG": "write LN(x), LOG2(x) or LOG10(x)",
    **dict.fromkeys(("DATE", "TO_DATE"), "write DATE_TRUNC('day', ts)"),
    **dict.fromkeys(OF_RANKS, NO_RANKS),
    "TRUNC": "write FLOOR(x), CEIL(x) or DATE_TRUNC('DAY', ts)",
    **dict.fromkeys(
        ("NOW", "CURRENT_TIMESTAMP", "CURRENT_DATE", "UNIX_TIMESTAMP"),
        "a rule reads the events' own time: a column such as ts",
    ),
    **dict.fromkeys(
        ("DATEDIFF", "DATE_DIFF", "TIMESTAMPDIFF", "TIMESTAMP_DIFF"),
        "write t - s < 1 DAY, or (t - s) / 1 DAY",
    ),
    **dict.fromkeys(("DATEADD", "DATE_ADD", "TIMESTAMPADD", "TIMESTAMP_ADD"), "write t + 1 DAY"),
    **dict.fromkeys(
        ("CONVERT_TIMEZONE", "TO_LOCAL", "AT_TIMEZONE"), "write FROM_UTC_TIMESTAMP(ts, 'Europe/Berlin')"
    ),
    **dict.fromkeys(("ISNULL", "IS_NULL"), "write x IS NULL"),
    **dict.fromkeys(("ISNOTNULL", "NOTNULL", "IS_NOT_NULL"), "write x IS NOT NULL"),
    **dict.fromkeys(("LEN", "CHAR_LENGTH", "CHARACTER_LENGTH"), "write LENGTH(s)"),
    **dict.fromkeys(("STRPOS", "CHARINDEX", "INDEXOF"), "write INSTR(s, t)"),
    **dict.fromkeys(("VAR_SAMP", "STD", "STDEV", "STDDEV_SAMP"), "write STDDEV(v.x)"),
    "VARIANCE": "write STDDEV(v.x), or VARIANCE(x) OVER PREVIOUS 200 EVENTS",
    **dict.fromkeys(("MEAN", "AVERAGE"), "write AVG(v.x)"),
    **dict.fromkeys(
        ("HAVERSINE", "ST_DISTANCE", "ST_DISTANCESPHERE", "GEO_DISTANCE"),
        "write DISTANCE_KM(latitude, longitude, latitude, longitude)",
    ),
    **dict.fromkeys(("RAND", "RANDOM", "UUID"), "a rule gives the same matches each time: no chance"),
    "TO_TIMESTAMP": "declare the column as timestamp in the streams file, or write TIMESTAMP '2024-01-31'",
    "EXTRACT": "write YEAR(ts), HOUR(ts) and so on",
    **dict.fromkeys(("REGEXP", "REGEXP_LIKE", "RLIKE"), "write x RLIKE 'pattern'"),
}


def _group(takes: tuple[tuple[Type, ...], ...], *others: str) -> tuple[str, ...]:
    """Return the names of the functions whose first argument is of `takes`, and `others`."""
    found = (name for name, signature in SIGNATURES.items() if signature.takes[0] in takes)
    return tuple(sorted((*found, *others)))


FUNCTION_GROUPS: dict[str, tuple[str, ...]] = {
    "of numbers": _group(
        (NUMBERS,),
        *("ABS", "CEIL", "CEILING", "DEGREES", "DOUBLE", "FLOOR", "ISNAN", "MOD", "PI", "POW", "RADIANS"),
        *("ROUND", "SIGNUM"),
    ),
    "of texts": _group(
        (_TEXT,),
        *("CONCAT", "LCASE", "LEFT", "LOCATE", "POSITION", "SPLIT_PART", "SUBSTR", "SUBSTRING", "UCASE"),
    ),
    "of times": _group((_TIME, _WHOLE), "DATE_TRUNC", "DAYOFMONTH", "FROM_UTC_TIMESTAMP", "TO_UTC_TIMESTAMP"),
    "of any type": ("COALESCE", "GREATEST", "IF", "IFNULL", "IIF", "LEAST", "NULLIF", "NVL", "PREV"),
    "of the events of a variable": tuple(AGGREGATES),
}
"""What functions are for -> their names."""

_NO_LENGTH = Literal((1 << 31) - 1, Type.BIGINT)
_NAN = float("nan")


class FunctionChecker(Checker):
    """Types calls of functions."""

    def function(self, node: ast.Function) -> Expression | None:
        """Return a call, typed."""
        name = SYNONYMS.get(node.name.text, node.name.text)
        if name not in _ARITY:
            self._unknown_function(name, node)
            return None
        least, most = _ARITY[name]
        if not least <= len(node.args) <= (len(node.args) if most is None else most):
            self.wrong_count(node, _counts(least, most))
            return None
        args = [self.infer(arg) for arg in node.args]
        spans = [arg.span for arg in node.args]
        if name in SIGNATURES:
            return self._of_signature(name, SIGNATURES[name], args, spans, node.span)
        match name:
            case "PI":
                return Literal(math.pi, Type.DOUBLE)
            case "COALESCE" | "LEAST" | "GREATEST" | "NULLIF":
                return self._one_of(name, args, spans, node.span)
            case "IF":
                return self._if(node, args, spans)
            case "CONCAT" | "SUBSTRING" | "LEFT" | "LOCATE":
                return self._of_texts(name, args, spans, node.span)
            case "SPLIT_PART" | "ROUND" | "DATE_TRUNC":
                return self._with_constant(name, node, args, spans)
            case "FROM_UTC_TIMESTAMP" | "TO_UTC_TIMESTAMP":
                return self._in_zone(name, args, spans, node.span)
            case "ABS":
                kinds = (*NUMBERS, Type.INTERVAL)
                return self.call_with(name, args, spans, kinds, node.span)
            case _:
                return self._numeric(name, args, spans, node.span)

    def _of_signature(
        self,
        name: str,
        signature: Signature,
        args: Sequence[Expression | None],
        spans: Sequence[Span],
        span: Span,
    ) -> Expression | None:
        checked: list[Expression] = []
        for arg, place, kinds in zip(args, spans, signature.takes, strict=True):
            checked += self.of_types(name, [arg], [place], kinds) or []
        if len(checked) < len(args):
            return None
        if signature.is_double:
            checked = [as_double(arg) for arg in checked]
        return self.call(signature.function, checked, signature.gives, span)

    def _one_of(
        self, name: str, args: Sequence[Expression | None], spans: Sequence[Span], span: Span
    ) -> Expression | None:
        same = self.unify(args, spans)
        if same is None or same[0] is NULL:
            return None if same is None else NULL
        kind = same[0].type
        if name in ("LEAST", "GREATEST") and kind is Type.BOOLEAN:
            self.refuse_type(name, kind, spans[0], "a type that has an order")
            return None
        if name == "NULLIF":
            equal = self.call("=", same, Type.BOOLEAN, span)
            return self.call_of("case", [equal, Literal(None, kind), same[0]], kind, span)
        return self.call(name.lower(), same, kind, span)

    def _if(
        self, node: ast.Function, args: Sequence[Expression | None], spans: Sequence[Span]
    ) -> Expression | None:
        condition = args[0]
        if condition is NULL:
            condition = Literal(None, Type.BOOLEAN)
        elif condition is not None and condition.type is not Type.BOOLEAN:
            self.refuse_type(node.name.text, condition.type, spans[0], "BOOLEAN first")
            condition = None
        same = self.unify(args[1:], spans[1:])
        if condition is None or same is None:
            return None
        return NULL if same[0] is NULL else self.call("case", [condition, *same], same[0].type, node.span)

    def _of_texts(
        self, name: str, args: Sequence[Expression | None], spans: Sequence[Span], span: Span
    ) -> Expression | None:
        n_texts = len(args) if name in ("CONCAT", "LOCATE") else 1
        texts = self.of_types(name, args[:n_texts], spans[:n_texts], _TEXT)
        counts = self.of_types(name, args[n_texts:], spans[n_texts:], _WHOLE)
        if texts is None or counts is None:
            return None
        match name:
            case "CONCAT":
                return texts[0] if len(texts) == 1 else self.call("concat", texts, Type.STRING, span)
            case "LOCATE":
                return self.call("instr", [texts[1], texts[0]], Type.BIGINT, span)
            case "LEFT":
                counts = [Literal(1, Type.BIGINT), *counts]
            case _ if len(counts) == 1:
                counts = [*counts, _NO_LENGTH]
        return self.call("substring", [*texts, *counts], Type.STRING, span)

    def _with_constant(
        self, name: str, node: ast.Function, args: Sequence[Expression | None], spans: Sequence[Span]
    ) -> Expression | None:
        match name:
            case "SPLIT_PART":
                texts = self.of_types(name, args[:2], spans[:2], _TEXT)
                number = self._whole_constant(name, args[2], spans[2], "from 1 or back from -1", -1000, 1000)
                if number is not None and number.value == 0:
                    self._refuse_constant(name, spans[2], "from 1 or back from -1")
                    return None
                if texts is None or number is None:
                    return None
                return self.call("split_part", [*texts, number], Type.STRING, node.span)
            case "ROUND":
                value = self.of_types(name, args[:1], spans[:1], NUMBERS)
                places: Literal | None = Literal(0, Type.BIGINT)
                if len(args) == 2:
                    places = self._whole_constant(
                        name, args[1], spans[1], f"from 0 to {MAX_PLACES}", 0, MAX_PLACES
                    )
                if value is None or places is None:
                    return None
                if value[0].type is Type.BIGINT:
                    return value[0]
                return self.call("round", [value[0], places], Type.DOUBLE, node.span)
            case _:
                time = self.of_types(name, args[1:], spans[1:], _TIME)
                unit = args[0]
                if not isinstance(unit, Literal) or str(unit.value).lower() not in TRUNC_UNITS:
                    if unit is not None:
                        self._refuse_constant(
                            name, spans[0], "one of " + ", ".join(f"'{unit.upper()}'" for unit in TRUNC_UNITS)
                        )
                    return None
                if time is None:
                    return None
                literal = Literal(str(unit.value).lower(), Type.STRING)
                return self.call("date_trunc", [literal, *time], Type.TIMESTAMP, node.span)

    def _in_zone(
        self, name: str, args: Sequence[Expression | None], spans: Sequence[Span], span: Span
    ) -> Expression | None:
        time, zone = self.of_types(name, args[:1], spans[:1], _TIME), args[1]
        if zone is None:
            return None
        if not isinstance(zone, Literal) or not isinstance(zone.value, str):
            self._refuse_constant(name, spans[1], "with the name of a time zone: 'Europe/Berlin'")
            return None
        if not names_zone(zone.value, spans[1], self.problem) or time is None:
            return None
        return self.call(name.lower(), [*time, zone], Type.TIMESTAMP, span)

    def _whole_constant(
        self, name: str, value: Expression | None, span: Span, range_: str, low: int, high: int
    ) -> Literal | None:
        if value is None:
            return None
        number = value.value if isinstance(value, Literal) and value.type is Type.BIGINT else None
        if isinstance(value, Literal) and isinstance(number, int) and low <= number <= high:
            return value
        self._refuse_constant(name, span, range_)
        return None

    def _refuse_constant(self, name: str, span: Span, needs: str) -> None:
        self.problem(
            "E0206",
            f"{name} takes a constant here",
            span,
            "not one that it takes",
            f"write a constant {needs}",
        )

    def _numeric(
        self, name: str, args: Sequence[Expression | None], spans: Sequence[Span], span: Span
    ) -> Expression | None:
        checked = self.of_types(name, args, spans, NUMBERS)
        if checked is None:
            return None
        value = checked[0]
        match name:
            case "DOUBLE":
                return as_double(value)
            case "RADIANS" | "DEGREES":
                factor = math.pi / 180 if name == "RADIANS" else 180 / math.pi
                return self.call("*", [as_double(value), Literal(factor, Type.DOUBLE)], Type.DOUBLE, span)
            case "ISNAN":
                is_nan = Call("=", (as_double(value), Literal(_NAN, Type.DOUBLE)), Type.BOOLEAN)
                return Call("coalesce", (is_nan, Literal(False, Type.BOOLEAN)), Type.BOOLEAN)
            case "MOD":
                if Type.DOUBLE in (checked[0].type, checked[1].type):
                    checked = [as_double(part) for part in checked]
                return self.call("%", checked, checked[0].type, span)
            case _:  # FLOOR, CEIL: a BIGINT is its own
                return (
                    value
                    if value.type is Type.BIGINT
                    else self.call(name.lower(), [value], Type.BIGINT, span)
                )

    def cast(self, node: ast.Cast) -> Expression | None:
        """Return ``CAST(x AS type)``; what cannot be converted is NULL, as with Spark's TRY_CAST."""
        value = self.infer(node.operand)
        kind = _CAST_TYPES.get(node.kind.text)
        if kind is None:
            self.problem(
                "E0206",
                f"there is no CAST to `{node.kind.text}`",
                node.kind.span,
                "not a type that values are converted to",
                "types: BIGINT, DOUBLE, STRING",
            )
        if value is None or kind is None:
            return None
        if value is NULL:
            return Literal(None, kind)
        if value.type is kind:
            return value
        match value.type, kind:
            case Type.STRING, _:
                trimmed = self.call("trim", [value], Type.STRING, node.span)
                return self.call_of(f"parse_{kind}", [trimmed], kind, node.span)
            case Type.BOOLEAN, _:
                return self._of_boolean(value, kind, node.span)
            case Type.BIGINT, Type.DOUBLE:
                return as_double(value)
            case Type.BIGINT, Type.STRING:
                return self.call("text", [value], kind, node.span)
            case Type.DOUBLE, Type.BIGINT:  # towards zero
                is_negative = Call("<", (value, Literal(0.0, Type.DOUBLE)), Type.BOOLEAN)
                return Call(
                    "case", (is_negative, Call("ceil", (value,), kind), Call("floor", (value,), kind)), kind
                )
            case Type.TIMESTAMP, Type.BIGINT:
                return Call("unix_seconds", (value,), kind)
        self.problem(
            "E0206",
            f"CAST of {shown(value.type)} to {shown(kind)}",
            node.span,
            f"{shown(value.type)} is not converted to {shown(kind)}",
            "a number is converted to a number, a text to a number, BIGINT and BOOLEAN to all three",
        )
        return None

    def _of_boolean(self, value: Expression, kind: Type, span: Span) -> Expression | None:
        truth: dict[Type, tuple[Literal, Literal]] = {
            Type.STRING: (Literal("true", kind), Literal("false", kind)),
            Type.DOUBLE: (Literal(1.0, kind), Literal(0.0, kind)),
            Type.BIGINT: (Literal(1, kind), Literal(0, kind)),
        }
        yes, no = truth[kind]
        parts = (value, yes, Call("not", (value,), Type.BOOLEAN), no, Literal(None, kind))
        return self.call("case", parts, kind, span)

    def _unknown_function(self, name: str, node: ast.Function) -> None:
        self.problem(
            "E0204",
            f"there is no function `{node.name.text}`",
            node.name.span,
            "not a function of the rule language",
            _OTHER_FUNCTIONS.get(name) or _near_functions(name),
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


_CAST_TYPES = {
    "bigint": Type.BIGINT,
    "long": Type.BIGINT,
    "double": Type.DOUBLE,
    "string": Type.STRING,
}


def _near_functions(name: str) -> str:
    """Return help for an unknown function: the nearest and similar ones, or all functions."""
    near = suggestion(name, [known for names in FUNCTION_GROUPS.values() for known in names])
    lines = [f"did you mean `{near}`?"] if near else []
    for group, names in FUNCTION_GROUPS.items():
        if near is None or near in names:
            lines += textwrap.wrap(f"functions {group}: {', '.join(names)}", 100, subsequent_indent="  ")
    return "\n".join([*lines, "docs/language/grammar.md has a table of all functions"])


def _counts(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} or more"
    return str(least) if least == most else f"{least} or {most}"
