"""Every code that a user can meet is explained on one of three pages."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def test_every_code_in_the_source_is_documented() -> None:
    files = [
        path
        for room in ("cep", "rules", "spark_runtime", "scenarios")
        for path in (_ROOT / room).rglob("*.py")
    ]
    used = {code for path in files for code in re.findall(r'"([EW]0\d{3})"', path.read_text())}
    pages = "".join((_ROOT / "docs" / name).read_text() for name in ("errors.md", "input.md", "pipeline.md"))
    explained = set(re.findall(r"(?:^### |^\| )([EW]0\d{3})\b", pages, re.MULTILINE))
    assert used == explained
