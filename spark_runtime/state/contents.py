"""The contents of stored state, for `cep state`, `cep why` and `cep diff`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cep.engine.corrections.corrector import fingerprint_of, is_corrected
from cep.engine.corrections.retained import Retained
from cep.engine.state.codec import decode, header
from cep.engine.state.sections import StateSections
from cep.errors import Source, StateError
from cep.program.program import Program
from cep.rule_set import RuleSet
from spark_runtime.event_time.reached import Reached
from spark_runtime.state.snapshots import evaluated_units, snapshots_in
from spark_runtime.storage.sealed import parsing


class StoredProgram(NamedTuple):
    """The state of one program in a key group, or what corrections retain.

    `n_bytes`: the length of its snapshot. `program` and `sections`: the program and its state; None: it is
    what corrections retain.
    """

    n_bytes: int
    program: Program | None
    sections: StateSections | None


class StoredGroup(NamedTuple):
    """The state of a key group.

    - `n_carried`: the bytes in Spark's state store, or in a savepoint.
    - `is_in_files`: whether these only name files.
    """

    group: int
    n_carried: int
    is_in_files: bool
    programs: tuple[StoredProgram, ...]


class StoredState(NamedTuple):
    """What a checkpoint or a savepoint contains.

    - `texts`: the texts of its rules.
    - `rules`: the same, compiled.
    - `reached`: the event time that it has reached.
    - `groups`: the state of each key group, read when it is yielded.
    """

    texts: tuple[Source, ...]
    rules: RuleSet
    reached: Reached
    groups: Iterator[StoredGroup]


def programs_in(data: bytes, rules: RuleSet) -> Iterator[StoredProgram]:
    """Yield the state of each program in a value of `snapshots.encode_state`.

    Raises StateError: it is damaged (E0702), or of an unknown format (E0703).
    """
    with parsing(
        StateError(
            "E0702",
            "the state in the checkpoint is damaged, or of rules that the checkpoint does not have",
            "restore the checkpoint directory as a whole, or start with an empty one",
        )
    ):
        yield from _programs_in(data, rules)


def _programs_in(data: bytes, rules: RuleSet) -> Iterator[StoredProgram]:
    by_fingerprint = {program.fingerprint: program for program in rules.programs}
    snapshots = snapshots_in(data)
    if any(map(is_corrected, snapshots)):
        for unit, snapshot in zip(evaluated_units(rules), snapshots, strict=True):
            fronts = unit.snapshots(Retained.decode(snapshot, fingerprint_of(unit)).front)
            for program, front in zip(unit.programs, fronts, strict=True):
                yield StoredProgram(len(front), program, decode(front))
            yield StoredProgram(len(snapshot) - sum(map(len, fronts)), None, None)
        return
    for snapshot in snapshots:
        program = by_fingerprint[header(snapshot).fingerprint]
        yield StoredProgram(len(snapshot), program, decode(snapshot))
