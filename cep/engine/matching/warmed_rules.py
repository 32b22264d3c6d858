"""The state of a matcher in which some rules begin with a past that another matcher computed.

    state = warmed(program, stored, past, rules)

`stored` is the state of the rules that have run; `past` is that of a matcher of the same program, which read
the past up to the same event time. The rules in `rules` continue with their part of `past`, all others with
theirs of `stored`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pyarrow as pa

from cep.arrays import I64, U64, Mask
from cep.engine.matching.open_state import OpenRule, OpenState, OpenWindow, parts_of, rows_of_slots
from cep.engine.matching.regrouping import all_kept, numbered_together
from cep.engine.order.ordering import hash_column, key_values, places_in
from cep.engine.prepare.columns import whole
from cep.engine.state.codec import decode, encode
from cep.engine.state.runs import no_runs
from cep.engine.state.suppression import never_suppressed
from cep.engine.windows.kernels import layout as windows
from cep.errors import StateError
from cep.program.identity import FINGERPRINT_BYTES
from cep.program.program import TIME_COLUMN, Program


def warmed(program: Program, stored: bytes, past: bytes, rules: Collection[str]) -> bytes:
    """Return the state of `program` in which the rules in `rules` have the past.

    Raises StateError: one of the states is not of `program` (E0701) or is damaged (E0702), or they have not
    reached the same event time (E0718).
    """
    before, warm = OpenState.of(program, decode(stored)), OpenState.of(program, decode(past))
    _require_same_time(before, warm)
    numbers = [number for number, rule in enumerate(program.rules) if rule.name in rules]
    for number in numbers:  # its events are those of the past, which keep their numbers
        before.rules[number].nodes = before.rules[number].nodes[:0]
    pool, n_kept = numbered_together([before, warm])
    slots = _Slots(before.shared.keys, warm.shared.keys, program.key_columns)
    found = OpenState(
        program,
        replace(
            before.shared,
            watermark_us=warm.shared.watermark_us,
            position=max(n_kept, before.shared.position, warm.shared.position),
            waiting=all_waiting(program, before.shared.waiting, warm.shared.waiting),
            keys=slots.keys,
            strings=pool.values if len(pool) else None,
            kept=all_kept([before.shared.kept, warm.shared.kept]),
        ),
        [
            _of_rule(warm.rules[number], slots.of_past)
            if number in numbers
            else _of_rule(rule, slots.of_stored)
            for number, rule in enumerate(before.rules)
        ],
        _windows(before, warm, numbers, slots),
        warm.tables | before.tables,
    )
    found.drop_unreached()
    return encode(found.stored([rule.section.counters for rule in before.rules]), program.fingerprint)


def _require_same_time(before: OpenState, warm: OpenState) -> None:
    """Raise StateError unless both have reached the same event time; a state that has read nothing may."""
    has_begun = before.shared.keys is not None or before.shared.waiting is not None
    if before.shared.watermark_us > warm.shared.watermark_us or (
        has_begun and before.shared.watermark_us != warm.shared.watermark_us
    ):
        raise StateError(
            "E0718",
            "the past that was read for new rules does not end where the state of the others does",
            "run `cep backfill` again",
        )


class _Slots:
    """The slots of the keys of two states in one table of keys.

    `of_stored` and `of_past` contain for each slot the one that the key had, or -1.
    """

    def __init__(self, stored: pa.Table | None, past: pa.Table | None, names: tuple[str, ...]) -> None:
        self.keys = stored if past is None else past
        n_stored = 0 if stored is None else stored.num_rows
        n_past = 0 if past is None else past.num_rows
        of_past = np.arange(n_past)
        if stored is not None and past is not None:
            of_past = places_in(key_values(past, names), key_values(stored, names)).astype(np.int64)
            is_new = of_past < 0
            of_past[is_new] = n_stored + np.arange(int(is_new.sum()))
            self.keys = pa.concat_tables([stored, past.filter(pa.array(is_new))]).combine_chunks()
        self.n = 0 if self.keys is None else self.keys.num_rows
        self.of_stored, self.of_past = np.full(self.n, -1), np.full(self.n, -1)
        self.of_stored[:n_stored] = np.arange(n_stored)
        self.of_past[of_past] = np.arange(n_past)


def _placed(rows: I64, was: I64, empty: I64) -> I64:
    """Return the row of each slot. `was` has the former number of a slot; -1: it is new, and gets `empty`."""
    found = np.repeat(empty, len(was), axis=0)
    found[was >= 0] = rows[was[was >= 0]]
    return found


def _of_rule(rule: OpenRule, was: I64) -> OpenRule:
    """Return the state of a rule with the slots of all keys."""
    of_rule = rule.rule
    rows = rule.rows[rows_of_slots(was[was >= 0], rule.n_runs)]
    keys = _placed(rule.keys, was, no_runs(of_rule, 1).keys.matrix())
    until = rule.until
    if of_rule.suppresses:
        until = _placed(until, was, never_suppressed(1).reshape(-1, 1))
    return OpenRule(of_rule, rule.section, keys, rows, until, rule.nodes)


def _windows(before: OpenState, warm: OpenState, numbers: Collection[int], slots: _Slots) -> list[OpenWindow]:
    """Return the state of the windows: of those that only rules with a past read, that of the past."""
    program = before.program
    others = [number for number in range(len(program.rules)) if number not in numbers]
    stored = {window.meaning: window for window in before.windows}

    def is_read(meaning: bytes) -> bool:
        if program.has_window_rules:
            of_group = meaning[:FINGERPRINT_BYTES]
            return any(program.window_rule_meanings[number] == of_group for number in others)
        return any(program.windows_read[number] & parts_of(meaning) for number in others)

    return [
        _of_window(stored[window.meaning], slots.of_stored)
        if is_read(window.meaning) and window.meaning in stored
        else _of_window(window, slots.of_past)
        for window in warm.windows
    ]


def _of_window(window: OpenWindow, was: I64) -> OpenWindow:
    """Return the state of a window with the slots of all keys."""
    empty = np.zeros((1, window.of_keys.shape[1]), np.int64)
    entries = window.entries
    if entries is None:  # no window of the key is open
        empty[:] = windows.NEVER
    else:
        entries = entries[rows_of_slots(was[was >= 0], window.of_keys[:, 0])]
    return OpenWindow(window.meaning, _placed(window.of_keys, was, empty), entries, window.of_all)


# ---------------------------------------------------------------- events that wait


def all_waiting(program: Program, stored: pa.Table | None, past: pa.Table | None) -> pa.Table | None:
    """Return the waiting events: those of the past, prepared for all rules, and those that it lacks.

    The past lacks an event that can no longer be read.
    """
    if stored is None or past is None:
        return stored if past is None else past
    missing = ~_occurs(_hashes(program, stored), _hashes(program, past))
    return pa.concat_tables([past, stored.filter(pa.array(missing))]).combine_chunks()


def _hashes(program: Program, events: pa.Table) -> U64:
    """Return a hash of what identifies each event: its key, its time and its tie breakers."""
    found = np.zeros(events.num_rows, np.uint64)
    names = dict.fromkeys((TIME_COLUMN, *program.key_columns, *program.tie_columns))
    for name in names:
        hash_column(whole(events.column(name)), found)
    return found


def _occurs(hashes: U64, others: U64) -> Mask:
    """Return which of the hashes occur in `others`; each of the others counts for one hash."""
    values, numbers = np.unique(np.concatenate((hashes, others)), return_inverse=True)
    n_others = np.bincount(numbers[len(hashes) :], minlength=len(values))
    order = np.argsort(numbers[: len(hashes)], kind="stable")
    in_order = numbers[: len(hashes)][order]
    first = np.searchsorted(in_order, in_order)
    found = np.zeros(len(hashes), np.bool_)
    found[order] = np.arange(len(hashes)) - first < n_others[in_order]
    return found
