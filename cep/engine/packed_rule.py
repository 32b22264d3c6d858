"""A rule as the one array that kernels read (`cep.engine.kernels.layout`)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cep.engine.kernels.layout import (
    ALWAYS_WALKS,
    CLOCK,
    CLOSE_US,
    CODE_ARG,
    CODE_OP,
    CODE_SECOND,
    CODE_WIDTH,
    END,
    FENCE_UNTIL,
    FENCE_VARIABLE,
    FENCE_WIDTH,
    GROUP_EVENTS,
    GROUP_LIMIT,
    GROUP_US,
    GROUP_WIDTH,
    GROUPS,
    HAS_FENCES,
    KEEPS,
    LIFT_STATE,
    LIFT_VARIABLE,
    LIFT_WIDTH,
    LOOK_EVENTS,
    LOOK_MEMORY,
    LOOK_US,
    LOOK_WIDTH,
    MAX_RUNS,
    MEMORIES,
    N_SCALARS,
    N_VALUES,
    NODE_REGISTER,
    NONE,
    OPERATION,
    OVERFLOW,
    POPS,
    PUSHED,
    REGISTER,
    SECOND,
    SELECTION,
    SKIP,
    SKIP_REGISTER,
    SPAN_EVENTS,
    SPAN_US,
    STATE_AFTER_SKIP,
    STATE_ALWAYS,
    STATE_BARS,
    STATE_BEGINS,
    STATE_CLOSES,
    STATE_FENCES,
    STATE_GUARDS,
    STATE_HIGH,
    STATE_INTEREST,
    STATE_LIFTS,
    STATE_LIMIT,
    STATE_LIMITS,
    STATE_LOW,
    STATE_MODE,
    STATE_NEXT,
    STATE_TAKES,
    STATE_TIMER,
    STATE_TIMER_AFTERS,
    STATE_TIMER_LENGTH,
    STATE_WIDTH,
    TAKE_AFTERS,
    TAKE_FENCES,
    TAKE_LOOKS,
    TAKE_OPENS,
    TAKE_VARIABLE,
    TAKE_WIDTH,
    TIMEOUTS,
    UPDATE,
    UPDATE_ARG2,
    UPDATE_WIDTH,
    VARIABLE_AFTER_TAKE,
    VARIABLE_CODE,
    VARIABLE_HASH,
    VARIABLE_MASK,
    VARIABLE_NUMBER,
    VARIABLE_UPDATES,
    VARIABLE_WIDTH,
    ZERO_VALID,
)
from cep.engine.runs import n_registers
from cep.program import I64, Code, Program, RuleProgram, RuleTables

_Lists = dict[str, list[int]]
"""`RuleTables` by name, as lists: of tables this small they are several times as fast as arrays."""


def pack_rule(program: Program, rule: RuleProgram) -> I64:
    """Return `rule` as one array. Unsigned words keep their bits."""
    columns: tuple[npt.NDArray[Any], ...] = rule.tables
    tables = {
        name: (column.view(np.int64) if column.dtype == np.uint64 else column).tolist()
        for name, column in zip(RuleTables._fields, columns, strict=True)
    }
    code, code_ptr = _instructions(tables)
    packed = _Packed(_sections(tables, len(code)))
    _put_scalars(packed, program, rule)
    _put_states(packed, tables)
    _put_takes(packed, tables)
    _put_variables(packed, tables)
    packed.put_lists("variables", VARIABLE_CODE, "code", code_ptr[:-1], code_ptr[1:])
    for place, words in zip((CODE_OP, CODE_ARG, CODE_SECOND), zip(*code, strict=True), strict=False):
        packed.put("code", place, words)
    packed.put("afters", 0, tables["after_state"])
    packed.put_references("begins", 0, "variables", tables["begin_variable"])
    packed.put_references("bars", 0, "variables", tables["bar_variable"])
    packed.put_references("guards", 0, "variables", tables["guard_variable"])
    packed.put_references("lifts", LIFT_VARIABLE, "variables", tables["lift_variable"])
    packed.put("lifts", LIFT_STATE, tables["lift_state"])
    packed.put_references("fences", FENCE_VARIABLE, "variables", tables["fence_variable"])
    packed.put_references("fences", FENCE_UNTIL, "variables", tables["fence_until"])
    packed.put("limits", 0, tables["limit_group"])
    packed.put("opens", 0, tables["open_group"])
    packed.put("looks", LOOK_MEMORY, tables["look_memory"])
    packed.put("looks", LOOK_US, tables["look_us"])
    packed.put("looks", LOOK_EVENTS, tables["look_events"])
    packed.put("groups", GROUP_US, tables["group_us"])
    packed.put("groups", GROUP_EVENTS, tables["group_events"])
    packed.put("groups", GROUP_LIMIT, tables["group_limit"])
    packed.put_references("memories", 0, "variables", tables["memory_variable"])
    return np.array(packed.words, np.int64)


def _sections(tables: _Lists, n_instructions: int) -> dict[str, tuple[int, int]]:
    """Return the kinds of records in their order: words in one, and how many there are."""
    return {
        "scalars": (1, N_SCALARS),
        "states": (STATE_WIDTH, len(tables["state_mode"])),
        "takes": (TAKE_WIDTH, len(tables["take_variable"])),
        "variables": (VARIABLE_WIDTH, len(tables["variable_mask"])),
        "code": (CODE_WIDTH, n_instructions),
        "updates": (UPDATE_WIDTH, len(tables["update_op"])),
        "afters": (1, len(tables["after_state"])),
        "begins": (1, len(tables["begin_variable"])),
        "bars": (1, len(tables["bar_variable"])),
        "guards": (1, len(tables["guard_variable"])),
        "lifts": (LIFT_WIDTH, len(tables["lift_variable"])),
        "fences": (FENCE_WIDTH, len(tables["fence_variable"])),
        "limits": (1, len(tables["limit_group"])),
        "opens": (1, len(tables["open_group"])),
        "looks": (LOOK_WIDTH, len(tables["look_memory"])),
        "groups": (GROUP_WIDTH, len(tables["group_us"])),
        "memories": (1, len(tables["memory_variable"])),
    }


class _Section(NamedTuple):
    at: int
    width: int
    end: int


class _Packed:
    """The array in the making: where each kind of records lies, and their words."""

    def __init__(self, sections: dict[str, tuple[int, int]]) -> None:
        self.sections: dict[str, _Section] = {}
        at = 0
        for name, (width, n) in sections.items():
            self.sections[name] = _Section(at, width, at + width * n)
            at += width * n
        self.words = [0] * at

    def put(self, name: str, place: int, values: Sequence[int]) -> None:
        """Write word `place` of every record."""
        if not values:
            return
        section = self.sections[name]
        self.words[section.at + place : section.end : section.width] = values

    def put_references(self, name: str, place: int, referred: str, numbers: Sequence[int]) -> None:
        """Write the addresses of the records of `referred` with these numbers; NONE stays."""
        if not numbers:
            return
        at, width = self.sections[referred].at, self.sections[referred].width
        self.put(name, place, [NONE if number == NONE else at + width * number for number in numbers])

    def put_lists(self, name: str, place: int, listed: str, first: Sequence[int], end: Sequence[int]) -> None:
        """Write where each record's list of `listed` begins and ends."""
        self.put_references(name, place, listed, first)
        self.put_references(name, place + END, listed, end)


