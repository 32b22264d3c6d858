"""Rules that change under a checkpoint: what is kept goes on as if the new rules had always run."""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from cep.commands.cli import main
from cep.errors import CepError, StateError
from cep.formats.chunks import Chunk
from cep.formats.dead_letter import DEAD_LETTER_SCHEMA
from cep.local.match_file import match_chunks
from tests.kills.feeds import feed_of
from tests.kills.pipelines import KilledPipeline
from tests.kills.points import OF_A_CHANGE
from tests.kills.runs import Kill
from tests.kills.ticks import RELOADED, compared
from tests.kills.written import sink_of
from tests.spark.events import EVENTS_RULE, LATENESS_SECONDS, ROOM_RULE, RULES, STRICT_RULE, compiled, table
from tests.spark.test_pipeline import FINISH, keyed_events, quiet_run, read, write_json, write_pipeline

SINKS = "[{format: json, path: out/matches}]"
LONG = RULES.replace("40 SECONDS", "4 MINUTES")
BEFORE = LONG + ROOM_RULE + EVENTS_RULE
AFTER = (
    LONG.replace("COUNT(low.*) AS lows", "COUNT(low.*) * 2 AS twice").replace(
        "RULE silence", "RULE silence TITLE 'no answer'"
    )
    + ROOM_RULE.replace("5 SECONDS", "6 SECONDS")
    + STRICT_RULE
)
EVENTS = keyed_events(31, 900)
FIRST, SECOND = EVENTS[:450], EVENTS[450:]


def written(folder: Path, more: str, events: Sequence[dict[str, Any]] = FIRST) -> Path:
    write_json(folder / "events", events, 2)
    source = "format: json, path: events, max_files_per_trigger: 1"
    return write_pipeline(folder, source, more, SINKS, BEFORE)


def add(folder: Path, events: Sequence[dict[str, Any]]) -> None:
    write_json(folder / "more", events, 2)
    for file in sorted((folder / "more").iterdir()):
        file.rename(folder / "events" / f"second-{file.name}")


def local_matches(rules: str, events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    chunk = Chunk(table(events), DEAD_LETTER_SCHEMA.empty_table())
    rows: list[dict[str, Any]] = match_chunks(compiled(rules), [chunk]).matches.to_pylist()
    return rows


def ids(rows: Sequence[dict[str, Any]], *rules: str) -> Counter[str]:
    return Counter(row["match_id"] for row in rows if row["rule"] in rules)


def found(folder: Path) -> list[dict[str, Any]]:
    return read(folder / "out/matches", "json")


def latest(events: Sequence[dict[str, Any]]) -> datetime:
    last: datetime = max(event["ts"] for event in events)
    return last


def require_right(folder: Path) -> None:
    """Check the matches of `BEFORE` over the first events, and of `AFTER` from then on."""
    rows = found(folder)
    whole = local_matches(AFTER, EVENTS)
    for rule in ("rise", "silence"):
        assert ids(rows, rule) == ids(whole, rule), rule
        assert ids(rows, rule).total() > 10
    twice = {row["match_id"]: row["twice"] for row in whole if row["rule"] == "rise"}
    assert {
        row["match_id"]: row.get("twice", 2 * row.get("lows", 0)) for row in rows if row["rule"] == "rise"
    } == twice
    assert {"lows", "twice"} <= set().union(*(row.keys() for row in rows if row["rule"] == "rise"))
    begins = latest(FIRST)
    after = local_matches(AFTER, [event for event in EVENTS if event["ts"] > begins])
    before = local_matches(BEFORE, FIRST)
    for rule in ("crowd", "whole", "neighbours"):
        old = ids([row for row in before if in_time(row, begins)], rule)
        assert ids(rows, rule) == old + ids(after, rule), rule
        assert ids(rows, rule)


def in_time(row: dict[str, Any], begins: datetime) -> bool:
    ended: datetime = row["match_end"]
    return (begins - ended).total_seconds() >= LATENESS_SECONDS


@pytest.mark.deep(but="files")
@pytest.mark.parametrize("state", ["inline", "files"])
def test_changed_rules_go_on_from_the_checkpoint_at_a_restart(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str], state: str
) -> None:
    more = f"state: {state}\nreload: on change"
    file = written(tmp_path, more)
    quiet_run(file)
    add(tmp_path, SECOND)
    write_pipeline(
        tmp_path, "format: json, path: events, max_files_per_trigger: 1", f"{more}\n{FINISH}", SINKS, AFTER
    )
    capfd.readouterr()
    quiet_run(file)
    require_right(tmp_path)
    assert "changed   crowd" in capfd.readouterr().err


