"""The list of what was read of a folder: a file in the checkpoint, one line for each part of a file.

The number of a line is the offset of the source: lines are only ever added, so a range of numbers always
means the same bytes. A line that was being written when the process died has no end, and is not there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from spark_runtime.storage.checkpoint_files import damaged


@dataclass(frozen=True, slots=True)
class Entry:
    """Some bytes of a file.

    Parameters
    ----------
    name
        The file, as seen from the source's folder. It says what a file is: a folder may move with its files.
    start, end
        Bytes from `start` up to `end`; `end` was the size of the file, or the end of its last whole line.
    mtime_ns
        When the file had last been changed.
    mark
        CRC-32 of the first and the last bytes before `end` (`folder.mark_of`): a file that has grown still
        has them there.
    """

    name: str
    start: int
    end: int
    mtime_ns: int
    mark: int


@dataclass(slots=True)
class FileLog:
    """The entries so far, and the last one of each file."""

    path: Path
    entries: list[Entry] = field(default_factory=list)
    last: dict[str, Entry] = field(default_factory=dict)
    n_bytes: int = 0

    @classmethod
    def load(cls, path: Path) -> FileLog:
        """Return the log at `path`; without a file it is empty.

        Raises
        ------
        StateError
            A line of it is damaged.
        """
        log = cls(path)
        data = path.read_bytes() if path.exists() else b""
        log.n_bytes = data.rfind(b"\n") + 1
        try:
            for line in data[: log.n_bytes].splitlines():
                log._add(Entry(*json.loads(line)))
        except (ValueError, TypeError) as error:
            raise damaged(path, "the list of files that were read, is damaged") from error
        return log

    def append(self, entries: Iterable[Entry]) -> None:
        """Add entries; they are on the disk when this returns."""
        added = list(entries)
        if not added:
            return
        lines = "".join(
            json.dumps([e.name, e.start, e.end, e.mtime_ns, e.mark], separators=(",", ":")) + "\n"
            for e in added
        ).encode()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("r+b" if self.path.exists() else "wb") as file:
            file.truncate(self.n_bytes)  # without a line that was not written to its end
            file.seek(self.n_bytes)
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        self.n_bytes += len(lines)
        for entry in added:
            self._add(entry)

    def _add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.last[entry.name] = entry
