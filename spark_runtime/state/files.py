"""The state of key groups in files, and in memory as their last calls left it.

The state in memory is a cache of the files that pointers name. If it is missing or of a different version,
it is built from its files, with the same result.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from cep.counts import Split
from cep.engine.tables.not_given import not_given
from cep.rule_set import Corrections, RuleSet
from spark_runtime.state.pieces import Given, Pieces
from spark_runtime.state.pointer import Earlier, Kept, Pointer, Task
from spark_runtime.state.recording import Contents, Layout, RecordedChain, TablesOf, steps_of
from spark_runtime.state.snapshots import Tables, decode_state, encode_state

if TYPE_CHECKING:
    import pyarrow as pa

_LEAST_RECORD_BYTES = 1 << 20
_LEAST_RECORDS = 8
"""No snapshot is due before this many records, whatever their length, if the key group remains in memory.

To write a snapshot takes 10 ns a byte, to repeat a record 8 ns. If many keys are touched, a record is as
long as the snapshot. With a snapshot after each, its events would take twice as long. Eight records are
repeated in less time than their micro-batches took.
"""

_LEAST_GIVEN_BYTES = 1 << 18
"""Input with fewer bytes is sent through the socket."""

AHEAD = "-ahead"
"""Ends the name of a file with a snapshot that was written between two calls."""

_LOOKS = 64
"""Micro-batches from one look for files that are left to the next."""


class Stored(NamedTuple):
    """The state of a key group after a call.

    `value`: what Spark's state store contains. `pointer`: the pointer in it; None: it is the state itself.
    `counts`: the bytes of `value` ("carried"), and of what was written to files: "recorded" in records,
    "written" in snapshots; the number of "snapshots".
    """

    value: bytes
    pointer: Pointer | None
    counts: Split

    @classmethod
    def of(cls, value: bytes, pointer: Pointer | None, ahead: Split | None = None, **written: int) -> Stored:
        """Return the state with its counts. `ahead`: those of a snapshot that was written before."""
        return cls(value, pointer, {**(ahead or {}), "carried": len(value), **written})

    @property
    def n_bytes(self) -> int:
        """The size of the state in bytes, wherever it is: of the last snapshot, and at most half of that for
        what came later.
        """
        pointer = self.pointer
        if pointer is None:
            return len(self.value)
        length = pointer.base.length
        return length + min(pointer.n_record_bytes, max(_LEAST_RECORD_BYTES, length // 2))


def _no_tables(contents: Contents) -> Tables:
    raise AssertionError(contents)


class StateFiles:
    """Writes and reads the state of key groups below a checkpoint.

    `rules` and `n_groups`: whose state the snapshots contain. `tables_of`: returns the contents of static
    tables that records name. Only rules with such tables need it.
    """

    def __init__(self, kept: Kept, rules: RuleSet, n_groups: int, tables_of: TablesOf = _no_tables) -> None:
        self.rules = rules
        self.n_groups = n_groups
        self._kept = kept
        self._tables_of = tables_of
        self._layout = Layout.of(rules)
        self._pieces = Pieces(kept.folder, kept.options)

    def read(self, pointer: Pointer) -> RecordedChain:
        """Return the chain in the state that a pointer names.

        Raises StateError: a file of state (E0702) or of a static table's content (E0713) is missing or
        damaged, or the state is of other rules (`decode_state`).
        """
        data = self._pieces.read(pointer.base)
        if pointer.digest == self._layout.digest:
            return self._repeated(pointer, data, self.rules)
        # The rules are in another order, or prepare events otherwise, or correct other events.
        layout = Layout.decode(self._pieces.read(pointer.layout))
        bound = None if layout.corrections is None else Corrections(*layout.corrections)
        chain = self._repeated(pointer, data, self.rules.with_corrections(bound), layout)
        return self._chain(encode_state(chain.matchers, self.n_groups), self.rules)

    def _repeated(
        self, pointer: Pointer, data: bytes, rules: RuleSet, layout: Layout | None = None
    ) -> RecordedChain:
        chain = self._chain(data, rules)
        for record in self._pieces.read_all(pointer.records):
            chain.repeat(record, layout)
        return chain

    def _chain(self, data: bytes, rules: RuleSet) -> RecordedChain:
        tables = not_given(rules.programs)  # a record names their contents
        matchers = decode_state(data, rules, self.n_groups, tables)
        return RecordedChain(rules, matchers, tables, self._tables_of)

    def give(
        self, pointer: Pointer, task: Task, inputs: Sequence[tuple[int, bytes | pa.Buffer]]
    ) -> tuple[tuple[int, int], list[int]] | None:
        """Write input of a key group to the file of its task, where the owner of its state reads it.

        A record of it must be written anyway. So it is not copied through a socket, too.

        `inputs`: as for `steps_of`. Return the place of what was written and its length, and where each input
        starts in it; None: nothing was written, because nothing large will be recorded like that.
        """
        n_bytes = sum(len(data) for _, data in inputs)
        # A worker does not know whether the snapshot that is due was written ahead.
        is_ours = pointer.digest == self._layout.digest
        if n_bytes < _LEAST_GIVEN_BYTES or not is_ours or not self._pieces.can_map:
            return None
        steps, places = steps_of(inputs)
        start = self._pieces.give(task.file(self._kept.run), steps)
        return (start, sum(map(len, steps))), places

    def given(self, task: Task, start: int, length: int) -> Given:
        """Return what a worker has given."""
        return self._pieces.given(task.file(self._kept.run), start, length)

    def after(
        self,
        pointer: Pointer,
        task: Task,
        chain: RecordedChain,
        given: Given | None = None,
        ahead: Stored | None = None,
    ) -> Stored:
        """Write the input of `chain` since the state of `pointer`, or a snapshot.

        `ahead`: a snapshot of the state of `pointer`, from which the state continues now (`ahead`).
        """
        if ahead is not None:
            assert ahead.pointer is not None
            pointer = replace(ahead.pointer, since=task.batch)
        elif not chain.is_recording or self.is_due(pointer, task):
            chain.begin()
            snapshot = encode_state(chain.matchers, self.n_groups)
            if self._is_small(snapshot):
                self._pieces.write(task.file(self._kept.run))  # an empty file, for `remove_left`
                return Stored.of(snapshot, None)
            return self._whole(snapshot, task, earlier=self._earlier(pointer, task.group, task.batch))
        record = chain.record()
        if record:
            [piece] = self._pieces.write(task.file(self._kept.run), record, given=given)
            pointer = replace(pointer, records=(*pointer.records, piece))
        counts = None if ahead is None else ahead.counts
        return Stored.of(pointer.encode(), pointer, counts, recorded=sum(map(len, record)))

    def ahead(self, pointer: Pointer, task: Task, chain: RecordedChain) -> Stored | None:
        """Write a snapshot that is due between two calls.

        The second call writes its input, as others do, and a pointer that begins with the snapshot. No event
        waits for the snapshot.

        `pointer`: the state of `chain` after the first call, whose task is `task`. Return None: the snapshot
        is so small that the second call writes it to Spark's store.
        """
        chain.begin()
        snapshot = encode_state(chain.matchers, self.n_groups)
        if self._is_small(snapshot):
            return None
        # The first call may be repeated, from the state before it.
        earlier = self._earlier(pointer, task.group, task.batch - 1)
        # Not in the file of the task, which the storage may not be able to extend.
        return self._whole(snapshot, task, AHEAD, earlier)

    def _is_small(self, snapshot: bytes) -> bool:
        return len(snapshot) <= self._kept.inline_bytes // 2

    def _earlier(self, pointer: Pointer, group: int, batch: int) -> tuple[Earlier, ...]:
        """Return the snapshots, up to that of `pointer`, from which the state that Spark retains in
        micro-batch `batch` continues. Remove the files before them.
        """
        oldest = batch - self._kept.n_retained
        found = pointer.snapshots
        # State that Spark retains continues from the last snapshot before it, or from a later one.
        first = max((number for number, of in enumerate(found) if of.since <= oldest), default=0)
        self._pieces.remove_before(group, found[first].batch)
        return found[first:]

    def stored(self, snapshot: bytes, task: Task) -> Stored:
        """Return the state of a group with this snapshot. A large one is written."""
        is_small = len(snapshot) <= self._kept.inline_bytes
        return Stored.of(snapshot, None) if is_small else self._whole(snapshot, task)

    def _whole(
        self, snapshot: bytes, task: Task, ending: str = "", earlier: tuple[Earlier, ...] = ()
    ) -> Stored:
        """Write a snapshot. `ending`: of the name of the file."""
        file = task.file(self._kept.run) + ending
        layout, base = self._pieces.write(file, [self._layout.encode()], [snapshot])
        pointer = Pointer(base, (), layout, self._layout.digest, task.batch, earlier)
        return Stored.of(pointer.encode(), pointer, written=len(snapshot), snapshots=1)

    def is_due(self, pointer: Pointer, task: Task, *, was_warm: bool = True) -> bool:
        """Return whether a key group writes a snapshot after a call, for which no input need be recorded.

        Key groups do so in different micro-batches. One whose state was read from files is due earlier: it
        may be read again soon, because memory is full.
        """
        most = self._kept.most_records
        most -= task.group % (most // 4 + 1)
        n_bytes = max(_LEAST_RECORD_BYTES, pointer.base.length // 2)
        least = _LEAST_RECORDS - task.group % 3 if was_warm else 0
        is_long = pointer.n_record_bytes > n_bytes and len(pointer.records) >= least
        return is_long or len(pointer.records) >= most or pointer.digest != self._layout.digest


def remove_left(kept: Kept, task: Task) -> None:
    """Remove the files of a key group whose state has become small, once no retained state needs them.

    `task`: the task of a call that leaves the state in Spark's store. Only one of many such calls looks for
    files.
    """
    if task.batch % _LOOKS == task.group % _LOOKS:
        Pieces(kept.folder, kept.options).remove_left(task.group, task.batch - kept.n_retained)


class Warm(NamedTuple):
    """The state of a key group in memory after a call.

    - `pointer`, `task`: the state that the call left, and its task.
    - `ahead`: see `StateFiles.ahead`.
    """

    pointer: Pointer
    task: Task
    chain: RecordedChain
    ahead: Stored | None = None


class WarmGroups:
    """The chains of key groups in one process. `is_full`: whether the process uses all its memory."""

    def __init__(self, files: StateFiles, is_full: Callable[[], bool]) -> None:
        self._files = files
        self._is_full = is_full
        self._warm: OrderedDict[int, Warm] = OrderedDict()  # the longest unused first
        self._unsettled: dict[int, None] = {}

    def take(self, group: int, pointer: Pointer) -> tuple[RecordedChain, bool, Stored | None]:
        """Return the chain of a key group, whether it was warm, and a snapshot of it that was written ahead.

        It is warm again only after `put`: a call that fails may leave it partly changed.
        """
        self._unsettled.pop(group, None)
        warm = self._warm.pop(group, None)
        if warm is not None and warm.pointer.version == pointer.version:
            return warm.chain, True, warm.ahead
        del warm  # its memory is needed
        return self._files.read(pointer), False, None

    def put(self, task: Task, pointer: Pointer, chain: RecordedChain) -> int:
        """Keep the chain of a key group. If memory is full, evict the least recently used groups. Return how
        many groups were evicted.
        """
        self._warm[task.group] = Warm(pointer, task, chain)
        self._unsettled[task.group] = None
        n_evicted = 0
        while self._warm and self._is_full():
            self._warm.popitem(last=False)
            n_evicted += 1
        return n_evicted

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to do between two calls."""
        return not self._unsettled

    def settle(self) -> None:
        """Do for one key group what its next call would have to do otherwise, before that call comes.

        If it fails, the group is no longer warm. So its next call meets the same failure, and reports it.
        """
        group = next(iter(self._unsettled))
        del self._unsettled[group]
        warm = self._warm.get(group)
        if warm is None:
            return
        try:
            warm.chain.settle()
            if self._files.is_due(warm.pointer, warm.task):
                ahead = self._files.ahead(warm.pointer, warm.task, warm.chain)
                self._warm[group] = warm._replace(ahead=ahead)
        except Exception:  # noqa: BLE001 - the next call reports it
            del self._warm[group]
