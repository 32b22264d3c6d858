"""Write the headings of docs/reference/errors.md.

    .venv/bin/python tools/errors_page.py

A family of codes is a section of the page, a code is a heading with its meaning. The text below a heading is
written by hand and belongs to the family or the code: it moves with it. A new code gets a heading alone.
"""

from __future__ import annotations

import re
from pathlib import Path

from cep.diagnostics.codes import FAMILIES

PAGE = Path(__file__).parents[1] / "docs/reference/errors.md"


def errors_page(page: str) -> str:
    """Return the page with the sections and headings that the table of codes gives it.

    Raises ValueError: the page explains a code that is not in the table, or explains one twice.
    """
    top, *sections = re.split(r"^## ", page, flags=re.MULTILINE)
    texts: dict[str, str] = {}
    for section in sections:
        for part in re.split(r"^### ", section, flags=re.MULTILINE):
            heading, _, text = part.partition("\n")
            name = heading.split(":")[0]
            if name in texts:
                raise ValueError(f"`{name}` is explained twice")
            texts[name] = text.strip("\n")
    parts = [top.rstrip("\n")]
    for family, codes in FAMILIES.items():
        parts += [f"## {family}", texts.pop(family, "")]
        for code, meaning in codes.items():
            parts += [f"### {code}: {meaning}", texts.pop(code, "")]
    if texts:
        raise ValueError(f"not in the table of codes: {', '.join(texts)}")
    return "\n\n".join(part for part in parts if part) + "\n"


if __name__ == "__main__":
    PAGE.write_text(errors_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
