"""Files of cases. Each line is a JSON object. A file may be compressed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "cases"
"""The cases that run with the tests."""


def read_cases(name: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the cases of a file."""
    path = Path(name)
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    yield from (json.loads(line) for line in text.decode().splitlines() if line.strip())
