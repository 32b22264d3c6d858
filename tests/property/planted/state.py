"""Faults of state in files: of records, pointers, what is warm, what is removed, and of timers by key."""

from __future__ import annotations

from functools import partial

from tests.property.planted.fault import Fault

_fault = partial(Fault, module="tests.property.kept_state")
_of_records = partial(_fault, file="spark_runtime/state/recording.py")
_of_files = partial(_fault, file="spark_runtime/state/files.py")

FAULTS = (
    _fault(
        "a record begins where the given input ends",
        file="spark_runtime/state/pieces.py",
        right="            at = given.start\n",
        wrong="            pass\n",
    ),
    _fault(
        "what is recorded of late input is taken for what was given",
        file="spark_runtime/state/pieces.py",
        right="if not is_same or at + len(part) > len(self.data):",
        wrong="if at + len(part) > len(self.data):",
    ),
    _of_records(
        "a record has the times that were reached",
        right="self._add(_What.ADVANCE if put_beyond is None else _What.ADVANCE_APART, time_us=watermark_us)",
        wrong="pass",
    ),
    _of_records(
        "a record has the events",
        right="self._add(_What.TAKE_IN, number, data=record_parts(events) if data is None else [data])",
        wrong="pass",
    ),
    _fault(
        "a column with some values is written",
        file="spark_runtime/wire/parcels.py",
        right="return _IS_NULL if column.null_count == len(column) else 0",
        wrong="return _IS_NULL",
    ),
    _of_records(
        "a record names what a static table contains now",
        right="if contents != self._contents:",
        wrong="if contents and not self._contents:",
    ),
    _of_records(
        "the first record after a snapshot names what static tables contain",
        right="""self._steps.clear()
        self._contents = {}""",
        wrong="self._steps.clear()",
    ),
    _of_records(
        "events of corrections are repeated as they arrived",
        right="if self._fed is not None and self.is_recording and events.num_rows:",
        wrong="if self.is_recording and events.num_rows:",
    ),
    _of_files(
        "a pointer has all records since the snapshot",
        right="pointer = replace(pointer, records=(*pointer.records, piece))",
        wrong="pointer = replace(pointer, records=(piece,))",
    ),
    _of_files(
        "a warm key group is of the version that the pointer names",
        right="if chain is not None and version == pointer.version:",
        wrong="if chain is not None:",
    ),
    _of_files(
        "a key group is warm again only after its call",
        right="self._warm.pop(group, (None, None))",
        wrong="self._warm.get(group, (None, None))",
    ),
    _of_files(
        "files that retained state needs are not removed",
        right="first = max((number for number, base in enumerate(bases) if base <= oldest), default=0)",
        wrong="first = len(bases) - 1",
    ),
    _of_files(
        "rules in another order read the records of the others by their layout",
        right="if pointer.digest == self._layout.digest:",
        wrong="if pointer:",
    ),
    _fault(
        "each attempt of a task writes its own file",
        file="spark_runtime/state/pieces.py",
        right="found.append(Piece(file, at, sum(map(len, parts)), checksum))",
        wrong="found.append(Piece(file, 0, sum(map(len, parts)), checksum))",
    ),
    _fault(
        "contents of static tables are kept while files of state need them",
        file="spark_runtime/tables/static.py",
        right="if end > oldest or any(span.first <= number < end for number in written)",
        wrong="if end > oldest",
    ),
    Fault(
        "the first deadline of a block of keys follows its runs",
        file="cep/engine/matching/deadlines.py",
        right="self._note(pool, events[at.SLOT, rows])",
        wrong="pass",
    ),
)
