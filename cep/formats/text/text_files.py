"""Text files: opened, decompressed, and split into lines and events."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from cep.errors import InputError
from cep.formats.chunks import Piece, with_columns, without
from cep.formats.lines import Lines
from cep.formats.protocol import RecordFormat
from cep.formats.text.damaged import COMPRESSED, rest_of
from cep.schema.stream import Stream

STDIN = "-"

MAX_LINE_BYTES = 256 << 20
"""Most bytes of a line. A file with a longer line is not a text file."""

_MOST_HEADER_BYTES = 1 << 20

_READ_BYTES = 256 << 10

_BOM = b"\xef\xbb\xbf"

# ---------------------------------------------------------------- lines


Bounds = tuple[int, int]
"""The first byte of a file that is read, and the one after the last."""


@contextmanager
def _opened(name: str) -> Iterator[Any]:
    if name == STDIN:
        yield sys.stdin.buffer
    elif is_read_once(name):  # Arrow seeks
        with Path(name).open("rb") as pipe:
            yield pipe
    else:
        with pa.input_stream(name, compression="detect") as file:
            yield file


def is_read_once(path: str | Path) -> bool:
    """Return whether a path is standard input, a pipe or another device, which has its contents only once."""
    if str(path) == STDIN:
        return True
    try:
        return Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir()
    except OSError:  # opening it reports the reason
        return False


def line_blocks(
    name: str, block_bytes: int, encoding: str = "utf-8", bounds: Bounds | None = None
) -> Iterator[Lines]:
    """Yield the complete lines of a file, about `block_bytes` at a time, as UTF-8.

    `bounds`: only these bytes of the file are read, which must be uncompressed. A line ends in a line feed,
    or a carriage return and a line feed. Bytes that are not characters of `encoding` become invalid UTF-8.
    Raises InputError: the file cannot be read; anything that could be read was yielded before. E0624: the
    whole file was read, but other bytes follow its end.
    """
    n_lines = 0
    pending: list[bytes] = []
    n_pending = 0
    behind: list[InputError] = []
    try:
        with _opened(name) as file:
            for data in _as_utf8(name, _portions(name, file, block_bytes, bounds, behind), encoding):
                cut = data.rfind(b"\n") + 1
                if n_pending + (data.index(b"\n") if cut else len(data)) > MAX_LINE_BYTES:
                    raise InputError(
                        "E0645",
                        f"line {n_lines + 1} of `{name}` is longer than {MAX_LINE_BYTES >> 20} MiB",
                        "is it a text file?",
                    )
                if cut == 0:
                    pending.append(data)
                    n_pending += len(data)
                    continue
                lines = Lines.of_block(b"".join([*pending, data[:cut]]))
                pending, n_pending = [data[cut:]], len(data) - cut
                n_lines += len(lines)
                yield lines
    except (OSError, pa.ArrowException) as error:
        place = f" behind line {n_lines:,}" if n_lines else ""
        raise InputError("E0606", f"`{name}` cannot be read{place}: {_first_line(error)}") from error
    if any(pending):
        yield Lines.of_block(b"".join(pending))
    if behind:
        raise behind[0]


def _portions(
    name: str, file: Any, block_bytes: int, bounds: Bounds | None, behind: list[InputError]
) -> Iterator[bytes]:
    """Yield the bytes of a file, at most `block_bytes` at a time, including all bytes before an error.

    Adds to `behind` the error for bytes after the end of a compressed file.
    """
    n_left = sys.maxsize
    if bounds is not None:
        file.seek(bounds[0])
        n_left = bounds[1] - bounds[0]
    n_read = 0
    while n_left:
        try:
            data: bytes = file.read(min(block_bytes, n_left))
        except (OSError, pa.ArrowException):
            # The read that finds the damage of a compressed file loses everything that it has read.
            if name == STDIN or bounds is not None or not name.lower().endswith(COMPRESSED):
                raise
            found = yield from rest_of(name, n_read, block_bytes)
            if found is not None:
                behind.append(found)
            return
        if not data:
            return
        yield data
        n_read += len(data)
        n_left -= len(data)


def _as_utf8(name: str, portions: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    if encoding == "utf-8":
        yield from portions
        return
    decoder = codecs.getincrementaldecoder(encoding)(_MARKED)
    try:
        for data in portions:
            yield _marked_utf8(decoder.decode(data))
        yield _marked_utf8(decoder.decode(b"", final=True))
    except UnicodeError:
        raise InputError(
            "E0642",
            f"`{name}` does not begin with the byte order mark of {encoding}",
            f"declare csv: {{encoding: {encoding}-le}}, or {encoding}-be, or what else it is",
        ) from None


def lines_as_utf8(lines: Sequence[bytes], encoding: str) -> Sequence[bytes]:
    """Return lines of a file, split at its line feeds, in the form of `line_blocks`."""
    if encoding == "utf-8":
        return lines
    if encoding.startswith("utf-16"):
        raise InputError(
            "E0646",
            f"{encoding} cannot be read from a file system that only Spark knows",
            "copy the files to a local disk, or convert them to UTF-8",
        )
    return [_marked_utf8(line.decode(encoding, _MARKED)) for line in lines]


_MARKED = "cep.marked"
_MARK = "\udcff"
"""Half of a surrogate pair, which UTF-8 does not have: stands for bytes that are not a character."""


def _mark(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return _MARK, error.end


codecs.register_error(_MARKED, _mark)


def _marked_utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


# ---------------------------------------------------------------- events


class TextReader:
    """Turns the lines of one file, in portions of any size, into pieces.

    It takes lines in the form of `line_blocks`. `named` are the columns in the file's name.
    """

    def __init__(
        self, name: str, stream: Stream, file_format: RecordFormat, named: Mapping[str, pa.Scalar]
    ) -> None:
        self.name = name
        self.encoding = file_format.encoding(stream)
        self._reader = file_format.reader(name, without(stream, named))
        self._stream = stream
        self._named = named
        self._first_line = 1
        self._lines: Sequence[bytes] = []  # not read yet
        self._has_begun = False

    def read(self, lines: Sequence[bytes], *, is_last: bool = False) -> list[Piece]:
        """Return the events of the next lines, or with `is_last` of all remaining lines.

        Raises InputError: the file does not consist of lines with events of the stream.
        """
        # Objects are created only where lines of two portions meet.
        self._lines = [*self._lines, *lines] if self._lines else lines
        if not self._has_begun and not self._begin(is_last):
            return []
        if not self._lines:
            return []
        decoded = self._reader.decode(self._lines, is_last=is_last)
        first_line = self._first_line
        self._lines = self._lines[decoded.n_read :]
        self._first_line += decoded.n_read
        problems = [(index + first_line, reason) for index, reason in decoded.problems]
        piece = Piece(
            self.name,
            decoded.events,
            decoded.indices + first_line,
            decoded.records,
            first_line,
            problems,
            absent=decoded.absent,
        )
        return [with_columns(piece, self._stream, self._named)]

    def pass_over(self, n_bytes: int) -> None:
        """Continue after the first `n_bytes` of an uncompressed file; the header is still read."""
        if n_bytes == 0:
            return
        try:
            with _opened(self.name) as file:
                head = file.read(min(n_bytes, _MOST_HEADER_BYTES))
                n_lines = head.count(b"\n")
                n_bytes -= len(head)
                while n_bytes > 0 and (data := file.read(min(n_bytes, _READ_BYTES))):
                    n_lines += data.count(b"\n")
                    n_bytes -= len(data)
        except OSError as error:
            raise InputError("E0606", f"`{self.name}` cannot be read: {_first_line(error)}") from error
        self._lines = Lines.of_block(head)
        self._begin(is_last=True)
        self._lines = []
        self._first_line = n_lines + 1

    def _begin(self, is_last: bool) -> bool:
        """Read the start of the file; return whether there is enough of it."""
        lines = self._lines
        if not lines:
            return False
        if lines[0].startswith(_BOM):
            lines = self._lines = [lines[0].removeprefix(_BOM), *lines[1:]]
        n_lines = self._reader.begin(lines, is_last=is_last)
        if n_lines is None:
            return False
        if n_lines:
            self._lines = [b""] * n_lines + [*lines[n_lines:]]
        self._has_begun = True
        return True
