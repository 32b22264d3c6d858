"""The state of a matcher, converted to changed rules.

    state = changed(before, now, sections, verdicts, begins_us)

Rules that keep their state (`cep.program.changes`) continue with it. All others begin after `begins_us`,
because events up to then were not prepared for them: an absence that missed such an event would be false.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from cep.arrays import I64
from cep.engine.event_time.watermark import START_OF_TIME_US
from cep.engine.kernels import layout as at
from cep.engine.matching.matcher import Matcher
from cep.engine.matching.open_state import OpenRule, OpenState, OpenWindow, parts_of
from cep.engine.state.codec import decode, encode
from cep.engine.state.packing import nothing, packed
from cep.engine.state.runs import n_registers, no_runs, row_width
from cep.engine.state.sections import N_COUNTERS, RuleSection, StateSections, moved, with_names
from cep.engine.state.suppression import never_suppressed
from cep.engine.tables.not_given import not_given
from cep.program.changes import KEPT, Verdict, registers_then
from cep.program.fingerprint import joined_meanings
from cep.program.identity import FINGERPRINT_BYTES, RuleIdentity
from cep.program.program import TIME_COLUMN, Program, RuleProgram


def read_until_us(sections: StateSections) -> int:
    """Return the latest event time in a matcher: that of its waiting events, or its watermark.

    Events that no rule needed may have been later.
    """
    waiting = sections.shared.waiting
    times_us: list[int] = [] if waiting is None else np.asarray(waiting.column(TIME_COLUMN)).tolist()
    return max((sections.shared.watermark_us, *times_us))


def _nothing_read(program: Program) -> StateSections:
    """Return the state of a new matcher. Rows of static tables are not part of it."""
    return decode(Matcher(program, not_given([program])).snapshot())


def begun(program: Program, begins_us: int) -> bytes:
    """Return the state of a matcher of `program` that has read nothing; its rules begin after `begins_us`."""
    sections = _nothing_read(program)
    rules = tuple(replace(rule, begins_us=begins_us) for rule in sections.rules)
    windows = sections.windows
    if not program.has_window_rules:
        begins = packed(np.array([[begins_us]]))
        windows = tuple(replace(window, parts=(*window.parts, begins)) for window in windows)
    return encode(replace(sections, rules=rules, windows=windows), program.fingerprint)


def begun_apart(program: Program, begins_us: Mapping[str, int]) -> bytes:
    """Return the state of a matcher of `program`, without windows, some rules of which begin after a time."""
    sections = _nothing_read(program)
    rules = (replace(rule, begins_us=begins_us.get(rule.name, rule.begins_us)) for rule in sections.rules)
    return encode(replace(sections, rules=tuple(rules)), program.fingerprint)


def changed(
    before: Program,
    now: Program,
    stored: StateSections,
    verdicts: Mapping[str, Verdict],
    begins_us: int,
    reached_us: int = START_OF_TIME_US,
) -> bytes:
    """Convert the state of `before` to that of `now`, which takes it over (`Changes.taken_from`).

    Rules with patterns that begin see the events after `begins_us`. Window rules that begin report windows
    that end after `reached_us`; only a state to which corrections return has reached less.

    Raises StateError: the state is not of `before` (E0701), or is damaged (E0702).
    """
    state = OpenState.of(before, stored)
    then, of_now = before.identity.shared, now.identity.shared
    shared = state.shared
    waiting, kept = shared.waiting, shared.kept
    if waiting is not None:
        waiting = moved(waiting, then, of_now, now, is_of_other_rules=True)
    if kept is not None:
        kept = with_names(kept, then, of_now, now, is_of_other_rules=True) if now.kept_columns else None
    old = {
        rule.rule.name: (rule, identity)
        for rule, identity in zip(state.rules, before.identity.rules, strict=True)
    }
    n_slots = 0 if shared.keys is None else shared.keys.num_rows
    kept_rules = {name for name in old if verdicts[name] in KEPT}
    rules = [
        _going_on(*old[rule.name], rule, identity)
        if rule.name in kept_rules
        else _beginning(rule, identity, n_slots, reached_us if now.has_window_rules else begins_us)
        for rule, identity in zip(now.rules, now.identity.rules, strict=True)
    ]
    tables = set(joined_meanings(now).values())
    found = OpenState(
        now,
        replace(shared, fingerprint=of_now.fingerprint, about=of_now.packed, waiting=waiting, kept=kept),
        rules,
        _windows(state, now, kept_rules, n_slots, begins_us),
        {meaning: rows for meaning, rows in state.tables.items() if meaning in tables},
    )
    found.drop_unreached()
    return encode(found.stored([rule.section.counters for rule in rules]), now.fingerprint)


def _windows(
    state: OpenState, now: Program, kept: set[str], n_slots: int, begins_us: int
) -> list[OpenWindow]:
    """Return the state of the windows of `now`. Those that no rule in `kept` reads begin."""
    if now.has_window_rules:
        return [window for window in state.windows if _is_of_window_rules(window, now)]
    if not now.windows:
        return []
    from cep.engine.windows.windows import Windows  # it loads kernels that other programs do not use

    of_kept = [of for rule, of in zip(now.rules, now.windows_read, strict=True) if rule.name in kept]
    read = frozenset[bytes]().union(*of_kept)
    stored = {window.meaning: window for window in state.windows if read & parts_of(window.meaning)}
    windows = Windows(now.windows)
    windows.set_slots(n_slots)
    found = []
    for ring in windows.stored():
        meaning = b"".join(sorted(now.window_meanings[name] for name in ring.columns))
        begins = OpenWindow(meaning, ring.keys.matrix(), ring.entries.matrix(), np.array([[begins_us]]))
        found.append(stored.get(meaning, begins))
    return found


def _is_of_window_rules(window: OpenWindow, program: Program) -> bool:
    """Return whether a program of window rules has the columns, or the windows, whose state this is."""
    meaning, columns = window.meaning[:FINGERPRINT_BYTES], parts_of(window.meaning[FINGERPRINT_BYTES:])
    if meaning in joined_meanings(program).values():
        return True
    return any(of == meaning and columns <= together for of, together in program.windows_together)


def _beginning(rule: RuleProgram, identity: RuleIdentity, n_slots: int, begins_us: int) -> OpenRule:
    """Return the state of a rule that begins after `begins_us`."""
    runs = no_runs(rule, n_slots)
    section = RuleSection(
        name=rule.name,
        fingerprint=identity.fingerprint,
        about=identity.packed,
        counters=(0,) * N_COUNTERS,
        keys=runs.keys,
        rows=runs.rows,
        suppressed_until=packed(never_suppressed(n_slots if rule.suppresses else 0).reshape(-1, 1)),
        nodes=nothing(at.NODE_WIDTH),
        begins_us=begins_us,
    )
    return OpenRule.of(rule, section)


def _going_on(
    then: OpenRule, identity_then: RuleIdentity, now: RuleProgram, identity: RuleIdentity
) -> OpenRule:
    """Return the state of a rule with what its runs hold where the rule `now` has it."""
    section = replace(then.section, fingerprint=identity.fingerprint, about=identity.packed)
    if now.windowed is not None:  # it has no runs
        return replace(then, rule=now, section=section, rows=np.zeros((0, row_width(now)), np.int64))
    held = registers_then(identity_then, now, identity)
    known = then.rows[:, at.VALID - at.STATE]
    rows = np.zeros((len(then.rows), row_width(now)), np.int64)
    first = at.REGISTER - at.STATE
    rows[:, : at.VALID - at.STATE] = then.rows[:, : at.VALID - at.STATE]
    for number, place in enumerate(held):
        rows[:, first + number] = then.rows[:, first + place]
        rows[:, at.VALID - at.STATE] |= (known >> place & 1) << number
    rows[:, first + n_registers(now) :] = then.rows[:, first + n_registers(then.rule) :]  # clocks
    return replace(then, rule=now, section=section, rows=rows, nodes=_with_sets(then.nodes, held, now))


def _with_sets(nodes: I64, held: Sequence[int], now: RuleProgram) -> I64:
    """Return nodes in which each set has the number of its register in the rule `now`."""
    found = nodes.copy()
    for number, register in enumerate(now.registers):
        if register.values is not None:  # the register before it counts the values
            is_of_set = nodes[:, at.NODE_VARIABLE] == at.FIRST_SET - held[number - 1]
            found[is_of_set, at.NODE_VARIABLE] = at.FIRST_SET - (number - 1)
    return found
