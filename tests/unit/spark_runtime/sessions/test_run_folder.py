"""Temporary folders: private, in the place that is asked for, and removed once their owners are dead."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cep.errors import SetupError
from spark_runtime.sessions.local_session import _start
from spark_runtime.sessions.run_folder import KEPT_LOGS, RunFolder, is_quiet, open_run_folder, places

QUIET = (
    "WARNING: Using incubator modules: jdk.incubator.vector\n"
    'Setting default log level to "WARN".\n'
    "To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).\n"
)
LOUD = QUIET + "2026-01-01 10:00:00 ERROR Executor: Exception in task 0.0\n"

OWNER = """
import subprocess, sys
from pathlib import Path
from cep.errors import SetupError
from spark_runtime.sessions.run_folder import open_run_folder
folder = open_run_folder(Path(sys.argv[1]))
(folder.path / "blockmgr-1").mkdir()
(folder.path / "blockmgr-1/block").write_text("events")
folder.log.write_text(sys.argv[2])
if sys.argv[3] == "heir":
    heir = subprocess.Popen(["cat"], stdin=sys.stdin, pass_fds=[folder.lock])
print(folder.path, flush=True)
sys.stdin.read()
"""


@contextmanager
def owner(place: Path, log: str, kind: str = "alone") -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that owns a folder until its input ends; an heir has the lock and the input, too."""
    command = [sys.executable, "-c", OWNER, str(place), log, kind]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def dead(place: Path, log: str) -> Path:
    """The folder of a process that was killed."""
    with owner(place, log) as (_, folder):
        assert (folder / "blockmgr-1/block").exists()
    return folder


@contextmanager
def opened(place: Path) -> Iterator[RunFolder]:
    folder = open_run_folder(place)
    yield folder
    os.close(folder.lock)


def test_a_folder_is_private_and_the_place_is_made(tmp_path: Path) -> None:
    with opened(tmp_path / "deep/er") as folder:
        assert folder.path.parent == tmp_path / "deep/er"
        assert folder.path.stat().st_mode & 0o777 == 0o700


def test_the_folder_of_a_process_that_was_killed_is_removed_at_the_next_start(tmp_path: Path) -> None:
    folder = dead(tmp_path, QUIET)
    assert folder.exists()
    with opened(tmp_path) as mine:
        assert [*tmp_path.iterdir()] == [mine.path]


def test_a_folder_stays_as_long_as_its_owner_lives(tmp_path: Path) -> None:
    with owner(tmp_path, QUIET) as (_, folder), opened(tmp_path) as mine, opened(tmp_path) as another:
        assert {*tmp_path.iterdir()} == {folder, mine.path, another.path}


def test_a_folder_stays_as_long_as_somebody_lives_who_got_the_lock(tmp_path: Path) -> None:
    with owner(tmp_path, QUIET, "heir") as (process, folder):
        process.kill()
        process.wait()
        with opened(tmp_path):
            assert (folder / "blockmgr-1/block").exists()
        assert process.stdin is not None
        process.stdin.close()  # the heir ends
        lock = os.open(folder / "lock", os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.close(lock)
    with opened(tmp_path):
        assert not folder.exists()


def test_a_log_that_says_something_stays_without_the_rest_and_the_newest_of_them_stay(tmp_path: Path) -> None:
    folders = []
    for number in range(KEPT_LOGS + 2):  # each in a place of its own, because a start removes remains
        folder = dead(tmp_path / str(number), LOUD)
        folders.append(folder.rename(tmp_path / folder.name))
        os.utime(folders[-1] / "java.log", (1_700_000_000 + number,) * 2)
    with opened(tmp_path) as mine:
        assert {*tmp_path.glob("spark-cep-*")} == {mine.path, *folders[2:]}
    for folder in folders[2:]:
        assert sorted(item.name for item in folder.iterdir()) == ["java.log", "lock"]
        assert (folder / "java.log").read_text() == LOUD


def test_folders_that_are_not_ours_are_left_alone(tmp_path: Path) -> None:
    place, elsewhere = tmp_path / "place", tmp_path / "elsewhere"
    (place / "spark-cep-old").mkdir(parents=True)
    (place / "spark-cep-old/java.log").write_text(QUIET)
    target = dead(elsewhere, QUIET)
    of_another_machine = dead(tmp_path / "shared", QUIET).rename(place / "spark-cep-shared")
    (of_another_machine / "lock").write_text("another-machine")
    (place / "spark-cep-link").symlink_to(target)
    with opened(place):
        assert (place / "spark-cep-old/java.log").exists()
        assert (target / "blockmgr-1/block").exists()
        assert (of_another_machine / "blockmgr-1/block").exists()


@pytest.mark.parametrize(
    ("log", "expected"),
    [("", True), (QUIET, True), (QUIET + "\n", True), (LOUD, False), ("Error: no main class\n", False)],
)
def test_a_log_is_quiet_if_java_has_only_started(tmp_path: Path, log: str, expected: bool) -> None:
    (tmp_path / "java.log").write_text(log)
    assert is_quiet(tmp_path / "java.log") == expected


def test_a_log_that_is_not_there_is_quiet(tmp_path: Path) -> None:
    assert is_quiet(tmp_path / "java.log")


def test_a_place_where_nothing_can_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError) as caught:
        open_run_folder(tmp_path / "file/folder")
    assert str(caught.value) == (
        f"error[E0808]: no temporary folder can be made in `{tmp_path}/file/folder`: Not a directory\n"
        "help: name another place: TMPDIR, or the setting spark.local.dir"
    )


def test_the_place_is_what_the_pipeline_says_then_spark_then_the_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    assert places({}) == [Path(tempfile.gettempdir())]
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/disk1, /disk2")
    assert places({}) == [Path("/disk1"), Path("/disk2")]
    monkeypatch.chdir(tmp_path)
    assert places({"spark.local.dir": "scratch"}) == [tmp_path / "scratch"]


def test_what_pyspark_creates_while_java_starts_is_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_gateway = pytest.importorskip("pyspark.java_gateway")
    created: list[Path] = []

    def killed(*given: object) -> None:
        created.append(Path(tempfile.mkdtemp()))
        raise OSError("killed")

    monkeypatch.setattr(java_gateway, "launch_gateway", killed)
    monkeypatch.setattr("spark_runtime.sessions.local_session._folders", [])
    before = tempfile.gettempdir()
    with pytest.raises(OSError, match="killed"):
        _start({"spark.local.dir": str(tmp_path)}, "name", is_short=True, inherited=())
    (folder,) = tmp_path.iterdir()
    assert created[0].parent == folder
    assert tempfile.gettempdir() == before
