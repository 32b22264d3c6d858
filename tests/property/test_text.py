"""Whatever a file says, it is read or refused in order, soon and in little memory.

These are the same texts each time; ``make fuzz-text`` draws new ones.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.property.hostile_text import Text, draw, every_bomb
from tests.property.text import MEMORY_SAMPLE, Tally, try_texts

GATE = 2_000


def test_hostile_texts_do_no_harm() -> None:
    tally = try_texts(seed=20, examples=GATE, minutes=0)
    assert sum(tally.kinds.values()) == GATE
    assert len(tally.codes) > 50  # they get far


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
