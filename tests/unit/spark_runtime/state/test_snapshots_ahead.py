"""Snapshots that are written between two calls of a key group, so that no event waits for them."""

from __future__ import annotations

import errno
import json
import zlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from cep.compiler.compile import compile_sources
from cep.counts import Counts
from cep.engine.chains.chain import Chain
from cep.engine.prepare.predicates import prepare
from cep.engine.windows.rings import WindowRing
from cep.errors import InputError, Source
from spark_runtime.operator.call import Moment, Results
from spark_runtime.operator.operator import KeyGroups
from spark_runtime.operator.owner import Owner
from spark_runtime.sinks.delivery import Delivery
from spark_runtime.state.files import StateFiles, WarmGroups
from spark_runtime.state.pieces import LocalStorage, batch_of
from spark_runtime.state.pointer import Kept, Pointer, Task, is_pointer
from spark_runtime.state.recording import RecordedChain
from spark_runtime.state.snapshots import encode_state
from spark_runtime.wire.output import MATCH
from spark_runtime.wire.parcels import Contents, Parcel, record_bytes
from tests.unit.engine.events import SECOND, STREAM, events

RULE = """
RULE r FROM events PARTITION BY k PATTERN a -> b WITHIN 60 SECONDS
DEFINE a AS x < 1 AND COUNT(*) OVER LAST 20 SECONDS > 1, b AS x > 1
MEASURES a.x AS first, SUM(b.x) AS second
"""
GROUP = 4


class Group:
    """A key group that is called, beside a chain that gets the same."""

    def __init__(self, folder: Path, most_records: int = 3, n_retained: int = 2) -> None:
        self.folder = folder
        rules = compile_sources([Source("r", RULE)], {"events": STREAM}).rule_set
        self.kept = Kept(str(folder), "run", n_retained=n_retained, inline_bytes=0, most_records=most_records)
        delivery = Delivery(kinds=frozenset((MATCH,)))
        self.operator = KeyGroups(rules, 1, delivery, by_own_events=False, kept=self.kept)
        self.files = StateFiles(self.kept, rules, 1)
        self.plain = Chain(rules)
        self.value = self.files.stored(encode_state(self.plain.matchers, 1), Task(0, GROUP, 0, 0)).value
        self.n_attempts = 0
        self.start()

    def start(self) -> None:
        """Start an owner, which knows nothing."""
        self.owner = Owner(self.operator, 1 << 40)

    def attempt(self, batch: int, value: bytes | None = None) -> tuple[Results, bytes]:
        """Do an attempt of a call, which is lost unless its value is used."""
        self.n_attempts += 1
        task, moment = Task(batch, GROUP, 0, self.n_attempts), Moment(GROUP, None, batch * SECOND, None)
        return self.owner.call(value or self.value, task, moment, [self.parcel(batch)])

    def parcel(self, batch: int) -> Parcel:
        rows = events(*(("k", batch, "a", 2.0 if batch % 5 == 0 else 0.5, batch) for _ in range(3)))
        return Parcel(Contents.EVENTS, 0, None, record_bytes(prepare(self.operator.rules.programs[0], rows)))

    def call(self, batch: int, *, settles: bool = True) -> dict[str, int]:
        """Do the call of a micro-batch, and settle afterwards; return the counts of its state."""
        moment = Moment(GROUP, None, batch * SECOND, None)
        expected = self.operator.results(self.plain, moment, [self.parcel(batch)])
        results, self.value = self.attempt(batch)
        assert matches(results) == matches(expected)
        if settles:
            self.settle()
        return Counts.of_json(results.counts[-1]).state

    def settle(self) -> None:
        while not self.owner.is_settled:
            self.owner.settle()

    @property
    def pointer(self) -> Pointer:
        return Pointer.decode(self.value)

    def is_repeated(self, value: bytes | None = None) -> bool:
        """Return whether the state of a value is that of the chain."""
        chain = self.files.read(Pointer.decode(value or self.value))
        return encode_state(chain.matchers, 1) == encode_state(self.plain.matchers, 1)

    @property
    def names(self) -> list[str]:
        """The names of the files."""
        return sorted(file.name for file in (self.folder / str(GROUP)).iterdir())

    @property
    def ahead(self) -> list[str]:
        """The names of the files with snapshots that were written ahead."""
        return [name for name in self.names if name.endswith("-ahead")]


def matches(results: Results) -> object:
    return [row for table in results.found.matches for row in table.to_pylist()]


def full(self: LocalStorage, file: str, parts: Iterable[object]) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def with_a_snapshot_due(place: Path) -> Group:
    """Return a key group that is not settled, whose next call needs a snapshot."""
    group = Group(place)
    for batch in (1, 2):
        group.call(batch)
    group.call(3, settles=False)
    return group


