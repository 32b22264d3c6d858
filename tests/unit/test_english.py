"""Pages, docstrings and comments use the ordinary words of English: `contains`, not `has in it`."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("docs", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")
CODE = ("cep", "spark_runtime", "scenarios", "tools")

# An expression, and the words to use in its place. A word is listed only if it has no other common use.
WORDS = {
    r"(?<!lag )(?<!lags )(?<!lagging )(?<!fall )(?<!falls )(?<!far )(?<!left )(?<!leave )"
    r"(?<!hour )(?<!day )(?<!month )(?<!minutes )(?<!bytes )(?<!time )(?<!look-)"
    r"\bbehind\b(?! by\b)": "after, past",
    r"\bin vain\b": "without success",
    r"\banew\b": "again",
    r"\bparted\b": "partitioned, split",
    r"\bbesides\b": "apart from, in addition to",
    r"\b(?:is|are|was|were) beside\b|\b(?:lies|stands) beside\b": "is next to",
    r"\blook(?:s|ed)? at\b(?! your)": "is read, checked, examined",
    r"\b(?:is|are|was|were|be) told\b(?! apart)|\btells (?!apart)(?=\w)": "is given; says",
    r"\basked of\b": "required of",
    r"\bstands? (?:in|at|on|beside|behind|before|there|around|above|below)\b": "is in, is next to, precedes",
    r"\b(?:goes|go|went) on\b(?! the\b| a\b| to\b)": "continues",
    r"\b(?:has|have|had) in (?:it|them)\b|\b(?:what|whatever) is in (?:it|them)\b": "contains",
    r"\b(?:is|are|was|were|be) (?:not |still |already )?there\b(?! (?:a|an|no|any|such)\b)": "exists",
    r"\blets? [\w`]+ be\b": "ignores, leaves alone",
    r"\bonce more\b": "again",
    r"\bat most so (?:many|much)\b|\bso many (?:rows|events|bytes)\b": "the maximum number of",
    r"\bby lot\b": "at random",
    r"\bfor good\b": "permanently, forever",
    r"\bcommonest\b": "most common",
    r"\breturns? what of\b": "return the ... that",
    r"\bsays? of (?:each|every|its|them|which)\b": "says for, says about",
    r"\bgreatest event time\b": "latest event time",
    r"\balso (?:if|of)\b": "even if, including",
    r"\b(?:is|are) others\b": "changes, differs",
    r"\bof theirs\b|\bin theirs\b": "(name the noun again)",
}
EXPRESSIONS = {re.compile(pattern, re.IGNORECASE): instead for pattern, instead in WORDS.items()}


def prose(page: str) -> str:
    """Return the text of a page without code, addresses and comments."""
    text = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    return re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "code", text))


def blocks(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a module and all its statements, without their expressions, which are most of the nodes."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from blocks(child)


def remarks(source: str) -> Iterator[str]:
    """Yield the docstrings of a module and its comments, of lines that follow each other as one."""
    for node in blocks(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
    comment, last = "", 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            text = token.string.lstrip("#: ")
            comment = f"{comment} {text}" if token.start[0] == last + 1 else f"{comment}\n\n{text}"
            last = token.start[0]
    yield comment


def files(folder: str) -> list[Path]:
    place = ROOT / folder
    found = [place] if place.is_file() else [*place.rglob("*.md"), *place.rglob("*.py")]
    return sorted(path for path in found if "library" not in path.parts)


def mended(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each phrase of a file that a careful writer would not use, and what to write."""
    source = path.read_text()
    text = prose(source) if path.suffix == ".md" else "\n\n".join(remarks(source))
    text = re.sub(r"``?[^`]*``?", "code", re.sub(r"^\s*(?:>>>|\.\.\.) .*$", "", text, flags=re.MULTILINE))
    text = re.sub(r"\s*\n(?!\s*\n)\s*", " ", text)
    for expression, instead in EXPRESSIONS.items():
        for match in expression.finditer(text):
            yield text[max(0, match.start() - 70) : match.end() + 60], instead


@pytest.mark.parametrize("folder", [*PAGES, *CODE])
def test_the_words_are_ordinary(folder: str) -> None:
    found = {
        str(path.relative_to(ROOT)): phrases for path in files(folder) if (phrases := list(mended(path)))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("The rows behind it are dropped.", True),
        ("It falls behind.", False),
        ("A file that is not there is made.", True),
        ("Is there a file?", False),
        ("The stream goes on.", True),
        ("Write it once, also if it is in several partitions.", True),
        ("It is also in `x`.", False),
        ("What `stands in` means", False),
    ],
)
def test_a_phrase_is_found(tmp_path: Path, text: str, is_found: bool) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    assert bool(list(mended(page))) == is_found
