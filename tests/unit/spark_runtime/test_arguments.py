"""Arguments of another type than documented, or of no effect: they are named, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from cep import find_matches, load_streams, match_file
from cep.errors import InputError, RuleError
from spark_runtime import run_pipeline, session, split
from spark_runtime.detection import Call, _checked, _kept, _require_single_columns, _tie_break, duration_us
from spark_runtime.event_time.upstream import upstream
from tests.unit.spark_runtime.test_limits_of_detect import CALL

NOTHING = cast(Any, None)
SCHEMA = T.StructType(
    [
        T.StructField("k", T.StringType()),
        T.StructField("ts", T.TimestampType()),
        T.StructField("n", T.LongType()),
        T.StructField("_id", T.LongType()),
        T.StructField("_ts", T.TimestampType()),
        T.StructField("", T.LongType()),
        T.StructField("length", T.DayTimeIntervalType()),
        T.StructField("lengths", T.ArrayType(T.DayTimeIntervalType())),
    ]
)
RULE = "RULE r FROM s PARTITION BY k PATTERN a b"


class Frame(DataFrame):
    """A DataFrame of which nothing is asked but its schema and whether it is a stream."""

    def __new__(cls, is_streaming: bool = False) -> Frame:
        return object.__new__(cls)

    def __init__(self, is_streaming: bool = False) -> None:
        self._schema, self._is_streaming = SCHEMA, is_streaming
        self._session = NOTHING

    schema = property(lambda self: self._schema)
    isStreaming = property(lambda self: self._is_streaming)
    columns = property(lambda self: self._schema.names)
    sparkSession = property(lambda self: self._session)


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_runtime.detection.is_stopped", lambda session: False)


def call(**arguments: Any) -> Call:
    """Return a call over a batch `s`, compiled for its columns."""
    return replace(CALL, **{"events": Frame(), "rules": RULE, "event_time": "ts", **arguments})


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: load_streams(NOTHING), "E0827.*path is None"),
        (lambda: match_file(CALL.rules, NOTHING), "E0827.*path is None"),  # type: ignore[arg-type]
        (lambda: find_matches(NOTHING, {}, []), "E0827.*rules is None"),
        (lambda: run_pipeline(NOTHING), "E0827.*path is None"),
        (lambda: run_pipeline("p.yaml", ui="here"), "E0827.*ui is 'here'"),
        (lambda: run_pipeline("p.yaml", roots=cast(Any, 5)), "E0827.*roots is 5"),
        (lambda: _checked(replace(CALL, events={})), "E0823.*the events are an empty dictionary"),
        (lambda: _tie_break(replace(CALL, tie_break=cast(Any, 5)), "t"), "E0827.*tie_break is 5"),
        (lambda: session(cast(Any, 5)), "E0827.*settings is 5"),
        (lambda: split(NOTHING), "E0827.*found is None"),
        (lambda: split(Frame()), "E0827.*found has no column `kind`"),
        (lambda: _checked(call(key_groups=True)), "E0827.*key_groups is True"),
        (lambda: _checked(call(event_time=Path("ts"))), "E0827.*event_time is "),
        (lambda: _checked(call(event_time={"s": 5})), "E0827.*event_time is {'s': 5}"),
        (lambda: _checked(call(events={1: Frame()})), "E0827.*a key of events is 1"),
        (lambda: _checked(call(deduplicate="false")), "E0827.*deduplicate is 'false'"),
        (lambda: _checked(call(streaming="x")), "E0827.*streaming is 'x'"),
        (lambda: _checked(call(deduplicate=True)), "E0411.*deduplicate needs tie_break.*`s`"),
        (lambda: _kept(cast(Any, 5), NOTHING), "E0827.*state_folder is 5"),
        (lambda: duration_us("999999999999 days"), "E0821.*more than 36,500 days"),
        (lambda: _checked(call(correct_within="99999 days")), "E0827.*correct_within is '99999 days'"),
    ],
)
def test_an_argument_of_another_type_is_named(call: Callable[[], object], told: str) -> None:
    with pytest.raises(InputError, match=f"(?s){told}"):
        call()


@pytest.mark.parametrize(("given", "events"), [(True, False), (False, True)])
def test_a_batch_is_no_stream_whatever_the_argument_says(given: bool, events: bool) -> None:
    with pytest.raises(InputError, match=f"E0827.*streaming is {given}, but the events are"):
        upstream(Frame(events), None, given)
    assert upstream(Frame(events), SCHEMA, given).is_streaming is given  # Spark is not asked


@pytest.mark.parametrize("name", ["S", "other"])
@pytest.mark.parametrize("argument", ["tie_break", "event_time", "events_schema"])
def test_a_name_of_another_stream_is_named(argument: str, name: str) -> None:
    """Without its tie breaker a stream has another order, and other matches."""
    value: dict[str, Any] = {"s": SCHEMA if argument == "events_schema" else "ts"}
    assert _checked(call(**{argument: value}))
    for given in (
        {**value, name: next(iter(value.values()))},
        *([] if argument != "tie_break" else [{name: "n"}]),
    ):
        for events in (Frame(), {"s": Frame()}):
            with pytest.raises(InputError) as caught:
                _checked(call(**{argument: given, "events": events}))
            near = "did you mean `s`? " if name == "S" else ""
            assert str(caught.value) == (
                f"error[E0610]: {argument} names a stream `{name}`, which is none of the events\n"
                f"help: {near}streams of the events: s"
            )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"tie_break": "_id"}, "E0413.*`_id` cannot be a column's name.*withColumnRenamed"),
        ({"event_time": "_ts"}, "E0413.*`_ts` cannot be a column's name.*withColumnRenamed"),
        (
            {"tie_break": "length"},
            "E0605.*`length` of the events is interval day to second, a type that rules",
        ),
        (
            {"rules": f"{RULE} DEFINE a AS length IS NULL"},
            "E0203.*`length`.*a type that rules.*cast it first",
        ),
        (
            {"rules": f"{RULE} DEFINE a AS lengths IS NULL"},
            "E0203.*`lengths` .* array<interval day to second>",
        ),
        (
            {"rules": RULE.replace("BY k", "BY _id")},
            "E0203.*`_id` cannot be a column's name.*withColumnRenamed",
        ),
        ({"rules": f"{RULE} DEFINE a AS m = 1"}, "E0203.*stream `s` has no column `m`"),
    ],
)
def test_a_column_that_rules_cannot_use_is_named(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises((InputError, RuleError), match=f"(?s){told}"):
        _checked(call(**arguments))


def test_a_column_that_is_there_twice_is_named_once() -> None:
    double = T.StructType([*SCHEMA, SCHEMA["k"]])
    stream = _checked(call(events_schema=double, streaming=False))[1].only_stream()
    frame: Any = type("", (), {"sparkSession": type("", (), {"conf": {"spark.sql.caseSensitive": "false"}})})
    with pytest.raises(InputError, match="the events have column `k` more than once"):
        _require_single_columns(frame, double, stream)


def test_a_folder_of_state_may_be_a_path(tmp_path: Path) -> None:
    spark: Any = type("", (), {"conf": {"spark.sql.streaming.minBatchesToRetain": "7"}})
    for given in (tmp_path, str(tmp_path)):
        assert _kept(given, spark).folder == str(tmp_path)


def test_the_page_of_a_pipeline_has_its_address_as_a_text() -> None:
    with pytest.raises(RuleError, match="the pipeline file `nowhere"):
        run_pipeline("nowhere.yaml", ui="127.0.0.1:8080")
