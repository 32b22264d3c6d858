from __future__ import annotations

from pathlib import Path

import pytest

from cep.errors import RuleError, Source
from cep.schema.stream import MAX_VALID_US, MIN_VALID_US, Field, Stream
from cep.settings.schema_file import load_streams, parse_streams


def codes_of(text: str) -> list[str]:
    return [problem.code for problem in parse_streams(Source("streams.yaml", text))[1]]


def test_streams_are_read_with_their_defaults() -> None:
    text = "streams:\n  s: {event_time: t, schema: {t: timestamp, x: INT}}\n"
    fields = (Field("t", "timestamp"), Field("x", "int"))
    assert parse_streams(Source("streams.yaml", text)) == (
        {"s": Stream("s", fields, "t", (), 0, False, MIN_VALID_US, MAX_VALID_US)},
        [],
    )


def test_every_setting_of_a_stream_is_read() -> None:
    text = """
streams:
  on:                     # a boolean elsewhere, a name here
    event_time: t
    tie_break: [x, y]
    lateness: 1 minute
    deduplicate: true
    valid_time: [2013-01-01, 2030-01-01T12:00:00+01:00]
    schema: {t: timestamp, x: bigint, y: string}
"""
    streams, problems = parse_streams(Source("streams.yaml", text))
    assert problems == []
    stream = streams["on"]
    assert (stream.tie_break, stream.lateness_us, stream.deduplicate) == (("x", "y"), 60_000_000, True)
    assert stream.min_valid_us == 1_356_998_400_000_000
    assert stream.max_valid_us == 1_893_495_600_000_000


def test_a_broken_stream_does_not_hide_the_others() -> None:
    text = """
streams:
  bad: {event_time: t, lateness: soon, schema: {t: timestamp}}
  good: {event_time: t, tie_break: t, schema: {t: timestamp}}
  worse: 5
"""
    streams, problems = parse_streams(Source("streams.yaml", text))
    assert list(streams) == ["good"]
    assert [problem.code for problem in problems] == ["E0409", "E0402"]


def test_a_problem_points_at_its_place() -> None:
    text = "streams:\n  s:\n    event_time: x\n    schema: {t: timestamp}\n"
    _, (problem,) = parse_streams(Source("streams.yaml", text))
    assert problem.span is not None
    assert text[problem.span.start : problem.span.end] == "x"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "E0402"),
        ("# nothing\n", "E0402"),
        ("5", "E0402"),
        ("streams:\n", "E0402"),
        ("streams: {s: {event_time: t, schema: }}", "E0402"),
        ("streams: {s: {event_time: [t], schema: {t: timestamp}}}", "E0402"),
        ("streams: {s: {event_time: t, schema: {[t]: timestamp}}}", "E0402"),
        ("a: 1\n---\nb: 2\n", "E0401"),
        ("\x07", "E0401"),
        ("a: &a [*a]", "E0412"),
        ("? " * 400, "E0902"),
        ("#" * (1 << 20) + "\n", "E0901"),
    ],
)
def test_what_is_no_streams_file_is_refused(text: str, code: str) -> None:
    assert code in codes_of(text)


def test_a_misspelt_setting_is_one_problem() -> None:
    assert codes_of("streams: {s: {event_tim: t, schema: {t: timestamp}}}") == ["E0403"]
    assert codes_of("strems: {s: {event_time: t, schema: {t: timestamp}}}") == ["E0403"]
    assert codes_of("streams: {s: {colour: t, schema: {t: timestamp}}}") == ["E0403", "E0404"]


def test_a_file_is_loaded_or_refused_with_all_its_problems(tmp_path: Path) -> None:
    path = tmp_path / "streams.yaml"
    path.write_text("streams: {s: {event_time: t, schema: {t: timestamp}}}")
    assert list(load_streams(path)) == ["s"]
    path.write_text("streams: {s: {event_time: t, latenes: 1, schema: {x: timestamp}}}")
    with pytest.raises(RuleError) as caught:
        load_streams(path)
    assert [problem.code for problem in caught.value.diagnostics] == ["E0407", "E0403"]
    path.write_bytes(b"\xff")
    with pytest.raises(RuleError, match="cannot be read: not UTF-8 text"):
        load_streams(path)


@pytest.mark.parametrize(
    ("written", "ours"),
    [
        ("time", "event_time"),
        ("rowtime", "event_time"),
        ("watermark-delay", "lateness"),
        ("Fields", "schema"),
    ],
)
def test_the_name_that_another_tool_gives_a_setting_is_understood_and_not_also_missing(
    written: str, ours: str
) -> None:
    settings = {"event_time": "ts", "lateness": "1 minute", "schema": "{ts: timestamp}"}
    text = "".join(f"    {written if name == ours else name}: {value}\n" for name, value in settings.items())
    (problem,) = parse_streams(Source("streams.yaml", f"streams:\n  s:\n{text}"))[1]
    assert (problem.code, (problem.help or "").split("?")[0]) == ("E0403", f"did you mean `{ours}`")
