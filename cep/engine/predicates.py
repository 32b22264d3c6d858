"""Expressions over columns: local predicates of a whole batch, derived columns, measures of matches.

Values are numpy arrays with a mask of what is known (strings: Arrow arrays), so one event costs
nanoseconds. The meaning is that of `cep.expression`, shared with the Spark SQL of
`spark_runtime.predicates`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cep.engine.kernels.functions import compute_rows
from cep.engine.placement import place_events
from cep.engine.text_functions import TEXT_FUNCTIONS, matches_pattern
from cep.engine.text_functions import apply as apply_text
from cep.expression import Aggregate, Call, Column, Expression, Literal, Type
from cep.program import (
    ARROW_TYPES,
    COUNTED_COLUMN,
    I64,
    MAX_BITS,
    TIME_COLUMN,
    Program,
    bits_column,
    computation_of,
)
from cep.schema import Stream

Mask = npt.NDArray[np.bool_]
_INT64_MIN = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Vector:
    """n values of one type: bool, int64 or float64 numpy array (STRING: Arrow array), and which are known."""

    values: Any
    known: Mask
    type: Type

    def to_arrow(self) -> pa.Array:
        """Return the values as an Arrow array of `ARROW_TYPES`, unknown ones as NULL."""
        if self.type in (Type.STRING, Type.OPAQUE):
            return self.values
        return pa.array(self.values, ARROW_TYPES[self.type], mask=~self.known)


def from_arrow(column: pa.Array | pa.ChunkedArray, kind: Type) -> Vector:
    """Return an Arrow column of `ARROW_TYPES` as a vector, without a copy where it has no NULL."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    known = np.ones(len(column), np.bool_) if column.null_count == 0 else np.asarray(pc.is_valid(column))
    if kind in (Type.STRING, Type.OPAQUE):
        return Vector(column, known, kind)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(0, pa.int64()).cast(column.type))
    dtype = {Type.BOOLEAN: np.bool_, Type.DOUBLE: np.float64}.get(kind, np.int64)
    return Vector(column.to_numpy(zero_copy_only=False).astype(dtype, copy=False), known, kind)


class Batch:
    """Columns of one table as vectors, converted once each."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.n_rows = table.num_rows
        self._vectors: dict[str, Vector] = {}

    def vector(self, column: Column) -> Vector:
        """Return the vector of a column."""
        if column.name not in self._vectors:
            self._vectors[column.name] = from_arrow(self.table.column(column.name), column.type)
        return self._vectors[column.name]


def evaluate(expression: Expression, batch: Batch) -> Vector:
    """Return the value of `expression` for every row of `batch`; it must hold no `Aggregate`."""
    match expression:
        case Column():
            return batch.vector(expression)
        case Literal():
            return _constant(expression, batch.n_rows)
        case Call(function="like" | "rlike" | "in", args=args) if args[0].type is Type.STRING:
            text = evaluate(args[0], batch)
            values = [arg.value for arg in args[1:] if isinstance(arg, Literal)]
            if expression.function == "in":
                return _string_in(text, values)
            found = matches_pattern if expression.function == "rlike" else pc.match_like
            return _from_strings(found(text.values, str(values[0])), text.known)
        case Call() if computation := computation_of(expression):
            return _computed(expression, tuple(evaluate(arg, batch) for arg in computation.operands))
        case Call():
            return _apply(expression, tuple(evaluate(arg, batch) for arg in expression.args))
        case Aggregate():
            raise AssertionError("aggregates are replaced by registers before")
        case _:
            assert_never(expression)


def _constant(literal: Literal, n_rows: int) -> Vector:
    known = np.full(n_rows, literal.value is not None)
    if literal.type is Type.STRING:
        scalar = pa.scalar(literal.value, pa.string())
        return Vector(pa.repeat(scalar, n_rows), known, literal.type)
    dtype = {Type.BOOLEAN: np.bool_, Type.DOUBLE: np.float64}.get(literal.type, np.int64)
    return Vector(np.full(n_rows, literal.value or 0, dtype), known, literal.type)


def _string_in(text: Vector, values: list[Any]) -> Vector:
    """SQL IN: a NULL among the values makes every miss unknown."""
    strings = pa.array([value for value in values if value is not None], pa.string())
    found = np.asarray(pc.is_in(text.values, value_set=strings))
    known = text.known & (found | all(value is not None for value in values))
    return Vector(found, known, Type.BOOLEAN)


def _from_strings(result: pa.Array, known: Mask) -> Vector:
    return Vector(np.asarray(pc.fill_null(result, False)), known, Type.BOOLEAN)


def _apply(call: Call, args: tuple[Vector, ...]) -> Vector:
    function, kind = call.function, call.type
    match function:
        case "and" | "or":
            return _logic(args, strong=function == "or")
        case "not":
            return Vector(~args[0].values, args[0].known, kind)
        case "is_null" | "is_not_null":
            known = args[0].known
            return Vector(known.copy() if function == "is_not_null" else ~known, np.ones_like(known), kind)
        case "coalesce" | "case" | "least" | "greatest":
            return _choose(function, args)
        case "in":
            return _logic(tuple(_compare("=", args[0], arg) for arg in args[1:]), strong=True)
        case "=" | "<>" | "<" | "<=" | ">" | ">=":
            return _compare(function, args[0], args[1])
        case _ if function in TEXT_FUNCTIONS:
            operands = tuple((arg.values, arg.known, arg.type) for arg in args)
            return Vector(*apply_text(function, kind, operands), kind)
        case _:
            known = np.logical_and.reduce([arg.known for arg in args])
            with np.errstate(all="ignore"):
                values, fits = _arithmetic(function, kind, *(arg.values for arg in args))
            return Vector(values, known if fits is None else known & fits, kind)


def _logic(args: tuple[Vector, ...], *, strong: bool) -> Vector:
    """AND (`strong` False) or OR (True): one strong argument decides, whatever the others are."""
    decided = np.logical_or.reduce([arg.known & (arg.values == strong) for arg in args])
    known = decided | np.logical_and.reduce([arg.known for arg in args])
    return Vector(decided if strong else ~decided, known, Type.BOOLEAN)


def _less(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Mask:
    """Spark's order: NaN is the greatest."""
    if a.dtype == np.float64:
        return np.asarray((a < b) | (np.isnan(b) & ~np.isnan(a)))
    return np.asarray(a < b)


