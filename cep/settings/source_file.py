"""Files of text: bytes -> `Source`. A file is read only up to the maximum size of a text."""

from __future__ import annotations

from pathlib import Path

from cep.diagnostics.limits import too_large
from cep.errors import RuleError, Source


def read_source(path: str | Path, max_bytes: int) -> Source:
    """Return the text of the file at `path`.

    Raises RuleError: the file is larger than `max_bytes`. Raises UnicodeDecodeError: the file is not UTF-8.
    Raises OSError: the file cannot be read.
    """
    with Path(path).open("rb") as file:
        return source_of(str(path), file.read(max_bytes + 1), max_bytes)


def source_of(name: str, data: bytes, max_bytes: int) -> Source:
    """Return the text of `data`, which is UTF-8 with or without a byte order mark and with any line ends."""
    if len(data) > max_bytes:
        raise RuleError([too_large(Source(name, ""), max_bytes)])
    text = data.decode("utf-8-sig")
    return Source(name, text.replace("\r\n", "\n").replace("\r", "\n"))
