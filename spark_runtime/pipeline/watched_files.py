"""The files from which the rules of a pipeline come, while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from glob import glob
from pathlib import Path

from cep.language.front_ends import rule_files
from cep.rule_files import nearest_streams_file

SETTLED_SECONDS = 1.0
"""A file that changed more recently may still be changing."""

Signature = frozenset[tuple[str, int, int]]
"""For each file: its path, the time of its last change in nanoseconds, and its size in bytes."""


class WatchedFiles:
    """Files that are checked periodically. `paths`: files, folders with rule files, and patterns."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = tuple(paths)
        self._seen = self._signature()
        self._changed: tuple[Signature, float] | None = None  # not yet settled; since when

    def have_changed(self, now_s: float) -> bool:
        """Return once whether the files have changed, and were then stable for a second. `now_s`: a clock."""
        found = self._signature()
        if found == self._seen:
            self._changed = None
            return False
        if self._changed is None or self._changed[0] != found:
            self._changed = found, now_s
        if now_s - self._changed[1] < SETTLED_SECONDS:
            return False
        self._seen, self._changed = found, None
        return True

    def _signature(self) -> Signature:
        found = set()
        for file in self._files():
            try:
                stat = file.stat()
            except OSError:  # a program replaces it just now, or it is gone
                continue
            found.add((str(file), stat.st_mtime_ns, stat.st_size))
        return frozenset(found)

    def _files(self) -> Iterator[Path]:
        for file in files_at(self._paths):
            yield file
            if (beside := nearest_streams_file(file)) is not None:
                yield beside


def files_at(paths: Iterable[str]) -> Iterator[Path]:
    """Yield the files, and the rule files in the folders, that paths and patterns name."""
    for text in paths:
        # A folder above may have a name like a pattern.
        for path in [Path(text)] if Path(text).exists() else map(Path, sorted(glob(text))):
            yield from rule_files(path) if path.is_dir() else [path]
