"""Which events each rule receives.

A rule can use an event only if one of its predicates holds for it. More is known about a rule with a time
window whose matches all end with an event of known predicates: a match is within the window before its last
event. So an event changes no match if no such last event follows it within the window, unless the window is
still open after the events at hand. For ``a -> b`` with a rare ``b`` this excludes most events, and most of
the runs that would never complete.

In the terms of databases this is a semijoin. CORE (Bucchi et al., "CORE: a Complex Event Recognition Engine",
VLDB 2022) reaches the same goal with a representation in which runs that never complete cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from cep.arrays import I32, I64
from cep.engine.kernels.columns.lookahead import (
    ANY_MASK,
    BEGIN_MASK,
    EVERY_EVENT,
    FINAL_MASK,
    IS_STRICT,
    N_RULE_COLUMNS,
    N_USES,
    SPAN_US,
    Pairs,
    Readers,
    look_ahead,
    most_in_window,
    reversed_by_rule,
)
from cep.engine.kernels.layout import N_RUNS
from cep.engine.order.ordering import OrderedEvents
from cep.engine.state.runs import RunPool
from cep.program.opcodes import Mode, SelectionCode, SkipCode
from cep.program.program import Program, RuleProgram
from cep.program.records import ACCEPT

MAX_PAIRS = 32
"""Rules that an event may be of use to, on average."""


def final_mask(rule: RuleProgram) -> int:
    """Return predicate bits such that the last event of every match has at least one of them; 0: unknown.

    It is also 0 for rules in which events outside of matches matter: limits that count events, absences at
    the start, timeouts, matches that wait for others.
    """
    tables = rule.tables
    if rule.is_timed or rule.needs_every_event or rule.has_closing or rule.span_us < 0:
        return 0
    if rule.selection == SelectionCode.PREFERRED or (
        rule.selection == SelectionCode.ALL and rule.skip != SkipCode.NO_SKIP
    ):
        return 0
    if (tables.state_after_ignore == ACCEPT).any() or _multiplies(rule):
        return 0
    mask = 0
    for variable, after in zip(tables.take_variable, tables.take_after, strict=True):
        successors = tables.after_state[tables.after_ptr[after] : tables.after_ptr[after + 1]]
        if (successors == ACCEPT).any():
            if tables.variable_mask[variable] == 0:
                return 0
            mask |= int(tables.variable_mask[variable])
    return mask


def _multiplies(rule: RuleProgram) -> bool:
    """Return whether a run may become several, so a key may have more runs than events in a window."""
    tables = rule.tables
    goes_on = [
        int((tables.after_state[first:last] != ACCEPT).sum()) for first, last in pairwise(tables.after_ptr)
    ]
    for state, (first, last) in enumerate(pairwise(tables.take_ptr)):
        successors = sum(goes_on[after] for after in tables.take_after[first:last])
        stays = state > 0 and tables.state_mode[state] == Mode.ANY
        if successors + stays > 1:
            return True
    return False


def use_of(rule: RuleProgram) -> I64 | None:
    """Return which events of a key a rule can use (`mark_used`); None: perhaps all of them.

    Rules with clocks count events.
    """
    tables = rule.tables
    if rule.is_timed or (tables.variable_mask == 0).any():
        return None
    takes = slice(tables.take_ptr[0], tables.take_ptr[1])
    begin_mask = np.bitwise_or.reduce(tables.variable_mask[tables.take_variable[takes]])
    use = np.zeros(N_USES, np.uint64)
    use[ANY_MASK], use[BEGIN_MASK] = rule.event_mask, begin_mask
    use[EVERY_EVENT] = rule.needs_every_event
    use[IS_STRICT] = (tables.state_mode[1:] == Mode.STRICT).all()
    return use.view(np.int64)


class Lookahead:
    """The rules of a program for which `final_mask` is known, and how many runs a key may have."""

    def __init__(self, program: Program) -> None:
        masks = [final_mask(rule) for rule in program.rules]
        self.numbers = [number for number, mask in enumerate(masks) if mask]
        self.rules = [program.rules[number] for number in self.numbers]
        self.n_words = len(program.predicates)
        self.scans = np.full((len(self.rules), N_RULE_COLUMNS), -1, np.int64)
        self.scans[:, FINAL_MASK] = np.array([masks[n] for n in self.numbers], np.uint64).view(np.int64)
        self.scans[:, SPAN_US] = [rule.span_us for rule in self.rules]
        of_bit: list[list[int]] = [[] for _ in range(64 * self.n_words)]
        for number, rule in enumerate(self.rules):
            for bit in range(64):
                if rule.event_mask >> bit & 1:
                    of_bit[64 * rule.word + bit].append(number)
        self.bit_ptr = np.concatenate(([0], np.cumsum([len(rules) for rules in of_bit]))).astype(np.int64)
        self.bit_rule = np.array([rule for rules in of_bit for rule in rules], np.int32)
        self.longest_us = max((rule.span_us for rule in self.rules), default=0)
        self.max_runs = min((rule.max_runs for rule in self.rules), default=0)
        # No key has more open runs; None: unknown. Counting them visits all keys.
        self.most_open: int | None = None

    def rows(
        self, bits: I64, order: OrderedEvents, pools: Sequence[RunPool], horizon_us: int
    ) -> dict[int, I64]:
        """Return the places of the events that each rule can use, in order, by the rule's number.

        A rule is absent if look-ahead does not apply to it. The result is empty if a key could exceed MAX
        RUNS, because then even runs that never complete affect which ones are dropped. It is also empty if
        many rules use most events: the gain would be small, and each pair takes sixteen bytes.
        """
        n_events = len(order.rows)
        if not self.rules or n_events == 0:
            return {}
        most = most_in_window(order.codes, order.time_us, self.longest_us)
        if self.most_open is None or self.most_open + most > self.max_runs:
            self.most_open = max(int(pools[number].keys[:, N_RUNS].max(initial=0)) for number in self.numbers)
        self.most_open += most  # each event begins at most one run
        if self.most_open > self.max_runs:
            return {}
        n_rules = len(self.rules)
        readers = Readers(self.scans.copy(), self.bit_ptr, self.bit_rule)
        found = np.zeros(1, np.int64)
        capacity = max(2 * n_events, n_rules)
        parts: list[tuple[I32, I32]] = []
        n_pairs, last = 0, n_events - 1
        while last >= 0:
            pair_rule, pair_row = np.empty(capacity, np.int32), np.empty(capacity, np.int32)
            found[0] = 0
            pairs = Pairs(pair_rule, pair_row, found)
            last = look_ahead(bits, order.codes, order.time_us, readers, horizon_us, last, pairs)
            parts.append((pair_rule[: found[0]], pair_row[: found[0]]))
            n_pairs += int(found[0])
            if n_pairs > MAX_PAIRS * n_events + n_rules:
                return {}
        counts: I64 = np.sum([np.bincount(pair_rule, minlength=n_rules) for pair_rule, _ in parts], axis=0)
        ends = np.cumsum(counts)
        starts: I64 = ends - counts
        rows = np.empty(int(ends[-1]), np.int64)
        for pair_rule, pair_row in reversed(parts):
            reversed_by_rule(pair_rule, pair_row, starts, rows)
        return {
            number: rows[end - count : end]
            for number, end, count in zip(self.numbers, ends, counts, strict=True)
        }
