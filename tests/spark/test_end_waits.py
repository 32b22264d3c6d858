"""`end_waits_after` on Spark: the last rows of a stream that falls quiet, by the wall clock, marked.

Time is what is tested here, so these tests wait: a second or two for each step of a running stream.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from spark_runtime import run_pipeline
from spark_runtime.pipeline.progress import Summary

START = datetime(2024, 5, 1, tzinfo=UTC)

RULES = """
RULE pair FROM s PARTITION BY k PATTERN a -> b WITHIN 1 MINUTE
DEFINE a AS n = 1, b AS n = 2 MEASURES a.id AS a
RULE silent FROM s PARTITION BY k PATTERN a -> !b FOR 2 SECONDS
DEFINE a AS n = 1, b AS n = 2 MEASURES a.id AS a
"""


@dataclass
class Fed:
    """A pipeline that is fed while it runs; `steps` are done in a thread beside it, which then stops it."""

    folder: Path
    more: str = ""
    n_files: int = 0
    begun: float = field(default_factory=time.monotonic)

    def file(self, mode: str) -> Path:
        (self.folder / "in").mkdir(exist_ok=True)
        (self.folder / "rules.cep").write_text(RULES)
        schema = "{id: bigint, k: bigint, ts: timestamp, n: bigint}"
        file = self.folder / "pipeline.yaml"
        file.write_text(
            f"streams: {{s: {{event_time: ts, tie_break: [id], lateness: 1 second, schema: {schema}}}}}\n"
            "rules: [rules.cep]\nsource: {stream: s, format: json, path: in}\n"
            f"sinks: [{{format: json, path: out}}]\n{mode}\nend_waits_after: 1 second\n{self.more}\n"
        )
        return file

    def write(self, *events: tuple[float, int, int]) -> None:
        """Put a file there: second, key and n of each event."""
        self.n_files += 1
        lines = [
            {
                "id": round(1000 * second),
                "k": k,
                "n": n,
                "ts": (START + timedelta(seconds=second)).isoformat(),
            }
            for second, k, n in events
        ]
        whole = self.folder / f"{self.n_files}.json"
        whole.write_text("".join(json.dumps(line) + "\n" for line in lines))
        whole.rename(self.folder / "in" / whole.name)

    def rows(self) -> list[dict[str, Any]]:
        files = [
            file
            for done in sorted(self.folder.glob("out/batch=*/_SUCCESS"))
            for file in done.parent.glob("*.json")
        ]
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def found(self) -> Counter[tuple[Any, ...]]:
        """Return the rule, key and mark of each row, with `retract` if it is one."""
        rows = self.rows()
        return Counter(
            (r["rule"], r["k"], r["ended_by"], *([r["kind"]] if "kind" in r else [])) for r in rows
        )

    def waits_for(
        self, *rows: tuple[Any, ...], perhaps: Sequence[tuple[Any, ...]] = ()
    ) -> Counter[tuple[Any, ...]]:
        """Wait until `rows` are there, and no others but those of `perhaps`; return what is there.

        On a busy machine a step of the clock comes late, and lets more out than another one would.
        """
        begun = time.monotonic()
        while not Counter(rows) <= (found := self.found()):
            assert time.monotonic() - begun < 300, found
            time.sleep(0.05)
        assert found <= Counter((*rows, *perhaps))
        return found

    def run(
        self, steps: Callable[[], None], mode: str = "checkpoint: state\ntrigger: 100 milliseconds"
    ) -> Summary:
        failures: list[BaseException] = []
        has_ended = threading.Event()  # it may have failed, or have been skipped

        def do() -> None:
            try:
                steps()
            except BaseException as error:  # noqa: BLE001 - raised below
                failures.append(error)
            finally:
                if not has_ended.is_set():
                    os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=do, daemon=True)
        file = self.file(mode)
        with _NoInterruptBetween():
            thread.start()
            try:
                summary = run_pipeline(file, console=Console(file=StringIO()), quiet=True)
            finally:
                has_ended.set()
            thread.join()
        if failures:
            raise failures[0]
        return summary


class _NoInterruptBetween:
    """Ignores Ctrl-C where the pipeline does not run yet, or any more."""

    def __enter__(self) -> None:
        self.before = signal.signal(signal.SIGINT, signal.SIG_IGN)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self.before)


@pytest.fixture
def fed(spark: SparkSession, tmp_path: Path) -> Fed:
    return Fed(tmp_path)


def test_a_quiet_stream_reports_goes_on_and_does_so_after_a_restart(fed: Fed) -> None:
    first = [("pair", 1, "clock")]
    then = [*first, ("silent", 2, "clock")]
    third = [*then, ("pair", 3, "event")]
    n_steps: list[int] = []

    def quiet() -> None:
        fed.write((100, 1, 1), (100.5, 1, 2), (101, 2, 1))
        begun = time.monotonic()
        found = fed.waits_for(*first, perhaps=then[1:])
        n_steps.append(1 + (then[1] not in found))
        fed.waits_for(*then)
        # The absence is over at 103; the clock begins with the event of 101, and is a lateness behind.
        assert time.monotonic() - begun > 3
        fed.write((200, 3, 1), (201, 3, 2), (230, 4, 3))
        fed.waits_for(*third)

    summary = fed.run(quiet)
    assert summary.time is not None
    assert summary.time.by_clock is not None
    assert summary.time.by_clock.n_steps >= n_steps[0]
    assert summary.counts.late == 0

    def again() -> None:
        fed.write((300, 5, 1), (301, 5, 2))
        fed.waits_for(*third, ("pair", 5, "clock"))

    fed.run(again)


def test_a_repeated_step_of_the_clock_gives_the_same_rows(fed: Fed, tmp_path: Path) -> None:
    def quiet() -> None:
        fed.write((100, 1, 1), (100.5, 1, 2))
        fed.waits_for(("pair", 1, "clock"))

    fed.run(quiet)
    texts = {file: file.read_text() for file in tmp_path.glob("out/batch=*/*.json")}
    (written,) = {file.parent for file, text in texts.items() if text}
    number = int(written.name.rpartition("-")[2])
    assert json.loads((tmp_path / f"state/plan/{number}.json").read_text())["clock_us"] is not None
    before = sorted(file.read_text() for file in written.glob("*.json"))
    # As if the run had died in that micro-batch, before its output was written.
    for folder, first in (("offsets", number + 1), ("commits", number)):
        for file in (tmp_path / "state/query" / folder).iterdir():
            name = file.name.strip(".").removesuffix(".crc")
            if name.isdigit() and int(name) >= first:
                file.unlink()
    for file in written.iterdir():
        file.unlink()

    def again() -> None:
        fed.waits_for(("pair", 1, "clock"))

    fed.run(again)
    assert sorted(file.read_text() for file in written.glob("*.json")) == before


def test_with_corrections_what_the_clock_let_out_is_taken_back(fed: Fed) -> None:
    fed.more = "late: correct within 1 hour"
    out = ("silent", 2, "clock", "match")

    def quiet() -> None:
        fed.write((101, 2, 1))
        fed.waits_for(out)
        fed.write((102, 2, 2))  # an event of before the watermark; events show 101 then
        fed.waits_for(out, ("silent", 2, "event", "retract"), ("pair", 2, "clock", "match"))

    summary = fed.run(quiet)
    assert summary.counts.late == 0
    assert summary.counts.retracted == {"silent": 1}


def test_in_a_batch_and_in_a_run_that_ends_all_rows_are_of_events(fed: Fed, tmp_path: Path) -> None:
    fed.file("mode: batch")
    fed.write((100, 1, 1), (100.5, 1, 2), (101, 2, 1))
    run_pipeline(fed.file("mode: batch"), console=Console(file=StringIO()), quiet=True)
    expected = Counter({("pair", 1, "event"): 1, ("silent", 2, "event"): 1})
    assert fed.found() == expected
    for folder in tmp_path.glob("out/*"):
        for file in folder.iterdir():
            file.unlink()
    summary = run_pipeline(
        fed.file("checkpoint: state\nat_end: finish"), console=Console(file=StringIO()), quiet=True
    )
    assert fed.found() == expected
    assert summary.time is not None
    assert summary.time.to_json()["by_clock"] == {"is_ahead": False, "n_steps": 0}
