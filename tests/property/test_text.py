"""Any file is read, or refused with diagnostics, in a short time and with little memory.

The texts are the same each time. ``make fuzz-text`` draws new ones.
"""

from __future__ import annotations

from random import Random

import pytest

from cep.diagnostics.diagnostic import render
from cep.errors import Source
from cep.language.parser import parse
from tests.property.documented_grammar import draw_rule
from tests.property.hostile_text import Text, draw, every_bomb
from tests.property.text import MEMORY_SAMPLE, Tally, try_texts

GATE = 2_000


def test_hostile_texts_do_no_harm() -> None:
    tally = try_texts(seed=20, examples=GATE, minutes=0)
    assert sum(tally.kinds.values()) == GATE
    assert len(tally.codes) > 50  # the texts reach every stage of the compiler


def test_the_parser_reads_what_the_documented_grammar_allows() -> None:
    random = Random(9)
    for _ in range(400):
        text = draw_rule(random, random.choice((3, 10, 30, 80)))
        _, problems = parse(Source("drawn.cep", text))
        # A grammar cannot say which clauses a rule needs or may have only once, that UNTIL stands behind a
        # loop, or the limits.
        assert {problem.code for problem in problems} <= {"E0105", "E0106", "E0314", "E0902"}, render(
            problems
        )


@pytest.mark.parametrize("is_rules", [True, False])
def test_bombs_do_no_harm(is_rules: bool) -> None:
    tally = Tally()
    for text in every_bomb((10, 64, 20_000)):
        if text.is_rules == is_rules:
            tally.add(text, watch_memory=False)
    assert tally.kinds


def test_texts_depend_on_the_seed_alone() -> None:
    def some(seed: int) -> list[Text]:
        random = Random(seed)
        return [draw(random) for _ in range(20)]

    assert some(1) == some(1)
    assert some(1) != some(2)
    assert MEMORY_SAMPLE < GATE
