"""The folder `docs`: the door leads to each page, and the index of decisions lists each decision."""

from __future__ import annotations

import re
from pathlib import Path

from tests.pages import DOCS

DECISIONS = DOCS / "design/decisions"


def links(page: Path) -> set[Path]:
    """Return the pages that a page links to."""
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    return {(page.parent / target).resolve() for target in targets}


def reached(page: Path) -> set[Path]:
    """Return the pages of `docs` that links lead to from a page, in any number of steps through indexes."""
    found, left = {page}, [page]
    while left:
        new = {link for link in links(left.pop()) if link.suffix == ".md" and link.is_file()} - found
        found |= new
        left += [link for link in new if link.name == "index.md"]
    return found


def test_the_door_leads_to_every_page() -> None:
    pages = set(DOCS.rglob("*.md"))
    assert len(pages) > 60
    assert sorted(map(str, pages - reached(DOCS / "index.md"))) == []


def test_every_page_is_in_a_folder() -> None:
    assert [page.name for page in DOCS.glob("*.md")] == ["index.md"]


def test_the_index_of_decisions_has_each_with_its_title_and_a_status() -> None:
    rows = re.findall(
        r"^\| (\d+) \| \[(.+?)\]\((\d{4}-[\w-]+\.md)\) \| (\S.*) \|$",
        (DECISIONS / "index.md").read_text(),
        re.MULTILINE,
    )
    expected = [(page.name, page.read_text().splitlines()[0]) for page in sorted(DECISIONS.glob("0*.md"))]
    assert [(name, f"# {number}. {title}") for number, title, name, _ in rows] == expected