def _equal(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Mask:
    if a.dtype == np.float64:
        return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))
    return np.asarray(a == b)


_STRING_COMPARISONS: Mapping[str, Callable[..., Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def _compare(function: str, a: Vector, b: Vector) -> Vector:
    known = a.known & b.known
    if a.type is Type.STRING:
        return _from_strings(_STRING_COMPARISONS[function](a.values, b.values), known)
    x, y = a.values, b.values
    match function:
        case "=":
            result = _equal(x, y)
        case "<>":
            result = ~_equal(x, y)
        case "<":
            result = _less(x, y)
        case ">":
            result = _less(y, x)
        case "<=":
            result = ~_less(y, x)
        case _:
            result = ~_less(x, y)
    return Vector(result, known, Type.BOOLEAN)


def _choose(function: str, args: tuple[Vector, ...]) -> Vector:
    """COALESCE, CASE, LEAST and GREATEST: pick one of the arguments per row."""
    if function == "case":
        chosen = args[-1]
        for at in range(len(args) - 3, -1, -2):
            condition = args[at]
            chosen = _where(condition.known & condition.values, args[at + 1], chosen)
        return chosen
    chosen = args[0]
    for other in args[1:]:
        if function == "coalesce":
            chosen = _where(chosen.known, chosen, other)
            continue
        a, b = (other, chosen) if function == "least" else (chosen, other)
        better = _compare("<", a, b)
        chosen = _where(~chosen.known | (better.known & better.values), other, chosen, keep=chosen)
    return chosen


def _where(condition: Mask, a: Vector, b: Vector, keep: Vector | None = None) -> Vector:
    """Return `a` where `condition` holds, else `b`; where `a` is unknown and `keep` is given, that."""
    if keep is not None:
        condition = condition & a.known
    known = np.where(condition, a.known, b.known)
    if a.type is Type.STRING:
        return Vector(pc.if_else(pa.array(condition), a.values, b.values), known, a.type)
    return Vector(np.where(condition, a.values, b.values), known, a.type)


def _arithmetic(
    function: str, kind: Type, a: npt.NDArray[Any], b: npt.NDArray[Any] | None = None
) -> tuple[npt.NDArray[Any], Mask | None]:
    """Return the values and, where some have no result, which do."""
    is_float = a.dtype == np.float64
    if b is None:
        match function:
            case "double":
                return a.astype(np.float64), None
            case "negate":
                return -a, None if is_float else a != _INT64_MIN
            case "abs":
                return np.abs(a), None if is_float else a != _INT64_MIN
            case "sqrt":
                return np.sqrt(np.where(a >= 0, a, np.nan)), None
            case _:
                rounded = np.floor(a) if function == "floor" else np.ceil(a)
                fits = (rounded >= -(2.0**63)) & (rounded < 2.0**63)
                return np.where(fits, rounded, 0).astype(np.int64), fits
    match function:
        case "+":
            total = a + b
            return total, None if is_float else ((a ^ total) & (b ^ total)) >= 0
        case "-":
            difference = a - b
            return difference, None if is_float else ((a ^ b) & (a ^ difference)) >= 0
        case "*":
            product = a * b
            if is_float:
                return product, None
            # Dividing back tells an overflow, but for -1, whose only bad partner is the smallest integer.
            divisor = np.where((b == 0) | (b == -1), 1, b)
            ok = (b == 0) | np.where(b == -1, a != _INT64_MIN, product // divisor == a)
            return product, ok & ~((a == -1) & (b == _INT64_MIN))
        case "/":
            return np.divide(a, np.where(b == 0, 1, b)), b != 0
        case _:
            divisor = np.where(b == 0, 1, b)
            if not is_float:  # the smallest integer % -1 traps in hardware
                divisor = np.where(divisor == -1, 1, divisor)
            return np.fmod(a, divisor), b != 0


def _computed(call: Call, operands: tuple[Vector, ...]) -> Vector:
    """Functions of numbers and of time, by the kernel that computes them for runs, too."""
    computation = computation_of(call)
    assert computation is not None
    null = (~np.logical_and.reduce([operand.known for operand in operands])).view(np.uint8)
    cells = np.empty((len(null), len(operands)), np.int64)
    for at, operand in enumerate(operands):
        cells[:, at] = operand.values.view(np.int64)
    flat = cells.reshape(-1)
    compute_rows(int(computation.code), computation.arg, flat, flat.view(np.float64), null)
    values = np.ascontiguousarray(cells[:, 0])
    return Vector(values.view(np.float64) if call.type is Type.DOUBLE else values, null == 0, call.type)


def prepare(program: Program, table: pa.Table, stream: Stream | None = None) -> pa.Table:
    """Return the events of `table` as the engine wants them: `program.event_schema`.

    `table` has the columns of `stream` (of the only one, if it is not given) in the types of `ARROW_TYPES`,
    its event time never NULL. Local predicates become bits, derived columns are computed; rows without a key
    and, where the rules allow it, rows that can take no part in a match are left out. An event has a row in
    each partition that it has a key for.
    """
    stream = stream or program.stream
    if program.is_plain:
        return _prepared(program, stream, Batch(table), program.key, None)
    placed = place_events(program, table, stream)
    return _prepared(program, stream, Batch(placed.table), (), placed.rows)


def _prepared(
    program: Program, stream: Stream, batch: Batch, key: tuple[str, ...], events: I64 | None
) -> pa.Table:
    """Prepare rows; those with a NULL in `key` are left out. `events[i]` says which event row i is of."""
    time = Column(program.column_of(stream, stream.event_time), Type.TIMESTAMP)
    columns: dict[str, Any] = {TIME_COLUMN: batch.vector(time).values}
    relevant = np.zeros(batch.n_rows, np.bool_) | program.needs_every_event
    for word, predicates in enumerate(program.local_predicates(stream)):
        bits = pack_bits([evaluate(predicate, batch) for predicate in predicates], batch.n_rows)
        relevant |= bits != 0
        columns[bits_column(word)] = bits
    for name in key:
        relevant &= batch.vector(Column(name, program.type_of(name))).known
    if program.repeats_events:
        columns[COUNTED_COLUMN] = _first_of_each(events, relevant)
    derived = dict(program.derived)
    rows = None if relevant.all() else np.flatnonzero(relevant)
    result = []
    for field in program.event_schema:
        if field.name in columns:
            values = columns[field.name]
            result.append(pa.array(values if rows is None else values[rows], field.type))
            continue
        expression = derived.get(field.name) or Column(field.name, program.type_of(field.name))
        seen = program.seen_by(expression, stream)
        column = pa.nulls(batch.n_rows, field.type) if seen is None else evaluate(seen, batch).to_arrow()
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        result.append(column if rows is None else column.take(pa.array(rows)))
    return pa.Table.from_arrays(result, schema=program.event_schema)


def _first_of_each(events: I64 | None, relevant: Mask) -> Mask:
    """Return which of the relevant rows is the first of its event; `events` never fall."""
    assert events is not None
    first = np.zeros(len(relevant), np.bool_)
    places = np.flatnonzero(relevant)
    of = events[places]
    first[places] = np.concatenate(([True], of[1:] != of[:-1]))[: len(of)]
    return first


def pack_bits(predicates: list[Vector], n_rows: int) -> npt.NDArray[np.int64]:
    """Return one word per row: bit b is set where predicate b is TRUE."""
    assert len(predicates) <= MAX_BITS
    bits = np.zeros(n_rows, np.uint64)
    for bit, predicate in enumerate(predicates):
        bits |= (predicate.values & predicate.known).astype(np.uint64) << np.uint64(bit)
    return bits.view(np.int64)
