"""The pipeline of the stored savepoint, which later versions must read.

    python -m tests.spark.stored_savepoint tests/spark/savepoints/1

makes it again. Only a new format version of savepoints has a new one, beside those of earlier versions.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from spark_runtime import run_pipeline
from spark_runtime.pipeline.saving import save

STORED = Path(__file__).parent / "savepoints" / "1"

RULES = """
RULE testing FROM payments PARTITION BY card PATTERN small->{2} -> large WITHIN 1 HOUR
DEFINE small AS amount < 5, large AS amount > 100 AND NOT shop IN (small.shop)
MEASURES COUNT(DISTINCT small.shop) AS shops, large.amount AS amount ALL ROWS PER MATCH

RULE hourly FROM payments JOIN cards ON card PARTITION BY card WINDOW TUMBLING 1 HOUR
HAVING COUNT(*) > 1 MEASURES SUM(amount) AS total, MAX(cards.most) AS most

RULE often FROM payments PARTITION BY card PATTERN a LET seen = COUNT(*) OVER LAST 30 MINUTES
DEFINE a AS seen >= 3 MEASURES a.seen AS seen SUPPRESS FOR 1 HOUR
"""

STREAMS = """
streams:
  payments:
    event_time: ts
    lateness: 5 seconds
    schema: {ts: timestamp, card: string, amount: double, shop: string}
tables:
  cards:
    key: [card]
    event_time: ts
    lateness: 5 seconds
    schema: {ts: timestamp, card: string, most: double}
"""

CARDS = [f"card {number}" for number in range(7)]


def _time(minute: int, second: int) -> str:
    return f"2026-11-01T12:{minute:02}:{second:02}Z"


def write(folder: Path, *, both: bool) -> Path:
    """Write the pipeline and its events, the later ones only with `both`; return the pipeline file."""
    for name in ("payments", "cards"):
        (folder / name).mkdir(parents=True)
    limits: list[dict[str, object]] = [
        {"ts": _time(minute, 0), "card": card, "most": 100.0 + minute + number}
        for minute in (0, 3)
        for number, card in enumerate(CARDS)
    ]
    small: list[dict[str, object]] = [
        {"ts": _time(minute, number), "card": card, "amount": 1.0 + number, "shop": f"shop {minute}"}
        for minute in (1, 2)
        for number, card in enumerate(CARDS)
    ]
    large: list[dict[str, object]] = [
        {"ts": _time(5, number), "card": card, "amount": 200.0, "shop": "shop 9" if number % 3 else "shop 1"}
        for number, card in enumerate(CARDS)
    ]
    parts: dict[str, Sequence[dict[str, object]]] = {"payments/1.json": small, "cards/1.json": limits}
    if both:
        parts["payments/2.json"] = large
    for name, rows in parts.items():
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "rules.cep").write_text(RULES)
    (folder / "streams.yaml").write_text(STREAMS)
    pipeline = folder / "pipeline.yaml"
    pipeline.write_text(
        "rules: [rules.cep]\nsources:\n"
        "  - {stream: payments, format: json, path: payments}\n"
        "  - {table: cards, format: json, path: cards}\n"
        "sinks: [{format: json, path: matches}]\n"
        f"checkpoint: checkpoint\n{'at_end: finish' if both else ''}\n"
    )
    return pipeline


def main(target: str) -> None:
    """Make the savepoint."""
    with TemporaryDirectory() as folder:
        pipeline = write(Path(folder), both=False)
        run_pipeline(pipeline, console=Console(file=StringIO()), quiet=True)
        save(f"{folder}/checkpoint", target)


if __name__ == "__main__":
    main(sys.argv[1])
