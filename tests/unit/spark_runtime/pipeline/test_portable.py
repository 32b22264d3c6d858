"""A planned micro-batch reads files where their source was moved to."""

from __future__ import annotations

from pathlib import Path

from spark_runtime.pipeline.portable import moved
from spark_runtime.sources.protocol import Range
from spark_runtime.wire.plan import Plan


def test_only_files_that_have_moved_are_read_elsewhere(tmp_path: Path) -> None:
    old, new = tmp_path / "in", tmp_path / "in2"
    for folder, files in ((old, ["stays", "both"]), (new, ["both", "day/moved"]), (tmp_path, ["one"])):
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
    names = ("stays", "both", "day/moved", "lost")
    share: list[tuple[str, Range]] = [
        *(("a", (str(old / name), 0, 9, 1, False)) for name in names),
        ("a", (f"{old}3/day/moved", 0, 9, 1, False)),  # of a folder whose name only starts like the old one
        ("b", (str(old / "day/moved"), 0, 9, 1, False)),  # of a source that was not moved
        ("c", (str(tmp_path / "was"), 0, 9, 1, False)),  # the source is this file
        ("d", (3, 100, 200)),  # of a log of messages
    ]
    before = {"a": str(old), "b": str(old), "c": str(tmp_path / "was"), "d": "topic"}
    now = {**before, "a": str(new), "c": str(tmp_path / "one"), "d": "other"}
    expected: list[tuple[str, Range]] = [
        *(("a", (str(folder), 0, 9, 1, False)) for folder in (old / "stays", old / "both")),
        ("a", (str(new / "day/moved"), 0, 9, 1, False)),
        ("a", (str(old / "lost"), 0, 9, 1, False)),
        *share[4:6],
        ("c", (str(tmp_path / "one"), 0, 9, 1, False)),
        share[7],
    ]
    assert moved(Plan([share]), before, now) == Plan([expected])
