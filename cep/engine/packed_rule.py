"""A rule as the one array that kernels read (`cep.engine.kernels.layout`)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

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

_Numbers = npt.NDArray[np.int32] | I64


def pack_rule(program: Program, rule: RuleProgram) -> I64:
    """Return `rule` as one array. Unsigned words keep their bits."""
    tables = rule.tables
    code, code_ptr = _instructions(tables)
    packed = _Packed(_sections(tables, len(code)))
    _put_scalars(packed, program, rule)
    _put_states(packed, tables)
    _put_takes(packed, tables)
    _put_variables(packed, tables)
    packed.put_lists("variables", VARIABLE_CODE, "code", _lists(code_ptr))
    for place, words in zip((CODE_OP, CODE_ARG, CODE_SECOND), code.T, strict=True):
        packed.put("code", place, words)
    packed.put("afters", 0, tables.after_state)
    packed.put("begins", 0, packed.addresses("variables", tables.begin_variable))
    packed.put("bars", 0, packed.addresses("variables", tables.bar_variable))
    packed.put("guards", 0, packed.addresses("variables", tables.guard_variable))
    packed.put("lifts", LIFT_VARIABLE, packed.addresses("variables", tables.lift_variable))
    packed.put("lifts", LIFT_STATE, tables.lift_state)
    packed.put("fences", FENCE_VARIABLE, packed.addresses("variables", tables.fence_variable))
    packed.put("fences", FENCE_UNTIL, packed.addresses("variables", tables.fence_until))
    packed.put("limits", 0, tables.limit_group)
    packed.put("opens", 0, tables.open_group)
    packed.put("looks", LOOK_MEMORY, tables.look_memory)
    packed.put("looks", LOOK_US, tables.look_us)
    packed.put("looks", LOOK_EVENTS, tables.look_events)
    packed.put("groups", GROUP_US, tables.group_us)
    packed.put("groups", GROUP_EVENTS, tables.group_events)
    packed.put("groups", GROUP_LIMIT, tables.group_limit)
    packed.put("memories", 0, packed.addresses("variables", tables.memory_variable))
    return packed.words


def _sections(tables: RuleTables, n_instructions: int) -> dict[str, tuple[int, int]]:
    """Return the kinds of records in their order: words in one, and how many there are."""
    return {
        "scalars": (1, N_SCALARS),
        "states": (STATE_WIDTH, len(tables.state_mode)),
        "takes": (TAKE_WIDTH, len(tables.take_variable)),
        "variables": (VARIABLE_WIDTH, len(tables.variable_mask)),
        "code": (CODE_WIDTH, n_instructions),
        "updates": (UPDATE_WIDTH, len(tables.update_op)),
        "afters": (1, len(tables.after_state)),
        "begins": (1, len(tables.begin_variable)),
        "bars": (1, len(tables.bar_variable)),
        "guards": (1, len(tables.guard_variable)),
        "lifts": (LIFT_WIDTH, len(tables.lift_variable)),
        "fences": (FENCE_WIDTH, len(tables.fence_variable)),
        "limits": (1, len(tables.limit_group)),
        "opens": (1, len(tables.open_group)),
        "looks": (LOOK_WIDTH, len(tables.look_memory)),
        "groups": (GROUP_WIDTH, len(tables.group_us)),
        "memories": (1, len(tables.memory_variable)),
    }


@dataclass(frozen=True, slots=True)
class _Section:
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
        self.words = np.zeros(at, np.int64)

    def put(self, name: str, place: int, values: npt.ArrayLike) -> None:
        """Write word `place` of every record."""
        section = self.sections[name]
        self.words[section.at + place : section.end : section.width] = np.asarray(values).astype(np.int64)

    def addresses(self, name: str, numbers: _Numbers) -> I64:
        """Return the addresses of the records with these numbers; NONE stays."""
        section = self.sections[name]
        return np.where(numbers == NONE, NONE, section.at + section.width * numbers.astype(np.int64))

    def put_lists(self, name: str, place: int, listed: str, ends: tuple[_Numbers, _Numbers]) -> None:
        """Write where each record's list of `listed` begins and ends."""
        for at, numbers in zip((place, place + END), ends, strict=True):
            self.put(name, at, self.addresses(listed, numbers))


def _lists(ptr: _Numbers) -> tuple[_Numbers, _Numbers]:
    return ptr[:-1], ptr[1:]


