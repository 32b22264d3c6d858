"""A rule as the one array that kernels read (`cep.engine.kernels.layout`)."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cep.arrays import I64
from cep.engine.kernels.layout import END, KEEPS, NONE, OPERATION, POPS, PUSHED, REGISTER, SECOND
from cep.engine.state.event_lists import nodes_of_sets
from cep.engine.state.runs import n_registers
from cep.program.opcodes import Code
from cep.program.program import Program, RuleProgram
from cep.program.records import COLUMNS, RECORDS, SCALARS, Kind

_Lists = dict[str, list[int]]
"""`RuleTables` by name, as lists: of tables this small they are several times as fast as arrays."""


class _Section(NamedTuple):
    """Where the records of one kind are."""

    start: int
    width: int
    end: int

    def addresses(self, numbers: Sequence[int]) -> list[int]:
        """Return the addresses of the records with these numbers; NONE stays."""
        start, width = self.start, self.width
        return [NONE if number == NONE else start + width * number for number in numbers]


_KNOWN: dict[int, tuple[I64, ...]] = {}
"""The packed rules of each program, by its `id`, while it exists: a program has no hash."""


def packed_rules(program: Program) -> tuple[I64, ...]:
    """Return the rules of `program`, packed. They are packed once, and only read; see `pack_rule`.

    Each key group has a matcher, and packing would be half of the time that creates one.
    """
    known = _KNOWN.get(id(program))
    if known is None:
        known = _KNOWN[id(program)] = tuple(pack_rule(program, rule) for rule in program.rules)
        weakref.finalize(program, _KNOWN.pop, id(program), None).atexit = False
    return known


def pack_rule(program: Program, rule: RuleProgram) -> I64:
    """Return `rule` as one array: scalars, then the records of each kind. Unsigned words keep their bits."""
    columns: tuple[npt.NDArray[Any], ...] = rule.tables
    tables = {
        name: (column.view(np.int64) if column.dtype == np.uint64 else column).tolist()
        for name, column in zip(COLUMNS, columns, strict=True)
    }
    code, tables["code_ptr"] = _instructions(tables)
    encoded = {
        "code": [[instruction[part] for instruction in code] for part in range(3)],
        "update": [_updates(tables), tables["update_arg2"]],
    }
    sections = _sections(tables, {record: len(words[0]) for record, words in encoded.items()})
    scalars = _scalars(program, rule, sections)
    packed = [scalars[name] for name in SCALARS]
    packed += [0] * (max(section.end for section in sections.values()) - len(packed))
    written = [*_fields(tables, sections)]
    written += [
        (record, place, words) for record, parts in encoded.items() for place, words in enumerate(parts)
    ]
    for record, place, words in written:
        if words:
            section = sections[record]
            packed[section.start + place : section.end : section.width] = words
    return np.array(packed, np.int64)


_COUNTED = {field.record: (name, field.kind is Kind.LIST) for name, field in COLUMNS.items() if field.name}
"""For each kind of records a column that says how many there are, and whether that has one number more."""


def _sections(tables: _Lists, lengths: dict[str, int]) -> dict[str, _Section]:
    """Return where the records of each kind are; `lengths` are the numbers of those that packing creates."""
    sections = {}
    start = len(SCALARS)
    for name, record in RECORDS.items():
        column, has_one_more = _COUNTED[name]
        n_records = lengths.get(name, len(tables[column]) - has_one_more)
        sections[name] = _Section(start, record.width, start + record.width * n_records)
        start = sections[name].end
    return sections


_FIELDS = [
    (name, field.record, RECORDS[field.record].places[field.name], field.kind, field.to)
    for name, field in COLUMNS.items()
    if field.kind not in (Kind.ROWS, Kind.ENCODED)
]
_ADDRESSED = (Kind.REFERENCE, Kind.LIST, Kind.SHARED_LIST)


def _fields(tables: _Lists, sections: dict[str, _Section]) -> Iterator[tuple[str, int, list[int]]]:
    """Yield each field of each kind of records: the kind, the field's place, its value in every record."""
    ptr = sections["after"].addresses(tables["after_ptr"])
    for name, record, place, kind, to in _FIELDS:
        values = tables[name]
        if kind not in _ADDRESSED:
            yield record, place, values
        elif kind is Kind.SHARED_LIST:
            yield record, place, [ptr[row] for row in values]
            yield record, place + END, [ptr[row + 1] for row in values]
        else:
            addresses = sections[to].addresses(values)
            if kind is Kind.REFERENCE:
                yield record, place, addresses
            else:
                yield record, place, addresses[:-1]
                yield record, place + END, addresses[1:]


