"""From the registers of complete runs to the table of matches."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64, U64
from cep.engine.kernels import layout as at
from cep.engine.kernels.columns.order import hash_values, write_hexadecimal
from cep.engine.order.ordering import hash_column, is_sorted, order_by_time
from cep.engine.prepare.columns import whole
from cep.engine.prepare.predicates import Vectors, evaluate
from cep.engine.state.event_lists import KeptEvents, Nodes, Taken
from cep.engine.state.strings import StringPool
from cep.expression import Aggregate, Column, RegisterRef, walk
from cep.program.program import (
    EVENT,
    EVENT_NUMBER,
    EVENT_VARIABLE,
    MATCH,
    OUTCOME,
    STREAM_COLUMN,
    TIMEOUT,
    Program,
    RuleProgram,
    is_list,
    name_hash,
    register_column,
    widened,
)
from cep.schema.decimals import largest_double
from cep.schema.stream import Stream

_TIMEOUT_HASH = np.uint64(name_hash(TIMEOUT))


def empty_matches(program: Program) -> pa.Table:
    """Return an empty table of matches."""
    return program.match_schema.empty_table()


def build_matches(
    program: Program,
    found: list[list[I64]],
    keys: list[pa.Array],
    strings: StringPool,
    nodes: list[Nodes],
    events: KeptEvents,
) -> pa.Table:
    """Return the matches of all rules (`program.match_schema`) in order of end, start, rule, key and id.

    `found` has a list of rows (`matches` of `cep.engine.kernels`) for each rule; `keys` are the key columns
    by slot; `nodes` lead to the `events` of the matches, for each rule.
    """
    alike: dict[object, list[int]] = {}
    for number, (rule, parts) in enumerate(zip(program.rules, found, strict=True)):
        if parts:
            form = number if rule.node_register >= 0 else (_form(rule), parts[0].shape[1])
            alike.setdefault(form, []).append(number)
    if not alike:
        return empty_matches(program)
    tables = [_table(program, numbers, found, keys, strings, nodes, events) for numbers in alike.values()]
    table = tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()
    rows = _match_order(program, table)
    return table if is_sorted(rows) else table.take(pa.array(rows))


def _form(rule: RuleProgram) -> object:
    """Return the form of a rule: matches of rules of one form are built together."""
    return rule.measures, tuple(register.type for register in rule.registers), rule.is_timed, rule.is_view


def _match_order(program: Program, table: pa.Table) -> I64:
    """Return the rows in order: sorted by their ends; everything else is compared only where ends tie."""
    ends = np.asarray(table.column("match_end").cast(pa.int64()))
    rows = order_by_time(ends)
    ordered = ends[rows]
    tied = np.zeros(len(rows), np.bool_)
    tied[1:] = ordered[1:] == ordered[:-1]
    tied[:-1] |= tied[1:]
    places = np.flatnonzero(tied)
    if len(places):
        names = ["match_end", "match_start", "rule", *program.key, "match_id"]
        names += [EVENT_NUMBER] if program.has_all_rows else []
        ties = table.select(names).take(pa.array(rows[places]))
        order = pc.sort_indices(ties, [(name, "ascending") for name in names])
        rows[places] = rows[places][np.asarray(order)]
    return rows


def _table(
    program: Program,
    numbers: list[int],
    found: list[list[I64]],
    keys: list[pa.Array],
    strings: StringPool,
    nodes: list[Nodes],
    events: KeptEvents,
) -> pa.Table:
    """Return the matches of rules of one form; a rule that reports events is alone."""
    names = [program.rules[number].name for number in numbers]
    hashes = np.array([name_hash(name) for name in names], np.uint64)
    part = np.concatenate([rows for number in numbers for rows in found[number]])
    of_rule = np.repeat(np.arange(len(numbers)), [sum(map(len, found[number])) for number in numbers])
    # Sorted as rows: a match is one row here, and later a value in each of many columns (decision 11).
    by_end = order_by_time(part[:, at.MATCH_END])
    rule, part, of_rule = program.rules[numbers[0]], part.take(by_end, axis=0), of_rule[by_end]
    n = len(part)
    slots = pa.array(part[:, at.MATCH_SLOT])
    key_columns = [column.take(slots) for column in keys]
    columns: dict[str, pa.Array] = {
        "rule": pa.array(names).take(pa.array(of_rule)),
        "match_id": match_ids(hashes[of_rule], key_columns, _of_key(part) if rule.is_view else part),
        "match_start": pa.array(part[:, at.MATCH_START]),
        "match_end": pa.array(part[:, at.MATCH_END]),
        **dict(zip(program.key, key_columns, strict=True)),
    }
    if program.has_timeouts:
        columns[OUTCOME] = pc.if_else(pa.array(part[:, at.MATCH_TIMED_OUT] != 0), TIMEOUT, MATCH)
    batch = Vectors(_register_table(rule, part, strings))
    for name, expression in rule.measures:
        if not is_list(expression):
            columns[name] = evaluate(expression, batch).to_arrow()
    if rule.node_register >= 0:
        taken = nodes[numbers[0]].taken(part[:, at.MATCH_REGISTER + rule.node_register])
        taken_rows = events.rows(taken.positions)
        columns |= _lists(rule, taken, taken_rows, events.columns)
        if rule.all_rows:
            of_match = pa.array(taken.matches)
            n = len(of_match)
            columns = {name: column.take(of_match) for name, column in columns.items()}
            columns[EVENT_NUMBER] = pa.array(taken.numbers)
            columns[EVENT_VARIABLE] = pa.array(rule.variables, pa.string()).take(pa.array(taken.variables))
            columns[EVENT] = _events(program, events.columns.take(pa.array(taken_rows)))
    return pa.Table.from_arrays(
        [
            widened(columns[field.name], field.type) if field.name in columns else pa.nulls(n, field.type)
            for field in program.match_schema
        ],
        schema=program.match_schema,
    )


def _lists(rule: RuleProgram, taken: Taken, rows: I64, events: pa.Table) -> dict[str, pa.Array]:
    """Return the measures that are lists: values of the events taken as a variable, in order."""
    columns = {}
    for name, expression in rule.measures:
        if isinstance(expression, Aggregate):
            assert isinstance(expression.argument, Column)
            members = dict(rule.subsets).get(expression.variable, (expression.variable,))
            chosen = np.isin(taken.variables, [rule.variables.index(name) for name in members])
            values = whole(events.column(expression.argument.name))
            columns[name] = taken.lists(chosen, values.take(pa.array(rows[chosen])))
    return columns


def _events(program: Program, events: pa.Table) -> pa.Array:
    """Return whole events (`Program.event_type`)."""
    if len(program.streams) == 1:
        return _events_of(program, program.stream, events, program.event_type, None)
    stream = np.asarray(whole(events.column(STREAM_COLUMN)))
    parts = [
        _events_of(program, of, events, item.type, pa.array(stream != number))
        for number, (of, item) in enumerate(zip(program.streams, program.event_type, strict=True))
    ]
    return pa.StructArray.from_arrays(parts, fields=list(program.event_type))


def _events_of(
    program: Program, stream: Stream, events: pa.Table, kind: pa.StructType, mask: pa.Array | None
) -> pa.Array:
    """Return the events of one stream, NULL where `mask` is TRUE."""
    columns = [
        _as_reported(whole(events.column(program.column_of(stream, field.name))), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)


def _as_reported(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a prepared column in the type of the events of matches."""
    if pa.types.is_date(kind):
        return values.cast(pa.timestamp("us")).cast(kind)
    if pa.types.is_decimal(kind):
        # Readers refuse what the type cannot represent. In a value that did not pass a reader it is NULL.
        fits = pc.less_equal(pc.abs(values), largest_double((kind.precision, kind.scale)))
        values = pc.if_else(pc.fill_null(fits, False), values, pa.scalar(None, pa.float64()))
    return values.cast(kind)


