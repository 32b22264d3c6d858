"""Kill a pipeline that reads changes of a table, at named points, and go on: nothing lost, nothing twice.

``python -m tests.servers.postgres_crashes --kills 50`` draws points and micro-batches. A test kills twice.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cep.local.match_file import match_file
from cep.rulebook import compile_rulebook, load_rulebook
from tests.servers.postgres_server import PostgresServer, running_postgres

START = datetime(2024, 5, 1, tzinfo=UTC)

STREAMS = """
streams:
  ticks: {event_time: ts, tie_break: [id], lateness: 1 second,
          schema: {id: bigint, k: string, ts: timestamp}}
"""
RULES = """
RULE pair FROM ticks PARTITION BY k PATTERN a -> b WITHIN 1 HOUR
DEFINE a AS id >= 0, b AS id >= 0 MEASURES a.id AS first, b.id AS second
"""

POINTS = {
    "copy": "while the first copy is written",
    "begun": "after the slot and the copy are made, before this is written down",
    "planned": "after a micro-batch is planned",
    "read": "while a micro-batch is computed",
    "written": "after its output is written, before the checkpoint says so",
    "done": "after the checkpoint says so, before the source knows",
    "committed": "after the source knows, before Spark has written its log",
    "releasing": "before the slot forgets it",
    "released": "after the slot has forgotten it",
}

_KILLED = """
import os, signal, sys
from spark_runtime.pipeline import micro_batches, runs
from spark_runtime.pipeline.pipeline import run_pipeline
from spark_runtime.sources.postgres import first_copy, planner, server

file, point, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
state = {"batch": 0, "n": 0}

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def plant(owner, name, before="", after="", counts=False):
    call = getattr(owner, name)
    def planted(*args, **more):
        is_now = state["n"] >= number
        if before == point and is_now:
            die()
        found = call(*args, **more)
        if after == point and is_now:
            die()
        if counts:
            state["n"] += 1
        return found
    setattr(owner, name, planted)

plant(planner, "_write", before="begun")
plant(first_copy, "onto_disk", after="copy")
plant(micro_batches, "write_plan", after="planned")
plant(micro_batches, "write_done", before="written", after="done", counts=True)
plant(planner.PostgresPlanner, "commit", after="committed")
plant(server, "advance", before="releasing", after="released")

if point == "read":
    write = runs.PipelineRun._write
    def planted(self, flow, output, batch):
        if state["n"] >= number:
            output.count()
            die()
        write(self, flow, output, batch)
    runs.PipelineRun._write = planted

run_pipeline(file, quiet=True)
"""


def tick(number: int) -> tuple[int, str, str]:
    """Return the row of an event."""
    return number, f"k{number % 7}", (START + timedelta(seconds=number)).isoformat()


class Ticks:
    """A table that grows, a pipeline that reads it, and what it should find.

    Parameters
    ----------
    source
        More settings of the source.
    """

    def __init__(self, server: PostgresServer, folder: Path, source: str = "") -> None:
        self.server, self.folder = server, folder
        self.database = server.database()
        self.events: list[tuple[int, str, str]] = []
        self._run("CREATE TABLE ticks (id bigint PRIMARY KEY, k text, ts timestamptz)")
        self.file = folder / "pipeline.yaml"
        (folder / "rules.cep").write_text(RULES)
        (folder / "streams.yaml").write_text(STREAMS)
        lines = (
            "rules: [rules.cep]",
            f"source: {{stream: ticks, format: postgres, {server.yaml(self.database)}, tables: ticks, "
            f"slot: cep_{self.database}{source}}}",
            "sinks: [{format: json, path: out}]",
            "checkpoint: checkpoint",
        )
        self.file.write_text("\n".join(lines) + "\n")

    def _run(self, *statements: str) -> None:
        self.server.run(self.database, *statements)

    def write(self, n: int) -> None:
        """Insert rows in transactions of several, and update one of each: two events of it.

        A copy has a row as it is when the copy is made. So nothing is updated before that.
        """
        is_copied = (self.folder / "checkpoint" / "files" / "ticks.log").exists()
        for _ in range(n):
            numbers = range(len(self.events), len(self.events) + 5)
            rows = [tick(number) for number in numbers]
            last = tick(numbers[-1] + 1)
            change = f"id = {last[0]}, k = '{last[1]}', ts = '{last[2]}'"
            values = ", ".join(f"({number}, '{k}', '{ts}')" for number, k, ts in rows)
            self._run(f"INSERT INTO ticks VALUES {values}")
            self.events += rows
            if is_copied:
                self._run(f"UPDATE ticks SET {change} WHERE id = {rows[-1][0]}")
                self.events.append(last)

    def expected(self) -> list[str]:
        """Return the matches of a local run over all events."""
        file = self.folder / "events.json"
        lines = (json.dumps(dict(zip(("id", "k", "ts"), row, strict=True))) for row in self.events)
        file.write_text("".join(line + "\n" for line in lines))
        rules = compile_rulebook(load_rulebook([self.folder / "rules.cep"])).rule_set
        return sorted(match_file(rules, file).matches.column("match_id").to_pylist())

    def found(self) -> list[str]:
        """Return the matches that were written."""
        files = (self.folder / "out").rglob("part-*")
        lines = [line for file in files for line in file.read_text().splitlines()]
        return sorted(json.loads(line)["match_id"] for line in lines)

    def finish(self) -> None:
        """Say that the input is complete when the next run has read it."""
        self.file.write_text(self.file.read_text() + "at_end: finish\n")

    def run(self, point: str = "nowhere", number: int = 0) -> bool:
        """Run the pipeline in a process of its own; return whether it was killed at `point`.

        `number`: so many micro-batches are done before.
        """
        kept = {
            name: text for name, text in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))
        }
        done = subprocess.run(
            [sys.executable, "-c", _KILLED, str(self.file), point, str(number)],
            env=kept | {"SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return done.returncode != 0


def main() -> None:
    """Kill and go on, as often as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=18)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    asked = parser.parse_args()
    drawn = random.Random(asked.seed)
    print(f"seed {asked.seed}")
    n_killed = n_runs = 0
    with running_postgres() as server:
        while n_killed < asked.kills:
            with tempfile.TemporaryDirectory() as place:
                ticks = Ticks(server, Path(place), f", max_events_per_trigger: {drawn.choice((7, 12))}")
                ticks.write(drawn.randint(4, 8))
                for _ in range(6):
                    point, number = drawn.choice(list(POINTS)), drawn.randint(0, 2)
                    was_killed = ticks.run(point, number)
                    n_killed += was_killed
                    print(f"{point:10} after {number} micro-batches: {'killed' if was_killed else 'ended'}")
                    ticks.write(drawn.randint(4, 8))
                ticks.finish()
                ticks.run()
                expected, found = ticks.expected(), ticks.found()
                n_runs += 1
                if found != expected:
                    sys.exit(
                        f"seed {asked.seed}: {len(set(expected) - set(found))} lost, "
                        f"{len(found) - len(set(found))} twice of {len(expected)}"
                    )
                print(f"{len(found)} matches, none lost, none twice")
    print(f"{n_killed} kills in {n_runs} pipelines: 0 lost, 0 twice")


if __name__ == "__main__":
    main()