def _scalars(program: Program, rule: RuleProgram, sections: dict[str, _Section]) -> dict[str, int]:
    zero_valid = sum(1 << at for at, register in enumerate(rule.registers) if register.starts_at_zero)
    return {
        "span_us": rule.span_us,
        "close_us": rule.close_us,
        "selection": int(rule.selection),
        "skip": int(rule.skip),
        "skip_register": rule.skip_register,
        "max_runs": rule.max_runs,
        "zero_valid": int(np.uint64(zero_valid).astype(np.int64)),
        "n_values": len(program.columns),
        "overflow": int(rule.overflow),
        "timeouts": int(rule.timeouts),
        "span_events": rule.span_events,
        "clock": REGISTER + n_registers(rule),
        "has_exclusions": int(len(rule.tables.exclusion_variable) > 0),
        "node_register": rule.node_register,
        "has_sets": int(nodes_of_sets(rule) > 0),
        "nodes_per_take": nodes_of_sets(rule) + (rule.node_register >= 0),
        "always_walks": int(rule.tables.state_always[1:].any()),
        "zero": 0,
        "variables": sections["variable"].start,
        "groups": sections["group"].start,
        "last_variables": sections["last"].start,
    }


def _updates(tables: _Lists) -> list[int]:
    """Return all but one part of each update as one word: one load instead of four."""
    names = ("update_op", "update_register", "update_arg", "update_column")
    parts = zip(*(tables[name] for name in names), strict=True)
    return [op | to << 8 | arg << 16 | column + 1 << 24 for op, to, arg, column in parts]


_OF_TWO = frozenset(
    {
        *(Code.ADD_I, Code.SUB_I, Code.MUL_I, Code.MOD_I, Code.ADD_F, Code.SUB_F, Code.MUL_F, Code.DIV_F),
        *(Code.MOD_F, Code.EQ_I, Code.LT_I, Code.LE_I, Code.EQ_F, Code.LT_F, Code.LE_F, Code.AND, Code.OR),
        *(Code.COALESCE, Code.MIN_OF_I, Code.MIN_OF_F, Code.MAX_OF_I, Code.MAX_OF_F, Code.POWER_F),
        Code.ATAN2_F,
        Code.SELECT,  # of three: the first is always in memory
        Code.DISTANCE_KM,  # of four: the first two are always in memory
    }
)
_WITH_ARG = frozenset(
    {Code.DATE_PART, Code.DATE_TRUNC, Code.FLOOR_DIV, Code.SCALE, Code.ROUND_F, Code.IN_SET_I, Code.IN_SET_F}
)


def _instructions(tables: _Lists) -> tuple[list[list[int]], list[int]]:
    """Return the code with each value that the next operation computes with pushed by that operation.

    Also returns the new row pointers. A comparison with what the run has taken is one instruction, not three.
    """
    code: list[list[int]] = []  # op, arg, second arg
    ends = [0]
    for first, last in pairwise(tables["code_ptr"]):
        begin = len(code)
        for op, arg in zip(tables["code_op"][first:last], tables["code_arg"][first:last], strict=True):
            n_pushes = 0  # the number of last instructions that only push
            while n_pushes < min(2, len(code) - begin) and code[-1 - n_pushes][0] >> OPERATION == 0:
                n_pushes += 1
            is_of_two = op in _OF_TWO
            if op <= Code.REGISTER:
                keeps = KEEPS if len(code) > begin else 0  # at first the stack is empty
                code.append([op + 1 | keeps, arg, 0])
            elif op in _WITH_ARG or n_pushes == 0:
                code.append([op << OPERATION | (POPS if is_of_two else 0), arg, 0])
            elif not is_of_two:
                code[-1][0] |= op << OPERATION
            elif n_pushes == 1:  # the previous top is the other operand
                code[-1][0] = code[-1][0] & ~KEEPS | op << OPERATION
            else:
                second, second_arg, _ = code.pop()
                code[-1][0] |= (second & PUSHED) << SECOND | op << OPERATION
                code[-1][2] = second_arg
        ends.append(len(code))
    return code, ends
