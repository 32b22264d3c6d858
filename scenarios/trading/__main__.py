"""Generate orders, run the pipeline, score the alerts with one command: ``python -m scenarios.trading``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from cep.backtest.truth import Score, score
from scenarios.command import Scenario, command_of
from scenarios.run_folder import read_matches
from scenarios.score import score_table
from scenarios.trading.generate import MIN_EVENTS, Options, generate

PIPELINE = Path(__file__).with_name("pipeline.yaml")

_WHO = ("account", "owner", "trader")
"""Columns of a match that name who did it: a key column or a measure, or none for shapes of prices."""


def score_trading(matches: pa.Table, truth: pa.Table) -> list[Score]:
    """Return one score for each rule. A match and a story meet if instrument and trader are the same."""
    return score(matches, truth, {"symbol": ["symbol"], "trader": _WHO})


def _report(out: Path) -> Iterator[Table]:
    matches = read_matches(out / "matches", ("rule", "symbol", *_WHO, "match_start", "match_end"))
    scores = score_trading(matches, pq.read_table(out / "truth.parquet"))
    yield score_table("Planted abuse: what the rules found", scores)


main = command_of(
    Scenario(
        "orders and trades with planted abuse",
        PIPELINE,
        "out/trading",
        400_000,
        MIN_EVENTS,
        lambda events, seed, file_format, out: generate(Options(events, seed, file_format), out),
        _report,
    )
)


if __name__ == "__main__":
    main()
