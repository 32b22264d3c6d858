"""``python -m tests.bench.windows_on_spark``: a stream with three windows and a table, beside one without.

JSON lines are matched by a stream of `run_pipeline`, as `cep run` does it, some files a micro-batch, matches
to Parquet. The rule waits for events of a key, and once more with three windows of the key and a column of a
table with a row for each key and 100,000 versions a minute of event time. With and without take turns. One
rule is strict, so that it needs all events without windows, too. Another one is interested in rare events, or
in half of them: without windows it drops the others before they are shuffled and ordered.

One of the strict rules has long windows: all events so far are in one of them. Others have windows of a
minute, or long ones by steps.

"Carried" is the same stream with windows and table, but its operator computes nothing: it takes its rows in
and gives back a state of as many bytes as the engine's has. What it takes is Spark's, whatever the engine is,
if all state is in its store. The operator of "counted" keeps only how many rows of Spark it got.
A figure is the processor time of all processes for an event, the least of some repeats, and the time of the
micro-batches.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

import click
import numpy as np

from spark_runtime.dataflow.dataflow import Dataflow
from spark_runtime.operator.operator import KeyGroups
from spark_runtime.wire.parcels import Contents, of_frame, table_of_bytes
from tests.bench.baselines import NoOpDataflow
from tests.bench.figures import Figure, Target, report
from tests.bench.processes import Owners, cpu_seconds

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState

N_EVENTS = 8_000_000
"""So many that 14 micro-batches are counted. With 2 million, two are, while Java still compiles."""
N_FILES, AT_ONCE = 8, 2
"""Files of 2 million events, and of a micro-batch."""
N_FIRST = 2
"""Micro-batches whose state is not warm yet."""
PER_MINUTE = 100_000
EVENT_US = 100
"""Between two events."""

TIMES = Target(1.5, at_most=True)
BY_COUNTED = Target(1.3, at_most=True)
STREAMS = """
streams:
  e: {event_time: ts, schema: {id: string, shop: string, ts: timestamp, amount: double}}
tables:
  c: {key: [id], event_time: at, schema: {id: string, at: timestamp, most: double}}
"""
RULE = """
RULE r FROM e {join} PARTITION BY id PATTERN {pattern} WITHIN 10 SECONDS {windows}
DEFINE a AS amount > {most} {conditions}, b AS amount < {least}
MEASURES a.amount AS amount
"""
PLAIN = {"join": "", "conditions": ""}
WINDOWS = (
    "LET lately = COUNT(*) OVER LAST {counted}, spent = SUM(amount) OVER LAST {summed}, "
    "usual = AVG(amount) OVER PREVIOUS 5 EVENTS"
)
LONG = WINDOWS.format(counted="10 MINUTES", summed="1 MINUTE")
SHORT = WINDOWS.format(counted="1 MINUTE", summed="10 SECONDS")
BY_STEPS = WINDOWS.format(counted="10 MINUTES BY 1 MINUTE", summed="1 MINUTE BY 10 SECONDS")
CONTEXT = {
    "join": "JOIN c ON id",
    "conditions": "AND lately > 0 AND spent > 500 AND (usual IS NULL OR amount > usual)",
}


class Kind(NamedTuple):
    """Of which events a rule is interested in: its pattern, and what their amount is compared with."""

    pattern: str
    least: str
    plain: str
    context: str
    windows: str = LONG


STRICT = Kind("a b", "100", "999", "c.most")
KINDS = {
    "every event": STRICT,
    "every event, short windows": STRICT._replace(windows=SHORT),
    "every event, by steps": STRICT._replace(windows=BY_STEPS),
    "rare events": Kind("a -> b", "1", "999", "c.most"),
    "every second event": Kind("a -> b", "1", "500", "c.most - 499"),
}
CARRIED = "every event"
KEYS = {1_000: tuple(KINDS)[:3], 100_000: tuple(KINDS)}
"""The kinds of rules for so many keys."""

BYTES_OF_STATE = 6
"""So many for each event so far has the engine's state at the end: of 2 million events 13 MB, table and all.

After the first micro-batches it has more: 15 bytes of half a million. With `--all-bits` it is 9, and 25.
"""

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


class Carrier(KeyGroups):
    """In place of the engine: takes its rows and its state in, and gives back a state that has grown."""

    def __call__(
        self, key: tuple[int], frames: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Count the rows."""
        n = 0
        if not state.hasTimedOut:
            for frame in frames:
                for contents, number, _, data in of_frame(frame):
                    if contents is Contents.EVENTS and number is not None and data is not None:
                        schema = self.rules.programs[number].event_schema
                        n += table_of_bytes(data, schema).num_rows
        before = bytes(state.get[0]) if state.exists else b""
        state.update((before + np.random.default_rng(n).bytes(n * BYTES_OF_STATE),))
        return iter(())


class CarrierDataflow(Dataflow):
    """The plan of the rules, with `Carrier` for the operator."""

    @property
    def operator(self) -> KeyGroups:
        """The function that runs on the executors."""
        return Carrier(self.rules, self.n_groups)


OPERATORS = {"carried": CarrierDataflow, "counted": NoOpDataflow}


def text_of(at_us: int) -> str:
    return str(np.datetime64(1_714_521_600_000_000 + at_us, "us")) + "Z"


