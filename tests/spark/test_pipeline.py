"""Pipeline files, run: the same matches from every source and mode, bad input told, restarts without loss."""

import contextlib
import csv
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from cep.errors import CepError, InputError, RuleError, StateError
from cep.local.match_file import match_file
from spark_runtime import run_pipeline
from spark_runtime.pipeline.progress import Summary
from tests.pages import DOCS, blocks
from tests.spark.events import (
    EVENTS_RULE,
    LATENESS_SECONDS,
    ROOM_RULE,
    RULES,
    STREAM,
    comparable,
    compiled,
    local_matches,
    random_events,
    write_files,
)

COLUMNS = ", ".join(f"{field.name}: {field.ddl}" for field in STREAM.fields)
STREAMS = f"{{readings: {{event_time: ts, tie_break: [id], lateness: 30 seconds, schema: {{{COLUMNS}}}}}}}"


def write_pipeline(folder: Path, source: str, more: str = "", sinks: str = "", rules: str = RULES) -> Path:
    (folder / "readings.cep").write_text(rules)
    file = folder / "pipeline.yaml"
    file.write_text(
        f"streams: {STREAMS}\n"
        "rules: ['*.cep']\n"
        f"source: {{stream: readings, {source}}}\n"
        f"sinks: {sinks or '[{format: parquet, path: out/matches}]'}\n"
        "late: {format: json, path: out/late}\n"
        "dead_letter: {format: json, path: out/dead}\n"
        "checkpoint: out/checkpoint\n"
        f"{more}\n"
    )
    return file


def keyed_events(seed: int, n: int) -> list[dict[str, Any]]:
    """Random events that each have a key, and no NaN, which JSON lacks."""
    events = [event for event in random_events(seed, n) if event["sensor"] is not None]
    return [
        {**event, "value": None if event["value"] != event["value"] else event["value"]} for event in events
    ]


def text_of(event: dict[str, Any]) -> dict[str, Any]:
    return {**event, "ts": event["ts"].isoformat()}


