"""What becomes of the input of a pipeline on a bad day: every file and every event is accounted for."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from cep.errors import CepError, InputError, StateError
from spark_runtime import run_pipeline
from spark_runtime.pipeline.progress import Summary
from spark_runtime.storage.lock import locked
from tests.spark.test_reload import run_until

STREAMS = """
streams:
  orders:  {event_time: ts, tie_break: [id], lateness: 1 day, schema: {id: bigint, shop: string, ts: timestamp, amount: double}}
  parcels: {event_time: ts, tie_break: [id], lateness: 1 day, schema: {id: bigint, shop: string, ts: timestamp, "on": date, tags: array<string>}}
"""  # noqa: E501
RULES = """
RULE every_order FROM orders PARTITION BY shop PATTERN a DEFINE a AS amount > 0 MEASURES a.id AS id NO SKIP

RULE every_parcel FROM parcels PARTITION BY shop PATTERN p DEFINE p AS TRUE MEASURES p.id AS id NO SKIP

RULE sent FROM orders, parcels PARTITION BY shop PATTERN a -> p WITHIN 1 HOUR
DEFINE a ON orders AS amount > 10, p ON parcels AS id > 0 MEASURES a.id AS id
"""
START = datetime(2024, 5, 1, tzinfo=UTC)
ORDERS = "{stream: orders, format: json, path: in/orders}"
PARCELS = "{stream: parcels, format: json, path: in/parcels}"


def order(number: int, seconds: float = 0, shop: str = "s", amount: float = 20.0) -> dict[str, Any]:
    ts = (START + timedelta(seconds=seconds or number)).isoformat()
    return {"id": number, "shop": shop, "ts": ts, "amount": amount}


def parcel(number: int, seconds: float = 0, shop: str = "s") -> dict[str, Any]:
    ts = (START + timedelta(seconds=seconds or number)).isoformat()
    return {"id": number, "shop": shop, "ts": ts, "on": "2024-05-01", "tags": ["a", "b"]}


def put(folder: Path, name: str, *events: dict[str, Any] | str) -> Path:
    file = folder / "in" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join((e if isinstance(e, str) else json.dumps(e)) + "\n" for e in events))
    return file


def pipeline(folder: Path, *sources: str, more: str = "", rules: str = RULES, streams: str = STREAMS) -> Path:
    (folder / "rules.cep").write_text(rules)
    (folder / "streams.yaml").write_text(streams)
    file = folder / "pipeline.yaml"
    listed = "".join(f"\n  - {source}" for source in sources)
    file.write_text(
        f"rules: [rules.cep]\nsources:{listed}\n"
        "sinks: [{format: parquet, path: out/matches}]\n"
        "late: {format: json, path: out/late}\ndead_letter: {format: json, path: out/dead}\n"
        f"checkpoint: out/checkpoint\n{more}\n"
    )
    return file


ONE_RULE = RULES.split("RULE every_parcel")[0]
ONE_STREAM = STREAMS.split("  parcels:")[0]


def orders_only(folder: Path, source: str = ORDERS, more: str = "", streams: str = ONE_STREAM) -> Path:
    return pipeline(folder, source, more=more, rules=ONE_RULE, streams=streams)


def quiet_run(file: Path, **options: Any) -> Summary:
    return run_pipeline(file, console=Console(file=StringIO()), quiet=True, **options)


def matched(folder: Path) -> list[tuple[str, int]]:
    table = pyarrow.dataset.dataset(folder / "out/matches", partitioning=None).to_table(
        columns=["rule", "id"]
    )
    return sorted((row["rule"], row["id"]) for row in table.to_pylist())


def lines(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.rglob("part-*"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


FINISH = "at_end: finish"


# ---------------------------------------------------------------- what a source is


def test_sources_may_change_places_in_the_pipeline_file(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path, "orders/1.json", *map(order, range(1, 21)))
    put(tmp_path, "parcels/1.json", *map(parcel, range(101, 121)))
    quiet_run(pipeline(tmp_path, ORDERS, PARCELS))
    put(tmp_path, "orders/2.json", order(21))
    put(tmp_path, "parcels/2.json", parcel(121))
    summary = quiet_run(pipeline(tmp_path, PARCELS, ORDERS, more=FINISH))
    assert summary.counts.events == 2
    found = matched(tmp_path)
    assert found == sorted(set(found))
    assert [number for rule, number in found if rule == "every_order"] == list(range(1, 22))
    assert [number for rule, number in found if rule == "every_parcel"] == list(range(101, 122))


def test_another_place_is_refused_unless_the_files_have_moved_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, "orders/1.json", *map(order, range(1, 6)))
    quiet_run(orders_only(tmp_path))
    shutil.copytree(tmp_path / "in/orders", tmp_path / "in/moved")  # new times, the same content
    put(tmp_path, "moved/2.json", order(6))
    moved = orders_only(tmp_path, ORDERS.replace("in/orders", "in/moved"), FINISH)
    with pytest.raises(StateError, match=r"E0710.*the source of stream `orders` was `json .*in/orders` when"):
        quiet_run(moved)
    summary = quiet_run(moved, accept_source_change=True)
    assert summary.counts.events == 1
    assert matched(tmp_path) == [("every_order", number) for number in range(1, 7)]
    assert quiet_run(moved).counts.events == 0  # it is the source now


@pytest.mark.parametrize("moment", ["before", "after"])
def test_files_of_a_planned_micro_batch_may_move(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    put(tmp_path, "orders/1.json", *map(order, range(1, 6)))
    quiet_run(orders_only(tmp_path))
    put(tmp_path, "orders/2.json", order(6))
    run_until(orders_only(tmp_path), "spark_runtime.pipeline.plans.write_plan", moment, monkeypatch)
    (tmp_path / "in/orders").rename(tmp_path / "in/moved")
    put(tmp_path, "moved/3.json", order(7))
    moved = orders_only(tmp_path, ORDERS.replace("in/orders", "in/moved"), FINISH)
    summary = quiet_run(moved, accept_source_change=True)
    assert (summary.counts.events, summary.counts.gone) == (2, {})
    assert matched(tmp_path) == [("every_order", number) for number in range(1, 8)]


def test_a_source_that_never_gave_anything_may_be_corrected(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="E0601"):
        quiet_run(orders_only(tmp_path))
    put(tmp_path, "bad/1.csv", "id,shop")
    wrong = orders_only(tmp_path, "{stream: orders, format: csv, path: in/bad}")
    with pytest.raises(InputError, match="E0604"):
        quiet_run(wrong)
    put(tmp_path, "orders/1.json", order(1))
    assert quiet_run(orders_only(tmp_path, more=FINISH)).counts.events == 1


# ---------------------------------------------------------------- files


def test_files_with_old_times_are_read(spark: SparkSession, tmp_path: Path) -> None:
    now = 1_700_000_000
    os.utime(put(tmp_path, "orders/1.json", order(1)), (now, now))
    quiet_run(orders_only(tmp_path))
    for number in (2, 3):
        old = now - 9 * 86_400
        os.utime(put(tmp_path, f"orders/{number}.json", order(number)), (old, old))
    summary = quiet_run(orders_only(tmp_path, more=FINISH))
    assert summary.counts.events == 2
    assert matched(tmp_path) == [("every_order", number) for number in (1, 2, 3)]


def test_lines_added_to_a_file_are_read_once(spark: SparkSession, tmp_path: Path) -> None:
    file = put(tmp_path, "orders/1.json", order(1), order(2))
    assert quiet_run(orders_only(tmp_path)).counts.events == 2
    with file.open("a") as more:
        more.write(json.dumps(order(3)) + "\nno event\n")
    summary = quiet_run(orders_only(tmp_path, more=FINISH))
    assert (summary.counts.events, summary.counts.malformed) == (1, 1)
    assert [letter["position"] for letter in lines(tmp_path / "out/dead")] == [4]
    assert matched(tmp_path) == [("every_order", number) for number in (1, 2, 3)]


def test_a_file_that_has_changed_since_it_was_read_is_counted(spark: SparkSession, tmp_path: Path) -> None:
    file = put(tmp_path, "orders/1.json", order(1), order(2))
    quiet_run(orders_only(tmp_path))
    put(tmp_path, "orders/1.json", order(8))
    summary = quiet_run(orders_only(tmp_path, more=FINISH))
    assert summary.counts.changed == {str(file): 1}
    assert summary.counts.passed_over == 1
    assert matched(tmp_path) == [("every_order", 1), ("every_order", 2)]


def test_a_file_that_is_gone_when_its_micro_batch_runs_is_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, "orders/1.json", order(1))
    bad = put(tmp_path, "orders/2.json.gz", "x")
    good = put(tmp_path, "orders/3.json", order(3))
    with pytest.raises(InputError, match=r"E0606.*2\.json\.gz` cannot be read"):
        quiet_run(orders_only(tmp_path))
    bad.unlink()
    good.unlink()
    summary = quiet_run(orders_only(tmp_path, more=FINISH))
    assert summary.counts.gone == {str(bad): 1, str(good): 1}
    assert matched(tmp_path) == [("every_order", 1)]


def cut_gzip(folder: Path) -> Path:
    file = put(folder, "orders/2.json.gz")
    text = "".join(
        json.dumps(order(number, shop=f"s{number * 7919 % 1000}")) + "\n" for number in range(1000)
    )
    file.write_bytes(gzip.compress(text.encode())[:-2000])
    return file


@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_a_bad_file_can_be_quarantined(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    put(tmp_path, "orders/1.json", order(2000))
    cut = cut_gzip(tmp_path)
    put(tmp_path, "orders/3.json", order(2001))
    more = f"mode: {mode}" + (f"\n{FINISH}" if mode == "stream" else "")
    with pytest.raises(InputError, match=r"E0606.*2\.json\.gz` cannot be read"):
        quiet_run(orders_only(tmp_path, more=more))
    quarantine = ORDERS.replace("}", ", on_bad_file: quarantine}")
    summary = quiet_run(orders_only(tmp_path, quarantine, more))
    (letter,) = lines(tmp_path / "out/dead")
    assert letter["source"] == str(cut)
    assert letter["reason"].startswith("the file is refused from here on: E0606, `")
    n_read = letter["position"] - 1
    assert 300 < n_read < 1000
    assert summary.counts.events == n_read + 2
    assert (summary.counts.refused, summary.counts.malformed) == ({str(cut): 1}, 0)
    assert len(matched(tmp_path)) == n_read + 2


def test_a_file_that_is_not_of_the_stream_can_be_quarantined(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path, "orders/1.csv", "id,shop,ts,amount", "1,s,2024-05-01,20")
    put(tmp_path, "orders/2.csv", "no,header", "1,2")
    source = "{stream: orders, format: csv, path: in/orders, on_bad_file: quarantine}"
    summary = quiet_run(orders_only(tmp_path, source, FINISH))
    (letter,) = lines(tmp_path / "out/dead")
    assert letter["position"] == 1
    assert "E0604" in letter["reason"]
    assert (summary.counts.events, summary.counts.passed_over) == (1, 1)


# ---------------------------------------------------------------- late events and clocks


def test_late_events_of_several_streams_are_written_whole_and_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    day = 86_400
    put(tmp_path, "orders/1.json", order(1, 10 * day))
    put(tmp_path, "parcels/1.json", parcel(101, 10 * day))
    quiet_run(pipeline(tmp_path, ORDERS, PARCELS))
    unwanted = order(3, 5, amount=-1.0)  # of no use to any rule
    put(tmp_path, "orders/2.json", order(2, 7), unwanted)
    put(tmp_path, "parcels/2.json", parcel(102, 9 * day))  # exactly on the watermark
    summary = quiet_run(pipeline(tmp_path, ORDERS, PARCELS, more=FINISH))
    assert summary.counts.late_of == {"orders": 2, "parcels": 1}
    late = {name: lines(tmp_path / f"out/late/stream={name}") for name in ("orders", "parcels")}
    seconds = [row.pop("_late_seconds") for rows in late.values() for row in rows]
    assert seconds == [9 * day - 7, 9 * day - 5, 0.0]
    again = {
        name: [{**row, "ts": datetime.fromisoformat(row["ts"]).isoformat()} for row in rows]
        for name, rows in late.items()
    }
    assert again == {"orders": [order(2, 7), unwanted], "parcels": [parcel(102, 9 * day)]}
    assert summary.counts.late_in == {
        str(tmp_path / "in/orders/2.json"): 2,
        str(tmp_path / "in/parcels/2.json"): 1,
    }
    assert summary.counts.late_keys == {"shop = s": 3}


@pytest.mark.parametrize("file_format", ["json", "parquet"])
def test_late_events_can_be_the_input_of_another_run(
    spark: SparkSession, tmp_path: Path, file_format: str
) -> None:
    put(tmp_path, "parcels/1.json", parcel(1, 10 * 86_400))
    rules = RULES.split("RULE every_parcel")[1].split("RULE sent")[0]
    file = pipeline(tmp_path, PARCELS, rules=f"RULE every_parcel{rules}")
    file.write_text(file.read_text().replace("late: {format: json", f"late: {{format: {file_format}"))
    quiet_run(file)
    put(tmp_path, "parcels/2.json", *(parcel(number) for number in range(2, 9)))
    assert quiet_run(file).counts.late == 7
    batch = max((tmp_path / "out/late").iterdir(), key=lambda folder: int(folder.name.rpartition("-")[2]))
    again = f"{{stream: parcels, format: {file_format}, path: {batch}}}"
    second = tmp_path / "second"
    second.mkdir()
    summary = quiet_run(pipeline(second, again, rules=f"RULE every_parcel{rules}", more=FINISH))
    assert summary.counts.malformed == 0
    assert matched(second) == [("every_parcel", number) for number in range(2, 9)]


def test_an_event_far_ahead_is_a_dead_letter_and_makes_no_other_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    far = {**order(99), "ts": "2099-01-01T00:00:00Z"}
    put(tmp_path, "orders/1.json", order(1), far, *map(order, range(2, 10)))
    source = ORDERS.replace("}", ", max_files_per_trigger: 1}")
    put(tmp_path, "orders/2.json", *map(order, range(10, 50)))
    summary = quiet_run(orders_only(tmp_path, source, FINISH))
    assert (summary.counts.late, summary.counts.malformed) == (0, 1)
    (letter,) = lines(tmp_path / "out/dead")
    assert (letter["reason"], letter["position"]) == ("event time `ts` is beyond max_ahead", 2)
    assert len(matched(tmp_path)) == 49


def test_many_late_events_are_explained(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    far = {**order(99), "ts": "2024-06-01T00:00:00Z"}  # within max_ahead
    first = put(tmp_path, "orders/1.json", order(1), far)
    quiet_run(orders_only(tmp_path))
    second = put(tmp_path, "orders/2.json", *map(order, range(10, 50)))
    run_pipeline(orders_only(tmp_path), console=Console(file=StringIO()))
    shown = [line.strip() for line in capsys.readouterr().err.splitlines()]
    at = next(number for number, line in enumerate(shown) if line.startswith("late "))
    assert shown[at : at + 6] == [
        "late                    40",
        "100 % of the events, up to 29 days 23 hours behind the watermark",
        f"in {second} (40)",
        "of shop = s (40)",
        f"the watermark follows the latest event: 2024-06-01T00:00:00Z, {first}:2",
        "to keep them, raise `lateness` of stream `orders` (now 1 day), or run with `mode: batch`",
    ]


# ---------------------------------------------------------------- checkpoints and sinks


def test_two_runs_at_once_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path, "orders/1.json", order(1))
    file = orders_only(tmp_path)
    with (
        locked(str(tmp_path / "out/checkpoint")),
        pytest.raises(StateError, match=r"E0711.*another run works on the checkpoint"),
    ):
        quiet_run(file)
    assert quiet_run(file).counts.events == 1


@pytest.mark.parametrize(
    ("damaged", "fact"),
    [
        ("query/offsets/3", r"the offsets of micro-batch 3 are missing"),
        ("query/offsets/3=", r"offsets/3`: the file is damaged"),
        ("query/commits/3=v1", r"commits/3`: the file is damaged"),
        ("query/metadata", r"metadata`: the file is missing"),
        ("files/orders.log", r"the list of files that were read, has 0 entries; the query has read 2"),
        ("done.json", r"done\.json`: it does not say what micro-batch 3 reached"),
        ("pipeline.json", r"pipeline\.json`: the file is missing, but the query has micro-batches"),
        ("rules.json", r"rules\.json`: the file is missing, but the query has micro-batches"),
        ("rules.json={", r"rules\.json`: the file is damaged"),
    ],
)
def test_a_damaged_checkpoint_is_refused_with_the_part_and_the_way_out(
    spark: SparkSession, tmp_path: Path, damaged: str, fact: str
) -> None:
    for number in (1, 2):  # two micro-batches each: Spark's watermark has a second one
        put(tmp_path, f"orders/{number}.json", order(number))
        quiet_run(orders_only(tmp_path))
    name, sign, text = damaged.partition("=")
    part = tmp_path / "out/checkpoint" / name
    if sign:
        part.write_text(text)
    else:
        part.unlink()
    put(tmp_path, "orders/3.json", order(3))
    with pytest.raises(StateError, match=rf"(?s)E0702.*{fact}.*restore the checkpoint directory"):
        quiet_run(orders_only(tmp_path))


@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_a_sink_that_is_a_file_is_told_before_anything_runs(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    put(tmp_path, "orders/1.json", order(1))
    (tmp_path / "out").mkdir()
    (tmp_path / "out/matches").write_text("a file")
    with pytest.raises(InputError, match=r"E0618.*out/matches` cannot be written: a file is where a folder"):
        quiet_run(orders_only(tmp_path, more=f"mode: {mode}"))
    assert not (tmp_path / "out/checkpoint/query").exists()


def test_what_goes_wrong_in_a_sink_while_it_is_written_is_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "orders/1.json", order(1))
    file = orders_only(tmp_path)
    hidden = tmp_path / "out/matches"

    def spoil(_self: object) -> None:
        hidden.mkdir(parents=True, exist_ok=True)
        for batch in range(9):  # whatever the micro-batch is called, its folder cannot be made
            (hidden / f".batch={run_id}-{batch}").write_text("in the way")

    quiet_run(file)
    run_id = json.loads((tmp_path / "out/checkpoint/pipeline.json").read_text())["run"]
    monkeypatch.setattr(
        "spark_runtime.connectors.files.sink.FolderSink.begin", lambda self, batch: spoil(self)
    )
    put(tmp_path, "orders/2.json", order(2))
    with pytest.raises(CepError) as caught:
        quiet_run(file)
    assert caught.value.code == "E0618"
    assert str(hidden) in str(caught.value)
