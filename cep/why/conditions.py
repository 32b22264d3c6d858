"""The parts of a condition for one run and some events, and why one of them is not TRUE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64, Mask
from cep.compiler.lowering.parts import COMPARISONS, ConditionPart, Lowered, WatchedRule
from cep.diagnostics.diagnostic import Span
from cep.engine.matching.watched import Watched
from cep.engine.prepare.predicates import Vector, Vectors, evaluate
from cep.explain.shown import show_expression
from cep.expression import (
    IN_TAKEN,
    Call,
    Column,
    Expression,
    Joined,
    Literal,
    RegisterRef,
    Type,
    Windowed,
    walk,
)
from cep.language import ast
from cep.local.replay import Replay, time_text
from cep.output.summary import long_duration
from cep.program.program import STREAM_COLUMN, register_column
from cep.schema.table_rows import deleted
from cep.why.reasons import Failed, Reason


class Conditions:
    """The conditions of a watched rule over the events of a key.

    Parameters
    ----------
    replay
        The rule with its input.
    watched
        Its runs over the events of a key.
    """

    def __init__(self, replay: Replay, watched: Watched) -> None:
        self.rule = rule = replay.watched
        self.watched = watched
        self._places = part_places(rule, replay.tree)
        self._text = "" if replay.tree is None else replay.tree.source.text
        self._tables = replay.tables
        self._roles = {variable.name: variable.role for variable in rule.rule.variables}

    def has_stream(self, variable: str, events: pa.Table) -> Mask:
        """Return which events belong to the stream of `variable`, and to the partition by its key."""
        number, program = self._roles[variable], self.rule.program
        found = np.ones(len(events), np.bool_)
        if number < 0:
            return found
        role = program.roles[number]
        place = [of.name for of in program.streams].index(role.stream)
        if STREAM_COLUMN in events.column_names:
            found &= np.asarray(events.column(STREAM_COLUMN)) == place
        for name, own in zip(program.key_columns, role.key, strict=True):
            column = events.column(program.column_of(program.streams[place], own))
            found &= np.asarray(pc.fill_null(pc.equal(column, events.column(name)), False))
        return found

    def truths(
        self, variable: str, row: I64, events: I64, parts: Sequence[ConditionPart] | None = None
    ) -> Mask:
        """Return which parts of the condition of `variable` are TRUE for a run and n events: (parts, n).

        Parameters
        ----------
        row : (width,) or (n, width) int64
            The run, or the run of each event. With several runs no part may read a set (`x IN (v.y)`).
        parts
            Some of the parts; None: all.
        """
        chosen = self.rule.parts[variable] if parts is None else parts
        values = self._values([part.condition for part in chosen], variable, row, events)
        return _are_true(values, len(events))

    def truths_of_others(self, variable: str, row: I64, events: pa.Table) -> Mask | None:
        """Return the same for events of other keys; None: a part reads values that such an event lacks."""
        lowered = [part.condition for part in self.rule.parts[variable]]
        names = {part.name for of in lowered for part in walk(of.expression) if isinstance(part, Column)}
        if any(of.after_take for of in lowered) or not names <= set(events.column_names):
            return None
        columns = {name: events.column(name) for name in names}
        rows = np.broadcast_to(row, (len(events), len(row)))
        return _are_true(self._evaluated(lowered, columns, rows), len(events))

    def failed(self, variable: str, row: I64, event: int) -> tuple[Failed, ...]:
        """Return the parts of the condition of `variable` that are not TRUE for a run and an event."""
        one = np.array([event])
        parts = self.rule.parts[variable]
        is_true = self.truths(variable, row, one)[:, 0]
        return tuple(
            self._failed(number, part, variable, row, one)
            for number, part in enumerate(parts)
            if not is_true[number]
        )

    def _failed(self, number: int, part: ConditionPart, variable: str, row: I64, event: I64) -> Failed:
        lowered = [*part.values, *part.sides, part.condition]
        known = [_of(vector) for vector in self._values(lowered, variable, row, event)]
        n = len(part.values)
        values = {
            show_expression(of.written): shown_value(value, of.written.type)
            for of, value in zip(part.values, known, strict=False)
        }
        sides = known[n : n + len(part.sides)]
        place = self._places[variable][number]
        by_leaf = dict(zip([of.written for of in part.values], known, strict=False))
        missing = [leaf for leaf, value in by_leaf.items() if isinstance(leaf, Joined) and value is None]
        no_row = self._missing_row(missing[0], int(event[0])) if missing and known[-1] is None else None
        reason, by, says = why_not_true(part.condition.written, by_leaf, sides, is_null=known[-1] is None)
        if no_row is not None:
            reason, by, says = Reason.ROW, None, no_row
        text = self.text_of(variable, number)
        return Failed(reason, number, text, values, by, says, None if place is None else place.span)

    def text_of(self, variable: str, number: int) -> str:
        """Return a part of the condition of `variable` as it is written in the rule."""
        place = self._places[variable][number]
        written = self.rule.parts[variable][number].condition.written
        return (place and place.text(self._text)) or show_expression(written)

    def _missing_row(self, leaf: Joined, event: int) -> str | None:
        """Return why no row of the table was valid at an event; None: one was, and its column is NULL."""
        rows, table = self._tables[leaf.table]
        assert table.table is not None
        own = self.watched.events
        values = [own.column(key.name)[event].as_py() for key in leaf.keys if isinstance(key, Column)]
        keep = np.ones(len(rows), np.bool_)
        for column, value in zip(table.table.key, values, strict=True):
            keep &= np.array([item == value for item in rows.column(column).to_pylist()], np.bool_)
        of_key = f"`{leaf.table}` for {', '.join(map(str, values))}"
        if not keep.any():
            return f"there is no row of {of_key}"
        if table.is_static:
            return None
        at_us = int(self.watched.time_us[event])
        times = np.asarray(rows.column(table.event_time))[keep]
        if not (times <= at_us).any():
            later = int(times.min())
            return f"the first row of {of_key} came {duration_text(later - at_us)} later"
        gone = deleted(rows, table)[keep]
        place = max(np.flatnonzero(times <= at_us), key=lambda number: (times[number], number))
        return f"the row of {of_key} was deleted at {time_text(int(times[place]))}" if gone[place] else None

    def _values(self, lowered: Sequence[Lowered], variable: str, row: I64, events: I64) -> list[Vector]:
        rows: dict[bool, I64] = {False: np.broadcast_to(row, (len(events), row.shape[-1]))}
        if any(of.after_take for of in lowered):
            number = self.watched.rule.variables.index(variable)
            before = rows[False]
            taken = [
                self.watched.after_take(before[place], number, event)
                for place, event in enumerate(events.tolist())
            ]
            rows[True] = np.stack(taken) if taken else rows[False]
        table = self.watched.events
        names = {part.name for of in lowered for part in walk(of.expression) if isinstance(part, Column)}
        columns = {name: table.column(name).take(pa.array(events)) for name in names}
        found: dict[int, Vector] = {}
        for after_take, of_rows in rows.items():
            places = [place for place, of in enumerate(lowered) if of.after_take == after_take]
            vectors = self._evaluated([lowered[place] for place in places], columns, of_rows)
            found |= dict(zip(places, vectors, strict=True))
        return [found[place] for place in range(len(lowered))]

    def _evaluated(self, lowered: Sequence[Lowered], columns: Mapping[str, Any], rows: I64) -> list[Vector]:
        expressions = [self._with_sets(of.expression, rows) for of in lowered]
        numbers = {
            part.number for whole in expressions for part in walk(whole) if isinstance(part, RegisterRef)
        }
        of_registers = {
            register_column(number): self.watched.register(rows, number) for number in sorted(numbers)
        }
        batch = Vectors(pa.table({"#": pa.array(rows[:, 0]), **columns, **of_registers}))
        return [evaluate(expression, batch) for expression in expressions]

    def _with_sets(self, expression: Expression, rows: I64) -> Expression:
        """Return `expression` with the values of sets in place of `x IN (v.y)`: IN over constants."""
        if not isinstance(expression, Call):
            return expression
        args = tuple(self._with_sets(arg, rows) for arg in expression.args)
        if expression.function != IN_TAKEN or not len(rows):
            return Call(expression.function, args, expression.type)
        operand, values = args
        assert isinstance(values, RegisterRef)
        found, has_null = self.watched.set_of(rows[0], values.number)
        constants = [Literal(value, operand.type) for value in found]  # type: ignore[arg-type]
        constants += [Literal(None, operand.type)] if has_null else []
        if not constants:
            return Literal(False, Type.BOOLEAN)
        return Call("in", (operand, *constants), Type.BOOLEAN)


def _are_true(values: Sequence[Vector], n: int) -> Mask:
    rows = [np.asarray(vector.values & vector.known, np.bool_) for vector in values]
    return np.stack(rows) if rows else np.ones((0, n), np.bool_)


def _of(vector: Vector) -> Any:
    """Return the only value of a vector; NULL is None."""
    if not bool(vector.known[0]):
        return None
    value = vector.values[0]
    return value.as_py() if isinstance(value, pa.Scalar) else value.item()


def shown_value(value: Any, kind: Type) -> Any:
    """Return a value as it is shown: points in time and durations as strings."""
    if value is None or kind not in (Type.TIMESTAMP, Type.INTERVAL):
        return value
    return time_text(value) if kind is Type.TIMESTAMP else duration_text(value)


def duration_text(us: int) -> str:
    """Return a length of time as text."""
    if abs(us) < 1000:
        return f"{us} microsecond{'' if abs(us) == 1 else 's'}"
    return ("minus " if us < 0 else "") + long_duration(abs(us))


def why_not_true(
    written: Expression,
    values: Mapping[Expression, Any],
    sides: Sequence[Any],
    *,
    is_null: bool,
    is_of_window: bool = False,
) -> tuple[Reason, float | int | None, str]:
    """Return why a part of a condition is not TRUE, by how much, and a sentence that says so.

    Parameters
    ----------
    written
        The part.
    values
        What it read.
    sides
        The values of both sides of a comparison; empty: it is not a comparison.
    is_null
        Whether the part is NULL, not FALSE.
    is_of_window
        Whether it is of a HAVING: then windowed values are nothing special.
    """
    missing = [leaf for leaf, value in values.items() if value is None]
    windowed = [leaf for leaf in values if isinstance(leaf, Windowed) and not is_of_window]
    if is_null and not windowed:
        names = " and ".join(show_expression(leaf) for leaf in missing) or "the condition"
        return Reason.NULL, None, f"{names} {'are' if len(missing) > 1 else 'is'} NULL"
    shown = [f"{show_expression(leaf)} is {_constant(value, leaf.type)}" for leaf, value in values.items()]
    reason, by, says = Reason.VALUE, None, ""
    if (
        len(sides) == 2
        and None not in sides
        and isinstance(written, Call)
        and written.function in COMPARISONS
    ):
        kind = written.args[0].type
        reason, by, says = _compared(written.function, sides[0], sides[1], kind)
        right = written.args[1]
        if not isinstance(right, Literal) and right not in values and show_expression(right) not in shown:
            shown.append(f"{show_expression(right)} is {_constant(sides[1], kind)}")
    if windowed:
        reason = Reason.WINDOWED
    return reason, by, ", ".join(shown) + (f": {says}" if says else "")


def _compared(function: str, left: Any, right: Any, kind: Type) -> tuple[Reason, float | int | None, str]:
    if kind is Type.STRING:
        if function == "=" and left.strip().casefold() == right.strip().casefold():
            return Reason.CASE, None, "only case or blanks differ"
        if function == "=" and _number(left) is not None and _number(left) == _number(right):
            return Reason.TYPE, None, "the same number, written differently"
        return Reason.VALUE, None, ""
    if kind is Type.BOOLEAN:
        return Reason.VALUE, None, ""
    by = left - right
    amount = duration_text(abs(by)) if kind in (Type.TIMESTAMP, Type.INTERVAL) else f"{abs(by):.12g}"
    if by != by:  # NaN
        return Reason.VALUE, None, ""
    if function == "=":
        return Reason.VALUE, by, f"{amount} too {'large' if by > 0 else 'small'}"
    if by == 0:
        return Reason.VALUE, by, "they are equal"
    return Reason.VALUE, by, f"{amount} too {'large' if function in ('<', '<=') else 'small'}"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _constant(value: Any, kind: Type) -> str:
    if value is None:
        return "NULL"
    if kind is Type.STRING:
        return "'" + str(value).replace("'", "''") + "'"
    if isinstance(value, bool):
        return str(value).upper()
    return f"{value:.12g}" if isinstance(value, float) else str(shown_value(value, kind))


class Place(NamedTuple):
    """Where a part of a condition is written, and the words that say it alone; none: it is not known."""

    span: Span
    words: tuple[Span | str, ...] = ()

    def text(self, source: str) -> str:
        """Return the part as it is written in `source`; empty: it is not known."""
        words = (word if isinstance(word, str) else source[word.start : word.end] for word in self.words)
        return " ".join(" ".join(words).split())


def part_places(rule: WatchedRule, tree: ast.Rule | None) -> dict[str, list[Place | None]]:
    """Return the place of each part of each condition.

    Where the parts do not correspond one to one, as with names of LET, the place is that of the whole
    condition.
    """
    conditions = {
        definition.variable.text: definition.condition
        for definition in (() if tree is None else tree.definitions)
        if definition.condition is not None
    }
    if tree is not None and tree.windowing is not None and tree.where is not None:
        conditions |= dict.fromkeys(rule.parts, tree.where)
    found: dict[str, list[Place | None]] = {}
    for variable, parts in rule.parts.items():
        found[variable] = places_of_parts(conditions.get(variable), len(parts))
    return found


def places_of_parts(condition: ast.Expression | None, n_parts: int) -> list[Place | None]:
    """Return the place of each of `n_parts` parts of a condition, as `part_places` does."""
    if condition is None:
        return [None] * n_parts
    places = [place for term in terms_of(condition) for place in _places_of(term)]
    if len(places) == n_parts:
        return [*places]
    return [Place(condition.span)] * n_parts


def terms_of(condition: ast.Expression) -> list[ast.Expression]:
    """Return what the top-level ANDs of a condition connect."""
    if isinstance(condition, ast.Junction) and condition.operator == "and":
        return [term for part in condition.terms for term in terms_of(part)]
    return [condition]


def _places_of(term: ast.Expression) -> list[Place]:
    """Return the place of a term; of BETWEEN, which is two comparisons, the places of both."""
    if isinstance(term, ast.Between) and not term.negated:
        low, high = (">=", term.low.span), ("<=", term.high.span)
        return [Place(term.span, (term.operand.span, *bound)) for bound in (low, high)]
    return [Place(term.span, (term.span,))]