def _put_scalars(packed: _Packed, program: Program, rule: RuleProgram) -> None:
    zero_valid = sum(1 << at for at, register in enumerate(rule.registers) if register.starts_at_zero)
    scalars = {
        SPAN_US: rule.span_us,
        CLOSE_US: rule.close_us,
        SELECTION: int(rule.selection),
        SKIP: int(rule.skip),
        SKIP_REGISTER: rule.skip_register,
        MAX_RUNS: rule.max_runs,
        ZERO_VALID: int(np.uint64(zero_valid).astype(np.int64)),
        N_VALUES: len(program.columns),
        OVERFLOW: int(rule.overflow),
        TIMEOUTS: int(rule.timeouts),
        SPAN_EVENTS: rule.span_events,
        CLOCK: REGISTER + n_registers(rule),
        HAS_FENCES: int(len(rule.tables.fence_variable) > 0),
        NODE_REGISTER: rule.node_register,
        ALWAYS_WALKS: int(rule.tables.state_always[1:].any()),
        GROUPS: packed.sections["groups"].at,
        MEMORIES: packed.sections["memories"].at,
    }
    for place, scalar in scalars.items():
        packed.words[place] = scalar


def _put_states(packed: _Packed, tables: _Lists) -> None:
    for place, name in (
        (STATE_MODE, "state_mode"),
        (STATE_INTEREST, "state_interest"),
        (STATE_ALWAYS, "state_always"),
        (STATE_NEXT, "state_next"),
        (STATE_CLOSES, "state_closes"),
        (STATE_AFTER_SKIP, "state_after_skip"),
        (STATE_LOW, "state_low"),
        (STATE_HIGH, "state_high"),
        (STATE_TIMER, "state_timer"),
        (STATE_TIMER_LENGTH, "state_timer_length"),
        (STATE_LIMIT, "state_limit"),
    ):
        packed.put("states", place, tables[name])
    for place, listed, name in (
        (STATE_TAKES, "takes", "take_ptr"),
        (STATE_BEGINS, "begins", "begin_ptr"),
        (STATE_BARS, "bars", "bar_ptr"),
        (STATE_GUARDS, "guards", "guard_ptr"),
        (STATE_LIFTS, "lifts", "lift_ptr"),
        (STATE_FENCES, "fences", "state_fence_ptr"),
        (STATE_LIMITS, "limits", "limit_ptr"),
    ):
        packed.put_lists("states", place, listed, tables[name][:-1], tables[name][1:])
    packed.put_lists("states", STATE_TIMER_AFTERS, "afters", *_afters(tables, "state_timer_after"))


