"""What workers read and write must be on a disk that they share with the driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from cep.errors import InputError
from spark_runtime.wire.plan import Plan
from spark_runtime.wire.shared import SharedFolders, require_gone


def test_a_worker_that_has_the_folders_passes(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    found = SharedFolders.marked([*map(str, folders), "", str(folders[0])], "r1")
    assert found.folders == tuple(map(str, folders))
    found.require()
    found.remove()
    assert [path for folder in folders for path in folder.iterdir()] == []


def test_a_worker_that_lacks_a_folder_is_refused(tmp_path: Path) -> None:
    found = SharedFolders.marked([str(tmp_path)], "r1")
    found.remove()  # so it looks to a worker that has a folder of this name on a disk of its own
    with pytest.raises(InputError, match=f"`{tmp_path}` is on the machine of the driver") as caught:
        found.require()
    assert caught.value.code == "E0809"


def test_the_mark_of_a_killed_run_is_removed_and_that_of_another_stays(tmp_path: Path) -> None:
    SharedFolders.marked([str(tmp_path)], "r1")
    other = SharedFolders.marked([str(tmp_path)], "r2")
    again = SharedFolders.marked([str(tmp_path)], "r1")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((other.mark, again.mark))


def test_a_file_that_workers_do_not_find_and_the_driver_does_is_refused(tmp_path: Path) -> None:
    require_gone([str(tmp_path / "removed.json")])
    (tmp_path / "1.json").touch()
    with pytest.raises(InputError) as caught:
        require_gone([str(tmp_path / "removed.json"), str(tmp_path / "1.json")])
    assert (caught.value.code, "1.json" in str(caught.value)) == ("E0809", True)


def test_a_plan_that_a_task_cannot_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Context:
        def getLocalProperty(self, name: str) -> str:
            return f"{tmp_path}/plan/3.json"

    monkeypatch.setattr("pyspark.TaskContext.get", Context)
    with pytest.raises(InputError) as caught:
        Plan.of_task()
    assert caught.value.code == "E0809"
