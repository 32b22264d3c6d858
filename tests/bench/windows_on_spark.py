"""``python -m tests.bench.windows_on_spark``: a stream with three windows and a joined table, beside one without.

JSON lines are matched by a stream of `run_pipeline`, as `cep run` does it, some files a micro-batch, matches to
Parquet. The rule waits for rare events of a key, and once more with three windows of the key and a column of
a table of a row for each key, which has 100,000 versions a minute of event time. With and without take turns.
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
RULE r FROM e {join} PARTITION BY id PATTERN a -> b WITHIN 1 HOUR {windows}
DEFINE a AS amount > {most} {conditions}, b AS amount < 0.001
MEASURES a.amount AS amount
"""
PLAIN = {"join": "", "windows": "", "most": "0.999", "conditions": ""}
CONTEXT = {
    "join": "JOIN c ON id",
    "windows": "LET lately = COUNT(*) OVER LAST 10 MINUTES, spent = SUM(amount) OVER LAST 1 MINUTE, "
    "usual = AVG(amount) OVER PREVIOUS 5 EVENTS",
    "most": "c.most",
    "conditions": "AND lately > 0 AND spent > 0.5 AND (usual IS NULL OR amount > usual)",
}
PIPELINE = """
streams: streams.yaml
rules: [{name}.cep]
sources:
  - {{stream: e, format: json, path: events, max_files_per_trigger: {at_once}}}
{table}
sinks: [{{format: parquet, path: out/{name}/matches}}]
checkpoint: out/{name}/checkpoint
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
            keys, shops = draw.integers(0, n_keys, (2, size)).tolist()
            for at, (key, shop, amount) in enumerate(
                zip(keys, shops, draw.random(size).tolist(), strict=True)
            ):
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
        (folder / f"{name}.cep").write_text(RULE.format(**parts))
        table = SOURCE_OF_TABLE.format(at_once=AT_ONCE) if name == "context" else ""
        (folder / f"{name}.yaml").write_text(PIPELINE.format(name=name, table=table, at_once=AT_ONCE))


def run(folder: Path, name: str) -> tuple[float, float, int]:
    """Return the processor time of a run, that of its full micro-batches, and the matches."""
    import pyarrow.parquet as pq

    from spark_runtime import run_pipeline

    shutil.rmtree(folder / "out" / name, ignore_errors=True)
    before = cpu_seconds()
    found = run_pipeline(folder / f"{name}.yaml", quiet=True)
    used = cpu_seconds() - before
    full = found.batch_seconds[: N_FILES // AT_ONCE]
    return used, sum(full), pq.read_table(folder / "out" / name / "matches").num_rows


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="a tenth of the events and keys")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/bench/windows_on_spark.json"))
def main(quick: bool, out: Path) -> None:
    """Run the benchmark."""
    from spark_runtime import session

    n, n_keys, repeats = (200_000, 10_000, 1) if quick else (2_000_000, 100_000, 3)
    session({"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}, is_short=True)
    least: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write(folder, n, n_keys)
        for turn in range(repeats + 1):
            n_matches = set()
            for name in ("plain", "context"):
                used, batches, found = run(folder, name)
                n_matches.add(found)
                if turn:
                    known = least.get(name, (used, batches))
                    least[name] = min(known[0], used), min(known[1], batches)
    case = f"three windows and a table, {n_keys:,} keys"
    figures = []
    for number, what in enumerate(("processor", "time in micro-batches")):
        own, other = least["context"][number] / n * 1e6, least["plain"][number] / n * 1e6
        figures.append(Figure(f"with, {what}", case, own, "us/event", other))
        figures.append(Figure(f"times without, {what}", case, own / other, "times", target=TIMES))
    report("windows_on_spark", figures, {"events": n, "keys": n_keys, "repeats": repeats}, out)


if __name__ == "__main__":
    main()
