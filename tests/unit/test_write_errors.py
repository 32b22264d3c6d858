"""Why something cannot be written: its own code for each cause, with the path and the way out."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack
from pathlib import Path

import pytest

from cep.errors import InputError
from cep.write_errors import replacing, writing


@pytest.mark.parametrize(
    ("cause", "code", "way_out"),
    [
        (errno.ENOSPC, "E0616", "make room on that disk and run again"),
        (errno.EDQUOT, "E0616", "make room on that disk and run again"),
        (errno.EACCES, "E0617", "let the user who runs this write there, or name another place"),
        (errno.EROFS, "E0617", "let the user who runs this write there, or name another place"),
        (errno.ENOTDIR, "E0618", "move the file away, or name another place"),
        (errno.EIO, "E0609", ""),
    ],
)
def test_each_cause_has_its_code(cause: int, code: str, way_out: str) -> None:
    with pytest.raises(InputError) as caught, writing("out/matches"):
        raise OSError(cause, "reason")
    assert (caught.value.code, caught.value.help) == (code, way_out)
    assert "`out/matches`" in str(caught.value)


def test_a_file_in_the_place_of_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = tmp_path / "file/x"
    fact = r"E0618.*/file/x` cannot be written: a file is where a folder"
    with pytest.raises(InputError, match=fact), writing(place):
        place.mkdir(parents=True)


def test_a_file_that_could_not_be_written_whole_remains_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "matches.jsonl"
    file.write_text("old\n")

    def write() -> None:
        with replacing(file) as unfinished:
            unfinished.write_text("ne")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(InputError, match="E0616"):
        write()
    assert file.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [file]


def test_several_writers_of_one_file_leave_each_other_s_unfinished_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, replace = tmp_path / "status.json", Path.replace
    with ExitStack() as other_writer:

        def replaced(unfinished: Path, place: Path) -> None:
            replace(unfinished, place)
            monkeypatch.undo()
            other_writer.enter_context(replacing(file)).write_text("second\n")  # the name is free again

        monkeypatch.setattr(Path, "replace", replaced)
        with replacing(file) as unfinished:
            unfinished.write_text("first\n")
        assert file.read_text() == "first\n"
    assert file.read_text() == "second\n"
    assert list(tmp_path.iterdir()) == [file]


def test_a_replaced_file_keeps_its_mode_and_a_link_remains_a_link(tmp_path: Path) -> None:
    file, link = tmp_path / "matches.jsonl", tmp_path / "link.jsonl"
    file.write_text("old\n")
    file.chmod(0o640)
    link.symlink_to(file)
    with replacing(link) as unfinished:
        unfinished.write_text("new\n")
    assert link.is_symlink()
    assert file.read_text() == "new\n"
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(tmp_path.iterdir()) == [link, file]


def test_missing_folders_are_created_and_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    file, usual = tmp_path / "new" / "matches.jsonl", tmp_path / "usual"
    usual.touch()
    with replacing(file) as unfinished:
        unfinished.write_text("new\n")
    assert file.read_text() == "new\n"
    assert file.stat().st_mode == usual.stat().st_mode


def test_two_at_once_each_write_a_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "matches.jsonl"
    (tmp_path / ".matches.jsonl.1.tmp").write_text("left by a process that was killed")
    with replacing(file) as first, replacing(file) as second:
        first.write_text("first\n")
        second.write_text("second\n")
    assert file.read_text() == "first\n"
    assert first != second
    assert sorted(path.name for path in tmp_path.iterdir()) == [".matches.jsonl.1.tmp", file.name]


def test_a_pipe_is_written_itself(tmp_path: Path) -> None:
    pipe = tmp_path / "matches.jsonl"
    os.mkfifo(pipe)
    with replacing(pipe) as place:
        assert place == pipe
    assert stat.S_ISFIFO(pipe.stat().st_mode)
