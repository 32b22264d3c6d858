"""State in files: what is warm, cold or half changed does not change a match."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

from spark_runtime.tables.content import static_tables
from tests.deep import n_cases
from tests.property.kept_state import check
from tests.property.strategies.late import drawn


def test_state_in_files_gives_the_matches_of_state_in_memory(tmp_path: Path) -> None:
    tally: Counter[str] = Counter()
    for number in range(14):
        check(drawn(Random(number)), tmp_path / str(number), Random(number), tally)
    # Cases in which nothing is lost test nothing.
    for name in (
        "lost attempts",
        "attempts at once",
        "inline",
        "warm",
        "cold",
        "repeated",
        "snapshots",
        "given",
        "earlier state",
        "without a call",
        "written ahead",
        "matches",
    ):
        assert tally[name] > 10, tally
    assert tally["repeated in another order"] > 0, tally


def test_state_in_files_repeats_what_static_tables_contained_then(tmp_path: Path) -> None:
    tally: Counter[str] = Counter()
    for number in range(1000, 1000 + n_cases(24)):
        case = replace(drawn(Random(number)), is_static=True)
        if static_tables(case.rule_set().programs):
            check(case, tmp_path / str(number), Random(number), tally)
    for name in ("warm", "repeated", "snapshots", "matches", "contents changed", "contents deleted"):
        assert tally[name] > 10, tally
