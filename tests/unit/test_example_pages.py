"""The cookbook and the tour: each rule reports what the page shows, and each picture is what is drawn."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest

from cep import find_matches, find_reasons
from tests.notebooks import code_cells, loaded, written
from tests.pages import DOCS, blocks

TOUR = (DOCS / "language/tour.md").read_text()
COOKBOOK = (DOCS / "guides/cookbook.md").read_text()
TABLES = {"card,since,most": "cards", "card,since,name": "holders"}
"""The table whose rows have a header; others are payments."""
CARDS = [{"card": card, "since": "2024-05-01T00:00:00Z"} for card in ("c1", "c2", "c3")]


def sections(page: str) -> list[str]:
    """Return the sections of a page that have a rule."""
    return [text for text in re.split(r"^## ", page, flags=re.MULTILINE) if "```cep\n" in text]


def events(text: str) -> list[dict[str, Any]]:
    """Return the rows of a block of CSV; an empty field is NULL."""
    rows = csv.DictReader(io.StringIO(text))
    return [{name: _value(name, field) for name, field in row.items() if field} for row in rows]


def _value(name: str, field: str) -> Any:
    return float(field) if name in ("amount", "most") else f"{field}Z" if name in ("ts", "since") else field


def said(match: dict[str, Any]) -> str:
    """Return a match as the pages show it: its key and its measures, without those of other rules."""
    hidden = ("rule", "match_id", "match_start", "match_end", "revision", "kind")
    return ", ".join(
        f"{name} {value}" for name, value in match.items() if name not in hidden and value is not None
    )


def prepared(page: str, section: str, folder: Path) -> Any:
    """Write the files of a section into a folder; return its events, with those of a table if it has some."""
    (folder / "streams.yaml").write_text(blocks(page, "yaml")[0])
    (folder / "rule.cep").write_text(blocks(section, "cep")[0])
    given = {TABLES.get(text.split()[0], "payments"): events(text) for text in blocks(section, "csv")}
    return given["payments"] if [*given] == ["payments"] else given


@pytest.mark.parametrize(
    ("page", "section"),
    [(page, section) for page in (TOUR, COOKBOOK) for section in sections(page)],
    ids=lambda text: text.splitlines()[0],
)
def test_a_rule_of_a_page_reports_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str, section: str
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = prepared(page, section, tmp_path)
    given = {"payments": rows, "cards": CARDS} if "FOR EACH cards" in section else rows
    found = [said(match) for match in find_matches("rule.cep", None, given)]
    assert found == blocks(section, "text")[0].splitlines()


def test_the_code_of_the_cookbook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    section = next(text for text in sections(COOKBOOK) if text.startswith("Tune"))
    cells: dict[str, Any] = {"events": prepared(COOKBOOK, section, tmp_path)}
    for block in blocks(COOKBOOK, "python"):
        exec(block, cells)


@pytest.mark.parametrize("section", sections(TOUR), ids=lambda text: text.splitlines()[0])
def test_a_picture_of_the_tour_is_the_one_that_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str
) -> None:
    monkeypatch.chdir(tmp_path)
    from cep.why.picture import picture, picture_of_rows
    from cep.why.reasons import Why

    rows = prepared(TOUR, section, tmp_path)
    (image,) = re.findall(r"\]\(\.\./images/(tour_\w+\.svg)\)", section)
    *_, rule = re.findall(r"^(?:RULE|VIEW) (\w+)", section, flags=re.MULTILINE)
    told = find_reasons("rule.cep", None, rows, "c1", rule=rule)
    drawn = picture(told) if isinstance(told, Why) else picture_of_rows(told)
    Path(image).write_text(drawn)
    assert drawn == (DOCS / "images" / image).read_text(), f"copy {tmp_path / image} to docs/images"


def test_the_notebook_shows_what_its_cells_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = DOCS / "start/first_rule.ipynb"
    notebook = loaded(file)
    monkeypatch.chdir(tmp_path)
    text = written(notebook)
    Path("first_rule.ipynb").write_text(text)
    assert text == file.read_text(encoding="utf-8"), f"copy {tmp_path}/first_rule.ipynb to docs/start"
    pictures = [cell for cell in code_cells(notebook) if "<svg" in str(cell["outputs"])]
    assert len(pictures) == 2
    prose = "".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    links = re.findall(r"\]\(([^)]+)\)", prose)
    assert len(links) > 3
    assert [link for link in links if not (file.parent / link).is_file()] == []


def test_results_are_shown_in_notebooks_as_html(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    from cep import load_rules, match_file

    section = sections(TOUR)[0]
    rows = prepared(TOUR, section, tmp_path)
    Path("events.csv").write_text(blocks(section, "csv")[0])
    rules = load_rules("rule.cep")._repr_html_()
    assert "<td" in rules
    for word in ("cash_out", "payments", "card", "loss"):
        assert f">{word}</td>" in rules
    result = match_file("rule.cep", "events.csv")._repr_html_()
    assert ">900.0</td>" in result
    assert "Result(matches: 1, dead letters: 0, late: 0)" in result
    answer = find_reasons("rule.cep", None, rows, "c1")._repr_html_()
    assert answer.startswith("<svg")
    assert answer.count("<tr>") == 1 + 1 + 1
    wrong = find_reasons("rule.cep", None, [{**rows[0], "card": "<b>"}], "<b>")._repr_html_()
    assert "<b>" not in wrong
