"""Expressions over columns: local predicates of a whole batch, derived columns, measures of matches.

Values are numpy arrays (strings: Arrow arrays) with a mask of the known values, so an event costs
nanoseconds. `cep.expression` defines the meaning of expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeGuard, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64, Mask
from cep.engine.kernels.columns.order import pack_bits
from cep.engine.kernels.functions import compute_rows
from cep.engine.prepare.columns import is_coded, plain, plain_table, whole
from cep.engine.prepare.placement import place_events
from cep.engine.prepare.text_functions import TEXT_FUNCTIONS, matches_pattern
from cep.engine.prepare.text_functions import apply as apply_text
from cep.engine.prepare.versions import columns_of_versions
from cep.expression import (
    Aggregate,
    Call,
    Column,
    Expression,
    Joined,
    Literal,
    RegisterRef,
    RoleTest,
    Type,
    Windowed,
    walk,
)
from cep.program.opcodes import computation_of
from cep.program.program import (
    COUNTED_COLUMN,
    MAX_BITS,
    TIME_COLUMN,
    Program,
    bits_column,
    register_column,
    role_column,
)
from cep.schema.arrow_types import ARROW_TYPES
from cep.schema.stream import Stream
from cep.schema.time_values import END_US, FIRST_US, local_times, times_of_local

_INT64_MIN = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Vector:
    """n values of one type, a bool, int64 or float64 array (STRING: Arrow array), and which are known."""

    values: Any
    known: Mask
    type: Type

    def to_arrow(self) -> pa.Array:
        """Return the values as an Arrow array of `ARROW_TYPES`, unknown ones as NULL."""
        if self.type in (Type.STRING, Type.OPAQUE):
            return self.values
        kind, values = ARROW_TYPES[self.type], self.values
        if is_all(self.known):
            return pa.array(values, kind)
        if self.type is Type.BOOLEAN or values.dtype != _dtype(self.type):
            return pa.array(values, kind, mask=~self.known)
        # As above, without a pass over bytes for each row: 7 instead of 190 us for 250,000.
        known = pa.py_buffer(np.packbits(self.known, bitorder="little"))
        return pa.Array.from_buffers(kind, len(values), [known, pa.py_buffer(np.ascontiguousarray(values))])


def _dtype(kind: Type) -> np.dtype[Any]:
    return np.dtype({Type.BOOLEAN: np.bool_, Type.DOUBLE: np.float64}.get(kind, np.int64))


def all_rows(n_rows: int) -> Mask:
    """Return a read-only mask that holds for every row and takes no memory."""
    return np.broadcast_to(np.True_, n_rows)


def is_all(mask: Mask) -> bool:
    """Return whether `mask` holds for every row. A mask of `all_rows` need not be read for this."""
    return bool(mask[:1].all() if mask.strides == (0,) else mask.all())


def from_arrow(column: pa.Array | pa.ChunkedArray, kind: Type) -> Vector:
    """Return an Arrow column of `ARROW_TYPES` as a vector, without a copy if it has no NULL."""
    column = whole(column)
    known = all_rows(len(column)) if column.null_count == 0 else np.asarray(pc.is_valid(column))
    if kind in (Type.STRING, Type.OPAQUE):
        return Vector(column, known, kind)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(0, pa.int64()).cast(column.type))
    return Vector(column.to_numpy(zero_copy_only=False).astype(_dtype(kind), copy=False), known, kind)


def column_name(node: Column | RegisterRef | RoleTest) -> str:
    """Return the name of the column of a `Vectors` that has the values of `node`."""
    match node:
        case Column(name=name):
            return name
        case RegisterRef(number=number):
            return register_column(number)
        case RoleTest(number=number):
            return role_column(number)
        case _:
            assert_never(node)


class Vectors:
    """Columns of one table as vectors, each converted once.

    Strings may be dictionaries (`columns.is_coded`). A call that depends only on such a column is computed
    once for each string, not for each row.
    """

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.n_rows = table.num_rows
        self.coded = frozenset(field.name for field in table.schema if is_coded(field.type))
        self._vectors: dict[str, Vector] = {}
        self._codes: dict[str, npt.NDArray[np.int32]] = {}

    def vector(self, column: Column | RegisterRef | RoleTest) -> Vector:
        """Return the vector of a column."""
        name = column_name(column)
        if name not in self._vectors:
            self._vectors[name] = from_arrow(plain(self.table.column(name)), column.type)
        return self._vectors[name]

    def known(self, column: Column) -> Mask:
        """Return which values of a column are not NULL."""
        if column.name not in self.coded:
            return self.vector(column).known
        values = whole(self.table.column(column.name))
        return all_rows(self.n_rows) if values.null_count == 0 else np.asarray(pc.is_valid(values))

    def codes(self, name: str) -> npt.NDArray[np.int32]:
        """Return the place of each string of a coded column in its dictionary; for NULL its length."""
        if name not in self._codes:
            values = whole(self.table.column(name))
            codes = (
                pc.fill_null(values.indices, len(values.dictionary)) if values.null_count else values.indices
            )
            self._codes[name] = np.asarray(codes)
        return self._codes[name]


def evaluate(expression: Expression, batch: Vectors) -> Vector:
    """Return the value of `expression` for every row of `batch`; it must not contain an `Aggregate`."""
    if batch.coded and isinstance(expression, Call):
        by_text = _by_text(expression, batch)
        if by_text is not None:
            return by_text
    match expression:
        case Column() | RegisterRef() | RoleTest():
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
        case Call(function=function, args=(text_of, Literal(value=str() as constant))) if (
            function in _STRING_COMPARISONS and text_of.type is Type.STRING
        ):
            text = evaluate(text_of, batch)
            return _from_strings(_STRING_COMPARISONS[function](text.values, pa.scalar(constant)), text.known)
        case Call(function="from_utc_timestamp" | "to_utc_timestamp", args=(time_of, Literal(value=zone))):
            return _in_zone(expression.function, evaluate(time_of, batch), str(zone))
        case Call() if computation := computation_of(expression):
            return _computed(expression, tuple(evaluate(arg, batch) for arg in computation.operands))
        case Call():
            return _apply(expression, tuple(evaluate(arg, batch) for arg in expression.args))
        case Aggregate() | Windowed() | Joined():
            raise AssertionError("aggregates are replaced by registers and columns before")
        case _:
            assert_never(expression)


def _by_text(call: Call, batch: Vectors) -> Vector | None:
    """Return the value of a call that depends only on one coded column, computed once for each string."""
    names = {column_name(part) for part in walk(call) if isinstance(part, Column | RegisterRef | RoleTest)}
    if len(names) != 1 or not names <= batch.coded:
        return None
    (name,) = names
    texts = whole(batch.table.column(name)).dictionary
    if len(texts) * _FEW > batch.n_rows:
        return None
    with_null = pa.concat_arrays([texts, pa.nulls(1, texts.type)])
    found = evaluate(call, Vectors(pa.table({name: with_null})))
    codes = batch.codes(name)
    known = all_rows(batch.n_rows) if is_all(found.known) else found.known[codes]
    is_text = call.type in (Type.STRING, Type.OPAQUE)
    return Vector(found.values.take(pa.array(codes)) if is_text else found.values[codes], known, call.type)


_FEW = 4
"""Rows to a text of a dictionary from which on it is worth while to compute by text."""


def _constant(literal: Literal, n_rows: int) -> Vector:
    known = all_rows(n_rows) if literal.value is not None else np.zeros(n_rows, np.bool_)
    if literal.type is Type.STRING:
        scalar = pa.scalar(literal.value, pa.string())
        return Vector(pa.repeat(scalar, n_rows), known, literal.type)
    dtype = {Type.BOOLEAN: np.bool_, Type.DOUBLE: np.float64}.get(literal.type, np.int64)
    return Vector(np.broadcast_to(dtype(literal.value or 0), n_rows), known, literal.type)


def _string_in(text: Vector, values: list[Any]) -> Vector:
    """SQL IN: a NULL among the values makes every miss unknown."""
    strings = pa.array([value for value in values if value is not None], pa.string())
    found = np.asarray(pc.is_in(text.values, value_set=strings))
    known = text.known & (found | all(value is not None for value in values))
    return Vector(found, known, Type.BOOLEAN)


def _from_strings(result: pa.Array, known: Mask) -> Vector:
    if result.null_count:
        result = pc.fill_null(result, False)
    return Vector(np.asarray(result), known, Type.BOOLEAN)


def _apply(call: Call, args: tuple[Vector, ...]) -> Vector:
    function, kind = call.function, call.type
    match function:
        case "and" | "or":
            return _logic(args, strong=function == "or")
        case "not":
            return Vector(~args[0].values, args[0].known, kind)
        case "is_null" | "is_not_null":
            known = args[0].known
            return Vector(known if function == "is_not_null" else ~known, all_rows(len(known)), kind)
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
                values, fits = _arithmetic(function, *(arg.values for arg in args))
            known = known if fits is None else known & fits
            return Vector(values, _in_years(values, known) if kind is Type.TIMESTAMP else known, kind)


def _in_years(times_us: I64, known: Mask) -> Mask:
    """Return which of the known times are in the years 1 to 9999."""
    if not len(times_us) or (times_us.min() >= FIRST_US and times_us.max() < END_US):
        return known
    return np.asarray(known & (times_us >= FIRST_US) & (times_us < END_US))


def _in_zone(function: str, times: Vector, zone: str) -> Vector:
    """Return what the clocks of a zone show at these times, or the times when they show them."""
    column = pa.array(times.values, mask=~_in_years(times.values, times.known))
    found = local_times(column, zone) if function == "from_utc_timestamp" else times_of_local(column, zone)[0]
    vector = from_arrow(found, Type.BIGINT)
    return Vector(vector.values, vector.known, Type.TIMESTAMP)


def _logic(args: tuple[Vector, ...], *, strong: bool) -> Vector:
    """AND (`strong` is False) or OR (True): one strong argument decides, whatever the others are."""
    decided = np.logical_or.reduce([arg.known & (arg.values == strong) for arg in args])
    known = decided | np.logical_and.reduce([arg.known for arg in args])
    return Vector(decided if strong else ~decided, known, Type.BOOLEAN)


def _less(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Mask:
    """Spark's order: NaN is the greatest."""
    if _has_nan(b):
        return np.asarray((a < b) | (np.isnan(b) & ~np.isnan(a)))
    return np.asarray(a < b)


