"""``python -m tests.e2e.carried_on FOLDER STEP``: a step of streams that versions of PySpark carry on.

In each step an event of the step before is answered, and another asks. So each step finds a match that began
with the version before it, and step `LAST` also the one that began in step 0. `detect` and `cep run` have a
checkpoint each. It prints the keys of the matches that `detect` found in this step, and `cep run` in all.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

LAST = 4
"""The last step."""

_RULE = """
RULE answered
FROM s PARTITION BY k
PATTERN a -> b
WITHIN 1000 DAYS
DEFINE a AS kind = 'a', b AS kind = 'b'
"""
_STREAMS = "streams:\n  s: {event_time: ts, schema: {k: string, ts: timestamp, kind: string}}\n"
_PIPELINE = """
rules: [rule.cep]
source: {stream: s, format: json, path: events}
sinks: [{format: json, path: matches}]
checkpoint: run-checkpoint
spark: {spark.sql.shuffle.partitions: 2}
"""
_START = datetime(2024, 1, 1, tzinfo=UTC)


def events(step: int) -> Iterator[dict[str, str]]:
    """Yield the events of a step; those of the key `moves` bring the watermark past the others."""
    oldest = {0: "a", LAST: "b"}.get(step, "x")
    kinds = [(f"k{step}", "a"), (f"k{step - 1}", "b"), ("oldest", oldest)]
    for seconds, (key, kind) in enumerate([*kinds, ("moves", "x")]):
        yield {"k": key, "ts": (_START + timedelta(days=step, seconds=seconds)).isoformat(), "kind": kind}


def by_detect(folder: Path) -> list[str]:
    """Continue the query with `detect`; return the keys of the matches it finds."""
    from spark_runtime import detect, session
    from tests.spark.events import drain

    spark = session({"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}, is_short=True)
    frame = spark.readStream.schema("k string, ts timestamp, kind string").json(str(folder / "events"))
    matches = detect(frame, folder / "rule.cep", streams=folder / "streams.yaml")
    found = drain(matches, "carried_on", folder / "detect-checkpoint")
    spark.stop()
    return sorted(row["k"] for row in found)


def by_run(folder: Path) -> list[str]:
    """Continue the pipeline; return the keys of all matches of all steps."""
    command = [sys.executable, "-m", "cep", "run", str(folder / "pipeline.yaml")]
    subprocess.run(command, stdout=sys.stderr, check=True)
    lines = [line for file in folder.glob("matches/**/part-*") for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["k"] for line in lines)


def expected(step: int) -> dict[str, list[str]]:
    """Return what a step prints."""
    found = [f"k{step - 1}"] if step else []
    oldest = ["oldest"] if step == LAST else []
    return {"detect": found + oldest, "run": [f"k{number}" for number in range(step)] + oldest}


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.argument("step", type=int)
def main(folder: Path, step: int) -> None:
    """Run one step."""
    (folder / "events").mkdir(parents=True, exist_ok=True)
    for name, text in (("rule.cep", _RULE), ("streams.yaml", _STREAMS), ("pipeline.yaml", _PIPELINE)):
        (folder / name).write_text(text)
    lines = [json.dumps(event) for event in events(step)]
    (folder / "events" / f"{step}.json").write_text("\n".join(lines) + "\n")
    click.echo(json.dumps({"detect": by_detect(folder), "run": by_run(folder)}))


if __name__ == "__main__":
    main()