def write_json(folder: Path, events: Sequence[dict[str, Any]], n_files: int, bad: Sequence[str] = ()) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(text_of(event)) for event in events]
    size = -(-len(lines) // n_files)
    for number in range(n_files):
        part = lines[number * size : (number + 1) * size]
        for at, line in enumerate(bad):
            part.insert(3 * at + 1, line)
        file = folder / f"part-{number:03}.json"
        file.write_text("\n".join(part) + "\n")
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def quiet_run(file: Path) -> Summary:
    return run_pipeline(file, console=Console(file=StringIO()), quiet=True)


def read(folder: Path, file_format: str = "parquet") -> list[dict[str, Any]]:
    if file_format == "json":
        lines = [line for file in sorted(folder.rglob("part-*")) for line in file.read_text().splitlines()]
        return [json.loads(line) for line in lines]
    rows: list[dict[str, Any]] = pyarrow.dataset.dataset(folder, partitioning=None).to_table().to_pylist()
    return rows


FINISH = "at_end: finish"


MODES_AND_PLACES = [
    ("stream", ""),
    ("batch", ""),
    ("stream", "file://{folder}/"),
    ("batch", "file://{folder}/"),
]
"""The last two as if only Spark could read the files."""


@pytest.mark.parametrize(("mode", "place"), MODES_AND_PLACES)
def test_json_gives_the_matches_and_the_dead_letters_of_a_local_run(
    spark: SparkSession, tmp_path: Path, mode: str, place: str
) -> None:
    bad = [
        '{"id": 1, "ts": "2024-05-01T00:00:00Z"',
        '{"id": "x", "ts": "2024-05-01T00:00:00Z", "sensor": "s1"}',
        '{"id": 2, "sensor": "s1"}',
        '{"id": 3, "ts": "9999-05-01T00:00:00Z", "sensor": "s1"}',
        '{"id": 4, "ts": "2024-05-01T00:00:00Z", "sensor": null}',
        "",
        '{"id": 5, "ts": "2024-05-01T00:00:00Z", "sensor": "s1", "value": "\\u00fc%"}',
    ]
    events = keyed_events(1, 1200)
    write_json(tmp_path / "events", events, 3, bad)
    more = f"mode: {mode}" + ("" if mode == "batch" else f"\n{FINISH}")
    path = f"{place.format(folder=tmp_path)}events"
    file = write_pipeline(tmp_path, f"format: json, path: '{path}', max_files_per_trigger: 1", more)
    summary = quiet_run(file)
    local = match_file(compiled(RULES), tmp_path / "events")
    assert comparable(read(tmp_path / "out/matches")) == comparable(local.matches.to_pylist())
    dead = read(tmp_path / "out/dead", "json")
    assert comparable(dead) == comparable(local.dead_letters.to_pylist())
    assert len(dead) == 18
    assert summary.counts == local.counts
    assert sum(summary.reasons.values()) == 18
    # A micro-batch for each file and one for the end; where Spark reads, a query of its own tells the end.
    assert summary.n_batches == (1 if mode == "batch" else 5 if place else 4)


def test_the_thread_in_which_java_calls_a_query_ends_with_the_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_json(tmp_path / "events", keyed_events(1, 100), 1)
    file = write_pipeline(tmp_path, "format: json, path: events")
    quiet_run(file)
    before = set(threading.enumerate())
    for _ in range(2):
        quiet_run(file)
    deadline = time.monotonic() + 10
    while (left := set(threading.enumerate()) - before) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


@pytest.mark.parametrize(("mode", "place"), MODES_AND_PLACES)
def test_csv_gives_the_matches_and_the_dead_letters_of_a_local_run(
    spark: SparkSession, tmp_path: Path, mode: str, place: str
) -> None:
    events = [text_of(event) for event in keyed_events(2, 400)]
    folder = tmp_path / "events"
    folder.mkdir()
    # Each file has its own order of columns, and one that nobody declared.
    names = [field.name for field in STREAM.fields]
    for number, header in enumerate([[*names, "other"], ["other", *reversed(names)]]):
        part = events[number * 200 : (number + 1) * 200]
        lines = [",".join(header)]
        for event in part:
            cells = {
                **{name: "" if event[name] is None else str(event[name]) for name in names},
                "other": "x",
            }
            lines.append(",".join(cells[name] for name in header))
        lines[5:5] = ["1,2", "", '"open,1']
        (folder / f"part-{number}.csv").write_text("\r\n".join(lines) + "\r\n")
    more = f"mode: {mode}" + ("" if mode == "batch" else f"\n{FINISH}")
    path = f"{place.format(folder=tmp_path)}events"
    summary = quiet_run(write_pipeline(tmp_path, f"format: csv, path: '{path}'", more))
    local = match_file(compiled(RULES), folder)
    assert len(local.matches) > 5
    assert comparable(read(tmp_path / "out/matches")) == comparable(local.matches.to_pylist())
    dead = read(tmp_path / "out/dead", "json")
    assert comparable(dead) == comparable(local.dead_letters.to_pylist())
    assert summary.counts == local.counts


@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_parquet_gives_the_matches_of_a_local_run_and_rows_without_a_key_as_dead_letters(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    events = random_events(3, 1200)
    write_files(spark, tmp_path / "my +events", events, 3)
    more = f"mode: {mode}" + ("" if mode == "batch" else f"\n{FINISH}")
    source = "format: parquet, path: my +events, max_files_per_trigger: 1"
    summary = quiet_run(write_pipeline(tmp_path, source, more))
    local = match_file(compiled(RULES), tmp_path / "my +events")
    assert comparable(read(tmp_path / "out/matches")) == comparable(local.matches.to_pylist())
    places = [(row["reason"], row["source"], row["position"]) for row in read(tmp_path / "out/dead", "json")]
    expected = [(row["reason"], row["source"], row["position"]) for row in local.dead_letters.to_pylist()]
    assert sorted(places) == sorted(expected)
    assert len(expected) > 50
    assert summary.counts == local.counts


@pytest.mark.parametrize("file_format", ["json", "parquet"])
def test_late_events_and_dead_letters_are_written_and_counted(
    spark: SparkSession, tmp_path: Path, file_format: str
) -> None:
    events = keyed_events(4, 300)
    late = {**events[0], "id": 99_999, "kind": "c", "sensor": "s1"}
    write_json(tmp_path / "events", events, 1)
    source = "format: json, path: events, max_files_per_trigger: 1"

    def run(at_end: str) -> Summary:
        file = write_pipeline(tmp_path, source, at_end)
        file.write_text(
            re.sub(r"(late|letter): {format: json", rf"\1: {{format: {file_format}", file.read_text())
        )
        return quiet_run(file)

    assert run("").counts.late == 0
    # Nobody knew of this file while the others were read: what was there would have held the watermark back.
    (tmp_path / "events/part-001.json").write_text(json.dumps(text_of(late)) + "\nno event\n")
    summary = run(FINISH)
    assert (summary.counts.late, summary.counts.malformed) == (1, 1)
    (row,) = read(tmp_path / "out/late", file_format)
    time = row["ts"]
    whole = {**row, "ts": datetime.fromisoformat(time) if isinstance(time, str) else time}
    latest = max(event["ts"] for event in events)
    late_seconds = (latest - late["ts"]).total_seconds() - LATENESS_SECONDS
    given = {name: value for name, value in late.items() if value is not None or file_format == "parquet"}
    assert whole == {**given, "_late_seconds": late_seconds}
    (letter,) = read(tmp_path / "out/dead", file_format)
    assert letter == {
        "reason": "not a JSON object",
        "source": str(tmp_path / "events/part-001.json"),
        "position": 2,
        "raw": "no event",
    }
    assert comparable(read(tmp_path / "out/matches")) == local_matches(compiled(RULES), events)


def test_a_run_that_is_repeated_goes_on_where_the_last_one_ended(spark: SparkSession, tmp_path: Path) -> None:
    events = keyed_events(5, 900)
    write_json(tmp_path / "events", events[:500], 2)
    source = "format: json, path: events, max_files_per_trigger: 1"
    first = quiet_run(write_pipeline(tmp_path, source))
    early = read(tmp_path / "out/matches")
    again = quiet_run(tmp_path / "pipeline.yaml")
    assert (first.counts.events, again.counts.events) == (500, 0)
    write_json(tmp_path / "rest", events[500:], 1)
    (tmp_path / "rest/part-000.json").rename(tmp_path / "events/part-900.json")
    last = quiet_run(write_pipeline(tmp_path, source, FINISH))
    assert last.counts.events == len(events) - 500
    found = comparable(read(tmp_path / "out/matches"))
    assert found == local_matches(compiled(RULES), events)
    assert 0 < len(early) < len(found)


def test_a_stream_goes_on_from_a_snapshot_of_its_state_store(spark: SparkSession, tmp_path: Path) -> None:
    events = keyed_events(11, 600)
    source = "format: json, path: events, max_files_per_trigger: 1"
    write_json(tmp_path / "events", events[:400], 5)
    ends = iter(range(400, 600, 20))
    name = "spark.sql.streaming.stateStore.minDeltasForSnapshot"
    spark.conf.set(name, "1")  # else after ten micro-batches: what cannot write one ends only then
    try:
        while not list((tmp_path / "out/checkpoint").rglob("*.zip")):  # Spark writes one when it has time
            quiet_run(write_pipeline(tmp_path, source))
            done = next(ends)
            write_json(tmp_path / "rest", events[done : done + 20], 1)
            (tmp_path / "rest/part-000.json").rename(tmp_path / f"events/part-{done}.json")
    finally:
        spark.conf.unset(name)
    write_json(tmp_path / "rest", events[done + 20 :], 1)
    (tmp_path / "rest/part-000.json").rename(tmp_path / "events/part-900.json")
    quiet_run(write_pipeline(tmp_path, source, FINISH))
    assert comparable(read(tmp_path / "out/matches")) == local_matches(compiled(RULES), events)


def test_a_stream_reads_one_file_and_none_beside_it(spark: SparkSession, tmp_path: Path) -> None:
    events = keyed_events(9, 300)
    write_json(tmp_path / "events", events, 1)
    (tmp_path / "events/part-000.json").rename(tmp_path / "events/day [1].json")
    (tmp_path / "events/day 1.json").write_text("not for this pipeline\n")
    summary = quiet_run(write_pipeline(tmp_path, "format: json, path: 'events/day [1].json'", FINISH))
    assert summary.counts.events == len(events)
    assert comparable(read(tmp_path / "out/matches")) == local_matches(compiled(RULES), events)


def test_a_finished_checkpoint_says_so_and_takes_what_comes_as_late(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = keyed_events(6, 300)
    write_json(tmp_path / "events", events, 1)
    file = write_pipeline(tmp_path, "format: json, path: events", FINISH)
    quiet_run(file)
    done = comparable(read(tmp_path / "out/matches"))
    assert done == local_matches(compiled(RULES), events)
    write_json(tmp_path / "rest", [{**events[-1], "id": 77_777, "kind": "c"}], 1)
    (tmp_path / "rest/part-000.json").rename(tmp_path / "events/part-900.json")
    summary = run_pipeline(file, console=Console(file=StringIO()))
    assert summary.counts.late == 1
    assert comparable(read(tmp_path / "out/matches")) == done
    assert "declared complete" in capsys.readouterr().err


def test_a_batch_that_is_run_again_replaces_what_it_wrote(spark: SparkSession, tmp_path: Path) -> None:
    events = keyed_events(7, 300)
    write_json(tmp_path / "events", events, 1)
    file = write_pipeline(tmp_path, "format: json, path: events")
    quiet_run(file)
    written = comparable(read(tmp_path / "out/matches"))
    # A crash after the sinks were written and before Spark noted it: the batch is repeated.
    for commit in (tmp_path / "out/checkpoint/query/commits").iterdir():
        commit.unlink()
    for state in (tmp_path / "out/checkpoint/query/state").rglob("*"):
        if state.is_file() and state.name[0] not in "_":
            state.touch()
    quiet_run(file)
    assert comparable(read(tmp_path / "out/matches")) == written


def test_of_three_rules_the_changed_one_is_named_on_an_old_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_json(tmp_path / "events", keyed_events(8, 50), 1)
    three = RULES + ROOM_RULE
    file = write_pipeline(tmp_path, "format: json, path: events", "reload: never", rules=three)
    quiet_run(file)
    (tmp_path / "readings.cep").write_text(three.replace("40 SECONDS", "50 SECONDS"))
    with pytest.raises(StateError) as caught:
        quiet_run(file)
    assert str(caught.value) == (
        f"error[E0701]: the checkpoint `{tmp_path}/out/checkpoint` was written by other rules: "
        "rule `rise` has changed: its window or limits\n"
        "help: without `reload: never` in the pipeline file the rules may change; or give them an empty "
        "checkpoint directory; the former rules are in rules.json there"
    )
    (tmp_path / "readings.cep").write_text(three)
    quiet_run(file)


def test_rules_in_another_order_go_on_from_the_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    events = keyed_events(6, 400)
    write_json(tmp_path / "all", events, 2)
    (tmp_path / "events").mkdir()
    (tmp_path / "all/part-000.json").rename(tmp_path / "events/part-000.json")
    rules = [f"RULE {text}" for text in (RULES + ROOM_RULE).split("RULE ")[1:]]
    quiet_run(write_pipeline(tmp_path, "format: json, path: events", rules="\n".join(rules)))
    (tmp_path / "all/part-001.json").rename(tmp_path / "events/part-001.json")
    quiet_run(write_pipeline(tmp_path, "format: json, path: events", FINISH, rules="\n".join(rules[::-1])))
    rows = read(tmp_path / "out/matches")
    assert {row["rule"] for row in rows} == {"rise", "silence", "crowd"}
    assert comparable(rows) == local_matches(compiled(*rules), events)


def test_the_console_shows_the_first_matches_and_how_many_there_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = keyed_events(9, 300)
    write_json(tmp_path / "events", events, 1)
    sinks = "[{format: console, limit: 2}, {format: json, path: out/matches_json}]"
    file = write_pipeline(tmp_path, "format: json, path: events", "mode: batch", sinks)
    shown = StringIO()
    summary = run_pipeline(file, console=Console(file=shown, width=200), quiet=True)
    total = sum(summary.counts.matches.values())
    assert f"... and {total - 2} more matches" in shown.getvalue()
    rows = read(tmp_path / "out/matches_json", "json")
    assert len(rows) == total
    expected = match_file(compiled(RULES), tmp_path / "events").matches.to_pylist()
    times = {row["match_id"]: row["match_end"] for row in expected}
    assert {row["match_id"]: datetime.fromisoformat(row["match_end"]) for row in rows} == times


def test_the_example_over_the_rule_library_runs(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "rules").symlink_to(DOCS.parent / "rules")
    (file := tmp_path / "pipeline.yaml").write_text(
        blocks((DOCS / "reference/pipeline.md").read_text(), "yaml")[0]
    )
    for name in ("logins", "transactions"):
        (tmp_path / "in" / name).mkdir(parents=True)
    failed = [(number, f"2024-05-01T09:00:{number:02}Z", False) for number in range(5)]
    rows = [
        {"login_id": number, "at": at, "account": "a", "device": "d", "success": success}
        for number, at, success in [*failed, (5, "2024-05-01T09:01:00Z", True)]
    ]
    (tmp_path / "in/logins/l.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    at = pa.array([datetime(2024, 5, 1, 9, 2, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    paid = {"transaction_id": [1], "ts": at, "card_id": ["a"], "amount": [950.0], "device": ["d"]}
    pq.write_table(pa.table(paid), tmp_path / "in/transactions/t.parquet")
    assert quiet_run(file).counts.matches == {"guessing": 1, "takeover_then_drain": 1}


def test_every_sink_takes_lists_events_and_timeouts(spark: SparkSession, tmp_path: Path) -> None:
    events = [{**event, "sensor": "s1"} for event in keyed_events(10, 200)]
    write_json(tmp_path / "events", events, 4)
    sinks = (
        "[{format: console, limit: 5}, {format: json, path: out/json}, {format: parquet, path: out/parquet},"
        "{format: csv, path: out/csv}]"
    )
    source = "format: json, path: events, max_files_per_trigger: 1"
    file = write_pipeline(tmp_path, source, FINISH, sinks, EVENTS_RULE)
    shown = StringIO()
    summary = run_pipeline(file, console=Console(file=shown, width=300), quiet=True)
    local = match_file(compiled(EVENTS_RULE), tmp_path / "events")
    expected = local.matches.to_pylist()
    assert summary.counts == local.counts
    assert (summary.counts.matches, summary.counts.suppressed) == ({"whole": 2}, {"whole": 5})
    assert summary.counts.timeouts == {"whole": 53}
    assert summary.n_batches > 3  # so one has timeouts, but no match
    assert comparable(read(tmp_path / "out/parquet")) == comparable(expected)
    assert f"... and {len(expected) - 5} more rows" in shown.getvalue()
    rows = read(tmp_path / "out/json", "json")
    lists = {row["match_id"]: (row["serials"], row["kinds"]) for row in expected}
    assert {row["match_id"]: (row["serials"], row["kinds"]) for row in rows} == lists
    taken = {(row["match_id"], row["event_number"]): row["event"]["id"] for row in expected}
    assert {(row["match_id"], row["event_number"]): row["event"]["id"] for row in rows} == taken
    in_csv = [
        row
        for file in (tmp_path / "out/csv").rglob("part-*.csv")
        for row in csv.DictReader(file.read_text().splitlines())
    ]
    assert len(in_csv) == len(expected)
    assert {
        row["match_id"]: tuple(json.loads(row[n] or "null") for n in ("serials", "kinds")) for row in in_csv
    } == lists
    assert {
        (row["match_id"], int(row["event_number"])): json.loads(row["event"])["id"] for row in in_csv
    } == taken


def test_a_missing_path_a_broken_file_and_wrong_columns_are_one_sentence(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"E0601.*there is no file or directory .*nowhere"):
        quiet_run(write_pipeline(tmp_path, "format: json, path: nowhere"))
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv/a.csv").write_text("id,ts\n1,2\n")
    with pytest.raises(InputError, match=r"E0604.*a\.csv` has no columns `sensor`, `room`"):
        quiet_run(write_pipeline(tmp_path, "format: csv, path: csv", "mode: batch"))
    with pytest.raises(InputError, match=r"E0604.*a\.csv` has no columns `sensor`, `room`"):
        quiet_run(write_pipeline(tmp_path, "format: csv, path: csv"))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/a.parquet").write_text("this is not Parquet")
    with pytest.raises(CepError) as caught:
        quiet_run(write_pipeline(tmp_path, "format: parquet, path: broken", "mode: batch"))
    assert isinstance(caught.value, InputError), caught.value
    assert caught.value.code == "E0606"
    assert "broken/a.parquet" in str(caught.value)


def test_every_problem_of_a_pipeline_file_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "readings.cep").write_text(RULES)
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"streams: {STREAMS}\n"
        "rules: [none*.cep]\n"
        "source: {stream: readings, format: xml, path: x}\n"
        "sinks: [{format: parquet}, {format: consol}]\n"
        "trigger: soon\n"
        "chekpoint: x\n"
    )
    with pytest.raises(RuleError) as caught:
        run_pipeline(file)
    assert sorted(problem.code for problem in caught.value.diagnostics) == [
        "E0403",
        "E0404",
        "E0404",
        "E0409",
        "E0841",
        "E0841",
        "E0844",
    ]
    assert all(problem.span is not None for problem in caught.value.diagnostics)


def test_the_sources_stream_must_be_the_rules_stream(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path, "format: json, path: x")
    file.write_text(file.read_text().replace("stream: readings", "stream: others"))
    with pytest.raises(RuleError) as caught:
        run_pipeline(file)
    assert caught.value.code == "E0842"


@contextlib.contextmanager
def stopped(*arguments: str, **environment: str) -> Iterator[tuple["subprocess.Popen[str]", list[str]]]:
    """Run Python in a process, which the context stops; yield it, and a list that will have what it said."""
    said: list[str] = []
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        yield process, said
        said += process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert "stopped: the next run continues from here" in said[1]
    assert "Traceback" not in "".join(said)


def is_java(pid: str) -> bool:
    try:
        return b"org.apache.spark" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return False


def test_ctrl_c_stops_a_stream_and_prints_the_summary(tmp_path: Path) -> None:
    write_json(tmp_path / "events", random_events(10, 200), 1)
    more = 'trigger: "1 second"'
    file = write_pipeline(tmp_path, "format: json, path: events", more)
    code = "import sys; from spark_runtime import run_pipeline; run_pipeline(sys.argv[1])"
    with stopped("-c", code, str(file)) as (process, said):
        deadline = time.monotonic() + 300
        while not list((tmp_path / "out").glob("matches/batch=*/_SUCCESS")):
            with contextlib.suppress(subprocess.TimeoutExpired):  # waits a little, unless it ends too early
                process.wait(timeout=0.2)
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGINT)
    assert "events " in said[1]


def test_a_signal_while_java_starts_stops_the_stream_and_leaves_no_java(tmp_path: Path) -> None:
    write_json(tmp_path / "events", random_events(10, 20), 1)
    more = f'trigger: "1 second"\nlineage: {tmp_path / "lineage.jsonl"}'
    file = write_pipeline(tmp_path, "format: json, path: events", more)
    place = tmp_path / "place"
    place.mkdir()
    children: list[str] = []
    with stopped("-m", "cep", "run", str(file), TMPDIR=str(place), SPARK_LOCAL_DIRS=str(place)) as (
        process,
        _,
    ):
        while not children:
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
            tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
            children = [pid for pid in " ".join(path.read_text() for path in tasks).split() if is_java(pid)]
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)  # a shell forwards what the group has received
    while any(Path(f"/proc/{pid}").exists() for pid in children):  # the alarm of tests/conftest.py ends it
        time.sleep(0.05)
    assert list(place.iterdir()) == []
    kinds = [json.loads(line)["eventType"] for line in (tmp_path / "lineage.jsonl").read_text().splitlines()]
    assert kinds == ["START", "ABORT"]