def _equal(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Mask:
    if _has_nan(b):
        return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))
    return np.asarray(a == b)


def _has_nan(values: npt.NDArray[Any]) -> bool:
    if values.dtype != np.float64:
        return False
    return bool(np.isnan(values[:1] if values.strides == (0,) else values).any())


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
    """COALESCE, CASE, LEAST and GREATEST: select one of the arguments for each row."""
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
    """Return `a` where `condition` holds, else `b`; `keep`, if given, where `a` is unknown."""
    if keep is not None:
        condition = condition & a.known
    known = np.where(condition, a.known, b.known)
    if a.type is Type.STRING:
        return Vector(pc.if_else(pa.array(condition), a.values, b.values), known, a.type)
    return Vector(np.where(condition, a.values, b.values), known, a.type)


def _arithmetic(  # noqa: PLR0912 - a case for each kind of column
    function: str, a: npt.NDArray[Any], b: npt.NDArray[Any] | None = None
) -> tuple[npt.NDArray[Any], Mask | None]:
    """Return the values and, if some have no result, which ones do."""
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
            # Dividing back shows an overflow, except for -1, which overflows only with the smallest integer.
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
    """Functions of numbers and of time, by the kernel that also computes them for runs."""
    computation = computation_of(call)
    assert computation is not None
    null = (~np.logical_and.reduce([operand.known for operand in operands])).view(np.uint8)
    cells = np.empty((len(null), len(operands)), np.int64)
    for at, operand in enumerate(operands):
        cells[:, at] = operand.values.view(np.int64)
    flat = cells.reshape(-1)
    compute_rows(int(computation.code), computation.arg, flat, null)
    values = np.ascontiguousarray(cells[:, 0])
    return Vector(values.view(np.float64) if call.type is Type.DOUBLE else values, null == 0, call.type)


