"""``python -m tests.bench``: every benchmark, one after the other, each in a process of its own.

``--quick`` is a short form of each. The figures are written to ``out/bench``, a JSON file for each benchmark.
"""

from __future__ import annotations

import subprocess
import sys

import click

BENCHMARKS = (
    "engine",
    "windows",
    "context",
    "window_rules",
    "tables",
    "windows_on_spark",
    "views",
    "reading",
    "other_engines",
    "state",
    "state_on_spark",
    "waiting_on_spark",
    "switch",
    "spark",
    "executors",
    "scale",
    "sizes",
    "latency",
    "fraud",
    "sinks",
    "kafka",
    "flink",
)


@click.command(help="Run the benchmarks: " + ", ".join(BENCHMARKS) + ".")
@click.option("--quick", is_flag=True, help="a tenth of everything")
@click.option("--only", type=click.Choice(BENCHMARKS), multiple=True, help="not all of them")
def main(quick: bool, only: tuple[str, ...]) -> None:
    """Run them."""
    for name in only or BENCHMARKS:
        print(f"== {name}", flush=True)
        command = [sys.executable, "-m", f"tests.bench.{name}", *(["--quick"] if quick else [])]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
