from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from cep.backtest.truth import Score, score
from cep.local.match_file import match_file
from cep.rulebook import compile_rulebook, load_rulebook
from scenarios.fraud.generate import Options, generate
from scenarios.score import score_table

ROOT = Path(__file__).resolve().parents[3]
T0 = datetime(2025, 3, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> list[Score]:
    out = tmp_path_factory.mktemp("fraud")
    generate(Options(events=40_000, seed=11, file_format="parquet", files=2), out)
    programs = compile_rulebook(load_rulebook([ROOT / "rules" / "fraud"])).rule_set
    inputs = {
        "card_events": out / "events",
        "customers": out / "customers",
        "countries": ROOT / "scenarios" / "fraud" / "countries.csv",
    }
    matches = match_file(programs, inputs).matches
    return score(matches, pq.read_table(out / "truth.parquet"), {"card_id": ["card_id"]})


def test_the_rules_find_every_planted_fraud(scores: list[Score]) -> None:
    assert {row.rule: row.recall for row in scores} == {row.rule: 1.0 for row in scores}
    assert len(scores) == 10


def test_near_misses_stay_silent_and_look_alikes_do_not(scores: list[Score]) -> None:
    assert [row.near_misses_reported for row in scores] == [0] * 10
    assert [row.lookalikes_reported for row in scores] == [1] * 10


def test_no_rule_drowns_its_frauds_in_alerts(scores: list[Score]) -> None:
    assert min(row.precision for row in scores) > 0.4


def _matches(rows: list[tuple[str, str, float, float]]) -> pa.Table:
    return pa.table(
        {
            "rule": [row[0] for row in rows],
            "card_id": [row[1] for row in rows],
            "match_start": [T0 + timedelta(minutes=row[2]) for row in rows],
            "match_end": [T0 + timedelta(minutes=row[3]) for row in rows],
        }
    )


def _truth(rows: list[tuple[str, str, str, float, float]]) -> pa.Table:
    return pa.table(
        {
            "rule": [row[0] for row in rows],
            "label": [row[1] for row in rows],
            "card_id": [row[2] for row in rows],
            "start": [T0 + timedelta(minutes=row[3]) for row in rows],
            "end": [T0 + timedelta(minutes=row[4]) for row in rows],
        }
    )


def test_a_score_counts_frauds_met_and_alerts_that_meet_one() -> None:
    truth = _truth(
        [
            ("r", "fraud", "a", 0, 10),
            ("r", "fraud", "b", 0, 10),
            ("r", "fraud", "c", 0, 10),
            ("r", "near_miss", "d", 0, 10),
            ("r", "lookalike", "e", 0, 10),
            ("q", "fraud", "f", 0, 10),
        ]
    )
    matches = _matches(
        [
            ("r", "a", 1, 9),
            ("r", "a", 10, 12),  # touches the same fraud again
            ("r", "b", 11, 12),  # too late to meet it
            ("q", "c", 1, 9),  # of another rule
            ("r", "d", 2, 3),
            ("r", "e", 2, 3),
            ("r", "z", 2, 3),  # nobody planted that
        ]
    )
    assert score(matches, truth, {"card_id": ["card_id"]}) == [
        Score(
            "r",
            3,
            1,
            alerts=6,
            alerts_on_planted=2,
            near_misses=1,
            near_misses_reported=1,
            lookalikes_reported=1,
        ),
        Score(
            "q",
            1,
            0,
            alerts=1,
            alerts_on_planted=0,
            near_misses=0,
            near_misses_reported=0,
            lookalikes_reported=0,
        ),
    ]


def test_no_alerts_is_no_recall() -> None:
    truth = _truth([("r", "fraud", "a", 0, 10)])
    (row,) = score(_matches([]).cast(_matches([("r", "a", 0, 1)]).schema), truth, {"card_id": ["card_id"]})
    assert (row.recall, row.precision, row.alerts) == (0.0, 1.0, 0)


def test_the_table_of_scores_fits_80_columns() -> None:
    console = Console(width=80, file=io.StringIO())
    with console.capture() as shown:
        console.print(score_table("Title", [Score("dormant_card_wakes", *[1_234] * 7)]))
    lines = [line.rstrip() for line in shown.get().splitlines()]
    assert lines[1:] == [
        "                                                           near           look-",
        "rule               planted found recall alerts precision misses reported alikes",
        "─" * 79,
        "dormant_card_wakes   1,234 1,234 100.0%  1,234    100.0%  1,234    1,234  1,234",
    ]