def prepare(program: Program, table: pa.Table, stream: Stream | None = None) -> pa.Table:
    """Return the events of `table` in the form that the engine reads: `program.event_schema`.

    `table` has the columns of `stream` (by default the only one) in the types of `ARROW_TYPES`; its event
    time is never NULL. Local predicates become bits, and derived columns are computed. Rows without a key are
    omitted and, if the rules allow it, rows that cannot be part of a match. An event has a row in each
    partition for which it has a key.
    """
    return prepare_rows(program, table, stream or program.stream)[0]


def prepare_rows(program: Program, table: pa.Table, stream: Stream) -> tuple[pa.Table, I64]:
    """Do what `prepare` does; also return the row in `table` of each row's event, in ascending order."""
    if program.is_plain:
        return _prepared(program, stream, Vectors(table), program.key, None)
    placed = place_events(program, plain_table(table), stream)
    return _prepared(program, stream, Vectors(placed.table), (), placed.rows)


def _prepared(
    program: Program, stream: Stream, batch: Vectors, key: tuple[str, ...], events: I64 | None
) -> tuple[pa.Table, I64]:
    """Prepare rows, except those with a NULL in `key`. `events[i]` is the event of row i."""
    time = Column(program.column_of(stream, stream.event_time), Type.TIMESTAMP)
    columns: dict[str, Any] = {TIME_COLUMN: batch.vector(time).values}
    relevant = np.zeros(batch.n_rows, np.bool_) | program.needs_every_event
    for word, bits in enumerate(predicate_words(program.local_predicates(stream), batch)):
        relevant |= bits != 0
        columns[bits_column(word)] = bits
    for name in key:
        relevant &= batch.known(Column(name, program.type_of(name)))
    if program.repeats_events:
        columns[COUNTED_COLUMN] = _first_of_each(events, relevant)
    derived = dict(program.derived)
    of_versions = columns_of_versions(program)
    rows = None if relevant.all() else np.flatnonzero(relevant)
    result = []
    for field in program.event_schema:
        if field.name in columns:
            values = columns[field.name]
            result.append(pa.array(values if rows is None else values[rows], field.type))
            continue
        if field.name in of_versions:
            result.append(of_versions[field.name](batch.n_rows if rows is None else len(rows)))
            continue
        expression = derived.get(field.name) or Column(field.name, program.type_of(field.name))
        seen = program.seen_by(expression, stream)
        if seen is None:
            column = pa.nulls(batch.n_rows, field.type)
        elif isinstance(seen, Column) and _holds(batch.table.schema.field(seen.name).type, field.type):
            column = whole(batch.table.column(seen.name))
        else:
            column = whole(evaluate(seen, batch).to_arrow())
        result.append(plain(column if rows is None else column.take(pa.array(rows))))
    kept = np.arange(batch.n_rows) if rows is None else rows
    return pa.Table.from_arrays(result, schema=program.event_schema), kept if events is None else events[kept]


