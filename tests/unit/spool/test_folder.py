"""A file is written as a whole, or remains as it was."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from cep.errors import InputError
from cep.spool.folder import write_whole


def test_a_file_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "a.cep", tmp_path / "link.cep"
    target.write_text("before")
    link.symlink_to(target)
    write_whole(link, "after")
    assert link.is_symlink()
    assert target.read_text() == "after"
    assert [path.name for path in target.parent.iterdir()] == ["a.cep"]


def test_a_file_that_cannot_be_written_remains_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "payments.profile.json"
    write_whole(file, "before")

    def full(self: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InputError, match="no space is left"):
        write_whole(file, "after")
    assert file.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
