"""Regular expressions and texts to draw from, for tests that compare evaluators."""

from __future__ import annotations

from random import Random

LETTERS = ("a", "b", "A", "_", "0", " ", "-", ".", "\n", "\v", "é", "日")

_ATOMS = (
    *("a", "b", "ab", "A", "0", "é", "日", "_", "-", r"\.", r"\-", r"\\", r"\n", r"\x41", r"\x20", ".", "."),
    *(r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"\b", "^", "$", r"\A", r"\z", "()", "}", "]"),
    *("[ab]", "[^ab]", "[a-b_-]", r"[\s0]", r"[^\S]", r"[\w-]", r"[^\d\n]", "[é-日]", "[$^.]", r"[\]\[]"),
)
_NOT_REPEATED = frozenset(("^", "$", r"\A", r"\z", r"\b"))
_COUNTS = ("?", "*", "+", "*?", "+?", "??", "{2}", "{0}", "{1,}", "{0,2}", "{1,2}?")


def some_pattern(random: Random, depth: int = 2) -> str:
    """Draw a pattern that RLIKE takes."""
    flags = random.choice(["", "", "", "(?i)", "(?s)", "(?is)"]) if depth == 2 else ""
    branches = ["".join(_part(random, depth) for _ in range(random.randrange(4))) for _ in range(2)]
    return flags + (branches[0] if random.random() < 0.7 else "|".join(branches))


def _part(random: Random, depth: int) -> str:
    if depth and random.random() < 0.3:
        opening = random.choice(["(", "(?:", "(?i:", "(?s:"])
        part = f"{opening}{some_pattern(random, depth - 1)})"
    else:
        part = random.choice(_ATOMS)
    if part in _NOT_REPEATED or random.random() < 0.6:
        return part
    return part[-1:] + random.choice(_COUNTS) if part == "ab" else part + random.choice(_COUNTS)


def some_text(random: Random) -> str:
    """Draw a text that such patterns say something about."""
    return "".join(random.choice(LETTERS) for _ in range(random.randrange(6)))
