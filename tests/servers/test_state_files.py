"""Files of state on a disk, on S3 as moto plays it, and where pyarrow or fsspec reach them: all the same."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from cep.compiler.compile import compile_sources
from cep.engine.chains.chain import Chain
from cep.errors import InputError, Source, StateError
from spark_runtime.operator.operator import KeyGroups
from spark_runtime.operator.owner import Owners
from spark_runtime.pipeline.checkpoint import Checkpoint
from spark_runtime.pipeline.kept import kept_of
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.state import files as state_files
from spark_runtime.state.files import StateFiles, remove_left
from spark_runtime.state.pieces import Piece, Pieces
from spark_runtime.state.pointer import Kept, Pointer, Task, is_pointer
from spark_runtime.state.snapshots import encode_state
from spark_runtime.storage.checkpoint_files import HadoopFiles
from tests.servers.s3_server import BUCKET, S3Server, running_s3
from tests.unit.engine.events import STREAM
from tests.unit.spark_runtime.operator.test_owner import GROUP, RULE, expected, played


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


def options(server: S3Server) -> dict[str, str]:
    scheme, _, place = server.address.partition("://")
    keys = {"access_key": "tests", "secret_key": "tests", "region": "us-east-1"}
    return {**keys, "endpoint_override": place, "scheme": scheme}


class OwnFiles(LocalFileSystem):  # type: ignore[misc]
    """A file system of another package, whose scheme pyarrow does not know."""

    protocol = "own"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        found: str = super()._strip_protocol(path.removeprefix("own://"))
        return found


fsspec.register_implementation("own", OwnFiles)


@pytest.fixture(params=["disk", "s3", "by pyarrow", "by fsspec"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    usual = Kept(str(tmp_path / "state"), "run", n_retained=2, inline_bytes=0, most_bytes=1 << 40)
    if request.param == "disk":
        return usual
    if request.param == "by pyarrow":
        return replace(usual, folder=f"file://{usual.folder}")
    if request.param == "by fsspec":
        return replace(usual, folder=f"own://{usual.folder}")
    folder = f"s3a://{BUCKET}/{request.node.name}/state"
    return replace(usual, folder=folder, options=options(request.getfixturevalue("s3")))


def pieces_of(kept: Kept) -> Pieces:
    return Pieces(kept.folder, kept.options)


def eventually(holds: Callable[[], bool]) -> None:
    """Wait until something holds: files on S3 are removed beside the calls."""
    while not holds():  # the alarm of tests/conftest.py ends it
        time.sleep(0.01)


def test_each_piece_of_a_file_is_read_as_it_was_written(kept: Kept) -> None:
    pieces = pieces_of(kept)
    parts = ([b"layout"], [b"a", b"", b"snapshot"], [bytes(6_000_000)])
    written = pieces.write("7/12-run-0", *parts)
    assert [pieces.read(piece) for piece in written] == [b"".join(of_piece) for of_piece in parts]
    others = [pieces.write(f"7/{number}-run-0", [bytes([number])])[0] for number in range(13, 60)]
    assert list(pieces.read_all(others)) == [bytes([number]) for number in range(13, 60)]
    assert pieces.batches() == set(range(12, 60))


def test_a_file_that_is_missing_or_was_changed_is_refused_by_its_name(kept: Kept) -> None:
    pieces = pieces_of(kept)
    [piece] = pieces.write("7/1-run-0", [b"what was written"])
    for other, fact in (
        (piece._replace(file="7/2-run-0"), f"`{kept.folder}/7/2-run-0` is missing"),
        (piece._replace(length=99), f"`{kept.folder}/7/1-run-0` does not contain what was written"),
        (piece._replace(checksum=1), f"`{kept.folder}/7/1-run-0` does not contain what was written"),
    ):
        with pytest.raises(StateError) as caught:
            pieces.read(other)
        assert caught.value.code == "E0702"
        assert fact in str(caught.value)


def test_files_before_a_micro_batch_are_removed(kept: Kept) -> None:
    pieces = pieces_of(kept)
    for number in (8, 9, 10, 11):
        pieces.write(f"7/{number}-run-0", [b"."])
        pieces.write(f"8/{number}-run-0", [b"."])
    pieces.remove_before(7, 10)
    pieces.remove_left(8, 11)  # the last one is needed
    eventually(lambda: not exists(pieces, "7/9-run-0"))
    assert exists(pieces, "7/10-run-0")
    assert exists(pieces, "8/8-run-0")
    pieces.remove_left(8, 12)
    eventually(lambda: not any(exists(pieces, f"8/{number}-run-0") for number in (8, 9, 10, 11)))


def exists(pieces: Pieces, file: str) -> bool:
    try:
        pieces.read(Piece(file, 0, 1, 0x4A3F_8A1B))
    except StateError as error:
        return "is missing" not in str(error)
    return True


def test_a_group_that_became_small_leaves_no_files_once_no_retained_state_needs_them(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_files, "_LOOKS", 1)
    rules = compile_sources([Source("r", RULE)], {"events": STREAM}).rule_set
    snapshot = encode_state(Chain(rules).matchers, 1)
    files = StateFiles(replace(kept, most_records=0), rules, 1)
    pointer = Pointer.decode(files.stored(snapshot, Task(1, GROUP, 0, 0)).value)
    files.after(pointer, Task(2, GROUP, 0, 1), files.read(pointer))
    now = replace(kept, inline_bytes=1 << 30, most_records=0)
    small = StateFiles(now, rules, 1).after(pointer, Task(3, GROUP, 0, 2), files.read(pointer))
    assert small.pointer is None
    assert not is_pointer(small.value)
    for batch in (4, 5):  # Spark retains the state of two micro-batches
        remove_left(now, Task(batch, GROUP, 0, batch))
        assert files.read(pointer).matchers
    remove_left(now, Task(6, GROUP, 0, 6))
    eventually(lambda: not pieces_of(kept).batches())


@pytest.mark.parametrize("kill_before", [-1, 3])
def test_an_owner_answers_as_a_worker_does_wherever_files_are(kept: Kept, kill_before: int) -> None:
    rules = compile_sources([Source("r", RULE)], {"events": STREAM}).rule_set
    with tempfile.TemporaryDirectory(prefix="o", dir="/tmp") as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", place)
        made = KeyGroups(rules, 1, by_own_events=False, kept=replace(kept, most_records=2))
        owners = Owners(made)
        assert played(made, owners, kill_before) == expected(made)
        owners.close()


def test_on_s3_a_call_costs_one_request(s3: S3Server) -> None:
    pieces = Pieces(f"s3a://{BUCKET}/once/state", options(s3))
    pieces.write("7/0-run-0", [b"."])
    s3.counted()
    [layout, base] = pieces.write("7/1-run-0", [b"layout"], [bytes(100_000)])
    assert s3.counted() == {"PUT": 1}
    assert pieces.read(base) == bytes(100_000)
    assert pieces.read(layout) == b"layout"
    assert s3.counted() == {"HEAD": 2, "GET": 2}


def test_files_in_memory_are_those_of_a_process() -> None:
    pieces = Pieces("memory://lake/state")
    [piece] = pieces.write("7/1-run-0", [b"a", b"b"])
    assert pieces.read(piece) == b"ab"
    assert Pieces("memory://lake/state").batches() == {1}
    pieces.remove_before(7, 2)
    eventually(lambda: not pieces.batches())


@pytest.mark.parametrize("folder", ["nobodys://lake/state", "hdfs://nobody.invalid:1/state"])
def test_storage_that_nothing_opens_is_named(folder: str) -> None:
    with pytest.raises(InputError) as caught:
        Pieces(folder).write("7/0-run-0", [b"."])
    assert f"`{folder}/7/0-run-0` cannot be written: " in str(caught.value)


def test_storage_that_is_not_reached_is_named(s3: S3Server) -> None:
    with pytest.raises(InputError) as caught:
        Pieces("s3a://nobodys/state", options(s3)).write("7/0-run-0", [b"."])
    assert "`s3a://nobodys/state/7/0-run-0` cannot be written: " in str(caught.value)


class Far(HadoopFiles):
    """Files of a checkpoint on S3, with Hadoop's settings and without Java."""

    def __init__(self, root: str, settings: Mapping[str, str]) -> None:
        self.root = root
        self._far = settings

    def setting(self, name: str) -> str | None:
        return self._far.get(name)

    def names(self, folder: str) -> list[str]:
        return []


