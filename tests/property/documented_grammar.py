"""Random texts of the grammar of docs/language/grammar.md. They keep the grammar and the parser in step."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

_PAGE = Path(__file__).parents[2] / "docs/language/grammar.md"


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice: one of the alternatives."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A sequence: all parts, one after the other."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    """A repetition: the body up to `most` times."""

    body: Part
    most: int


@dataclass(frozen=True, slots=True)
class Use:
    """A use of a rule of the grammar, with the block of the page in which it is used."""

    block: int
    name: str


Part = Choice | Row | Repeated | Use | str

_WORDS = {
    "name": (
        "a",
        "b",
        "a",
        "b",
        "c",
        "d",
        "amount",
        "items",
        "card",
        "ts",
        "payments",
        "u",
        "`two words`",
        "ä",
    ),
    "word": ("ABS", "SUM", "COUNT", "UPPER", "COALESCE", "LAST", "LENGTH", "BIGINT", "STRING", "nowhere"),
    "text": ("'x'", "''", "'it''s'", "'5'", "'2024-01-31'", "'2024-01-31 10:00:00'", "'%a_'", "'(a+)+'"),
    "integer": ("1", "2", "3", "0", "5", "64", "1000", "999999999999999999"),
    "decimal": ("2.5", ".5", "1e3", "1e308"),
    "amount": ("1", "90", "2.0", "999999999999999999"),
    "amount_text": ("'5'", "'.0'", "'1.0'"),
    "duration_text": ("'10 minutes'", "'1h30m'", "' 1.5 hours 1 s'"),
}
"""Texts for the words of the language, which the page describes character by character."""

_TYPED = {"TIMESTAMP": "2024-01-31 10:00:00", "DATE": "2024-01-31"}
"""The text behind a word. The grammar does not say what it must be."""


@cache
def _rules() -> dict[Use, Part]:
    blocks = re.findall(r"^```ebnf\n(.*?)^```", _PAGE.read_text(), re.MULTILINE | re.DOTALL)
    found: dict[Use, Part] = {}
    for number, block in enumerate(blocks[1:]):  # the first block describes words character by character
        text = re.sub(r"\(\*.*?\*\)", "", block)
        for name, body in re.findall(r"^(\w+) *= (.*?) ;\s*$", text, re.MULTILINE | re.DOTALL):
            pieces = re.findall(r'"[^"]*"|\w+|[^\s\w]', body)
            found[Use(number, name)] = _choice(pieces, number)
    return found


def _choice(pieces: list[str], block: int) -> Part:
    rows = [_row(pieces, block)]
    while pieces and pieces[0] == "|":
        pieces.pop(0)
        rows.append(_row(pieces, block))
    # A grammar cannot say which names PARAM declares, and of which type they are.
    rows = [row for row in rows if row != Row((Use(block, "parameter_name"),))]
    return Choice(tuple(rows)) if len(rows) > 1 else rows[0]


def _row(pieces: list[str], block: int) -> Part:
    parts: list[Part] = []
    while pieces and pieces[0] not in "|)]}":
        piece = pieces.pop(0)
        match piece:
            case "(" | "[" | "{":
                body = _choice(pieces, block)
                pieces.pop(0)
                parts.append(body if piece == "(" else Repeated(body, 1 if piece == "[" else 3))
            case _ if piece.startswith('"'):
                parts.append(piece.strip('"'))
            case _:
                parts.append(Use(block, piece))
    return Row(tuple(parts))


def _body(use: Use) -> Part:
    rules = _rules()
    if use in rules:
        return rules[use]
    return next(body for other, body in rules.items() if other.name == use.name)


@cache
def _depths() -> dict[Use, int]:
    """Return the depth of the shallowest text of each rule."""
    depths = dict.fromkeys(_rules(), 99)
    for _ in range(30):
        depths = {use: 1 + _depth(body, depths) for use, body in _rules().items()}
    return depths


def _depth(part: Part, depths: dict[Use, int]) -> int:
    match part:
        case Choice(parts=parts):
            return min(_depth(choice, depths) for choice in parts)
        case Row(parts=parts):
            return max((_depth(item, depths) for item in parts), default=0)
        case Use(name=name) if name not in _WORDS:
            known = [depth for use, depth in depths.items() if use.name == name]
            return depths[part] if part in depths else known[0]
        case _:
            return 0


def start(name: str) -> Use:
    """Return the first rule of the grammar that is called `name`."""
    return next(use for use in _rules() if use.name == name)


def draw_from(use: Use, random: Random, budget: int) -> str:
    """Return a text of a rule of the grammar. After `budget` choices it ends as soon as possible."""
    left = budget
    depths = _depths()

    def write(part: Part) -> str:
        nonlocal left
        match part:
            case str():
                return part
            case Use(name=name) if name in _WORDS:
                return random.choice(_WORDS[name])
            case Use():
                return write(_body(part))
            case Row(parts=parts):
                return " ".join(filter(None, map(write, parts)))
            case Repeated(body=body, most=most):
                left -= 1
                n = random.choice((0, 0, 1, 1, random.randint(0, most))) if left > 0 else 0
                return " ".join(write(body) for _ in range(n))
            case Choice(parts=parts):
                left -= 1
                if left > 0:
                    return write(random.choice(parts))
                return write(min(parts, key=lambda choice: _depth(choice, depths)))

    text = re.sub(r" VIEW ", "\nVIEW ", write(use))  # it is the first word of a line
    for word, constant in _TYPED.items():
        text = re.sub(rf"\b{word} '(?:[^']|'')*'", f"{word} '{constant}'", text)
    return text


def draw_rule(random: Random, budget: int) -> str:
    """Return a rule file. Mostly it is one rule with all necessary clauses, and more clauses in any order."""
    if random.random() < 0.2:
        return draw_from(start("file"), random, budget)
    clauses = ["FROM payments", "PARTITION BY card", f"PATTERN {draw_from(start('pattern'), random, budget)}"]
    names = dict.fromkeys(
        (
            "PARAM",
            "SUBSET",
            "LET",
            "DEFINE",
            "MEASURES",
            "MATCH",
            "AFTER",
            "ON",
            "SUPPRESS",
            "MAX",
            "ONE",
            "ALL",
        )
    )
    others = [draw_from(start("clause"), random, budget) for _ in range(12)]
    for clause in others:
        word = clause.partition(" ")[0]
        if word in names:
            del names[word]
            clauses.append(clause)
    if random.random() < 0.8:
        clauses.append(f"WITHIN {draw_from(start('window'), random, budget)}")
    random.shuffle(clauses)
    return "RULE r " + "\n".join(clauses)
