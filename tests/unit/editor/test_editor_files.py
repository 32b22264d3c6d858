"""The folder of VS Code: its generated files are up to date, and what it names exists."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from cep.commands.lsp import lsp
from cep.editor.keywords import CONSTANTS, FUNCTIONS, UNITS, textmate
from cep.language.grammar import RESERVED
from tests.pages import blocks, loaded_tool

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "editors/vscode"


def test_the_generated_files_are_what_the_tool_writes() -> None:
    tool = loaded_tool("editor_files")
    for file, content in tool.files().items():
        assert file.read_text(encoding="utf-8") == tool.text(content), (
            f"run tools/editor_files.py: {file.name}"
        )


def pieces_of(line: str) -> Iterator[tuple[int, str, str]]:
    """Yield place, text and scope of each piece of a line, by the first pattern that fits, as in VS Code."""
    at = 0
    while at < len(line):
        fits = []
        for number, rule in enumerate(textmate()["patterns"]):
            piece = re.compile(rule["match"]).search(line, at)
            if piece is not None and piece.end() > piece.start():
                fits.append((piece.start(), number, piece, rule))
        if not fits:
            break
        _, _, piece, rule = min(fits, key=lambda one: one[:2])
        names = {group: each["name"] for group, each in rule.get("captures", {}).items()} or {
            "0": rule["name"]
        }
        for group, name in names.items():
            yield piece.start(int(group)), piece[int(group)], name
        at = piece.end()


def scopes_of(line: str) -> dict[str, str]:
    """Return the scope of each piece of a line."""
    return {text.strip(): scope for _, text, scope in pieces_of(line)}


def test_the_grammar_colors_a_rule() -> None:
    assert scopes_of("RULE drain -- why") == {
        "RULE": "keyword.control.cep",
        "drain": "entity.name.function.cep",
        "-- why": "comment.line.double-dash.cep",
    }
    assert scopes_of("WITHIN 10 MINUTES") == {
        "WITHIN": "keyword.control.cep",
        "10": "constant.numeric.cep",
        "MINUTES": "keyword.other.unit.cep",
    }
    found = scopes_of("  a AS kind = 'it''s' AND AVG(b.amount) > 2.5 AND NOT `from` IS NULL")
    assert found["'it''s'"] == "string.quoted.single.cep"
    assert found["AVG"] == "support.function.cep"
    assert found["b"] == "variable.parameter.cep"
    assert found["2.5"] == "constant.numeric.cep"
    assert found["`from`"] == "variable.other.quoted.cep"
    assert found["NULL"] == "constant.language.cep"
    assert found["AND"] == "keyword.other.cep"
    assert "amount" not in found


def test_the_grammar_knows_each_word_of_the_language() -> None:
    for words, line in ((FUNCTIONS, "{}(x)"), (UNITS, "10 {}"), (CONSTANTS, "a = {}"), (RESERVED, "a {} b")):
        for word in words:
            assert word in scopes_of(line.format(word)), word


RULE_TEXTS = [
    *(
        (file.name, file.read_text())
        for folder in ("rules", "scenarios")
        for file in ROOT.glob(f"{folder}/**/*.cep")
    ),
    *(
        (page.name, text)
        for page in (ROOT / "docs").rglob("*.md")
        for text in blocks(page.read_text(), "cep")
    ),
]


def test_each_word_in_upper_case_of_the_rules_and_of_the_pages_has_a_color() -> None:
    assert len(RULE_TEXTS) > 80
    plain = []
    for name, text in RULE_TEXTS:
        for line in text.splitlines():
            colored = {at for start, piece, _ in pieces_of(line) for at in range(start, start + len(piece))}
            words = re.finditer(r"\b[A-Z][A-Z_]+\b", line)
            plain += [f"{name}: {word[0]}: {line}" for word in words if word.start() not in colored]
    assert plain == []


def test_what_the_package_of_vs_code_names_exists() -> None:
    package = json.loads((FOLDER / "package.json").read_text())
    contributed: dict[str, Any] = package["contributes"]
    named = [package["main"], *(each["configuration"] for each in contributed["languages"])]
    named += [each["path"] for each in contributed["grammars"]]
    named += [each["url"] for each in contributed.get("yamlValidation", [])]
    assert [name for name in named if not (FOLDER / name).is_file()] == []
    assert {"name", "version", "publisher", "engines", "license", "description"} <= package.keys()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert package["version"] == project["version"]
    assert (FOLDER / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    command = contributed["configuration"]["properties"]["cep.command"]["default"]
    assert command[:2] == ["cep", "lsp"]
    assert isinstance(lsp.make_context("lsp", command[2:]), click.Context)
    json.loads((FOLDER / "language-configuration.json").read_text())


def test_the_extension_starts_the_command_of_the_setting() -> None:
    client = (FOLDER / "extension.js").read_text()
    package = json.loads((FOLDER / "package.json").read_text())
    assert set(re.findall(r'require\("([^"/]+)', client)) == {"vscode", *package["dependencies"]}
    assert 'getConfiguration("cep").get("command")' in client
