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
        right="if warm is not None and warm.pointer.version == pointer.version:",
        wrong="if warm is not None:",
    ),
    _of_files(
        "a key group is warm again only after its call",
        right="warm = self._warm.pop(group, None)",
        wrong="warm = self._warm.get(group)",
    ),
    _of_files(
        "files that retained state needs are not removed",
        right="first = max((number for number, of in enumerate(found) if of.since <= oldest), default=0)",
        wrong="first = len(found) - 1",
    ),
    _of_files(
        "state of the micro-batch before a snapshot ahead needs the files before it",
        right="if of.since <= oldest), default=0)",
        wrong="if of.batch <= oldest), default=0)",
    ),
    _of_files(
        "a micro-batch that does not call a key group needs the files of the one before it",
        right="if of.since <= oldest), default=0)",
        wrong="if of.batch < oldest), default=0)",
    ),
    _of_files(
        "a snapshot ahead is not used before the call that begins with it",
        right="pointer = replace(ahead.pointer, since=task.batch)",
        wrong="pointer = ahead.pointer",
    ),
    _of_files(
        "the call before a snapshot ahead may be repeated",
        right="self._earlier(pointer, task.group, task.batch - 1)",
        wrong="self._earlier(pointer, task.group, task.batch)",
    ),
    _of_files(
        "a snapshot ahead is of the version that the pointer names",
        right="""        del warm  # its memory is needed
        return self._files.read(pointer), False, None
""",
        wrong="""        return self._files.read(pointer), False, None if warm is None else warm.ahead
""",
    ),
    _of_files(
        "the first record after a snapshot ahead names what static tables contain",
        right="""        chain.begin()
        snapshot = encode_state(chain.matchers, self.n_groups)
        if self._is_small(snapshot):
            return None
""",
        wrong="""        snapshot = encode_state(chain.matchers, self.n_groups)
        if self._is_small(snapshot):
            return None
""",
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
