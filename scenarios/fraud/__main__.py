"""Generate events, run the pipeline and score the alerts with one command: ``python -m scenarios.fraud``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
from rich.table import Table

from cep.backtest.truth import score
from scenarios.command import Scenario, command_of
from scenarios.fraud.generate import MIN_EVENTS, Options, generate
from scenarios.run_folder import read_matches
from scenarios.score import score_table

PIPELINE = Path(__file__).with_name("pipeline.yaml")


def _report(out: Path) -> Iterator[Table]:
    matches = read_matches(out / "matches", ("rule", "card_id", "match_start", "match_end"))
    scores = score(matches, pq.read_table(out / "truth.parquet"), {"card_id": ["card_id"]})
    yield score_table("Planted fraud: what the rules found", scores)


main = command_of(
    Scenario(
        "card events with planted fraud",
        PIPELINE,
        "out/fraud",
        2_000_000,
        MIN_EVENTS,
        lambda events, seed, file_format, out: generate(Options(events, seed, file_format), out),
        _report,
    )
)


if __name__ == "__main__":
    main()
