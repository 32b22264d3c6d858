"""The code and the commands of `docs/operate/running.md` do what it says, in processes of their own."""

from __future__ import annotations

import json
import random
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from cep.local.match_file import match_file
from cep.rulebook import compile_rulebook, load_rulebook
from spark_runtime.pipeline.pipeline_file import load_pipeline
from tests.java_classes import OPTIONS, VARIABLES, own_spark

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
RUNNING = (ROOT / "docs/operate/running.md").read_text()


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


LAPTOP, STREAM, _MESSAGES, WATCHED, JOB = blocks(RUNNING, "python")  # messages: tests/spark
(COMMANDS,) = blocks(RUNNING, "console")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the three files of the README."""
    (tmp_path / "streams.yaml").write_text(blocks(README, "yaml")[0])
    (tmp_path / "card_testing.cep").write_text(blocks(README, "cep")[0])
    (tmp_path / "events.jsonl").write_text(blocks(README, "json")[0])
    return tmp_path


def event(number: int, card: str | None, ts: str, amount: float) -> str:
    row = {"tx_id": f"t{number}", "card_id": card, "ts": ts, "amount": amount, "approved": True}
    return json.dumps(row) + "\n"


SHOW = """
import json
parts = {
    "alerts": [row.loss for row in spark.read.parquet("alerts").collect()],
    "late": [json.loads(row.event)["tx_id"] for row in spark.read.json("late").collect()],
    "dead letters": [row.reason for row in spark.read.json("dead_letters").collect()],
}
print(json.dumps(parts))
"""


@pytest.mark.deep
def test_the_code_for_a_laptop_and_for_streams_runs_as_it_is(folder: Path) -> None:
    """The stream runs twice: over the README's events and a later one, then over a late and a broken one."""
    incoming = folder / "incoming"
    incoming.mkdir()
    (incoming / "1.json").write_text(
        (folder / "events.jsonl").read_text() + event(6, "c9", "2024-05-02T10:00:00Z", 1.0)
    )
    (folder / "2.json").write_text(
        event(7, "c1", "2024-05-01T10:00:00Z", 1.0) + event(8, None, "2024-05-02T10:00:01Z", 1.0)
    )
    code = [LAPTOP, STREAM, "import shutil\nshutil.copy('2.json', 'incoming')\n", STREAM, SHOW, WATCHED]
    (folder / "code.py").write_text("\n".join(code))
    done = subprocess.run(
        [sys.executable, "code.py"],
        cwd=folder,
        env=own_spark(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert any("card_testing" in line and "949.0" in line for line in lines)
    shown = next(json.loads(line) for line in lines if line.startswith("{"))
    assert shown == {"alerts": [949.0], "late": ["t7"], "dead letters": ["key is NULL: `card_id`"]}
    watched = [line for line in lines if line.startswith("0 ")]
    assert watched == ["0 Row(events=7, late=None, dead_letters=1, matches=1, dropped_runs=None)"]


@contextmanager
def running(command: str, folder: Path, until: str) -> Iterator[None]:
    """Run a command that does not end by itself, with the Java of tests, from when it has printed `until`."""
    arguments = command.split()
    with subprocess.Popen(
        arguments,
        cwd=folder,
        env=own_spark() | ({"JDK_JAVA_OPTIONS": OPTIONS} if VARIABLES else {}),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stderr is not None
        try:
            said: list[str] = []
            for line in process.stderr:
                said.append(line)
                if until in line:
                    break
            else:
                raise AssertionError("".join(said))
            rest = threading.Thread(target=process.stderr.read, daemon=True)
            rest.start()  # or the pipe would be full one day
            yield
        finally:
            process.terminate()
            process.wait()
            rest.join()


def many_events(seed: int, n: int) -> str:
    drawn = random.Random(seed)
    lines = []
    for number in range(n):
        ts = f"2024-05-01T{10 + number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"
        lines.append(event(number, f"c{drawn.randrange(20)}", ts, drawn.choice([1.0, 2.0, 3.0, 900.0])))
    return "".join(lines)


@pytest.mark.deep
def test_a_standalone_cluster_gives_the_matches_of_a_local_run(folder: Path) -> None:
    (folder / "job.py").write_text(JOB)
    (folder / "events.jsonl").write_text(many_events(5, 3000))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    commands = [line.removeprefix("$ ").replace("7077", port) for line in COMMANDS.splitlines()]
    master, *workers, submit = commands
    assert len(workers) == 2
    registered = "Successfully registered with master"
    with (
        running(master, folder, "Starting Spark master at"),
        running(workers[0], folder, registered),
        running(workers[1], folder, registered),
    ):
        done = subprocess.run(
            ["sh", "-c", submit], cwd=folder, env=own_spark(), capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr[-3000:]
    expected = match_file(compile_rulebook(load_rulebook([folder])).rule_set, folder / "events.jsonl")
    assert expected.matches.num_rows > 20
    assert rows(ds.dataset(folder / "alerts", format="parquet").to_table()) == rows(expected.matches)


def rows(table: Any) -> list[str]:
    return sorted(json.dumps(row, default=lambda value: f"{value:%FT%T}") for row in table.to_pylist())


def test_the_settings_for_a_cluster_go_into_a_pipeline_file(folder: Path) -> None:
    (settings,) = (block for block in blocks(RUNNING, "yaml") if "spark.master" in block)
    (folder / "pipeline.yaml").write_text(blocks(README, "yaml")[1] + settings)
    assert dict(load_pipeline(folder / "pipeline.yaml").spark) == {
        "spark.master": "spark://127.0.0.1:7077",
        "spark.executor.memory": "2g",
    }