def _put_scalars(packed: _Packed, program: Program, rule: RuleProgram) -> None:
    scalars = {
        SPAN_US: rule.span_us,
        CLOSE_US: rule.close_us,
        SELECTION: int(rule.selection),
        SKIP: int(rule.skip),
        SKIP_REGISTER: rule.skip_register,
        MAX_RUNS: rule.max_runs,
        ZERO_VALID: sum(1 << at for at, register in enumerate(rule.registers) if register.starts_at_zero),
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
        packed.words[place] = np.uint64(scalar % 2**64).astype(np.int64)


def _put_states(packed: _Packed, tables: RuleTables) -> None:
    words: dict[int, npt.NDArray[Any]] = {
        STATE_MODE: tables.state_mode,
        STATE_INTEREST: tables.state_interest,
        STATE_ALWAYS: tables.state_always,
        STATE_NEXT: tables.state_next,
        STATE_CLOSES: tables.state_closes,
        STATE_AFTER_SKIP: tables.state_after_skip,
        STATE_LOW: tables.state_low,
        STATE_HIGH: tables.state_high,
        STATE_TIMER: tables.state_timer,
        STATE_TIMER_LENGTH: tables.state_timer_length,
        STATE_LIMIT: tables.state_limit,
    }
    for place, values in words.items():
        packed.put("states", place, values)
    for place, listed, ptr in (
        (STATE_TAKES, "takes", tables.take_ptr),
        (STATE_BEGINS, "begins", tables.begin_ptr),
        (STATE_BARS, "bars", tables.bar_ptr),
        (STATE_GUARDS, "guards", tables.guard_ptr),
        (STATE_LIFTS, "lifts", tables.lift_ptr),
        (STATE_FENCES, "fences", tables.state_fence_ptr),
        (STATE_LIMITS, "limits", tables.limit_ptr),
    ):
        packed.put_lists("states", place, listed, _lists(ptr))
    afters = tables.state_timer_after
    packed.put_lists(
        "states", STATE_TIMER_AFTERS, "afters", (tables.after_ptr[afters], tables.after_ptr[afters + 1])
    )


def _put_takes(packed: _Packed, tables: RuleTables) -> None:
    packed.put("takes", TAKE_VARIABLE, packed.addresses("variables", tables.take_variable))
    afters = tables.take_after
    packed.put_lists("takes", TAKE_AFTERS, "afters", (tables.after_ptr[afters], tables.after_ptr[afters + 1]))
    packed.put_lists("takes", TAKE_FENCES, "fences", _lists(tables.take_fence_ptr))
    packed.put_lists("takes", TAKE_OPENS, "opens", _lists(tables.open_ptr))
    packed.put_lists("takes", TAKE_LOOKS, "looks", _lists(tables.look_ptr))


def _put_variables(packed: _Packed, tables: RuleTables) -> None:
    packed.put("variables", VARIABLE_NUMBER, np.arange(len(tables.variable_mask)))
    packed.put("variables", VARIABLE_MASK, tables.variable_mask)
    packed.put("variables", VARIABLE_HASH, tables.variable_hash)
    packed.put("variables", VARIABLE_AFTER_TAKE, tables.variable_after_take)
    packed.put_lists("variables", VARIABLE_UPDATES, "updates", _lists(tables.update_ptr))
    # All but the last part of an update is one word: a load instead of eight.
    columns = (tables.update_op, tables.update_register, tables.update_arg, tables.update_column)
    parts = zip(*(column.tolist() for column in columns), strict=True)
    words = [op | to << 8 | arg << 16 | column + 1 << 24 for op, to, arg, column in parts]
    packed.put("updates", UPDATE, np.array(words, np.int64))
    packed.put("updates", UPDATE_ARG2, tables.update_arg2)


_OF_TWO = frozenset(
    {
        *(Code.ADD_I, Code.SUB_I, Code.MUL_I, Code.MOD_I, Code.ADD_F, Code.SUB_F, Code.MUL_F, Code.DIV_F),
        *(Code.MOD_F, Code.EQ_I, Code.LT_I, Code.LE_I, Code.EQ_F, Code.LT_F, Code.LE_F, Code.AND, Code.OR),
        *(Code.COALESCE, Code.MIN_OF_I, Code.MIN_OF_F, Code.MAX_OF_I, Code.MAX_OF_F, Code.POWER_F),
        Code.SELECT,  # of three: the first is always in memory
    }
)
_WITH_ARG = frozenset({Code.DATE_PART, Code.DATE_TRUNC, Code.FLOOR_DIV, Code.SCALE, Code.ROUND_F})


def _instructions(tables: RuleTables) -> tuple[I64, I64]:
    """Return the code with each value that the next operation computes with pushed by that operation.

    Also returns the new row pointers. A comparison with what the run has taken is one instruction, not three.
    """
    code: list[list[int]] = []  # op, arg, second arg
    ends = [0]
    for first, last in pairwise(tables.code_ptr.tolist()):
        begin = len(code)
        for op, arg in zip(
            tables.code_op[first:last].tolist(), tables.code_arg[first:last].tolist(), strict=True
        ):
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
    return np.array(code, np.int64).reshape(-1, CODE_WIDTH), np.array(ends, np.int64)
