"""Streams whose event time is estimated: read from files, matched, refused, handed back when late."""

import json
from datetime import UTC, datetime, timedelta
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from cep import load_streams
from cep.compiler.compile import compile_sources
from cep.errors import RuleError, Source
from cep.local.find_matches import find_matches
from cep.local.match_file import match_file
from cep.rule_set import RuleSet

START = datetime(2024, 5, 1, 12, tzinfo=UTC)

STREAMS = """
streams:
  readings:
    event_time: true_time
    tie_break: [id]
    lateness: {lateness}
    device_clock: {{device: device, event: measured, sent: sent, received: received, max_behind: 1 day}}
    schema: {{id: bigint, room: string, device: string, kind: string,
             measured: timestamp, sent: timestamp, received: timestamp}}
"""

RULE = """
RULE opened FROM readings PARTITION BY room PATTERN a -> b WITHIN 1 MINUTE
DEFINE a AS kind = 'opened', b AS kind = 'entered'
MEASURES a.id AS first, b.id AS second, b.true_time - a.true_time AS apart
"""


def record(
    number: int, kind: str, device: str, happened: float, shows: float, delay: float = 0.05
) -> dict[str, Any]:
    """Return a record of something, so many seconds after the start; the device's clock `shows` more."""
    by_clock = START + timedelta(seconds=happened + shows)
    received = START + timedelta(seconds=happened + delay)
    times = {"measured": by_clock, "sent": by_clock, "received": received}
    texts = {name: time.isoformat() for name, time in times.items()}
    return {"id": number, "room": "r", "device": device, "kind": kind, **texts}


# The door's clock is two hours ahead, the camera's an hour behind. Twice somebody opens and enters.
RECORDS = [
    record(1, "idle", "door", 0, 7200),
    record(2, "idle", "camera", 1, -3600),
    record(3, "opened", "door", 20, 7200),
    record(4, "entered", "camera", 50, -3600),
    record(5, "entered", "camera", 200, -3600),
    record(6, "opened", "door", 210, 7200, delay=95),  # held up by the network
    record(7, "entered", "camera", 240, -3600),
]


def rules(folder: Path, lateness: str = "0 seconds") -> RuleSet:
    (folder / "streams.yaml").write_text(STREAMS.format(lateness=lateness))
    return compile_sources([Source("rule", RULE)], load_streams(folder / "streams.yaml")).rule_set


def write(folder: Path, name: str, records: list[dict[str, Any]]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder / name


def in_order() -> list[dict[str, Any]]:
    return sorted(RECORDS, key=lambda item: str(item["received"]))


def found(table: pa.Table) -> list[tuple[int, int, float]]:
    return [(row["first"], row["second"], row["apart"] / 1e6) for row in table.to_pylist()]


EXPECTED = [(3, 4), (6, 7)]


def test_devices_whose_clocks_are_hours_apart_are_matched_by_the_true_time(tmp_path: Path) -> None:
    result = match_file(rules(tmp_path), write(tmp_path, "in.jsonl", in_order()))
    assert [(a, b) for a, b, _ in found(result.matches)] == EXPECTED
    assert [apart for _, _, apart in found(result.matches)] == pytest.approx([30, 30], abs=0.01)
    assert result.dead_letters.num_rows == 0


def test_files_are_read_in_the_order_of_their_receipt_whatever_their_names(tmp_path: Path) -> None:
    records = in_order()
    for number, part in enumerate((records[5:], records[2:5], records[:2])):
        write(tmp_path / "in", f"{number}.jsonl", part)
    at_once = match_file(rules(tmp_path), write(tmp_path, "all.jsonl", records))
    parts = match_file(rules(tmp_path), tmp_path / "in")
    assert parts.matches.equals(at_once.matches)


def test_standard_input_is_not_read_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "in.jsonl", in_order())
    expected = match_file(rules(tmp_path), path).matches
    with path.open("rb") as file:
        monkeypatch.setattr("sys.stdin", TextIOWrapper(file))
        assert match_file(rules(tmp_path), "-", "json").matches.equals(expected)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_every_format_gives_the_same(tmp_path: Path, kind: str) -> None:
    source = write(tmp_path, "in.jsonl", in_order())
    expected = match_file(rules(tmp_path), source).matches
    records = in_order()
    path = tmp_path / f"in.{kind}"
    if kind == "csv":
        lines = [",".join(records[0]), *(",".join(map(str, record.values())) for record in records)]
        path.write_text("\n".join(lines) + "\n")
    else:
        times = ("measured", "sent", "received")
        rows = [{**r, **{t: datetime.fromisoformat(r[t]) for t in times}} for r in records]
        pq.write_table(pa.Table.from_pylist(rows), path)
    assert match_file(rules(tmp_path), path).matches.equals(expected)


