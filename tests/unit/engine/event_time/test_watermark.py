"""Which events are late: those at or before the watermark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cep.engine.event_time.watermark import END_OF_TIME_US, START_OF_TIME_US, is_late, late_by_us, split_late
from cep.formats.intake import count_late, count_uncorrected
from cep.formats.late_events import LATE_COLUMN, late_schema
from cep.rule_set import Corrections
from cep.schema.stream import Field, Stream

STREAM = Stream("s", (Field("id", "bigint"), Field("ts", "timestamp")), "ts")
TIMES = np.array([999_999, 1_000_000, 1_000_001])


def test_an_event_at_the_watermark_is_late_and_one_a_microsecond_after_it_is_not() -> None:
    assert is_late(late_by_us(TIMES, 1_000_000)).tolist() == [True, True, False]


def test_each_event_may_have_come_at_a_watermark_of_its_own() -> None:
    assert late_by_us(TIMES, np.array([0, 2_000_000, 1_000_001])).tolist() == [-999_999, 1_000_000, 0]


def test_before_any_event_nothing_is_late_however_early() -> None:
    first_us = np.array([-62_135_596_800_000_000])  # the year 1
    assert is_late(late_by_us(first_us, START_OF_TIME_US)).tolist() == [False]


def test_events_are_split_into_those_in_time_and_late_ones_with_how_late_they_are() -> None:
    events = pa.table({"id": [1, 2, 3], "ts": pa.array(TIMES)})
    in_time, late = split_late(events, late_by_us(TIMES, 1_000_000), STREAM)
    assert in_time.column("id").to_pylist() == [3]
    assert late.schema == late_schema(STREAM)
    assert late.select(["id", LATE_COLUMN]).to_pylist() == [
        {"id": 1, LATE_COLUMN: 1e-06},
        {"id": 2, LATE_COLUMN: 0.0},
    ]


def test_after_the_end_of_the_input_nobody_knows_how_late_an_event_is() -> None:
    events = pa.table({"id": [1, 2, 3], "ts": pa.array(TIMES)})
    in_time, late = split_late(events, late_by_us(TIMES, END_OF_TIME_US), STREAM)
    assert in_time.num_rows == 0
    assert late.column(LATE_COLUMN).to_pylist() == [None, None, None]
    counts = count_late(late, STREAM, [("id",)], "/in/a")
    assert counts.late == 3
    assert counts.latest_late == {}
    assert count_uncorrected(late, Corrections(1_000_000)) == 0


def test_without_late_events_nothing_is_copied() -> None:
    events = pa.table({"id": [1, 2, 3], "ts": pa.array(TIMES)})
    in_time, late = split_late(events, late_by_us(TIMES, 0), STREAM)
    assert in_time is events
    assert (late.num_rows, late.schema) == (0, late_schema(STREAM))
