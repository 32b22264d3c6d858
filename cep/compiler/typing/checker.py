"""Base of the expression type checker: scope, diagnostics, unification of types, construction of calls."""

from __future__ import annotations

import re
import zoneinfo
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cep.compiler.lowering.remembered import remembered
from cep.errors import Diagnostic, Source, Span
from cep.expression import IN_TAKEN, Call, Column, Expression, Literal, Type, is_local
from cep.language import ast
from cep.schema.stream import Stream
from cep.schema.time_literals import parse_timestamp

if TYPE_CHECKING:
    from cep.compiler.typing.joins import RuleJoin

NUMBERS = (Type.BIGINT, Type.DOUBLE)

NULL = Literal(None, Type.BOOLEAN)
"""NULL before its type is known; told apart by identity."""

_OF_ZONES = frozenset(("from_utc_timestamp", "to_utc_timestamp"))
_ON_CODES = frozenset((IN_TAKEN, "=", "<>", "in", "is_null", "is_not_null", "coalesce", "case"))
"""What a run can do with strings, which it holds as codes."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What an expression may refer to. `subject` is the variable whose condition it is; None in a measure.

    `stream` is the stream of bare columns, `stream_of` has the stream of each variable. With several streams
    (`is_qualified`) the name of a column starts with its stream.
    """

    source: Source
    stream: Stream
    taken: tuple[str, ...]
    absent: tuple[str, ...]
    subject: str | None
    stream_of: Mapping[str, Stream] = field(default_factory=dict)
    is_qualified: bool = False
    subsets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lets: Mapping[tuple[str, str], Expression | None] = field(default_factory=dict)  # by stream and name
    joins: Mapping[str, RuleJoin | None] = field(default_factory=dict)  # by table; None: reported
    tables: Collection[str] = ()  # the declared ones
    measures: Sequence[ast.Measure] = ()  # of the rule

    def variables_with(self, column: str) -> list[str]:
        """Return the taken variables whose events have `column`."""
        streams = ((name, self.stream_of.get(name, self.stream)) for name in self.taken)
        return [name for name, stream in streams if stream.field(column) is not None]

    def is_of_subject(self, name: str) -> bool:
        """Return whether the event under test counts as taken as `name`."""
        return self.subject is not None and self.subject in self.subsets.get(name, (name,))

    def measure(self, name: str) -> str | None:
        """Return the expression of the rule's measure `name`, as it is written, on one line."""
        spans = (measure.expression.span for measure in self.measures if measure.name.text == name)
        span = next(spans, None)
        return None if span is None else " ".join(self.source.text[span.start : span.end].split())


@dataclass(frozen=True, slots=True)
class Read:
    """A variable that an expression reads, and where."""

    variable: str
    span: Span