def test_a_due_snapshot_is_written_ahead_and_the_next_pointer_begins_with_it(tmp_path: Path) -> None:
    group = Group(tmp_path)
    for batch in (1, 2):
        assert group.call(batch).keys() == {"cold" if batch == 1 else "warm", "carried", "recorded"}
        assert group.ahead == []
    counts = group.call(3, settles=False)
    assert "snapshots" not in counts
    assert group.ahead == []
    before = group.value
    group.settle()
    assert group.ahead == ["3-run-3-ahead"]
    assert group.value == before
    assert group.is_repeated(), "the state after the third call remains in the files of its pointer"

    counts = group.call(4)
    pointer = group.pointer
    assert counts == {
        "snapshots": 1,
        "written": pointer.base.length,
        "recorded": pointer.n_record_bytes,
        "carried": len(group.value),
        "warm": 1,
    }
    assert pointer.base.file == pointer.layout.file == f"{GROUP}/3-run-3-ahead"
    assert [piece.file for piece in pointer.records] == [f"{GROUP}/4-run-4"]
    assert (tmp_path / pointer.base.file).stat().st_size == pointer.base.length + pointer.layout.length
    assert (tmp_path / pointer.records[0].file).stat().st_size == pointer.n_record_bytes
    assert group.is_repeated()
    counts = group.call(5)
    assert counts.keys() == {"warm", "carried", "recorded"}, "the snapshot was counted twice"
    assert group.pointer.base == pointer.base
    assert group.is_repeated()


def test_windows_of_a_key_group_that_is_settled_have_room_for_another_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms: list[int] = []
    settle = WindowRing.settle

    def noted(ring: WindowRing) -> None:
        rooms.append(ring._used)
        settle(ring)

    monkeypatch.setattr(WindowRing, "settle", noted)
    group = Group(tmp_path)
    group.call(1, settles=False)
    assert rooms == []
    group.settle()
    assert len(rooms) == 1
    assert rooms[0] >= 3  # events


def test_without_quiet_time_the_next_call_writes_the_snapshot(tmp_path: Path) -> None:
    group = Group(tmp_path)
    for batch in (1, 2, 3):
        group.call(batch, settles=False)
    counts = group.call(4, settles=False)
    assert counts.keys() == {"warm", "carried", "written", "snapshots"}
    assert group.pointer.base.file == f"{GROUP}/4-run-4"
    assert group.pointer.records == ()
    assert group.ahead == []
    assert group.is_repeated()


def test_an_attempt_from_the_state_before_does_not_begin_with_what_was_written_ahead(tmp_path: Path) -> None:
    group = Group(tmp_path)
    for batch in (1, 2):
        group.call(batch)
    before = group.value
    group.call(3)
    assert group.ahead == ["3-run-3-ahead"]
    results, group.value = group.attempt(3, before)  # Spark has lost the first attempt
    assert Counts.of_json(results.counts[-1]).state["cold"] == 1
    assert "ahead" not in str(group.pointer)
    assert group.is_repeated()
    group.settle()
    counts = group.call(4)
    assert counts["snapshots"] == counts["warm"] == 1
    assert group.pointer.base.file == f"{GROUP}/3-run-4-ahead"
    assert group.is_repeated()


def test_another_owner_does_not_know_what_was_written_ahead(tmp_path: Path) -> None:
    group = Group(tmp_path)
    for batch in (1, 2, 3):
        group.call(batch)
    group.start()
    counts = group.call(4, settles=False)
    assert counts.keys() == {"cold", "carried", "written", "snapshots"}
    assert "ahead" not in str(group.pointer)
    assert group.is_repeated()


def test_a_small_snapshot_is_written_to_sparks_store_by_the_next_call(tmp_path: Path) -> None:
    group = Group(tmp_path)
    for batch in (1, 2):
        group.call(batch)
    group.operator = replace(group.operator, kept=replace(group.kept, inline_bytes=1 << 20))
    group.start()
    group.call(3)
    assert is_pointer(group.value)
    assert group.names == ["0-run-0", "1-run-1", "2-run-2", "3-run-3"]
    counts = group.call(4)
    assert group.value == encode_state(group.plain.matchers, 1)
    assert counts == {"warm": 1, "carried": len(group.value)}
    assert group.names == ["0-run-0", "1-run-1", "2-run-2", "3-run-3", "4-run-4"]
    assert (tmp_path / f"{GROUP}/4-run-4").stat().st_size == 0