def write(folder: Path, n: int, n_keys: int, *, all_bits: bool) -> None:
    """Write the files of events and versions, the streams file, the rules and the pipelines."""
    draw = np.random.default_rng(3)
    for name in ("events", "versions"):
        (folder / name).mkdir()
    n_files = max(N_FILES, n * N_FILES // 2_000_000)
    size = n // n_files
    n_versions = n * EVENT_US * PER_MINUTE // 60_000_000 // n_files
    for number in range(n_files):
        start, end = number * size * EVENT_US, (number + 1) * size * EVENT_US
        with (folder / "events" / f"{number}.jsonl").open("w") as file:
            amounts = 1000 * draw.random(size)
            amounts = amounts if all_bits else np.round(amounts, 2)
            drawn = (*draw.integers(0, n_keys, (2, size)).tolist(), amounts.tolist())
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
                file.write(json.dumps({"id": f"key{key:07}", "at": text_of(at), "most": 999}) + "\n")
    (folder / "streams.yaml").write_text(STREAMS)
    for name, parts in (("plain", PLAIN), ("context", CONTEXT)):
        table = SOURCE_OF_TABLE.format(at_once=AT_ONCE) if name == "context" else ""
        for number, kind in enumerate(KINDS.values()):
            place = f"{name}{number}"
            most, windows = (kind.plain, "") if name == "plain" else (kind.context, kind.windows)
            text = RULE.format(**parts, windows=windows, most=most, pattern=kind.pattern, least=kind.least)
            (folder / f"{place}.cep").write_text(text)
            text = PIPELINE.format(place=place, table=table, at_once=AT_ONCE)
            (folder / f"{place}.yaml").write_text(text)


def run(folder: Path, place: str) -> tuple[float, float, float]:
    """Return the processor time of a run, the time of its full micro-batches, and the median of the later."""
    from spark_runtime import run_pipeline

    shutil.rmtree(folder / "out" / place, ignore_errors=True)
    before = cpu_seconds()
    with Owners() as owners:
        found = run_pipeline(folder / f"{place}.yaml", quiet=True)
    used = cpu_seconds() - before + owners.ended_seconds
    seconds = found.batch_seconds[: len(list((folder / "events").iterdir())) // AT_ONCE]
    return used, sum(seconds), statistics.median(seconds[N_FIRST:])


def n_matches(folder: Path, place: str) -> int:
    """Return how many matches the last run found."""
    import pyarrow.parquet as pq

    return int(pq.read_table(folder / "out" / place / "matches").num_rows)


def in_turns(folder: Path, n: int, number: int, case: str, repeats: int, *, carried: bool) -> list[Figure]:
    """Return the figures of a case; the first run of each kind is not counted."""
    least: dict[str, tuple[float, ...]] = {}
    for turn in range(repeats + 1):
        for name in ("plain", "context", *OPERATORS)[: None if carried else 2]:
            place = f"{'plain' if name == 'plain' else 'context'}{number}"
            if name in OPERATORS:
                with patch("spark_runtime.pipeline.runs.Dataflow", OPERATORS[name]):
                    found = run(folder, place)
            else:
                found = run(folder, place)
                assert n_matches(folder, place), name
            if turn:
                least[name] = tuple(map(min, least.get(name, found), found))
    figures = []
    for part, what in enumerate(("processor", "time in micro-batches")):
        without = least["plain"][part] / n * 1e6
        for name, target in (("context", TIMES), *((name, None) for name in OPERATORS)):
            if name in least:
                label = "with" if name == "context" else name
                own = least[name][part] / n * 1e6
                figures.append(Figure(f"{label}, {what}", case, own, "us/event", without))
                figures.append(Figure(f"{label}, {what}", case, own / without, "times", target=target))
    if carried:
        median = {name: values[-1] for name, values in least.items()}
        figures.append(Figure("with, a later micro-batch", case, median["context"], "s", median["counted"]))
        times = median["context"] / median["counted"]
        figures.append(Figure("by counted, the same", case, times, "times", target=BY_COUNTED))
    return figures


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="a tenth of the events and keys")
@click.option("--only", multiple=True, type=click.Choice(list(KINDS)), help="the kinds of rules")
@click.option("--keys", type=click.Choice([str(n) for n in KEYS]), help="the number of keys")
@click.option("--events", "n_events", type=click.IntRange(2_000_000), default=N_EVENTS, show_default=True)
@click.option("--all-bits", is_flag=True, help="amounts with all bits of a double, in place of cents")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/bench/windows_on_spark.json"))
def main(
    quick: bool, only: tuple[str, ...], keys: str | None, n_events: int, all_bits: bool, out: Path
) -> None:
    """Run the benchmark."""
    from spark_runtime import session

    n, repeats = (200_000, 1) if quick else (n_events, 3)
    session({"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}, is_short=True)
    figures = []
    for most_keys, kinds in KEYS.items():
        if keys is not None and most_keys != int(keys):
            continue
        n_keys = most_keys // 10 if quick else most_keys
        with tempfile.TemporaryDirectory() as place:
            write(Path(place), n, n_keys, all_bits=all_bits)
            for name in kinds:
                if only and name not in only:
                    continue
                carried = name == CARRIED and most_keys == max(KEYS)
                case = f"{name}, {n_keys:,} keys"
                number = tuple(KINDS).index(name)
                figures += in_turns(Path(place), n, number, case, repeats, carried=carried)
    report("windows_on_spark", figures, {"events": n, "repeats": repeats}, out)


if __name__ == "__main__":
    main()
