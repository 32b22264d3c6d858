"""Patterns of paths with names: ``data/{series}.csv`` has the column ``series`` in the names of files.

A name in braces stands for part of a name, without ``/``; so does ``*``, which gives no column.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from pathlib import Path

import pyarrow as pa

from cep.errors import InputError
from cep.expression import Type
from cep.schema.stream import Stream
from cep.schema.text_values import column_from_text

_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
"""What Hive and Spark write in place of NULL: ``day=__HIVE_DEFAULT_PARTITION__``."""

_WRITTEN_NOW = (
    *(".tmp", ".part", ".partial", ".filepart", ".crdownload", ".inprogress"),
    *("._COPYING_", ".swp", "~"),
)
"""Endings that programs give to files until they are complete: copies, downloads, Hadoop, editors."""

_SIGN = re.compile(r"\{([^{}/]*)\}|\*")


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A pattern: `glob` finds the files, `form` is a pattern of their paths with a group for each name."""

    text: str
    glob: str
    form: re.Pattern[str]
    names: tuple[str, ...]

    def files(self) -> list[Path]:
        """Return the files of the pattern by name, without those that are skipped in a folder."""
        return sorted(path for path in self._found() if path.is_file() and not self._is_hidden(path))

    def links_to_nothing(self) -> list[Path]:
        """Return the links of the pattern, or on the way to its files, that lead nowhere."""
        parts = Path(self.glob).parts
        ways = (Path(*parts[: n + 1]) for n in range(len(self.folder.parts), len(parts)))
        found = {Path(name) for way in ways for name in glob.glob(str(way))}
        return sorted(path for path in found if leads_nowhere(path) and not self._is_hidden(path))

    @property
    def folder(self) -> Path:
        """The folder that all files of the pattern are in, at some depth."""
        fixed = takewhile(lambda part: _SIGN.search(part) is None, Path(self.text).parts[:-1])
        return Path(*fixed)

    def partial(self) -> list[Path]:
        """Return the files of the pattern by name that are skipped because they are not complete yet."""
        found = (path for path in self._found() if self._is_partial(path) and not self._is_marker(path))
        return sorted(path for path in found if path.is_file())

    def _found(self) -> Iterator[Path]:
        return map(Path, glob.glob(self.glob))

    def _is_hidden(self, path: Path) -> bool:
        return self._is_marker(path) or self._is_partial(path)

    def _is_marker(self, path: Path) -> bool:
        return any(part[0] in "._" and _SIGN.match(given) for part, given in self._parts(path))

    def _is_partial(self, path: Path) -> bool:
        return any(
            part.endswith(_WRITTEN_NOW) and not given.endswith(_WRITTEN_NOW)
            for part, given in self._parts(path)
        )

    def _parts(self, path: Path) -> Iterator[tuple[str, str]]:
        return zip(path.parts, Path(self.text).parts, strict=False)

    def texts(self, path: str) -> dict[str, str]:
        """Return the parts of a file's path in the places of the names."""
        found = self.form.fullmatch(path)
        if found is None:
            raise InputError(
                "E0644",
                f"the path `{path}` is not of the form `{self.text}`",
                "give the files of that pattern",
            )
        return dict(zip(self.names, found.groups(), strict=True))


def is_skipped(name: str) -> bool:
    """Return whether a file in a folder is, by its name, a marker or not complete yet.

    Spark skips the same prefixes. If the file is renamed when it is complete, its events count once.
    """
    return name[0] in "._" or name.endswith(_WRITTEN_NOW)


def name_when_complete(name: str) -> str | None:
    """Return the name of a file without the ending that says that it is not complete; None: it has none."""
    if name[0] in "._" or not name.endswith(_WRITTEN_NOW):
        return None
    return name.removesuffix(next(ending for ending in _WRITTEN_NOW if name.endswith(ending)))


def leads_nowhere(path: Path) -> bool:
    """Return whether a path is a link to something that does not exist."""
    return path.is_symlink() and not path.exists()


@lru_cache(maxsize=256)
def path_pattern(path: str) -> PathPattern | None:
    """Return `path` as a pattern, or None if it is the path of one file or folder."""
    path = path if "://" in path else str(Path(path))  # like the paths of its files
    if _SIGN.search(path) is None:
        return None
    names = tuple(found[1] for found in _SIGN.finditer(path) if found[1] is not None)
    form, found_by, end = "", "", 0
    for found in _SIGN.finditer(path):
        if found.start() == end and end:
            raise InputError(
                "E0643", f"the pattern `{path}` has two parts side by side", "put a sign between them"
            )
        literal = path[end : found.start()]
        form += re.escape(literal) + ("([^/]+)" if found[1] is not None else "[^/]*")
        found_by += glob.escape(literal) + "*"
        end = found.end()
    form += re.escape(path[end:])
    double = sorted({name for name in names if names.count(name) > 1 or not name})
    if double:
        raise InputError(
            "E0643",
            f"the pattern `{path}` has `{{{double[0]}}}` twice or without a name",
            "name each part once",
        )
    return PathPattern(path, found_by + glob.escape(path[end:]), re.compile(form, re.DOTALL), names)


def check_names(pattern: PathPattern, stream: Stream) -> None:
    """Raise InputError unless the names are columns of the stream, and not all of them."""
    for name in pattern.names:
        field = stream.field(name)
        if field is None:
            columns = ", ".join(field.name for field in stream.fields)
            raise InputError(
                "E0643",
                f"the pattern `{pattern.text}` names `{name}`, which stream `{stream.name}` does not declare",
                f"columns of the stream: {columns}",
            )
        if field.type is Type.OPAQUE:
            raise InputError(
                "E0643",
                f"the pattern `{pattern.text}` names `{name}`, which is {field.ddl}",
                "name columns of single values",
            )
    if len(pattern.names) == len(stream.fields):
        raise InputError(
            "E0643",
            f"the pattern `{pattern.text}` names every column of stream `{stream.name}`",
            "at least one column must be in the files",
        )


def path_values(pattern: PathPattern, path: str, stream: Stream) -> Mapping[str, pa.Scalar]:
    """Return the columns that are in the path of a file, with their values in the types of events."""
    values = {}
    for name, text in pattern.texts(path).items():
        field = stream.field(name)
        assert field is not None, name
        known = None if text == _HIVE_NULL else text
        column, bad = column_from_text(pa.array([known], pa.string()), field)
        if bad[0]:
            raise InputError(
                "E0644",
                f"`{text}` in the path `{path}` is not of type {field.declared}, as `{name}` is declared",
                "rename the file, or change the declaration",
            )
        values[name] = column[0]
    return values