def cep(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code == code, result.output
    return result.output


def test_a_change_that_nobody_has_approved_is_not_used_until_it_is(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, "")
    quiet_run(file)
    rules = tmp_path / "readings.cep"
    rules.write_text(AFTER)
    capfd.readouterr()
    quiet_run(file)
    said = capfd.readouterr().err
    assert "nobody has approved it: the run continues with the rules before" in said
    assert f"help: cep approve {file}" in said
    told = cep("approve", str(file), "--by", "ann")
    assert "  changed   crowd       its window or limits; its open runs end\n" in told
    assert (
        "matches of changed and removed rules that end in the last 30 seconds before the change are" in told
    )
    assert "approved: the rules " in told
    rules.write_text(AFTER.replace("6 SECONDS", "7 SECONDS"))  # is another change
    quiet_run(file)
    assert "nobody has approved it" in capfd.readouterr().err
    rules.write_text(AFTER)
    add(tmp_path, SECOND)
    file.write_text(f"{file.read_text()}\n{FINISH}\n")
    quiet_run(file)
    require_right(tmp_path)
    told = cep("history", str(tmp_path / "out/checkpoint"))
    first, second = (line for line in told.splitlines() if not line.startswith(" "))
    assert "from micro-batch 0" in first
    assert "approved by ann" in second
    told = cep("history", str(tmp_path / "out/checkpoint"), "--format", "json")
    before, after = map(json.loads, told.splitlines())
    assert before["rules"][0]["text"] == BEFORE
    assert after["rules"][0]["text"] == AFTER
    assert [change["verdict"] for change in after["changes"]] == [
        "measures",
        "words",
        "new",
        "changed",
        "gone",
    ]
    assert "nothing to approve" in cep("approve", str(file))


def test_rules_never_change_if_the_pipeline_says_so(spark: SparkSession, tmp_path: Path) -> None:
    file = written(tmp_path, "reload: never")
    quiet_run(file)
    (tmp_path / "readings.cep").write_text(AFTER)
    with pytest.raises(StateError, match=r"E0701.*written by other rules.*rule `rise` has changed"):
        quiet_run(file)
    assert "needs no approval: it has `reload: never`" in cep("approve", str(file))
    (tmp_path / "readings.cep").write_text(BEFORE)
    quiet_run(file)


def test_a_change_with_which_the_state_cannot_continue_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = written(tmp_path, "reload: on change")
    quiet_run(file)
    before = file.read_text()
    file.write_text(before.replace("room: bigint", "room: string"))
    with pytest.raises(StateError, match=r"E0701.*stream `readings` has changed: column `room`"):
        quiet_run(file)
    file.write_text(before)
    quiet_run(file)


def until(is_so: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def has_read(checkpoint: Path, events: Sequence[dict[str, Any]]) -> bool:
    """Say whether a run has read the latest of some events."""
    done = checkpoint / "done.json"
    seen = json.loads(done.read_text()).values() if done.exists() else ()
    last_us = round(latest(events).timestamp() * 1e6)
    return any([last_us, ""] <= place for reached, *_ in seen for place in json.loads(reached)[1].values())


class Live:
    """A continuous stream in the main thread, and what another thread does meanwhile."""

    def __init__(self, file: Path, does: Callable[[], None]) -> None:
        self._file, self._does = file, does
        self._failure: BaseException | None = None
        self._has_ended = False

    def run(self) -> None:
        thread = threading.Thread(target=self._beside, daemon=True)
        thread.start()
        try:
            quiet_run(self._file)
        finally:  # it may have failed, or have been skipped
            self._has_ended = True
        thread.join()
        if self._failure is not None:
            raise self._failure

    def _beside(self) -> None:
        try:
            self._does()
        except BaseException as failure:  # noqa: BLE001 - the main thread raises it
            self._failure = failure
        if not self._has_ended:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.deep(but="after approval")
@pytest.mark.parametrize("reload", ["on change", "after approval"])
def test_a_running_stream_takes_changed_rules(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str], reload: str
) -> None:
    file = written(tmp_path, f'trigger: "0 seconds"\nreload: {reload}')
    checkpoint, rules = tmp_path / "out/checkpoint", tmp_path / "readings.cep"
    said = ""

    def told() -> str:
        nonlocal said
        said += capfd.readouterr().err
        return said

    def change() -> None:
        until(lambda: has_read(checkpoint, FIRST))
        rules.write_text(AFTER.replace("PATTERN one -> other", "PATTERN one -> otter"))
        until(lambda: "the changed rules are not used" in told())
        rules.write_text(AFTER)
        if reload == "after approval":
            until(lambda: "nobody has approved it" in told())
            cep("approve", str(file))
        until(lambda: "the rules have changed, from micro-batch" in told())
        add(tmp_path, SECOND)
        until(lambda: has_read(checkpoint, SECOND))

    Live(file, change).run()
    assert told().count("the changed rules are not used") == 1
    assert "there is no variable `otter`" in said or "`otter`" in said
    file.write_text(file.read_text().replace('trigger: "0 seconds"', FINISH))
    quiet_run(file)
    require_right(tmp_path)
    assert sorted(place.name for place in (checkpoint / "rules").iterdir()) == ["0.json", "1.json"]


def test_a_change_of_rules_collects_the_garbage_of_those_before(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, 'trigger: "0 seconds"\nreload: on change')

    def n_collections() -> int:
        n: int = gc.get_stats()[2]["collections"]
        return n

    def change() -> None:
        until(lambda: has_read(tmp_path / "out/checkpoint", FIRST))
        before = n_collections()
        (tmp_path / "readings.cep").write_text(BEFORE.replace("RULE silence", "RULE silence TITLE 'no'"))
        until(lambda: n_collections() > before, seconds=40)
        add(tmp_path, SECOND)  # an interrupt between two queries is an error
        until(lambda: has_read(tmp_path / "out/checkpoint", SECOND))

    gc.disable()  # Python alone would collect it after dozens of changes
    try:
        Live(file, change).run()
    finally:
        gc.enable()
    assert "the rules have changed, from micro-batch" in capfd.readouterr().err


POINTS = (
    ("spark_runtime.pipeline.plans.write_plan", "after", "the last micro-batch before is planned"),
    ("spark_runtime.pipeline.micro_batches.write_done", "after", "it is done"),
    ("spark_runtime.pipeline.reloading.write_generation", "before", "nothing is recorded"),
    ("spark_runtime.pipeline.reloading.write_generation", "after", "the rules are recorded"),
    ("spark_runtime.pipeline.plans.write_plan", "before", "nothing is planned"),
    ("spark_runtime.pipeline.plans.write_plan", "after", "the first micro-batch is planned"),
    ("spark_runtime.pipeline.micro_batches.write_done", "before", "sinks have it"),
    ("spark_runtime.pipeline.micro_batches.write_done", "after", "it is done, and Spark does not know"),
)
"""In the order of a change: each run comes to the next one."""


def run_until(file: Path, place: str, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a pipeline, and end it at a call."""
    module, _, name = place.rpartition(".")
    call, has_ended = getattr(importlib.import_module(module), name), []

    def planted(*given: Any) -> None:
        if moment == "after":
            call(*given)
        has_ended.append(moment)
        raise RuntimeError("the run ends here")

    with monkeypatch.context() as patched:
        patched.setattr(place, planted)
        with pytest.raises(CepError):
            quiet_run(file)
    assert has_ended == [moment]


@pytest.mark.deep(but="files")
@pytest.mark.parametrize("state", ["inline", "files"])
def test_a_run_that_ends_at_any_point_of_a_change_loses_nothing_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    file = written(tmp_path, f"state: {state}\nreload: on change")
    quiet_run(file)
    add(tmp_path, SECOND)
    (tmp_path / "readings.cep").write_text(AFTER)
    for place, moment, _ in POINTS:
        run_until(file, place, moment, monkeypatch)
    rules = tmp_path / "out/checkpoint/rules"
    assert sorted(place.name for place in rules.iterdir()) == ["0.json", "1.json"]
    file.write_text(f"{file.read_text()}\n{FINISH}\n")
    quiet_run(file)
    require_right(tmp_path)


@pytest.mark.parametrize("reload", ["on change", "after approval"])
def test_a_first_micro_batch_that_sinks_have_is_not_computed_again_by_changed_rules(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reload: str
) -> None:
    file = written(tmp_path, f"reload: {reload}")
    run_until(file, "spark_runtime.pipeline.micro_batches.write_done", "before", monkeypatch)
    rows = found(tmp_path)
    assert rows
    (tmp_path / "readings.cep").write_text(AFTER)
    add(tmp_path, SECOND)
    file.write_text(f"{file.read_text()}\n{FINISH}\n")
    quiet_run(file)
    whole = local_matches(AFTER if reload == "on change" else BEFORE, EVENTS)
    for rule in ("rise", "silence"):
        assert ids(found(tmp_path), rule) == ids(whole, rule), rule
    assert {row["match_id"] for row in rows} <= {row["match_id"] for row in found(tmp_path)}


def test_a_change_that_was_only_recorded_may_be_taken_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, "reload: on change")
    quiet_run(file)
    (tmp_path / "readings.cep").write_text(AFTER)
    run_until(file, "spark_runtime.pipeline.reloading.write_generation", "after", monkeypatch)
    rules = tmp_path / "out/checkpoint/rules"
    assert (rules / "1.json").exists()
    (tmp_path / "readings.cep").write_text(BEFORE)
    add(tmp_path, SECOND)
    file.write_text(f"{file.read_text()}\n{FINISH}\n")
    quiet_run(file)
    assert not (rules / "1.json").exists()
    rows, whole = found(tmp_path), local_matches(BEFORE, EVENTS)
    names = {row["rule"] for row in whole}
    assert ids(rows, *names) == ids(whole, *names)


@pytest.mark.deep
@pytest.mark.parametrize("point", OF_A_CHANGE)
def test_a_process_that_is_killed_around_the_record_of_new_rules_goes_on(tmp_path: Path, point: str) -> None:
    sinks = {name: sink_of(name, {}, tmp_path) for name in ("json", "parquet")}
    pipeline = KilledPipeline(tmp_path, feed_of("files", {}, tmp_path), sinks, RELOADED)
    pipeline.send(40)
    pipeline.run()
    pipeline.change()
    pipeline.send(40)
    assert pipeline.run(Kill(OF_A_CHANGE[point])), "the point was not reached"
    records = tmp_path / "checkpoint/rules"
    assert (records / "1.json").exists() is point.startswith("after")
    pipeline.finish()
    pipeline.run()
    assert sorted(file.name for file in records.iterdir()) == ["0.json", "1.json"]
    for name, rows in pipeline.rows().items():
        what = compared(pipeline.expected(), rows)
        assert (what.lost, what.foreign, what.n_twice) == ((), (), 0), name


def test_restored_rules_come_back_by_the_same_door(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, "")
    checkpoint, rules = str(tmp_path / "out/checkpoint"), tmp_path / "readings.cep"
    quiet_run(file)
    rules.write_text(LONG + ROOM_RULE)
    cep("approve", str(file))
    quiet_run(file)
    told = cep("restore-rules", checkpoint, "0")
    assert "  new       whole\n" in told
    assert rules.read_text() == BEFORE
    add(tmp_path, SECOND)
    capfd.readouterr()
    quiet_run(file)
    assert "nobody has approved it" in capfd.readouterr().err
    cep("approve", str(file), "--by", "ann")
    file.write_text(f"{file.read_text()}\n{FINISH}\n")
    quiet_run(file)
    first, _, third = map(json.loads, cep("history", checkpoint, "--format", "json").splitlines())
    assert (third["version"], third["versions"]) == (first["version"], first["versions"])
    assert third["approved_by"] == "ann"
    rows, whole = found(tmp_path), local_matches(BEFORE, EVENTS)
    assert ids(rows, "rise", "silence") == ids(whole, "rise", "silence")


DOORS = "doors: {event_time: ts, tie_break: [id], schema: {id: bigint, ts: timestamp, sensor: string}}"
DOOR_RULE = """
RULE opened
FROM doors
PARTITION BY sensor
PATTERN one -> other
WITHIN 1 HOUR
DEFINE one AS id >= 0, other AS id >= 0
MEASURES other.id AS id
"""


def test_streams_that_rules_begin_to_read_are_read_and_others_hold_nothing_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = written(tmp_path, "reload: on change")
    quiet_run(file)
    usual, rules = file.read_text(), tmp_path / "readings.cep"
    source = "{stream: readings, format: json, path: events, max_files_per_trigger: 1}"
    assert f"source: {source}" in usual
    both = usual.replace("streams: {readings:", f"streams: {{{DOORS}, readings:").replace(
        f"source: {source}", f"sources: [{source}, {{stream: doors, format: json, path: doors}}]"
    )
    doors = [
        {"id": n, "ts": latest(FIRST) + timedelta(seconds=20 * n), "sensor": f"s{n % 2}"}
        for n in range(-2, 20)
    ]
    write_json(tmp_path / "doors", doors, 2)
    rules.write_text(AFTER + DOOR_RULE)
    file.write_text(both)
    add(tmp_path, SECOND)
    summary = quiet_run(file)
    assert summary.counts.read == len(doors) + len(SECOND)
    rules.write_text(AFTER)
    file.write_text(f"{usual}\n{FINISH}\n")
    quiet_run(file)
    require_right(tmp_path)
    opened = [row["id"] for row in found(tmp_path) if row["rule"] == "opened"]
    assert opened
    assert min(opened) > 2  # an event that is not after the latest reading is not seen