def test_a_unit_test_of_a_rule_gives_the_same(tmp_path: Path) -> None:
    expected = match_file(rules(tmp_path), write(tmp_path, "in.jsonl", in_order())).matches.to_pylist()
    streams = load_streams(tmp_path / "streams.yaml")
    assert find_matches(RULE, streams, RECORDS) == expected
    truth = [{"id": 1, "room": "r", "kind": "opened", "true_time": START}]
    truth += [{"id": 2, "room": "r", "kind": "entered", "true_time": START + timedelta(seconds=5)}]
    assert len(find_matches(RULE, streams, truth)) == 1  # a test may say the true times
    with pytest.raises(ValueError, match="no event time"):
        find_matches(RULE, streams, [{"id": 1, "device": "d"}])


def test_a_clock_that_is_far_ahead_closes_no_window(tmp_path: Path) -> None:
    ahead = record(9, "idle", "wall", 25, 40 * 365 * 86_400)  # the year 2064
    records = sorted([*RECORDS, ahead], key=lambda item: str(item["received"]))
    result = match_file(rules(tmp_path, "2 minutes"), write(tmp_path, "in.jsonl", records), as_stream=True)
    assert [(a, b) for a, b, _ in found(result.matches)] == EXPECTED
    assert result.counts.late == 0


def test_what_cannot_be_estimated_or_lies_too_far_behind_is_a_dead_letter(tmp_path: Path) -> None:
    known = record(1, "idle", "door", 0, 0)
    held = {**record(2, "idle", "door", 10, 0), "measured": (START - timedelta(days=2)).isoformat()}
    lacking = {**record(3, "idle", "door", 20, 0), "sent": None}
    result = match_file(rules(tmp_path), write(tmp_path, "in.jsonl", [known, held, lacking]))
    assert result.dead_letters.column("reason").to_pylist() == [
        "event time `true_time` is beyond max_behind",
        "event time `true_time` cannot be estimated, a NULL in `device`, `measured`, `sent`, `received`",
    ]
    assert (result.counts.events, result.counts.malformed) == (1, 2)


def test_a_late_event_keeps_what_the_device_said(tmp_path: Path) -> None:
    result = match_file(rules(tmp_path), write(tmp_path, "in.jsonl", in_order()), as_stream=True)
    (late,) = result.late.values()
    assert late.column("id").to_pylist() == [6]
    row = late.to_pylist()[0]
    happened_us = (START.timestamp() + 210) * 1e6
    assert row["measured"] == happened_us + 7200e6
    assert abs(row["true_time"] - happened_us) < 1e5


def test_the_estimate_is_made_anew_from_what_is_read(tmp_path: Path) -> None:
    claimed = [{**record, "true_time": "1999-01-01T00:00:00Z"} for record in in_order()]
    plain = match_file(rules(tmp_path), write(tmp_path, "in.jsonl", in_order()))
    assert match_file(rules(tmp_path), write(tmp_path, "claimed.jsonl", claimed)).matches.equals(
        plain.matches
    )
    assert pc.min(plain.matches.column("match_start")).as_py() > START


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (("device: device", "device: gone"), "E0407", "`device_clock: device` names `gone`"),
        (("event: measured", "event: kind"), "E0408", "`event` names `kind`, which is string"),
        (("sent: sent, ", ""), "E0404", "`device_clock` has no `sent`"),
        (("max_behind: 1 day", "max_behind: long"), "E0409", "not a duration"),
        (("received: received,", "received: true_time,"), "E0416", "the event time"),
        (("schema: {id: bigint", "schema: {true_time: timestamp, id: bigint"), "E0416", "estimated"),
        (("event_time: true_time", "event_time: _true"), "E0413", "cannot be a column's name"),
        (("lateness:", "deduplicate: true\n    lateness:"), "E0416", "`deduplicate` and `device_clock`"),
        (("device: device,", "device: device, clock: x,"), "E0403", "no setting `clock`"),
    ],
)
def test_a_wrong_declaration_is_an_error_with_its_place(
    tmp_path: Path, change: tuple[str, str], code: str, said: str
) -> None:
    text = STREAMS.format(lateness="0 seconds")
    assert change[0] in text
    (tmp_path / "streams.yaml").write_text(text.replace(*change, 1))
    with pytest.raises(RuleError) as caught:
        load_streams(tmp_path / "streams.yaml")
    problems = caught.value.diagnostics
    assert [problem.code for problem in problems] == [code]
    assert said in str(caught.value)
    assert "^" in str(caught.value)
