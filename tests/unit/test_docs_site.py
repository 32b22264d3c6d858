"""The site of docs/: its links, the sentences of llms.txt, the names of the page of Python."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cep
import spark_runtime
from tests.pages import DOCS, loaded_tool

site = loaded_tool("docs_site")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name in ("README.md", "docs/index.md", "docs/a/x.md", "docs/b/index.md", "rules/r.cep"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("docs/a/x.md", "[b](../b/index.md)", "[b](../b/index.md)"),
        ("docs/a/x.md", "[b](../b)", "[b](../b/index.md)"),
        ("docs/a/x.md", "[r](../../README.md#more)", "[r](../project/readme.md#more)"),
        ("README.md", "[`x [y]`](docs/a/x.md#y)", "[`x [y]`](../a/x.md#y)"),
        ("README.md", "[the rule](rules/r.cep), [them](rules)", "the rule, them"),
        ("README.md", "[gone](docs/gone.md)", "[gone](docs/gone.md)"),
        ("README.md", "[here](#more) [there](https://example.com/docs/a/x.md)", None),
        ("README.md", "```text\n[them](rules)\n```", None),
    ],
)
def test_links_lead_to_where_pages_are_on_the_site(
    repository: Path, page: str, link: str, expected: str | None
) -> None:
    assert site.with_links_of_the_site(link, page, repository) == (expected or link)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# Title\n\nThe first\nsentence. The second.", "The first sentence."),
        ("# Title\n\n```cep\nRULE r\n```\n\nSee [a page](a.md): here.\n\nMore.", "See a page: here."),
        ("# Title\n\n## Part\n\nA pipeline reads streams:\n\n- one", "A pipeline reads streams."),
    ],
)
def test_a_page_is_summed_up_by_its_first_sentence(text: str, expected: str) -> None:
    assert site.summary(text) == expected


def test_a_bar_in_a_table_is_a_bar_and_a_code_has_an_address() -> None:
    html = r'<td><code>a \| b</code></td><p><code>a \| b</code></p><h3 id="e0101-text">'
    shown = r'<td><code>a | b</code></td><p><code>a \| b</code></p><a id="e0101"></a><h3 id="e0101-text">'
    assert site.on_page_content(html) == shown


def test_what_a_page_would_load_from_another_host_is_found() -> None:
    inside = '<a href="https://example.com"><script src="../assets/a.js"></script><link href="../a.css">'
    assert site.loaded_from_elsewhere(inside) is None
    assert site.loaded_from_elsewhere(f'{inside}<link rel="x" href=//fonts.example/f>') == "//fonts.example/f"
    assert site.loaded_from_elsewhere(f'{inside}<script src="https://cdn.example/a.js">') is not None


def test_the_page_of_python_has_every_public_name() -> None:
    named = re.findall(r"^::: (\S+)$", (DOCS / "reference/api.md").read_text(), re.MULTILINE)
    public = [f"{package.__name__}.{name}" for package in (cep, spark_runtime) for name in package.__all__]
    assert sorted(named) == sorted(public)