def _register_table(rule: RuleProgram, part: I64, strings: StringPool) -> pa.Table:
    """Return the registers that measures read (and one column that gives the length)."""
    columns = {"#": pa.array(part[:, at.MATCH_START])}
    scalars = [expression for _, expression in rule.measures if not is_list(expression)]
    read = {node.number for measure in scalars for node in walk(measure) if isinstance(node, RegisterRef)}
    for number in sorted(read):
        cells = np.ascontiguousarray(part[:, at.MATCH_REGISTER + number])
        known = part[:, at.MATCH_VALID] >> number & 1 != 0
        columns[register_column(number)] = strings.values_of(rule.registers[number].type, cells, known)
    return pa.table(columns)


def match_ids(rules: U64, key: list[pa.Array], part: I64) -> pa.Array:
    """Return 128 bits as hexadecimal text for each match: a function of rule, key, events and time.

    `rules` has the hash of each match's rule. A timeout and a match of the same events and time have
    different ids.
    """
    low = part[:, at.MATCH_HASH].astype(np.uint64) ^ rules
    low ^= np.where(part[:, at.MATCH_TIMED_OUT] != 0, _TIMEOUT_HASH, np.uint64(0))
    for column in key:
        hash_column(column, low)
    high = low.copy()
    valid = np.ones(len(low), np.uint8)
    for column in (at.MATCH_START, at.MATCH_END):
        hash_values(np.ascontiguousarray(part[:, column]), valid, high)
    return _hexadecimal(np.stack((high, low), axis=1))


def _of_key(part: I64) -> I64:
    """Return matches of a view with one identity for each key: each replaces the previous one."""
    same = part.copy()
    same[:, [at.MATCH_HASH, at.MATCH_START, at.MATCH_END]] = 0
    return same


def _hexadecimal(words: npt.NDArray[np.uint64]) -> pa.Array:
    """Return each row of 64-bit words as text, without a Python string for each row."""
    n, width = words.shape[0], words.shape[1] * 16
    text = np.empty(n * width, np.uint8)
    write_hexadecimal(words.reshape(-1), text)
    offsets = np.arange(n + 1, dtype=np.int32) * width
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(text))
