"""Owners of state in files: the answers of a process that keeps state warm are those of the operator."""

from __future__ import annotations

import errno
import os
import re
import selectors
import signal
import socket
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from cep.compiler.compile import compile_sources
from cep.counts import Counts
from cep.engine.chains.chain import Chain
from cep.engine.prepare.predicates import prepare
from cep.errors import InputError, Source, StateError
from cep.output.summary import summary_lines
from spark_runtime.operator.call import Moment, Results
from spark_runtime.operator.limits import Limit, Limits
from spark_runtime.operator.operator import KeyGroups
from spark_runtime.operator.owner import Owner, Owners, owners_of
from spark_runtime.sinks.delivery import Delivery
from spark_runtime.state.files import StateFiles
from spark_runtime.state.pieces import LocalStorage
from spark_runtime.state.pointer import Kept, Pointer, Task
from spark_runtime.state.snapshots import encode_state
from spark_runtime.wire.output import MATCH, late_kind
from spark_runtime.wire.parcels import Contents, Parcel, record_bytes
from tests.unit.engine.events import SECOND, STREAM, events

RULE = """
RULE r FROM events PARTITION BY k PATTERN a -> b WITHIN 60 SECONDS DEFINE a AS x < 1, b AS x > 1
MAX RUNS 5 PER KEY ON OVERFLOW FAIL
"""
GROUP = 3


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files; the name of pytest's is too long for sockets."""
    with tempfile.TemporaryDirectory(prefix="o", dir="/tmp") as place:
        monkeypatch.setattr("tempfile.tempdir", place)
        yield Path(place)


