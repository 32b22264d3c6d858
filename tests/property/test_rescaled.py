"""Another number of key groups does not change a match."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

from tests.property.rescaled import check
from tests.property.strategies.late import drawn


def test_the_matches_after_a_move_to_other_key_groups_are_those_without_it(tmp_path: Path) -> None:
    tally: Counter[str] = Counter()
    for number in range(6):
        check(drawn(Random(number)), tmp_path / str(number), Random(number), tally)
    for name in ("moves", "joined", "parts", "matches"):
        assert tally[name] > 10, tally