class Checker(ABC):
    """Types the expressions of one scope; problems go to `report`."""

    def __init__(self, scope: Scope, report: Callable[[Diagnostic], None]) -> None:
        self.scope = scope
        self.report = report
        self.reads: list[Read] = []
        self._inside: list[Read] | None = None  # variables met in the aggregate being read
        self._in_window = False  # whether a part of a window is being read

    @abstractmethod
    def infer_any(self, node: ast.Expression) -> Expression | None:
        """Return `node` typed, `NULL` for a NULL of unknown type, or None after a report."""

    def infer(self, node: ast.Expression) -> Expression | None:
        """Return what `infer_any` does; an opaque column is refused."""
        found = self.infer_any(node)
        if found is None or found.type is not Type.OPAQUE:
            return found
        self.problem(
            "E0206",
            "rules do not look into this column",
            node.span,
            "an array, a struct, a map or binary",
            "ask IS NULL or COUNT, report it by ARRAY_AGG or ALL ROWS PER MATCH, "
            "or take the value that is needed out of it when the data is read",
        )
        return None

    def condition(self, node: ast.Expression) -> Expression | None:
        """Return `node` as a BOOLEAN expression."""
        found = self.infer(node)
        if found is None:
            return None
        if found is NULL:
            return Literal(None, Type.BOOLEAN)
        if found.type is not Type.BOOLEAN:
            self.problem(
                "E0208",
                f"this condition is {shown(found.type)}",
                node.span,
                "expected BOOLEAN",
                "compare it with something, for example `> 0`",
            )
            return None
        return found

    def problem(self, code: str, title: str, span: Span, label: str = "", help_text: str = "") -> None:
        """Report an error or a warning."""
        self.report(Diagnostic(code, title, self.scope.source, span, label, help_text))

    def some_column(self) -> str:
        """Return a column to use as an example."""
        return self.scope.stream.fields[0].name

    # Types

    def unify(self, values: Sequence[Expression | None], spans: Sequence[Span]) -> list[Expression] | None:
        """Return `values` in one type: BIGINT with DOUBLE becomes DOUBLE, NULL takes the others' type."""
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        typed = [(value, span) for value, span in zip(known, spans, strict=True) if value is not NULL]
        if not typed:
            return known
        first = typed[0][0]
        common = first.type
        for value, span in typed[1:]:
            if value.type is common:
                continue
            if {value.type, common} == set(NUMBERS):
                common = Type.DOUBLE
                continue
            self.problem(
                "E0207",
                f"{shown(first.type)} and {shown(value.type)} do not go together",
                span,
                f"this is {shown(value.type)}, the other is {shown(first.type)}",
                mixed_help({first.type, value.type}, [known for known, _ in typed]),
            )
            return None
        return [coerce(value, common) for value in known]

    def of_types(
        self,
        name: str,
        values: Sequence[Expression | None],
        spans: Sequence[Span],
        kinds: Sequence[Type],
    ) -> list[Expression] | None:
        """Return `values` if each has one of the types `kinds`."""
        sound: list[Expression] = []
        for value, span in zip(values, spans, strict=True):
            if value is NULL:
                self.problem(
                    "E0206", f"{name} of NULL", span, "has no type", "leave it out: the result is always NULL"
                )
            elif value is not None and value.type not in kinds:
                self.refuse_type(name, value.type, span, ", ".join(shown(kind) for kind in kinds))
            elif value is not None:
                sound.append(value)
        return sound if len(sound) == len(values) else None

    def refuse_type(self, name: str, given: Type, span: Span, needs: str) -> None:
        """Report an operand of a type that `name` does not take."""
        self.problem(
            "E0206",
            f"{f'`{name}`' if not name.isalpha() else name} of {shown(given)}",
            span,
            f"this is {shown(given)}",
            f"it takes {needs}",
        )

    # Calls

    def call_with(
        self,
        name: str,
        values: Sequence[Expression | None],
        spans: Sequence[Span],
        kinds: Sequence[Type],
        span: Span,
    ) -> Expression | None:
        """Return the call of `name` if each of `values` has one of `kinds`; it has the type of the first."""
        checked = self.of_types(name, values, spans, kinds)
        if checked is None:
            return None
        return self.call("concat" if name == "||" else name.lower(), checked, checked[0].type, span)

    def call_of(
        self, function: str, values: Sequence[Expression | None], kind: Type, span: Span
    ) -> Expression | None:
        """Return the call if none of `values` is missing."""
        known = [value for value in values if value is not None]
        return self.call(function, known, kind, span) if len(known) == len(values) else None

    def call(self, function: str, args: Sequence[Expression], kind: Type, span: Span) -> Expression | None:
        """Return the call. Runs hold strings as codes: a condition can only compare them for equality.

        They do not hold the clocks of a zone, either.
        """
        call = Call(function, tuple(args), kind)
        if (
            self.scope.subject is None
            or self._in_window
            or self._inside is not None
            or not (
                function in _OF_ZONES
                or any(value.type is Type.STRING for value in (call, *args) if not isinstance(value, Literal))
            )
            or is_local(call)
        ):
            return call
        moved = remembered(call)
        if moved is not None:
            return moved
        if function in _ON_CODES:
            return call
        if function in _OF_ZONES:
            self.problem(
                "E0211",
                f"{function.upper()} of what is computed from other events",
                span,
                "needs a time of one event",
                "write FIRST(v.x), LAST(v.x) or a column of this event in it",
            )
            return None
        self.problem(
            "E0211",
            "strings of other events can only be compared with = and <>",
            span,
            "does more with the string of another event",
            "compare the strings themselves with = or <>; functions may read the columns of one event",
        )
        return None


