"""The state of a matcher as matrices that may be changed: `regrouping` and `other_rules` work on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from cep.arrays import I64, Mask
from cep.engine.kernels import layout as at
from cep.engine.kernels.event_nodes import compact_nodes, mark_nodes
from cep.engine.state.packing import packed
from cep.engine.state.sections import (
    RuleSection,
    SharedSection,
    StateSections,
    TableSection,
    WindowSection,
    fitted,
)
from cep.engine.state.strings import Cells, StringPool
from cep.engine.windows.kernels import layout as windows
from cep.expression import Type
from cep.program.identity import fingerprints_in
from cep.program.program import Program, RuleProgram
from cep.program.window_functions import Kept


@dataclass
class OpenRule:
    """The state of one rule as matrices; see `RuleSection`."""

    rule: RuleProgram
    section: RuleSection
    keys: I64
    rows: I64
    until: I64
    nodes: I64

    @classmethod
    def of(cls, rule: RuleProgram, section: RuleSection) -> OpenRule:
        """Return the state in a section."""
        parts = (section.keys, section.rows, section.suppressed_until, section.nodes)
        return cls(rule, section, *(part.matrix() for part in parts))

    def stored(self, counters: tuple[int, ...]) -> RuleSection:
        """Return the section for storage, with these counters."""
        return replace(
            self.section,
            counters=counters,
            keys=packed(self.keys),
            rows=packed(self.rows),
            suppressed_until=packed(self.until),
            nodes=packed(self.nodes),
        )

    @property
    def n_runs(self) -> I64:
        """The number of runs of each key."""
        return self.keys[:, 0]

    def links(self) -> Iterator[I64]:
        """Yield the registers that lead to nodes, in place: of each run 1 + its last node, or 0."""
        registers = [number for number, of in enumerate(self.rule.registers) if of.values is not None]
        registers += [self.rule.node_register] if self.rule.node_register >= 0 else []
        for number in registers:
            yield self.rows[:, at.REGISTER - at.STATE + number]

    def texts(self) -> Cells:
        """Return the cells that hold codes of strings, in place."""
        known = self.rows[:, at.VALID - at.STATE]
        found = [
            (self.rows[:, at.REGISTER - at.STATE + number], known >> number & 1 != 0)
            for number, register in enumerate(self.rule.registers)
            if register.type is Type.STRING
        ]
        sets = [
            at.FIRST_SET - (number - 1)
            for number, register in enumerate(self.rule.registers)
            if register.values is Type.STRING
        ]
        return [*found, (self.nodes[:, at.NODE_EVENT], np.isin(self.nodes[:, at.NODE_VARIABLE], sets))]

    @property
    def events(self) -> tuple[I64, Mask]:
        """The cells of nodes, in place, and which of them hold the position of an event."""
        return self.nodes[:, at.NODE_EVENT], self.nodes[:, at.NODE_VARIABLE] >= 0

    def drop_unreached(self) -> None:
        """Drop the nodes that no run reaches."""
        if not len(self.nodes):
            return
        links = list(self.links())
        marks = np.zeros(len(self.nodes), np.uint8)
        for link in links:
            mark_nodes(self.nodes, np.ascontiguousarray(link), marks)
        moved = np.zeros(len(self.nodes) + 1, np.int64)  # by node + 1
        n_nodes = compact_nodes(self.nodes, marks, moved[:-1])
        moved[1:] = moved[:-1] + 1
        moved[0] = 0
        self.nodes = self.nodes[:n_nodes].copy()
        for link in links:
            link[:] = moved[link]


@dataclass
class OpenWindow:
    """The state of one group of windowed columns, or of the windows of window rules.

    `of_keys`: a row for each key. With `entries`, its first number is that of the key's entries. `entries`:
    the entries of rings, key by key; None: there are none. `of_all`: state that belongs to no key; None:
    there is none.
    """

    meaning: bytes
    of_keys: I64
    entries: I64 | None = None
    of_all: I64 | None = None

    @classmethod
    def of(cls, section: WindowSection) -> OpenWindow:
        """Return the state in a section."""
        of_keys, *more = (part.matrix() for part in section.parts)
        if more and of_keys.shape[1] == 1:  # the keys that a table contains, and when the input begins
            return cls(section.meaning, of_keys, of_all=more[0])
        return cls(section.meaning, of_keys, *more)

    def stored(self) -> WindowSection:
        """Return the section."""
        parts = (self.of_keys, self.entries, self.of_all)
        return WindowSection(self.meaning, tuple(packed(part) for part in parts if part is not None))

    def chosen(self, slots: I64) -> OpenWindow:
        """Return the state of some keys."""
        entries = self.entries
        if entries is not None:
            entries = entries[rows_of_slots(slots, self.of_keys[:, 0])]
        return OpenWindow(self.meaning, self.of_keys[slots], entries, self.of_all)


@dataclass
class OpenState:
    """The state of a matcher in matrices that may be changed."""

    program: Program
    shared: SharedSection
    rules: list[OpenRule]
    windows: list[OpenWindow]
    tables: dict[bytes, pa.Table]

    @classmethod
    def of(cls, program: Program, stored: StateSections) -> OpenState:
        """Return the state in sections. Raises StateError as `fitted` does."""
        stored = fitted(stored, program)
        return cls(
            program,
            stored.shared,
            [OpenRule.of(*pair) for pair in zip(program.rules, stored.rules, strict=True)],
            [OpenWindow.of(section) for section in stored.windows],
            {section.meaning: section.rows for section in stored.tables},
        )

    def stored(self, counters: Sequence[tuple[int, ...]]) -> StateSections:
        """Return the sections, with other counters of each rule."""
        return StateSections(
            self.shared,
            tuple(rule.stored(of) for rule, of in zip(self.rules, counters, strict=True)),
            tuple(window.stored() for window in self.windows),
            tuple(TableSection(meaning, rows) for meaning, rows in self.tables.items() if rows.num_rows),
        )

    def texts(self) -> Cells:
        """Return the cells that hold codes of strings, in place."""
        of_rules = [cells for rule in self.rules for cells in rule.texts()]
        of_texts = _windows_of_texts(self.program)
        return of_rules + [
            (window.entries[:, windows.VALUE], window.entries[:, windows.WORD] & 1 != 0)
            for window in self.windows
            if window.entries is not None and of_texts & parts_of(window.meaning)
        ]

    def drop_unreached(self) -> None:
        """Drop the nodes, events and strings that nothing refers to."""
        for rule in self.rules:
            rule.drop_unreached()
        kept = self.shared.kept
        if kept is not None:
            kept = kept.only([cells[holds] for cells, holds in (rule.events for rule in self.rules)])
        strings = StringPool(self.shared.strings)
        strings.keep(self.texts())
        self.shared = replace(
            self.shared,
            kept=kept if kept is not None and len(kept.positions) else None,
            strings=strings.values if len(strings) else None,
        )


def _windows_of_texts(program: Program) -> set[bytes]:
    """Return the meanings of the windowed columns whose entries hold codes of strings."""
    return {
        program.window_meanings[column.name]
        for column in program.windows
        if column.argument_type is Type.STRING and column.function.value.kept is not Kept.COUNTS
    }


def parts_of(meaning: bytes) -> set[bytes]:
    """Return the meanings of the columns that share the state of a window."""
    return set(fingerprints_in(meaning))


def rows_of_slots(slots: I64, lengths: I64) -> I64:
    """Return the rows of some slots in a matrix that contains `lengths[slot]` rows for each slot."""
    n_rows = lengths[slots]
    first = (np.cumsum(lengths) - lengths)[slots]
    of_slot = np.cumsum(n_rows) - n_rows
    rows: I64 = np.repeat(first - of_slot, n_rows) + np.arange(int(n_rows.sum()))
    return rows
