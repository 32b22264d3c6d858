"""The list of what was read from a folder: a file in the checkpoint, with a line for each part of a file.

The number of a line is the offset of the source: lines are only added, so a range of numbers always means the
same bytes. A line that was not completely written, because the process died, is ignored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from spark_runtime.storage.checkpoint_files import LocalFiles, damaged
from spark_runtime.storage.sealed import parsing, sealed, unsealed


@dataclass(frozen=True, slots=True)
class Entry:
    """Some bytes of a file.

    - `name`: the file, relative to the source's folder. It identifies the file: a folder may move with its
      files.
    - `start`, `end`: bytes from `start` up to `end`; `end` was the size of the file, or the end of its last
      whole line.
    - `mtime_ns`: when the file was last changed.
    - `mark`: CRC-32 of the first and the last bytes before `end` (`mark_of`), which do not change when the
      file grows.
    """

    name: str
    start: int
    end: int
    mtime_ns: int
    mark: int


@dataclass(slots=True)
class FileLog:
    """The entries that are still needed, and the last one of each file.

    A growing file gets an entry in each micro-batch, so a run forgets entries that are written.
    """

    path: Path
    entries: list[Entry] = field(default_factory=list)  # from number `first` on
    last: dict[str, Entry] = field(default_factory=dict)
    n_bytes: int = 0
    first: int = 0

    @classmethod
    def load(cls, path: Path) -> FileLog:
        """Return the log at `path`; it is empty if the file is missing.

        Raises StateError: a line is damaged.
        """
        log = cls(path)
        data = LocalFiles(str(path.parent)).read_bytes(path.name) or b""
        log.n_bytes = data.rfind(b"\n") + 1
        with parsing(damaged(path, "the list of files that were read, is damaged")):
            for line in data[: log.n_bytes].splitlines():
                log._add(Entry(*json.loads(unsealed(line))))
        return log

    @property
    def end(self) -> int:
        """The number after that of the last entry."""
        return self.first + len(self.entries)

    def between(self, start: int, end: int | None = None) -> list[Entry]:
        """Return the entries from number `start` up to `end`, or up to the last one."""
        assert start >= self.first
        return self.entries[start - self.first : None if end is None else end - self.first]

    def forget(self, end: int) -> list[Entry]:
        """Forget the entries before number `end`, and return them. The file keeps them."""
        n = max(end - self.first, 0)
        forgotten, self.entries = self.entries[:n], self.entries[n:]
        self.first += len(forgotten)
        return forgotten

    def append(self, entries: Iterable[Entry]) -> None:
        """Add entries; they are on the disk when this returns."""
        added = list(entries)
        if not added:
            return
        texts = (
            json.dumps([e.name, e.start, e.end, e.mtime_ns, e.mark], separators=(",", ":")) for e in added
        )
        lines = "".join(f"{sealed(text)}\n" for text in texts).encode()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("r+b" if self.path.exists() else "wb") as file:
            file.truncate(self.n_bytes)  # removes an incomplete line
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
