"""Windows without events: which keys have them, when the next one ends, what is too much, what is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cep.compiler.compile import compile_sources
from cep.engine.chains.chain import Chain
from cep.engine.matching.matcher import Matcher
from cep.engine.prepare.predicates import prepare
from cep.engine.prepare.versions import extents, prepared_versions
from cep.engine.window_rules.silent_windows import (
    Stays,
    last_between_ends,
    next_silent_end_us,
    silent_windows,
)
from cep.engine.windows.tumbling import window_begins, window_ends
from cep.errors import InputError, Source
from cep.local.given_events import event_table
from cep.program.program import Program
from cep.program.windows import Frame, Window
from cep.schema.stream import Field, Stream, TableSettings

SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US
FOR_EVER_US = np.iinfo(np.int64).max
READINGS = Stream(
    "readings", (Field("ts", "timestamp"), Field("d", "bigint")), "ts", max_valid_us=FOR_EVER_US
)
DEVICES = Stream(
    "devices",
    (Field("id", "bigint"), Field("at", "timestamp"), Field("op", "string")),
    "at",
    table=TableSettings(("id",), op="op"),
)
STREAMS = {"readings": READINGS, "devices": DEVICES}
RULE = """
RULE silent FROM readings PARTITION BY d
WINDOW TUMBLING 1 HOUR FOR EACH devices
HAVING COUNT(*) = 0 MEASURES COUNT(*) AS n
"""


def program_of(text: str = RULE) -> Program:
    (program,) = compile_sources([Source("r.cep", text)], STREAMS).programs
    return program


def push(matcher: Matcher, stream: Stream, *rows: dict[str, Any]) -> None:
    table = event_table(stream, rows)
    if stream.table is None:
        matcher.push(prepare(matcher.program, table, stream))
    for prepared in (
        *prepared_versions(matcher.program, stream, table),
        *extents(matcher.program, stream, table),
    ):
        matcher.push(prepared)


def test_a_silent_key_wakes_up_at_the_ends_of_its_windows_also_after_a_restore() -> None:
    matcher = Matcher(program_of())
    push(matcher, DEVICES, {"id": 7, "at": HOUR_US // 2, "op": "c"}, {"id": 1, "at": 2 * HOUR_US, "op": "c"})
    push(matcher, READINGS, {"ts": HOUR_US, "d": 1}, {"ts": 2 * HOUR_US, "d": 1})
    assert matcher.advance(HOUR_US + 1).num_rows == 0
    for hour, next_hour, n_rows in ((2, 2, 1), (4, 3, 3), (5, 5, 2)):  # first of key 7, then of key 1, too
        assert matcher.next_deadline_us() == next_hour * HOUR_US
        assert matcher.advance(hour * HOUR_US).num_rows == n_rows
        matcher = Matcher.restore(matcher.program, matcher.snapshot())
    assert matcher.finish().num_rows == 0


@pytest.mark.parametrize(
    "window",
    [
        Window(Frame.TUMBLING, HOUR_US, offset_us=7),
        Window(Frame.TUMBLING, 24 * HOUR_US, zone="Europe/Berlin"),
        Window(Frame.HOPPING, 3 * HOUR_US, every_us=HOUR_US, offset_us=5),
    ],
)
def test_the_last_times_between_ends_say_which_windows_end_after_the_first_that_is_not_late(
    window: Window,
) -> None:
    random = np.random.default_rng(3)
    times_us = random.integers(0, 90 * HOUR_US, 300)
    beside = Window(Frame.TUMBLING, 7 * HOUR_US)
    told = last_between_ends([beside, window], times_us)
    assert len(told) < len(times_us)
    assert (np.diff(told) > 0).all()
    assert len(last_between_ends([window], times_us[:1])) == 1
    for watermark_us in times_us[times_us < times_us.max()].tolist():
        first_us = int(times_us[times_us > watermark_us].min())
        of_told_us = int(told[told > watermark_us].min())
        for each in (window, beside):
            assert next_silent_end_us(each, 0, first_us) == next_silent_end_us(each, 0, of_told_us)


def test_a_deleted_key_keeps_nothing_when_its_last_window_is_over() -> None:
    matcher = Matcher(program_of())
    push(matcher, READINGS, {"ts": 0, "d": 1})
    push(matcher, DEVICES, {"id": 7, "at": 0, "op": "c"}, {"id": 7, "at": HOUR_US, "op": "d"})
    assert matcher.advance(HOUR_US).num_rows == 1
    assert Matcher.restore(matcher.program, matcher.snapshot()).n_keys == 0
    assert matcher.next_deadline_us() is None


@pytest.mark.parametrize("zone", ["", " ZONE 'Asia/Tokyo'"])
def test_after_the_end_of_the_input_no_window_is_due(zone: str) -> None:
    matcher = Matcher(program_of(RULE.replace("1 HOUR", "1 DAY" + zone)))
    push(matcher, DEVICES, {"id": 7, "at": 0, "op": "c"})
    push(matcher, READINGS, {"ts": HOUR_US, "d": 1})
    matcher.finish()
    assert matcher.next_deadline_us() is None


def test_without_an_event_there_is_no_window() -> None:
    matcher = Matcher(program_of())
    push(matcher, DEVICES, {"id": 7, "at": 0, "op": "c"}, {"id": 8, "at": 9 * HOUR_US, "op": "c"})
    assert matcher.advance(5 * HOUR_US).num_rows == 0
    assert matcher.finish().num_rows == 0


def test_a_table_of_which_no_row_can_come_is_not_kept() -> None:
    program = program_of(RULE.replace("= 0", "> 5"))
    matcher = Matcher(program)
    push(matcher, DEVICES, {"id": 7, "at": 0, "op": "c"})
    push(matcher, READINGS, {"ts": HOUR_US, "d": 1})
    matcher.advance(4 * HOUR_US)
    assert matcher.n_keys <= 1
    assert Matcher.restore(program, matcher.snapshot()).n_keys == 0


def test_event_time_of_another_stream_of_the_run_ends_windows_too() -> None:
    others = Stream("others", READINGS.fields, "ts")
    text = RULE + "RULE other FROM others PARTITION BY d PATTERN a"
    rules = compile_sources([Source("r.cep", text)], STREAMS | {"others": others}).rule_set
    chain = Chain(rules)
    found: list[pa.Table] = []
    chain.push_events(READINGS, event_table(READINGS, [{"ts": 0, "d": 1}]))
    chain.push_events(DEVICES, event_table(DEVICES, [{"id": 7, "at": 0, "op": "c"}]))
    chain.push_events(others, event_table(others, [{"ts": 2 * HOUR_US, "d": 1}]))
    chain.finish(found.append)
    rows = [row for table in found for row in table.to_pylist() if row["rule"] == "silent"]
    assert [(row["d"], row["match_end"].hour) for row in rows] == [(7, 1), (7, 2)]


def test_event_time_that_jumps_by_centuries_is_an_error_that_says_what_to_check() -> None:
    matcher = Matcher(program_of(RULE.replace("1 HOUR", "1 MINUTE")))
    push(matcher, DEVICES, {"id": 7, "at": 0, "op": "c"})
    push(matcher, READINGS, {"ts": 0, "d": 1}, {"ts": 100_000 * 24 * HOUR_US, "d": 1})
    with pytest.raises(InputError) as caught:
        matcher.finish()
    assert caught.value.code == "E0622"
    assert "event time goes from 1970-01-01T00:00:00.000000 to 2243-10-17T00:00:00" in str(caught.value)


def test_many_windows_of_many_keys_are_an_error_before_there_are_rows() -> None:
    n = 1 << 12
    stays = Stays(np.arange(n), np.zeros(n, np.int64), np.full(n, FOR_EVER_US))
    window = Window(Frame.TUMBLING, SECOND_US, is_whole=True)
    with pytest.raises(InputError, match="windows without events"):
        silent_windows(window, stays, 0, 100_000 * SECOND_US)


def test_the_rows_of_many_silent_keys_are_one_step() -> None:
    n = 20_000
    matcher = Matcher(program_of())
    versions = pa.table(
        {
            "id": pa.array(np.arange(n)),
            "at": pa.array(np.zeros(n, np.int64)),
            "op": pa.array(["c"] * n),
        }
    )
    for prepared in prepared_versions(matcher.program, DEVICES, versions):
        matcher.push(prepared)
    push(matcher, READINGS, {"ts": 0, "d": 5}, {"ts": 3 * HOUR_US, "d": 5})
    assert matcher.finish().num_rows == 3 * n - 1


@pytest.mark.parametrize("hours", [1, 2, 24])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe"])
def test_windows_of_a_zone_follow_each_other_where_clocks_are_set(zone: str, hours: int) -> None:
    window = Window(Frame.TUMBLING, hours * HOUR_US, zone=zone, is_whole=True)
    after_us, until_us = 1_711_000_000 * SECOND_US, 1_713_000_000 * SECOND_US
    stays = Stays(np.array([0]), np.array([after_us]), np.array([FOR_EVER_US]))
    found = silent_windows(window, stays, after_us, until_us)
    assert found is not None
    assert (window_begins(window, found.begins_us) == found.begins_us).all()
    assert (window_ends(window, found.begins_us) == found.ends_us).all()
    assert (found.ends_us[:-1] == found.begins_us[1:]).all()


@pytest.mark.parametrize(
    "window",
    [
        Window(Frame.TUMBLING, 7, offset_us=3, is_whole=True),
        Window(Frame.HOPPING, 10, offset_us=1, is_whole=True, every_us=4),
        Window(Frame.HOPPING, 3, is_whole=True, every_us=5),
    ],
)
def test_the_next_end_is_that_of_the_first_window_found(window: Window) -> None:
    for since_us in range(-9, 9):
        for after_us in range(-9, 30):
            next_us = next_silent_end_us(window, since_us, after_us)
            stays = Stays(np.array([0]), np.array([since_us]), np.array([FOR_EVER_US]))
            assert silent_windows(window, stays, after_us, next_us - 1) is None
            found = silent_windows(window, stays, after_us, next_us)
            assert found is not None
            assert found.ends_us[found.first[0] : found.behind[0]].tolist() == [next_us]
