"""The state of a key group as one value of Spark's state store: the snapshots of its matchers."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from cep.engine.chains.chain import units_of
from cep.engine.corrections.changed_rules import changed_correctors
from cep.engine.corrections.corrector import Corrector, is_corrected, restored
from cep.engine.corrections.evaluated import Evaluated, OneProgram
from cep.engine.corrections.filled_gaps import Written, filled
from cep.engine.corrections.regrouping import divided_corrector, joined_corrector
from cep.engine.corrections.retained import other_kind
from cep.engine.matching.changed_rules import begun, changed, read_until_us
from cep.engine.matching.matcher import Matcher
from cep.engine.matching.regrouping import GroupsOf, Part, divided, joined
from cep.engine.matching.warmed_rules import warmed
from cep.engine.state.codec import decode, encode, header, other_format
from cep.engine.state.sections import other_rules
from cep.errors import StateError
from cep.program.changes import changes_of
from cep.program.fingerprint import programs_of
from cep.program.program import Program
from cep.rule_set import Corrections, RuleSet

if TYPE_CHECKING:
    from cep.engine.tables.tables import GivenTable

Tables = Mapping[str, "GivenTable"]
"""Static tables, by name."""

_HEADER = struct.Struct("<4sHHI")
_LENGTH = struct.Struct("<Q")
_MAGIC = b"SCKG"
_FORMAT = 3


def is_state(data: bytes | bytearray) -> bool:
    """Return whether a value is the state of a key group, of any version."""
    return data[: len(_MAGIC)] == _MAGIC


def encode_state(matchers: Sequence[Matcher | Corrector], n_groups: int) -> bytes:
    """Return the snapshots of a key group's matchers as one value of Spark's state store."""
    return _encoded([matcher.snapshot() for matcher in matchers], n_groups)


def _encoded(snapshots: Sequence[bytes], n_groups: int) -> bytes:
    parts = [_HEADER.pack(_MAGIC, _FORMAT, len(snapshots), n_groups)]
    for data in snapshots:
        parts += [_LENGTH.pack(len(data)), data]
    return b"".join(parts)


def decode_state(
    data: bytes | bytearray, rules: RuleSet, n_groups: int, tables: Tables | None = None
) -> list[Matcher | Corrector]:
    """Return the matchers whose snapshots `data` contains; `tables` are the static tables.

    Raises StateError: the state belongs to a different number of key groups (E0704), other rules (E0701) or a
    different version (E0703), or is damaged (E0702).
    """
    snapshots = _snapshots_of(data, n_groups)
    corrections, units = rules.corrections, units_of(rules, tables)
    if corrections is not None or any(map(is_corrected, snapshots)):
        # If their number differs, so does some snapshot: `restored` refuses the first that does.
        found = [restored(*pair, corrections, tables) for pair in zip(units, snapshots, strict=False)]
        if len(units) == len(snapshots):
            return found
        raise _damaged("it is of another number of programs")
    of_program = {header(snapshot).fingerprint: snapshot for snapshot in snapshots}
    programs = programs_of(of_program, rules.programs)
    if len(programs) != max(len(of_program), len(rules.programs)):
        then = [decode(snapshot).identity() for snapshot in snapshots]
        raise other_rules(then, [program.identity for program in rules.programs])
    return [
        Matcher.restore(program, _written_by(program, of_program[fingerprint]), tables)
        for fingerprint, program in programs.items()
    ]


def _written_by(program: Program, snapshot: bytes) -> bytes:
    """Return a snapshot for `program` that another program wrote; the programs differ only in the order of
    columns.
    """
    if header(snapshot).fingerprint == program.fingerprint:
        return snapshot
    sections = decode(snapshot)
    shared = replace(sections.shared, fingerprint=program.identity.shared.fingerprint)
    return encode(replace(sections, shared=shared), program.fingerprint)


def _snapshots_of(data: bytes | bytearray, n_groups: int) -> list[bytes]:
    """Return the snapshots in `data`, if it is of this version and of `n_groups` key groups."""
    if len(data) < _HEADER.size or not is_state(data):
        raise _damaged("it is not of spark-cep")
    _, version, _, n_groups_then = _HEADER.unpack_from(data)
    if version != _FORMAT:
        raise other_format(version, _FORMAT)
    if n_groups_then != n_groups:
        raise StateError(
            "E0704",
            f"the checkpoint has {n_groups_then} key groups, this run has {n_groups}",
            f"set spark.sql.shuffle.partitions (or key_groups) to {n_groups_then}, "
            "or start with an empty checkpoint",
        )
    return snapshots_in(data)


def snapshots_in(data: bytes | bytearray) -> list[bytes]:
    """Return the snapshots of the matchers of a key group whose header is sound."""
    snapshots = []
    at = _HEADER.size
    for _ in range(_HEADER.unpack_from(data)[2]):
        end = at + _LENGTH.size
        length = _LENGTH.unpack_from(data, at)[0] if end <= len(data) else len(data)
        if end + length > len(data):
            raise _damaged("it is cut off")
        snapshots.append(bytes(memoryview(data)[end : end + length]))
        at = end + length
    return snapshots


def evaluated_units(rules: RuleSet) -> list[Evaluated]:
    """Return the units of rules with corrections (`units_of`)."""
    units = units_of(replace(rules, corrections=Corrections(1)))
    return [OneProgram(unit) if isinstance(unit, Program) else unit for unit in units]


# ---------------------------------------------------------------- other rules


class Past(NamedTuple):
    """What new rules know of the past, in one key group.

    `data`: what `encode_state` wrote for some programs of the new rules, which have read the past. `rules`:
    the rules that begin with this past; others in these programs do not. `written`: if they ran before and
    fill gaps with corrections, what is written for this.
    """

    data: bytes
    rules: frozenset[str]
    written: Written | None = None


def changed_state(
    data: bytes | None,
    before: RuleSet,
    now: RuleSet,
    n_groups: int,
    begins_us: int,
    past: Past | None = None,
) -> bytes:
    """Convert the state of a key group of the rules `before` to that of the rules `now`.

    Parameters
    ----------
    data
        What `encode_state` wrote; None: the group has no state.
    begins_us
        The latest event time that was read, of any stream and key group. New and changed rules see the events
        after it. Earlier events were not prepared for these rules, even if the watermark has not reached
        them.
    past
        The past of rules that begin with one; None: all begin without one.

    Raises
    ------
    StateError
        The state cannot continue with the rules `now`, or is of other rules than `before` (E0701), the past
        does not end where the state does (E0718), the state was written with corrections and `now` has none,
        or the other way round (E0649), or as for `decode_state`.
    """
    snapshots = [] if data is None else _snapshots_of(data, n_groups)
    changes = changes_of(before.programs, now.programs)
    for refusal in changes.refusals:
        raise StateError(
            "E0701", f"the stored state cannot continue with these rules: {refusal.fact}", refusal.help
        )
    has_corrections = any(map(is_corrected, snapshots)) if snapshots else now.corrections is not None
    if has_corrections != (now.corrections is not None):
        raise other_kind(is_corrected=has_corrections)
    of_past = [] if past is None else _snapshots_of(past.data, n_groups)
    pasts = {header(snapshot).fingerprint: snapshot for snapshot in of_past}
    if has_corrections:
        taken_from = [
            (program, before.programs[source])
            for program, source in zip(now.programs, changes.taken_from, strict=True)
            if source is not None
        ]
        units = (evaluated_units(before), snapshots, evaluated_units(now))
        if past is None or past.written is None:
            of_rules = (pasts, () if past is None else past.rules)
            return _encoded(changed_correctors(*units, taken_from, changes, begins_us, of_rules), n_groups)
        assert now.corrections is not None
        found = changed_correctors(*units, taken_from, changes, begins_us)
        for number, unit in enumerate(units[2]):
            if any(program.fingerprint in pasts for program in unit.programs):
                more = (pasts, past.rules, past.written, now.corrections)
                found[number] = filled(unit, found[number], *more)
        return _encoded(found, n_groups)
    of_program = {header(snapshot).fingerprint: decode(snapshot) for snapshot in snapshots}
    if data is not None and of_program.keys() != {program.fingerprint for program in before.programs}:
        then = [sections.identity() for sections in of_program.values()]
        raise other_rules(then, [program.identity for program in before.programs])
    begins_us = max((begins_us, *map(read_until_us, of_program.values())))
    found = []
    for program, source in zip(now.programs, changes.taken_from, strict=True):
        if source is None or data is None:
            found.append(begun(program, begins_us))
        else:
            then_program = before.programs[source]
            stored = of_program[then_program.fingerprint]
            found.append(changed(then_program, program, stored, changes.verdicts, begins_us))
        if past is not None and program.fingerprint in pasts:
            found[-1] = warmed(program, found[-1], pasts[program.fingerprint], past.rules)
    return _encoded(found, n_groups)


# ---------------------------------------------------------------- another number of key groups


def divided_state(data: bytes, rules: RuleSet, groups_of: Sequence[GroupsOf], n_groups: int) -> list[Part]:
    """Return the part of a key group's state for each of `n_groups` new groups.

    `groups_of` returns the new group of rows, for each program.

    Raises StateError: the state is of other rules (E0701) or of a different version (E0703), or is damaged
    (E0702).
    """
    snapshots = snapshots_in(data)
    parts = []
    if any(map(is_corrected, snapshots)):
        numbers = {id(program): number for number, program in enumerate(rules.programs)}
        for one, snapshot in zip(evaluated_units(rules), snapshots, strict=True):
            of_unit = [groups_of[numbers[id(program)]] for program in one.programs]
            parts.append(divided_corrector(one, snapshot, of_unit, n_groups))
    else:
        by_fingerprint = {
            of.fingerprint: (of, groups) for of, groups in zip(rules.programs, groups_of, strict=True)
        }
        for snapshot in snapshots:
            program, groups = by_fingerprint[header(snapshot).fingerprint]
            parts.append(divided(program, snapshot, groups, n_groups))
    return [
        Part(_encoded([part.data for part in of_group], n_groups), all(part.is_empty for part in of_group))
        for of_group in zip(*parts, strict=True)
    ]


def joined_state(parts: Sequence[Sequence[Matcher | Corrector]], n_groups: int) -> bytes:
    """Merge the state of several key groups into that of one.

    All of these groups have reached the same event time, and their matchers are of the same programs.
    """
    found = []
    for matchers in zip(*parts, strict=True):
        correctors = [matcher for matcher in matchers if isinstance(matcher, Corrector)]
        if correctors:
            found.append(joined_corrector(correctors))
        else:
            program = matchers[0].program
            assert isinstance(program, Program)
            found.append(joined(program, [matcher.snapshot() for matcher in matchers]))
    return _encoded(found, n_groups)


def _damaged(fact: str) -> StateError:
    return StateError(
        "E0702",
        f"the state in the checkpoint is damaged: {fact}",
        "restore the checkpoint as a whole, or start with an empty one",
    )