def _holds(given: pa.DataType, wanted: pa.DataType) -> bool:
    return bool(given == wanted or (is_coded(given) and given.value_type == wanted))


def _first_of_each(events: I64 | None, relevant: Mask) -> Mask:
    """Return which of the relevant rows is the first of its event; `events` are in ascending order."""
    assert events is not None
    first = np.zeros(len(relevant), np.bool_)
    places = np.flatnonzero(relevant)
    of = events[places]
    first[places] = np.concatenate(([True], of[1:] != of[:-1]))[: len(of)]
    return first


BLOCK_ROWS = 1 << 15
"""Predicates are evaluated for this many rows at a time, so that what they share stays in the cache."""


def predicate_words(words: tuple[tuple[Expression, ...], ...], batch: Vectors) -> npt.NDArray[np.int64]:
    """Return one array for each word: bit b of a row is set where predicate b of the word is TRUE."""
    bits = np.zeros((len(words), batch.n_rows), np.int64)
    numbers: dict[Expression, int] = {}
    places = [[_number(predicate, numbers) for predicate in predicates] for predicates in words]
    parts = [(part, _arguments(part, numbers)) for part in numbers]
    truths = np.empty((MAX_BITS, min(BLOCK_ROWS, batch.n_rows)), np.bool_)
    for start in range(0, batch.n_rows, BLOCK_ROWS):
        block = batch if batch.n_rows <= BLOCK_ROWS else Vectors(batch.table.slice(start, BLOCK_ROWS))
        known = _truths(parts, block)
        for word, of_word in enumerate(places):
            assert len(of_word) <= MAX_BITS
            for bit, number in enumerate(of_word):
                truths[bit, : block.n_rows] = known[number]
            pack_bits(truths.view(np.uint8), len(of_word), bits[word, start : start + block.n_rows])
    return bits


def _number(predicate: Expression, numbers: dict[Expression, int]) -> int:
    """Return the number of a predicate; equal ones share it. ANDs and ORs come after their parts."""
    if predicate not in numbers:
        if _connects(predicate):
            for arg in predicate.args:
                _number(arg, numbers)
        numbers[predicate] = len(numbers)
    return numbers[predicate]


def _connects(predicate: Expression) -> TypeGuard[Call]:
    return isinstance(predicate, Call) and predicate.function in ("and", "or")


def _arguments(predicate: Expression, numbers: dict[Expression, int]) -> tuple[int, ...]:
    return tuple(numbers[arg] for arg in predicate.args) if _connects(predicate) else ()


def _truths(parts: list[tuple[Expression, tuple[int, ...]]], batch: Vectors) -> list[Mask]:
    """Return for which rows each part is TRUE. AND and OR only need to know this of their arguments."""
    truths: list[Mask] = []
    for part, args in parts:
        if args:
            assert isinstance(part, Call)
            combine = np.logical_and if part.function == "and" else np.logical_or
            truths.append(reduce(combine, [truths[arg] for arg in args]))
        else:
            vector = evaluate(part, batch)
            truths.append(vector.values if is_all(vector.known) else vector.values & vector.known)
    return truths