@pytest.fixture(params=[1, 1 << 18], ids=["by file", "by socket"])
def given_from(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The bytes from which events are given to owners in the file of the task."""
    monkeypatch.setattr("spark_runtime.state.files._LEAST_GIVEN_BYTES", request.param)
    return int(request.param)


@pytest.fixture
def operator(tmp_path: Path, places: Path) -> KeyGroups:
    rules = compile_sources([Source("r", RULE)], {"events": STREAM}).rule_set
    delivery = Delivery(kinds=frozenset((MATCH, late_kind("events"))))
    kept = Kept(str(tmp_path / "state"), "run", n_retained=2, most_bytes=1 << 40, inline_bytes=0)
    return KeyGroups(rules, 1, delivery, by_own_events=False, kept=kept)


@pytest.fixture
def owners(operator: KeyGroups) -> Iterator[Owners]:
    STATE.state.clear()
    made = Owners(operator)
    yield made
    made.close()


def first_value(operator: KeyGroups) -> bytes:
    """Return the value of a group without state, which is in a file."""
    assert operator.kept is not None
    files = StateFiles(operator.kept, operator.rules, 1)
    return files.stored(encode_state(Chain(operator.rules).matchers, 1), Task(0, GROUP, 0, 0)).value


def parcels(operator: KeyGroups, *seconds: int, x: float = 0.5) -> list[Parcel]:
    """Return events, which may be late, and what readers tell."""
    rows = events(*(("k", second, "a", x, second) for second in seconds))
    return [
        Parcel(Contents.EVENTS, 0, None, record_bytes(prepare(operator.rules.programs[0], rows))),
        Parcel(Contents.MAY_BE_LATE, None, "events", record_bytes(rows)),
        Parcel(Contents.COUNTS, None, Counts(events=len(seconds)).to_json(), None),
        Parcel(Contents.DEAD_LETTER, None, '{"raw": "ü"}', None),
    ]


def moment(reached: int) -> Moment:
    return Moment(GROUP, None, reached * SECOND, None)


CALLS = (((1, 2), 0.5, 2), ((2, 5), 2.0, 5), ((3,), 0.5, 6), ((7, 8), 0.5, 8), ((9,), 2.0, 9))
"""Seconds of events, their x, and the second that is reached."""


STATE = Counts()
"""What was done with state in the test that runs."""


def played(operator: KeyGroups, owners: Owners, kill_before: int = -1) -> list[object]:
    found: list[object] = []
    value = first_value(operator)
    for number, (seconds, x, reached) in enumerate(CALLS):
        if number == kill_before:
            os.kill(process_of(owners), signal.SIGKILL)
        given = parcels(operator, *seconds, x=x)
        results, value = owners.call(value, Task(number + 1, GROUP, 0, number), moment(reached), given)
        for text in results.counts:
            STATE.add(Counts(state=Counts.of_json(text).state))
        found.append(shown(results))
    return found


def shown(results: Results) -> object:
    late = {name: [table.to_pylist() for table in tables] for name, tables in results.found.late.items()}
    matches = [table.to_pylist() for table in results.found.matches]
    counts = [text for text in results.counts if not text.startswith('{"state"')]
    return matches, late, results.found.dead, counts, results.deadline_us


def process_of(owners: Owners) -> int:
    """Return the process of the owner, which holds the socket that listens."""
    (number,) = owners._sockets
    (inode,) = [line.split()[6] for line in listening() if line.endswith(f"{owners._folder}/{number}")]
    for process in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            held = [os.readlink(f"/proc/{process}/fd/{name}") for name in os.listdir(f"/proc/{process}/fd")]
            if f"socket:[{inode}]" in held:
                return int(process)
    raise AssertionError("no owner")


def wait_for_end(process: int) -> None:
    """Wait until a process has ended. Its entry may remain until the first process of the system reads it."""
    with suppress(FileNotFoundError, ProcessLookupError):
        while Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)  # the alarm of tests/conftest.py ends it


def listening() -> list[str]:
    """Return the sockets that listen, as Linux lists them."""
    lines = Path("/proc/net/unix").read_text().splitlines()[1:]
    return [line for line in lines if line.split()[3] == "00010000"]


def expected(operator: KeyGroups) -> list[object]:
    chain = Chain(operator.rules)
    return [
        shown(operator.results(chain, moment(reached), parcels(operator, *seconds, x=x)))
        for seconds, x, reached in CALLS
    ]


def test_an_owner_answers_as_the_operator_does_in_the_worker(
    given_from: int, operator: KeyGroups, owners: Owners
) -> None:
    found = played(operator, owners)
    assert found == expected(operator)
    assert "matches" in str(found)
    assert "'events': [[{" in str(found), "nothing was late"
    assert operator.kept is not None
    files = [path for path in Path(operator.kept.folder).rglob("*") if path.is_file()]
    assert STATE.state.keys() == {"cold", "warm", "touched", "carried", "recorded"}
    assert (STATE.state["cold"], STATE.state["warm"]) == (1, 4)
    recorded = {path.name[0]: path.stat().st_size for path in files if path.name[0] != "0"}
    if given_from == 1:  # what was given is recorded once more if some of it was late, as in the third call
        assert STATE.state["recorded"] < sum(recorded.values()) < 2 * STATE.state["recorded"]
    else:
        assert STATE.state["recorded"] == sum(recorded.values())
    assert operator.kept.most_records > len(CALLS)


def wait_for_ahead(operator: KeyGroups, n: int) -> list[str]:
    """Wait until owners have written so many snapshots between two calls; return the names of their files."""
    assert operator.kept is not None
    while len(found := sorted(path.name for path in Path(operator.kept.folder).glob("*/*-ahead"))) < n:
        time.sleep(0.01)  # the alarm of tests/conftest.py ends it
    return found


@pytest.mark.usefixtures("given_from")
def test_an_owner_that_was_quiet_has_written_the_snapshot_that_is_due(operator: KeyGroups) -> None:
    assert operator.kept is not None
    operator = replace(operator, kept=replace(operator.kept, most_records=2))
    made = Owners(operator)
    found, value, counts = [], first_value(operator), []
    for number, (seconds, x, reached) in enumerate(CALLS):
        given = parcels(operator, *seconds, x=x)
        results, value = made.call(value, Task(number + 1, GROUP, 0, number), moment(reached), given)
        found.append(shown(results))
        counts.append([Counts.of_json(text).state for text in results.counts][-1])
        if number == 1:
            assert wait_for_ahead(operator, 1) == ["2-run-1-ahead"]
        if number == 2:
            assert Pointer.decode(value).base.file == f"{GROUP}/2-run-1-ahead"
    made.close()
    assert found == expected(operator)
    assert [("cold" in of, "snapshots" in of, "recorded" in of) for of in counts[:4]] == [
        (True, False, True),
        (False, False, True),
        (False, True, True),
        (False, False, True),
    ]


def test_an_owner_that_is_quiet_settles_all_its_key_groups_without_waiting_again(
    operator: KeyGroups, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log, quiet_s = tmp_path / "waits", 0.1

    class Waits(selectors.DefaultSelector):
        """Notes for how long an owner would wait, and how much came in that time."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            found = super().select(timeout)
            with log.open("a") as stream:
                print(timeout, len(found), file=stream)
            return found

    monkeypatch.setattr("selectors.DefaultSelector", Waits)  # an owner is a copy of this process
    monkeypatch.setattr("spark_runtime.operator.owner._QUIET_S", quiet_s)
    assert operator.kept is not None
    kept = replace(operator.kept, most_records=1)
    made, files = Owners(replace(operator, kept=kept)), StateFiles(kept, operator.rules, 1)
    snapshot = encode_state(Chain(operator.rules).matchers, 1)
    for group in range(10):
        value = files.stored(snapshot, Task(0, group, 0, 100 + group)).value
        made.call(
            value, Task(1, group, 0, group), Moment(group, None, 2 * SECOND, None), parcels(operator, 1, 2)
        )
    wait_for_ahead(operator, 10)
    process = process_of(made)
    made.close()
    wait_for_end(process)
    waits = [line.split() for line in log.read_text().splitlines()]
    assert sum(n == "0" for _, n in waits) == 10
    # "None": nothing is left to settle. On a slow machine, some groups are settled before the last call.
    for (_, before), (timeout, _) in pairwise(waits):
        assert timeout in (str(quiet_s if before != "0" else 0.0), "None")
    assert ["0.0", "0"] in waits


def test_a_full_disk_is_reported_before_the_owner_gets_the_events(
    operator: KeyGroups, owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_runtime.state.files._LEAST_GIVEN_BYTES", 1)
    first, second = (parcels(operator, *seconds, x=x) for seconds, x, _ in CALLS[:2])
    results, value = owners.call(first_value(operator), Task(1, GROUP, 0, 1), moment(2), first)
    found = [shown(results)]

    def write(self: LocalStorage, file: str, parts: Iterable[object]) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(LocalStorage, "write", write)
        with pytest.raises(InputError, match="E0616"):
            owners.call(value, Task(2, GROUP, 0, 2), moment(5), second)
    results, value = owners.call(value, Task(2, GROUP, 0, 3), moment(5), second)
    assert [*found, shown(results)] == expected(operator)[:2]


def test_where_files_cannot_be_mapped_events_are_sent(
    operator: KeyGroups, owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_runtime.state.files._LEAST_GIVEN_BYTES", 1)

    def mapped(self: LocalStorage, file: str) -> object:
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setattr(LocalStorage, "mapped", mapped)
    assert played(operator, owners) == expected(operator)
    assert operator.kept is not None
    assert [path for path in Path(operator.kept.folder).iterdir() if path.is_file()] == []


@pytest.mark.usefixtures("given_from")
def test_another_owner_goes_on_when_one_was_killed(operator: KeyGroups, owners: Owners) -> None:
    assert played(operator, owners, kill_before=3) == expected(operator)
    assert (STATE.state["cold"], STATE.state["warm"]) == (2, 3)


def test_key_groups_that_leave_a_full_memory_have_the_same_matches_and_are_counted(
    operator: KeyGroups,
) -> None:
    owner, found, counts = Owner(operator, 0), [], Counts()
    value = first_value(operator)
    for number, (seconds, x, reached) in enumerate(CALLS):
        given = parcels(operator, *seconds, x=x)
        results, value = owner.call(value, Task(number + 1, GROUP, 0, number), moment(reached), given)
        counts.add(Counts(state=Counts.of_json(results.counts[-1]).state))
        found.append(shown(results))
    assert found == expected(operator)
    assert (counts.state["cold"], counts.state["evicted"]) == (len(CALLS), len(CALLS))
    assert "state_memory_mb" in "\n".join(summary_lines(counts, 0.0, {}))


def test_an_owner_ends_with_its_last_connection_and_nothing_remains(
    operator: KeyGroups, owners: Owners, places: Path
) -> None:
    other = Owners(operator)
    played(operator, owners)
    process = process_of(owners)
    value = first_value(operator)
    other.call(value, Task(1, GROUP, 0, 77), moment(1), [])
    assert process_of(other) == process, "each worker has an owner of its own"
    owners.close()
    other.call(value, Task(1, GROUP, 0, 78), moment(1), [])
    other.close()
    wait_for_end(process)
    assert [path for path in places.rglob("*") if not path.name.startswith("spark-cep")] == []


def test_what_killed_owners_left_is_removed_by_the_next_start(
    operator: KeyGroups, owners: Owners, places: Path
) -> None:
    left = places / f"spark-cep-owners-{os.getuid()}" / "0123"
    left.parent.mkdir(mode=0o700)
    left.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as nobody:
        nobody.bind(str(left / "0"))
    (left / "0.lock").touch()
    played(operator, owners)
    assert not left.exists()


def test_an_error_of_the_engine_reaches_the_worker_as_it_is(operator: KeyGroups, owners: Owners) -> None:
    value = first_value(operator)
    given = parcels(operator, *range(1, 20))
    with pytest.raises(StateError, match=r"E0707.*more than 5 open runs"):
        owners.call(value, Task(1, GROUP, 0, 0), moment(30), given)
    results, _ = owners.call(value, Task(1, GROUP, 0, 1), moment(1), parcels(operator, 1))
    assert results.deadline_us is not None


def test_a_defect_is_told_with_its_place(operator: KeyGroups, owners: Owners) -> None:
    with pytest.raises(RuntimeError, match=re.escape("IndexError")):
        owners.call(
            first_value(operator), Task(1, GROUP, 0, 0), moment(1), [Parcel(Contents.EVENTS, 7, None, b"")]
        )


@pytest.mark.parametrize("damage", ["missing", "cut off", "changed", "foreign"])
def test_a_damaged_file_of_state_is_named_and_never_used(
    operator: KeyGroups, owners: Owners, damage: str
) -> None:
    value = first_value(operator)
    assert operator.kept is not None
    file = Path(operator.kept.folder) / Pointer.decode(value).base.file
    data = bytearray(file.read_bytes())
    if damage == "missing":
        file.unlink()
    elif damage == "cut off":
        file.write_bytes(data[:-1])
    elif damage == "changed":
        data[-5] ^= 1
        file.write_bytes(data)
    else:
        file.write_bytes(b"x" * len(data))
    with pytest.raises(StateError, match=r"E0702.*the file of state") as caught:
        owners.call(value, Task(1, GROUP, 0, 0), moment(1), [])
    assert str(file) in str(caught.value)
    assert "restore the checkpoint" in caught.value.help


def test_state_in_files_is_not_read_from_a_checkpoint_on_other_storage(operator: KeyGroups) -> None:
    with pytest.raises(
        StateError, match="the checkpoint has state in files, which this run cannot read"
    ) as caught:
        owners_of(replace(operator, kept=None))
    assert caught.value.code == "E0702"


def test_sockets_are_in_a_folder_that_only_this_user_can_enter(operator: KeyGroups, owners: Owners) -> None:
    played(operator, owners)
    for folder in (owners._folder.parent, owners._folder):
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("is_link", [False, True])
def test_a_folder_of_sockets_that_others_can_enter_or_that_is_a_link_is_refused(
    operator: KeyGroups, owners: Owners, places: Path, is_link: bool
) -> None:
    folder = owners._folder.parent
    assert folder.parent == places
    if is_link:
        (places / "private").mkdir(mode=0o700)
        folder.symlink_to(places / "private")
    else:
        folder.mkdir()
        folder.chmod(0o755)
    with pytest.raises(StateError, match="is a link, or belongs to other users, too"):
        owners.call(first_value(operator), Task(1, GROUP, 0, 0), moment(1), parcels(operator, 1))


def test_an_owner_counts_the_records_of_state_that_has_a_limit(
    operator: KeyGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = first_value(operator)
    n_bytes = Pointer.decode(value).base.length
    monkeypatch.setattr("spark_runtime.operator.limits._MB", 1)
    for at_most in (n_bytes + 100_000, n_bytes):
        owner = Owner(replace(operator, limits=Limits(state_mb=Limit(at_most))), 1 << 40)
        call = partial(owner.call, value, Task(1, GROUP, 0, at_most), moment(2), parcels(operator, 1, 2))
        if at_most > n_bytes:
            results, _ = call()
            assert sum(Counts.of_json(text).state.get("recorded", 0) for text in results.counts) > 0
        else:
            with pytest.raises(StateError, match=r"E0722.*`limits: state_mb`"):
                call()
