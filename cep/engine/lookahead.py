"""Which events each rule is offered.

An event is of use to a rule only if one of the rule's predicates holds for it. That can be said more sharply
for rules whose matches all end with an event of known predicates, in a window of time: whatever happens
between the first event of a match and its last lies within the window before the last. So an event that no
such last one follows in time, among the events here, changes no match, unless its window is open after them.
For ``a -> b`` with a seldom ``b`` it is most events, and most of the runs that would be opened in vain.

A semijoin, in the terms of databases. CORE (Bucchi et al., "CORE: a Complex Event Recognition Engine", VLDB
2022) reaches the same end by representing runs so that those in vain cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from cep.engine.kernels.layout import N_RUNS
from cep.engine.kernels.lookahead import (
    FINAL_MASK,
    N_RULE_COLUMNS,
    SPAN_US,
    look_ahead,
    most_in_window,
    reversed_by_rule,
)
from cep.engine.ordering import OrderedEvents
from cep.engine.runs import RunPool
from cep.program import ACCEPT, I32, I64, Mode, Program, RuleProgram, SelectionCode, SkipCode

MAX_PAIRS = 32
"""Rules that an event may be of use to, on average."""


def final_mask(rule: RuleProgram) -> int:
    """Return the predicate bits one of which holds for the last event of every match; 0: not known.

    0 also for rules where more than the matches depends on an event: what counts all of them, absences at the
    start, timeouts, matches that wait for others.
    """
    tables = rule.tables
    if rule.is_timed or rule.needs_every_event or rule.has_closing or rule.span_us < 0:
        return 0
    if rule.selection == SelectionCode.PREFERRED or (
        rule.selection == SelectionCode.ALL and rule.skip != SkipCode.NO_SKIP
    ):
        return 0
    if (tables.state_after_skip == ACCEPT).any() or _multiplies(rule):
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
    """Say whether a run may become several, so that a key may have more runs than events in a window."""
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


class Lookahead:
    """The rules of a program of which `final_mask` knows something."""

    def __init__(self, program: Program) -> None:
        masks = [final_mask(rule) for rule in program.rules]
        self.numbers = [number for number, mask in enumerate(masks) if mask]
        self.rules = [program.rules[number] for number in self.numbers]
        self.n_words = len(program.predicates)
        self.tables = np.full((len(self.rules), N_RULE_COLUMNS), -1, np.int64)
        self.tables[:, FINAL_MASK] = np.array([masks[n] for n in self.numbers], np.uint64).view(np.int64)
        self.tables[:, SPAN_US] = [rule.span_us for rule in self.rules]
        of_bit: list[list[int]] = [[] for _ in range(64 * self.n_words)]
        for number, rule in enumerate(self.rules):
            for bit in range(64):
                if rule.event_mask >> bit & 1:
                    of_bit[64 * rule.word + bit].append(number)
        self.bit_ptr = np.concatenate(([0], np.cumsum([len(rules) for rules in of_bit]))).astype(np.int64)
        self.bit_rule = np.array([rule for rules in of_bit for rule in rules], np.int32)
        self.longest_us = max((rule.span_us for rule in self.rules), default=0)
        self.max_runs = min((rule.max_runs for rule in self.rules), default=0)

    def rows(
        self, bits: I64, order: OrderedEvents, pools: Sequence[RunPool], horizon_us: int
    ) -> dict[int, I64]:
        """Return the places, in order, of the events of use to each rule, by its number in the program.

        Rules are missing of which nothing can be said, all of them where a key might have more runs than it
        may: there, runs in vain decide which others are dropped. All are missing, too, where many rules have
        much use for most events: little would be gained, and each pair takes sixteen bytes.
        """
        n_events = len(order.rows)
        if not self.rules or n_events == 0:
            return {}
        n_open = max(int(pools[number].keys[:, N_RUNS].max(initial=0)) for number in self.numbers)
        if n_open + most_in_window(order.codes, order.time_us, self.longest_us) > self.max_runs:
            return {}
        n_rules = len(self.rules)
        tables = self.tables.copy()
        found = np.zeros(1, np.int64)
        capacity = max(2 * n_events, n_rules)
        parts: list[tuple[I32, I32]] = []
        n_pairs, last = 0, n_events - 1
        while last >= 0:
            pair_rule, pair_row = np.empty(capacity, np.int32), np.empty(capacity, np.int32)
            found[0] = 0
            last = look_ahead(
                bits, order.codes, order.time_us, tables, self.bit_ptr, self.bit_rule, horizon_us, last,
                pair_rule, pair_row, found,
            )  # fmt: skip
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
