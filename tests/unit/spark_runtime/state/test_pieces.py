"""Files of state on a disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cep.errors import InputError, StateError
from spark_runtime.state.pieces import Pieces


def test_a_worker_does_not_create_part_of_a_checkpoint_that_was_removed(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    pieces = Pieces(str(checkpoint / "state"))
    (piece,) = pieces.write("2/6-run-4", [b"abc"])
    assert pieces.read(piece) == b"abc"
    shutil.rmtree(checkpoint)  # its driver was killed, and somebody restores a savepoint in its place
    with pytest.raises(InputError, match="cannot be written: No such file or directory"):
        pieces.write("2/7-run-5", [b"abc"])
    assert not checkpoint.exists()


def test_a_file_that_is_missing_may_be_in_another_folder_of_state(tmp_path: Path) -> None:
    (piece,) = Pieces(str(tmp_path / "one")).write("2/6-run-4", [b"abc"])
    with pytest.raises(StateError, match=r"E0702.*is missing") as caught:
        Pieces(str(tmp_path / "other")).read(piece)
    assert caught.value.help.startswith("restore the checkpoint directory as a whole, or start with an empty")
    assert caught.value.help.endswith("; detect needs the `state_folder` of its earlier runs")
