"""``python -m tests.bench.executors``: two executors of one core beside one process of two cores.

The streams R1 to R4 of `tests.bench.spark` and the fraud scenario as Parquet, as `cep run` runs them, on
``local-cluster[2,1,2048]`` and on ``local[2]``: each master in a process of its own, in turns.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from scenarios.fraud.__main__ import PIPELINE
from scenarios.fraud.generate import Options, generate
from scenarios.run_folder import clear_results, place_pipeline
from tests.bench.figures import Figure, Target, report
from tests.bench.peer_rules import N_EXPECTED, RULES, SPARSE_KEYS
from tests.bench.processes import cpu_seconds
from tests.bench.spark import Bench, write_input

ONE, TWO = "local[2]", "local-cluster[2,1,2048]"
SHARE = Target(0.8)
FRAUD, FRAUD_FILES, FRAUD_PER_BATCH = "fraud", 16, 4


def speeds(
    master: str, n: int, copies: int, per_batch: int, cases: Sequence[str], out: Path
) -> dict[str, tuple[float, float]]:
    """Return the events per second of full micro-batches, and events per processor second, by case.

    Every case runs once before: each of the three Javas compiles what runs often, after some thousand calls.
    """
    from spark_runtime import run_pipeline, session

    settings = {"spark.master": master, "spark.sql.shuffle.partitions": "2", "spark.executor.memory": "1400m"}
    spark = session(settings, is_short=True)
    bench = Bench(spark, write_input(out / "events", n, SPARSE_KEYS, copies, per_batch), out, 1)
    found = {}
    for rule in 2 * [rule for rule in RULES if rule in cases]:
        measured = bench.measure("stream", rule, "engine")
        found[rule] = measured.events_per_second, 1e6 / measured.cpu_seconds
    if FRAUD not in cases:
        return found
    folder = out / "fraud"
    n_lines = int(generate(Options(n * copies // 2, 7, "parquet", FRAUD_FILES), folder)["lines"])
    path = place_pipeline(
        PIPELINE,
        folder,
        file_format="parquet",
        mode="stream",
        files_per_trigger=FRAUD_PER_BATCH,
        to_console=False,
    )
    n_full = FRAUD_FILES // FRAUD_PER_BATCH
    for _ in range(2):
        clear_results(folder)
        before = cpu_seconds()
        seconds = run_pipeline(path, quiet=True).batch_seconds[1:n_full]
        per_second = n_lines / n_full / statistics.median(seconds)
        found[FRAUD] = per_second, n_lines / (cpu_seconds() - before)
    return found


@click.command(help="Measure two executors of one core beside one process of two cores.")
@click.option("--copies", type=click.IntRange(min=1), default=3, show_default=True, help="of 2 M events")
@click.option(
    "--per-batch",
    type=click.IntRange(2, 4_000_000),
    default=N_EXPECTED // 2,
    show_default=True,
    help="events",
)
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="of each master")
@click.option("--quick", is_flag=True, help="a tenth of the events, micro-batches of a tenth, once")
@click.option("--case", "cases", type=click.Choice([*RULES, FRAUD]), multiple=True, help="By default all.")
@click.option("--master", hidden=True, help="measure this one alone, and print its figures as JSON")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("out/bench"), show_default=True
)
def main(
    copies: int,
    per_batch: int,
    repeats: int,
    quick: bool,
    cases: Sequence[str],
    master: str | None,
    out: Path,
) -> None:
    """Measure and show."""
    folder = (out / "executors").resolve()
    share = 10 if quick else 1
    n = N_EXPECTED // share
    cases = cases or (*RULES, FRAUD)
    if master is not None:
        print(json.dumps(speeds(master, n, copies, per_batch // share, cases, folder)))
        return
    found: dict[str, list[dict[str, tuple[float, float]]]] = {ONE: [], TWO: []}
    for _ in range(1 if quick else repeats):
        for name, runs in found.items():
            print(name, flush=True)
            command = [sys.executable, "-m", "tests.bench.executors", "--master", name]
            command += [
                "--copies",
                str(copies),
                "--out",
                str(out),
                "--per-batch",
                str(per_batch),
                *(["--quick"] if quick else []),
                *(f"--case={case}" for case in cases),
            ]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            runs.append(json.loads(done.stdout.splitlines()[-1]))
            shutil.rmtree(folder)
    figures = []
    for case in found[ONE][0]:
        for of, name in enumerate(("events of a second", "events of a processor second")):
            one, two = (statistics.median(run[case][of] for run in found[master]) for master in (ONE, TWO))
            figures.append(Figure(f"{name}, two executors", case, two, "", one))
            figures.append(Figure(f"{name}, share of one process", case, two / one, "", target=SHARE))
    options = {
        "events": n,
        "copies": copies,
        "per batch": per_batch // share,
        "repeats": repeats,
        "load of the machine": os.getloadavg()[1],
    }
    report("Two executors of one core beside local[2]", figures, options, out / "executors.json")


if __name__ == "__main__":
    main()