def test_a_disk_that_is_full_between_two_calls_is_reported_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = with_a_snapshot_due(tmp_path)
    with monkeypatch.context() as disk:
        disk.setattr(LocalStorage, "write", full)
        group.settle()
        assert group.owner.is_settled
        with pytest.raises(InputError, match=r"E0616.*No space left"):
            group.attempt(4)
    assert group.ahead == []
    counts = group.call(4)
    assert counts["cold"] == counts["snapshots"] == 1
    assert group.is_repeated()


@pytest.mark.parametrize("what", [(LocalStorage, "write"), (Chain, "settle")], ids=["a disk", "a window"])
def test_a_key_group_that_could_not_be_settled_is_cold_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: tuple[type, str]
) -> None:
    group = with_a_snapshot_due(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(*what, full)
        group.settle()
    assert group.call(4)["cold"] == 1
    assert group.call(5)["warm"] == 1
    assert group.is_repeated()


def test_a_call_that_fails_after_a_snapshot_was_written_ahead_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(tmp_path)
    for batch in (1, 2, 3):
        group.call(batch)
    with monkeypatch.context() as disk:
        disk.setattr(LocalStorage, "write", full)
        with pytest.raises(InputError, match="E0616"):
            group.attempt(4)
    counts = group.call(4)
    assert counts.keys() == {"cold", "carried", "written", "snapshots"}
    assert group.is_repeated()


@pytest.mark.parametrize("n_retained", [0, 1, 3])
@pytest.mark.parametrize("most_records", [1, 4])
@pytest.mark.parametrize("seed", range(2))
def test_files_of_retained_state_remain_and_older_ones_go(
    tmp_path: Path, n_retained: int, most_records: int, seed: int
) -> None:
    group, random = Group(tmp_path, most_records, n_retained), Random(seed)
    values, called, n_ahead, n_swept = [group.value], [0], 0, 0  # by micro-batch; the micro-batches of calls
    while len(values) < 60:
        if seed:  # micro-batches that do not call it
            values += random.choice((0, 0, 0, 1, 4)) * [group.value]
        batch = len(values)
        if random.random() < 0.1:
            group.start()
        if random.random() < 0.2:  # a lost attempt, which settles
            group.attempt(batch)
            group.settle()
        counts = group.call(batch, settles=False)
        n_ahead += group.pointer.base.file.endswith("-ahead")
        if random.random() < 0.8:
            group.settle()
        if random.random() < 0.2:  # the call is repeated, from the state before it
            group.value = group.attempt(batch, values[-1])[1]
        values.append(group.value)
        assert group.is_repeated()
        for value in values[-n_retained - 1 :]:
            group.files.read(Pointer.decode(value))
        if "snapshots" in counts:
            last = max(called[-1] - 1 - n_retained, 0)  # retained before the call that was settled last
            oldest = min(map(batch_of, group.names))
            assert oldest >= batch_of(Pointer.decode(values[last]).base.file)
            n_swept += oldest > 0
        called.append(batch)
    assert min(n_ahead, n_swept) > 2


def test_a_snapshot_ahead_that_nobody_used_is_removed_with_the_files_of_its_time(tmp_path: Path) -> None:
    group = Group(tmp_path)
    for batch in (1, 2, 3):
        group.call(batch)
    assert group.ahead == ["3-run-3-ahead"]
    group.start()
    for batch in range(4, 16):
        group.call(batch, settles=False)
    assert group.ahead == []


def test_settling_leaves_the_order_in_which_key_groups_leave_a_full_memory(tmp_path: Path) -> None:
    group = Group(tmp_path)

    def put(warm: WarmGroups, number: int) -> int:
        task = Task(1, number, 0, number)
        chain: RecordedChain = group.files.read(group.pointer)
        stored = group.files.stored(encode_state(chain.matchers, 1), task)
        assert stored.pointer is not None
        pointers[number] = stored.pointer
        return warm.put(task, stored.pointer, chain)

    answers = iter([False, False, True, False])
    pointers: dict[int, Pointer] = {}
    warm = WarmGroups(group.files, lambda: next(answers))
    assert put(warm, 1) + put(warm, 2) == 0
    warm.settle()  # the first one only
    assert put(warm, 3) == 1
    while not warm.is_settled:
        warm.settle()
    assert [warm.take(number, pointers[number])[1] for number in (1, 2, 3)] == [False, True, True]


def test_a_pointer_of_an_earlier_version_has_snapshots_that_were_written_in_calls(tmp_path: Path) -> None:
    group = Group(tmp_path, most_records=2)
    for batch in range(1, 6):
        group.call(batch, settles=False)
    pointer = group.pointer
    head, packed = group.value[:5], group.value[5:]
    found = json.loads(zlib.decompress(packed))
    assert found.pop("since") == found["earlier"] + [batch_of(pointer.base.file)]
    assert len(found["earlier"]) == 1
    assert Pointer.decode(head + zlib.compress(json.dumps(found).encode())) == pointer
