"""The open runs in stored state, as rows for people to read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cep.arrays import I64
from cep.engine.kernels import layout as at
from cep.engine.state.runs import n_registers
from cep.engine.state.sections import RuleSection, StateSections
from cep.engine.state.strings import StringPool
from cep.program.opcodes import SelectionCode
from cep.program.program import Program, RuleProgram


class RunsOfRule(NamedTuple):
    """The open runs of one rule.

    Parameters
    ----------
    rule
        The rule.
    slots : (n,) int64
        For each run, the row of its key in `StateSections.shared.keys`.
    started_us : (n,) int64
        The event time of its first event, microseconds since 1970.
    until_us : (n,) int64
        The event time after which it ends without a match; `layout.NEVER`: no time ends it.
    rows : (n, width) int64
        The runs, with columns as in `layout`.
    strings
        The strings in them.
    """

    rule: RuleProgram
    slots: I64
    started_us: I64
    until_us: I64
    rows: I64
    strings: StringPool

    def waits_for(self, run: int) -> str:
        """Return what a run waits for."""
        return awaited(self.rule, int(self.rows[run, at.STATE]))

    def variables(self, run: int) -> list[str]:
        """Return the variables that the next event of a run may become."""
        return next_variables(self.rule, int(self.rows[run, at.STATE]))

    def values(self, run: int) -> dict[str, object]:
        """Return what a run remembers, by the labels that `cep explain` shows; NULL is None."""
        found: dict[str, object] = {}
        for number, register in enumerate(self.rule.registers):
            if register.label and register.values is None and number != self.rule.node_register:
                cells = self.rows[run : run + 1, at.REGISTER + number].copy()
                known = self.rows[run : run + 1, at.VALID] >> number & 1 != 0
                found[register.label] = self.strings.values_of(register.type, cells, known)[0].as_py()
        return found


def awaited(rule: RuleProgram, state: int) -> str:
    """Return what a run in a state waits for: the variables that its next event may become, or a time."""
    tables = rule.tables
    if state == at.PENDING:
        waits = rule.selection == SelectionCode.PREFERRED
        return "the end of its alternatives" if waits else "its turn"
    parts = next_variables(rule, state)
    parts += ["the end of an absence"] if tables.state_absence[state] >= 0 else []
    parts += ["the end of the window"] if tables.state_closes[state] else []
    parts += ["an event that is not one of its NOT"] if tables.state_after_ignore[state] else []
    return " or ".join(parts)


def next_variables(rule: RuleProgram, state: int) -> list[str]:
    """Return the variables that the next event of a run in a state may become."""
    if state == at.PENDING:
        return []
    takes = rule.tables.take_variable[rule.tables.take_ptr[state] : rule.tables.take_ptr[state + 1]]
    return list(dict.fromkeys(rule.variables[number] for number in takes.tolist()))


def runs_of_rules(program: Program, sections: StateSections) -> Iterator[RunsOfRule]:
    """Yield the open runs of each rule of the program that wrote the sections. Window rules have none."""
    by_name = {section.name: section for section in sections.rules}
    for rule in program.rules:
        if rule.name in by_name and rule.windowed is None and not rule.is_view:
            yield _runs_of(rule, by_name[rule.name], StringPool(sections.shared.strings))


def _runs_of(rule: RuleProgram, section: RuleSection, strings: StringPool) -> RunsOfRule:
    rows = np.zeros((section.rows.n_rows, at.STATE + len(section.rows.low)), np.int64)
    section.rows.fill(rows, at.STATE)
    keys = np.zeros((section.keys.n_rows, at.N_RUNS + len(section.keys.low)), np.int64)
    section.keys.fill(keys, at.N_RUNS)
    started_us = rows[:, at.START_US]
    if rule.is_timed:
        until_us = rows[:, at.REGISTER + n_registers(rule) + at.DEADLINE_US]
    elif rule.span_us >= 0:
        until_us = started_us + rule.span_us
    else:
        until_us = np.full(len(rows), at.NEVER)
    slots = np.repeat(np.arange(len(keys)), keys[:, at.N_RUNS])
    return RunsOfRule(rule, slots, started_us, until_us, rows, strings)


def keys_of(program: Program, sections: StateSections) -> pa.Table:
    """Return the keys that have state, by slot: the columns of PARTITION BY."""
    if sections.shared.keys is None:
        return pa.table({name: [] for name in program.key})
    return sections.shared.keys.select(program.key_columns).rename_columns(program.key)