def _put_takes(packed: _Packed, tables: _Lists) -> None:
    packed.put_references("takes", TAKE_VARIABLE, "variables", tables["take_variable"])
    packed.put_lists("takes", TAKE_AFTERS, "afters", *_afters(tables, "take_after"))
    for place, listed, name in (
        (TAKE_FENCES, "fences", "take_fence_ptr"),
        (TAKE_OPENS, "opens", "open_ptr"),
        (TAKE_LOOKS, "looks", "look_ptr"),
    ):
        packed.put_lists("takes", place, listed, tables[name][:-1], tables[name][1:])


def _afters(tables: _Lists, name: str) -> tuple[list[int], list[int]]:
    ptr = tables["after_ptr"]
    return [ptr[after] for after in tables[name]], [ptr[after + 1] for after in tables[name]]


def _put_variables(packed: _Packed, tables: _Lists) -> None:
    packed.put("variables", VARIABLE_NUMBER, range(len(tables["variable_mask"])))
    packed.put("variables", VARIABLE_MASK, tables["variable_mask"])
    packed.put("variables", VARIABLE_HASH, tables["variable_hash"])
    packed.put("variables", VARIABLE_AFTER_TAKE, tables["variable_after_take"])
    ptr = tables["update_ptr"]
    packed.put_lists("variables", VARIABLE_UPDATES, "updates", ptr[:-1], ptr[1:])
    # All but the last part of an update is one word: a load instead of eight.
    names = ("update_op", "update_register", "update_arg", "update_column")
    parts = zip(*(tables[name] for name in names), strict=True)
    packed.put(
        "updates", UPDATE, [op | to << 8 | arg << 16 | column + 1 << 24 for op, to, arg, column in parts]
    )
    packed.put("updates", UPDATE_ARG2, tables["update_arg2"])


_OF_TWO = frozenset(
    {
        *(Code.ADD_I, Code.SUB_I, Code.MUL_I, Code.MOD_I, Code.ADD_F, Code.SUB_F, Code.MUL_F, Code.DIV_F),
        *(Code.MOD_F, Code.EQ_I, Code.LT_I, Code.LE_I, Code.EQ_F, Code.LT_F, Code.LE_F, Code.AND, Code.OR),
        *(Code.COALESCE, Code.MIN_OF_I, Code.MIN_OF_F, Code.MAX_OF_I, Code.MAX_OF_F, Code.POWER_F),
        Code.SELECT,  # of three: the first is always in memory
    }
)
_WITH_ARG = frozenset({Code.DATE_PART, Code.DATE_TRUNC, Code.FLOOR_DIV, Code.SCALE, Code.ROUND_F})


def _instructions(tables: _Lists) -> tuple[list[list[int]], list[int]]:
    """Return the code with each value that the next operation computes with pushed by that operation.

    Also returns the new row pointers. A comparison with what the run has taken is one instruction, not three.
    """
    code: list[list[int]] = []  # op, arg, second arg
    ends = [0]
    for first, last in pairwise(tables["code_ptr"]):
        begin = len(code)
        for op, arg in zip(tables["code_op"][first:last], tables["code_arg"][first:last], strict=True):
            n_pushes = 0  # of the last instructions that only push
            while n_pushes < min(2, len(code) - begin) and code[-1 - n_pushes][0] >> OPERATION == 0:
                n_pushes += 1
            is_of_two = op in _OF_TWO
            if op <= Code.REGISTER:
                keeps = KEEPS if len(code) > begin else 0  # at first there is nothing on top
                code.append([op + 1 | keeps, arg, 0])
            elif op in _WITH_ARG or n_pushes == 0:
                code.append([op << OPERATION | (POPS if is_of_two else 0), arg, 0])
            elif not is_of_two:
                code[-1][0] |= op << OPERATION
            elif n_pushes == 1:  # what was on top is the other operand
                code[-1][0] = code[-1][0] & ~KEEPS | op << OPERATION
            else:
                second, second_arg, _ = code.pop()
                code[-1][0] |= (second & PUSHED) << SECOND | op << OPERATION
                code[-1][2] = second_arg
        ends.append(len(code))
    return code, ends
