"""``python -m tests.bench.flink``: Flink's Kafka connector and CEP library beside `cep run`, on one topic.

2 million events of JSON in four partitions, the rule `card_testing`, matches into another topic, exactly
once, two cores. Both run twice in one process; the second run counts. Flink's jars come from Maven Central;
the job is compiled with `javac`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from spark_runtime.sessions.java import find_java
from tests.bench import kafka
from tests.bench.figures import Figure, report
from tests.bench.processes import cpu_seconds_of
from tests.servers.kafka_broker import JARS, Broker, running_broker

HERE = Path(__file__).parent / "flink_job"
ROOT = HERE.parents[2]


def jars() -> Path:
    """Return the folder of Flink's jars, which are fetched if they do not exist."""
    subprocess.run([sys.executable, str(ROOT / "tools/servers/fetch.py"), "flink"], check=True)
    return ROOT / ".servers/flink"


def run_flink(broker: Broker, topic: str, folder: Path) -> dict[str, float]:
    """Run the job; return its matches, seconds and processor seconds."""
    class_path = f"{folder}:{jars()}/*"
    subprocess.run(["javac", "-cp", class_path, "-d", str(folder), str(HERE / "KafkaCep.java")], check=True)
    out = f"flink-{topic}"
    for name in ("warm", "measured"):
        broker.make_topic(f"{out}-{name}", 1)
    opens = [
        f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.util", "java.lang", "java.time")
    ]
    command = [
        find_java().command,
        "-Xmx2g",
        *opens,
        "-cp",
        class_path,
        "KafkaCep",
        broker.address,
        topic,
        out,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-3000:] or done.stdout[-3000:])
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def figures_of(broker: Broker, folder: Path, n: int) -> list[Figure]:
    """Return the figures of both."""
    topic, n_bytes = kafka.fill(broker, kafka.as_json, n)
    case = f"{n:,} events of {n_bytes} bytes, 2 cores"
    figures = []
    before = cpu_seconds_of(broker.pid)
    flink = run_flink(broker, topic, folder)
    between = cpu_seconds_of(broker.pid)
    ours = kafka.run(broker, folder, topic, "json")
    after = cpu_seconds_of(broker.pid)
    print(f"Flink: {flink}\ncep run: {ours}", flush=True)
    assert flink["matches"] == ours["matches"], "they do not find the same"
    of_broker = {"Flink": between - before, "cep run": after - between}
    for name, found in (("Flink", flink), ("cep run", ours)):
        figures += [
            Figure(f"{name}: processor, without the broker", case, found["cpu"] / n * 1e6, "us/event"),
            Figure(f"{name}: processor of the broker", case, of_broker[name] / 2 / n * 1e6, "us/event"),
            Figure(f"{name}: throughput", case, n / found["seconds"], "events/s"),
        ]
    figures.append(Figure("Flink to cep run, processor", case, flink["cpu"] / ours["cpu"], "times"))
    figures.append(Figure("Flink to cep run, time", case, flink["seconds"] / ours["seconds"], "times"))
    return figures


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="a tenth of the events")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/bench/flink.json"))
def main(quick: bool, out: Path) -> None:
    """Measure and report."""
    if not JARS.is_dir():
        print("the Kafka broker is missing; get it with: make servers")
        return
    if shutil.which("javac") is None:
        print(
            "javac is missing, it compiles the job of Flink; on Debian: apt-get install default-jdk-headless"
        )
        return
    n = kafka.N_EVENTS // 10 if quick else kafka.N_EVENTS
    folder = Path(tempfile.mkdtemp(prefix="cep-bench-"))
    try:
        with running_broker(folder) as broker:
            figures = figures_of(broker, folder, n)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report("flink", figures, {"events": n, "quick": quick}, out)


if __name__ == "__main__":
    main()