def names_zone(name: str, span: Span, report: Callable[[str, str, Span, str, str], None]) -> bool:
    """Return whether a time zone has this name; if none has, report it."""
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        report(
            "E0217",
            f"there is no time zone '{name}'",
            span,
            "not in the database of time zones",
            "write a name such as 'Europe/Berlin' or 'UTC'",
        )
        return False
    return True


def too_long(source: Source, span: Span) -> Diagnostic:
    """Return the error for a duration beyond the limit."""
    return Diagnostic(
        "E0907",
        "a duration of more than 36,500 days",
        source,
        span,
        "too long",
        "use 36,500 DAYS or less",
    )


def as_double(value: Expression) -> Expression:
    """Return `value` as DOUBLE."""
    if isinstance(value, Literal) and isinstance(value.value, int):
        return Literal(float(value.value), Type.DOUBLE)
    return value if value.type is Type.DOUBLE else Call("double", (value,), Type.DOUBLE)


def as_interval(microseconds: Expression) -> Expression:
    """Return a DOUBLE of microseconds as INTERVAL, rounded half away from zero; NULL beyond 64 bits."""
    rounded = Call("round", (microseconds, Literal(0, Type.BIGINT)), Type.DOUBLE)
    return Call("floor", (rounded,), Type.INTERVAL)


def coerce(value: Expression, kind: Type) -> Expression:
    """Return `value` as `kind`: NULL, or BIGINT for DOUBLE."""
    if value is NULL:
        return Literal(None, kind)
    return as_double(value) if kind is Type.DOUBLE else value


def shown(kind: Type) -> str:
    """Return the name of a type as users write it."""
    return kind.value.upper()


_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")


def mixed_help(kinds: set[Type], values: Sequence[Expression]) -> str:
    """Return what to do about two incompatible types, those of `values`."""
    texts = [value.value for value in values if isinstance(value, Literal) and isinstance(value.value, str)]
    match sorted(kinds):
        case [Type.BIGINT | Type.DOUBLE, Type.STRING] if texts and _NUMBER.fullmatch(texts[0]):
            return f"write the number without quotes: {texts[0]}"
        case [Type.BIGINT | Type.DOUBLE, Type.STRING]:
            return "compare numbers with numbers and texts with texts: 5 is a number, '5' a text"
        case [Type.STRING, Type.TIMESTAMP] if texts and parse_timestamp(texts[0]) is not None:
            return f"write the point in time as TIMESTAMP '{texts[0]}'"
        case [Type.STRING, Type.TIMESTAMP]:
            return "write the point in time as TIMESTAMP '2020-01-31 00:00:00'"
        case [Type.BIGINT | Type.DOUBLE, Type.INTERVAL]:
            return "give the number a unit, for example 5 SECONDS"
        case [Type.INTERVAL, Type.TIMESTAMP]:
            return "subtract two points in time first: ts - a.ts < 5 SECONDS"
        case [Type.BIGINT, Type.BOOLEAN] | [Type.BOOLEAN, _]:
            x = next((value.name for value in values if isinstance(value, Column)), "")
            x = x if x.isidentifier() else "x"
            return f"a BOOLEAN is a condition by itself: write {x} or NOT {x}; or {x} = TRUE, {x} = FALSE"
        case _:
            return "use values of one type"
