"""Why something cannot be written: its own code for each cause, with the path and the way out."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from cep.errors import InputError
from cep.write_errors import writing


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
