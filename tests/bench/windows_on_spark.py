"""``python -m tests.bench.windows_on_spark``: a stream with three windows and a table, beside one without.

JSON lines are matched by a stream of `run_pipeline`, as `cep run` does it, some files a micro-batch, matches
to Parquet. The rule waits for events of a key, and once more with three windows of the key and a column of a
table with a row for each key and 100,000 versions a minute of event time. With and without take turns. A rule
that is interested in rare events only drops the others before they are shuffled and ordered: but not with
windows, which need all. So there is a rule for every second event, too.
A figure is the processor time of all processes for an event, the least of some repeats, and the time of the
micro-batches.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import click
import numpy as np

from tests.bench.figures import Figure, Target, report
from tests.bench.processes import cpu_seconds

N_FILES, AT_ONCE = 8, 2
PER_MINUTE = 100_000
EVENT_US = 100
"""Between two events."""

TIMES = Target(1.5, at_most=True)
STREAMS = """
streams:
  e: {event_time: ts, schema: {id: string, shop: string, ts: timestamp, amount: double}}
tables:
  c: {key: [id], event_time: at, schema: {id: string, at: timestamp, most: double}}
"""
RULE = """
RULE r FROM e {join} PARTITION BY id PATTERN a -> b WITHIN 10 SECONDS {windows}
DEFINE a AS amount > {most} {conditions}, b AS amount < 0.001
MEASURES a.amount AS amount
"""
PLAIN = {"join": "", "windows": "", "conditions": ""}
CONTEXT = {
    "join": "JOIN c ON id",
    "windows": "LET lately = COUNT(*) OVER LAST 10 MINUTES, spent = SUM(amount) OVER LAST 1 MINUTE, "
    "usual = AVG(amount) OVER PREVIOUS 5 EVENTS",
    "conditions": "AND lately > 0 AND spent > 0.5 AND (usual IS NULL OR amount > usual)",
}
RARE, OFTEN = "rare events", "every second event"
MOST = {
    RARE: {"plain": "0.999", "context": "c.most"},
    OFTEN: {"plain": "0.5", "context": "c.most - 0.499"},
}
"""Of which events a rule is interested in: what their amount is compared with."""

PIPELINE = """
streams: streams.yaml
rules: [{place}.cep]
sources:
  - {{stream: e, format: json, path: events, max_files_per_trigger: {at_once}}}
{table}
sinks: [{{format: parquet, path: out/{place}/matches}}]
checkpoint: out/{place}/checkpoint
at_end: finish
"""
SOURCE_OF_TABLE = "  - {{table: c, format: json, path: versions, max_files_per_trigger: {at_once}}}"


def text_of(at_us: int) -> str:
    return str(np.datetime64(1_714_521_600_000_000 + at_us, "us")) + "Z"


def write(folder: Path, n: int, n_keys: int) -> None:
    """Write the files of events and versions, the streams file, the rules and the pipelines."""
    draw = np.random.default_rng(3)
    for name in ("events", "versions"):
        (folder / name).mkdir()
    size = n // N_FILES
    n_versions = n * EVENT_US * PER_MINUTE // 60_000_000 // N_FILES
    for number in range(N_FILES):
        start, end = number * size * EVENT_US, (number + 1) * size * EVENT_US
        with (folder / "events" / f"{number}.jsonl").open("w") as file:
            drawn = (*draw.integers(0, n_keys, (2, size)).tolist(), draw.random(size).tolist())
            for at, (key, shop, amount) in enumerate(zip(*drawn, strict=True)):
                row = {
                    "id": f"key{key:07}",
                    "shop": f"key{shop:07}",
                    "ts": text_of(start + at * EVENT_US),
                    "amount": amount,
                }
                file.write(json.dumps(row) + "\n")
        with (folder / "versions" / f"{number}.jsonl").open("w") as file:
            of_all = [(key, -1) for key in range(n_keys)] if number == 0 else []
            times = np.sort(draw.integers(start, end, n_versions)).tolist()
            changed = list(zip(draw.integers(0, n_keys, n_versions).tolist(), times, strict=True))
            for key, at in of_all + changed:
                file.write(json.dumps({"id": f"key{key:07}", "at": text_of(at), "most": 0.999}) + "\n")
    (folder / "streams.yaml").write_text(STREAMS)
    for name, parts in (("plain", PLAIN), ("context", CONTEXT)):
        table = SOURCE_OF_TABLE.format(at_once=AT_ONCE) if name == "context" else ""
        for number, most in enumerate(MOST.values()):
            place = f"{name}{number}"
            (folder / f"{place}.cep").write_text(RULE.format(**parts, most=most[name]))
            text = PIPELINE.format(place=place, table=table, at_once=AT_ONCE)
            (folder / f"{place}.yaml").write_text(text)


def run(folder: Path, place: str) -> tuple[float, float, int]:
    """Return the processor time of a run, that of its full micro-batches, and the matches."""
    import pyarrow.parquet as pq

    from spark_runtime import run_pipeline

    shutil.rmtree(folder / "out" / place, ignore_errors=True)
    before = cpu_seconds()
    found = run_pipeline(folder / f"{place}.yaml", quiet=True)
    used = cpu_seconds() - before
    full = found.batch_seconds[: N_FILES // AT_ONCE]
    return used, sum(full), pq.read_table(folder / "out" / place / "matches").num_rows


def in_turns(folder: Path, n: int, number: int, case: str, repeats: int) -> list[Figure]:
    """Return the figures of a case; the first run of each kind is not counted."""
    least: dict[str, tuple[float, float]] = {}
    for turn in range(repeats + 1):
        for name in ("plain", "context"):
            used, batches, n_matches = run(folder, f"{name}{number}")
            assert n_matches, name
            if turn:
                known = least.get(name, (used, batches))
                least[name] = min(known[0], used), min(known[1], batches)
    figures = []
    for part, what in enumerate(("processor", "time in micro-batches")):
        own, other = least["context"][part] / n * 1e6, least["plain"][part] / n * 1e6
        figures.append(Figure(f"with, {what}", case, own, "us/event", other))
        figures.append(Figure(f"times without, {what}", case, own / other, "times", target=TIMES))
    return figures


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="a tenth of the events and keys")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/bench/windows_on_spark.json"))
def main(quick: bool, out: Path) -> None:
    """Run the benchmark."""
    from spark_runtime import session

    n, n_keys, repeats = (200_000, 10_000, 1) if quick else (2_000_000, 100_000, 3)
    session({"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}, is_short=True)
    figures = []
    with tempfile.TemporaryDirectory() as place:
        write(Path(place), n, n_keys)
        for number, kind in enumerate(MOST):
            figures += in_turns(Path(place), n, number, f"{kind}, {n_keys:,} keys", repeats)
    report("windows_on_spark", figures, {"events": n, "keys": n_keys, "repeats": repeats}, out)


if __name__ == "__main__":
    main()