PIPELINE = """
streams: {e: {event_time: ts, schema: {k: string, ts: timestamp}}}
rules: [r.cep]
source: {stream: e, format: json, path: events}
sinks: [{format: console}]
"""


@pytest.mark.parametrize(
    ("place", "more", "is_kept", "said"),
    [
        (f"s3a://{BUCKET}/there", "", True, ""),
        (f"s3a://{BUCKET}/inline", "state: inline", True, ""),
        ("s3a://nobodys/there", "", False, "`s3a://nobodys/there/state` cannot be written"),
        ("hdfs://lake/there", "", False, ""),
        ("hdfs://nobody.invalid:1/there", "state: files", False, "/there/state` cannot be written"),
        ("own://{folder}/there", "state: files", True, ""),
        ("memory://lake/there", "state: files", True, ""),
    ],
)
def test_a_pipeline_keeps_large_state_on_far_storage_if_it_can(
    s3: S3Server, tmp_path: Path, place: str, more: str, is_kept: bool, said: str
) -> None:
    (tmp_path / "r.cep").write_text(
        "RULE r FROM e PARTITION BY k PATTERN a -> b WITHIN 1 DAY DEFINE a AS TRUE"
    )
    place = place.format(folder=tmp_path)
    (tmp_path / "p.yaml").write_text(f"{PIPELINE}checkpoint: {place}\n{more}\n")
    settings = {
        "fs.s3a.endpoint": s3.address,
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.access.key": "tests",
        "fs.s3a.secret.key": "tests",
    }
    warnings: list[str] = []
    checkpoint = Checkpoint(place, "run", 2, Far(place, settings))
    found = kept_of(load_pipeline(tmp_path / "p.yaml"), checkpoint, "7", warnings.append)
    assert (found is not None) == is_kept
    assert len(warnings) == bool(said)
    assert all(said in warning for warning in warnings)
    if found is not None:
        assert (found.n_retained, found.options) == (7, options(s3) if "s3a:" in place else {})
        assert "'tests'" not in repr(found), "a secret"
        assert (found.inline_bytes > 1 << 40) == ("inline" in more)
    assert not any("/state/." in key for key in s3.objects("")), "what was tried out remains"
