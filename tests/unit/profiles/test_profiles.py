"""Profiles of streams: what is measured, and which values of rules the events never had."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner, Result

import cep.commands.cli
import cep.profiles.measuring
from cep.errors import InputError
from cep.formats.files import read_events
from cep.profiles.measuring import measured
from cep.profiles.profile import read_profile, write_profile
from cep.rulebook import check_rules
from cep.settings.schema_file import load_streams
from tests.pages import cep_prints

STREAMS = """
streams:
  taps:
    event_time: ts
    schema: {k: string, ts: timestamp, kind: string, x: double, n: bigint, on: boolean}
  beeps:
    event_time: ts
    schema: {k: string, ts: timestamp, kind: string}
tables:
  lands:
    key: [iso]
    static: true
    schema: {iso: string, risk: string}
"""
_SECOND_US = 1_000_000


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("streams.yaml").write_text(STREAMS)
    return tmp_path


def written(rows: list[dict[str, Any]], name: str = "taps") -> str:
    Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"{name}={name}.jsonl"


def tap(second: int, **more: Any) -> dict[str, Any]:
    return {"k": "a", "ts": f"2024-05-01T00:{second // 60:02}:{second % 60:02}Z", **more}


@pytest.mark.parametrize("seed", range(20))
def test_what_is_measured_is_what_python_counts(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cep.profiles.measuring, "MAX_VALUES", 8)
    random = Random(seed)
    seconds = [random.randrange(600) for _ in range(random.randint(1, 60))]
    rows = [
        tap(
            second,
            kind=random.choice(["a", "b", None]),
            x=random.choice([1.5, -2.0, None]),
            n=random.randrange(random.choice([3, 100])),
            on=random.random() < 0.5,
        )
        for second in seconds
    ]
    written(rows)
    stream = load_streams("streams.yaml")["taps"]
    chunks = list(read_events("taps.jsonl", stream))
    profile = measured(stream, chunks)
    latest, late, ordered = seconds[0], [], sorted(seconds)
    for second in seconds[1:]:
        late += [latest - second] if second < latest else []
        latest = max(latest, second)
    steps = [0, *(second - before for before, second in pairwise(ordered))]
    assert (profile.n_events, profile.n_malformed) == (len(rows), 0)
    assert profile.n_disordered == len(late)
    assert profile.most_late_us == max(late, default=0) * _SECOND_US
    assert profile.gap_us == max(steps) * _SECOND_US
    assert (profile.last_us or 0) - (profile.first_us or 0) == (max(seconds) - min(seconds)) * _SECOND_US
    for name in ("kind", "x", "n", "on"):
        values = [row[name] for row in rows if row[name] is not None]
        column, counts = profile.columns[name], Counter(values)
        assert column.n_null == len(rows) - len(values)
        expected = {str(value).lower() if name == "on" else str(value): n for value, n in counts.items()}
        assert column.counts == (expected if len(counts) <= 8 else None)
        if name in ("x", "n"):
            assert (column.least, column.greatest) == (min(values, default=None), max(values, default=None))


def test_a_profile_is_the_same_however_its_events_are_divided() -> None:
    written([tap(second, kind=kind) for second, kind in ((5, "a"), (1, "b"), (9, "a"), (9, "c"), (30, "a"))])
    stream = load_streams("streams.yaml")["taps"]
    (whole,) = read_events("taps.jsonl", stream)
    parts = [type(whole)(whole.events.slice(at, 1), whole.dead_letters.slice(at, 1)) for at in range(5)]
    assert measured(stream, parts) == measured(stream, [whole])
    assert measured(stream, parts).gap_us == 21 * _SECOND_US


@pytest.mark.parametrize("most", [4, 1 << 18])
def test_events_in_any_order_divide_a_gap(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cep.profiles.measuring, "MOST_GAPS", most)
    seconds = [0, 1, 2, 3, 4, 5, 6, 120, 60, 61, 62, 63, 64, 65, 66, 200, 201]
    written([tap(second) for second in seconds])
    stream = load_streams("streams.yaml")["taps"]
    (whole,) = read_events("taps.jsonl", stream)
    for size in (1, 2, 5, len(seconds)):
        parts = [type(whole)(whole.events.slice(at, size), whole.dead_letters) for at in range(0, 17, size)]
        found = measured(stream, parts)
        assert found.gap_us == 80 * _SECOND_US
        assert ((found.gap_from_us or 0) - (found.first_us or 0)) == 120 * _SECOND_US


def test_equal_gaps_beyond_the_number_that_is_kept_begin_at_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cep.profiles.measuring, "MOST_GAPS", 4)
    written([tap(second) for second in range(60)])
    stream = load_streams("streams.yaml")["taps"]
    found = measured(stream, read_events("taps.jsonl", stream))
    assert (found.gap_us, found.gap_from_us) == (_SECOND_US, found.first_us)


def test_a_profile_is_read_as_it_was_written() -> None:
    written([tap(1, kind="ä", x=1.5)])
    stream = load_streams("streams.yaml")["taps"]
    profile = measured(stream, read_events("taps.jsonl", stream))
    file = write_profile(Path("streams.yaml"), profile)
    assert read_profile(Path("streams.yaml"), "taps") == profile
    assert read_profile(Path("streams.yaml"), "beeps") is None
    for text in ("{", "[]", "{}", file.read_text().replace('"format": 1', '"format": 2')):
        file.write_text(text)
        with pytest.raises(InputError, match=r"taps.profile.json` is no profile of this version"):
            read_profile(Path("streams.yaml"), "taps")


def test_a_profile_is_beside_the_streams_file_whatever_the_name_of_the_stream(tmp_path: Path) -> None:
    written([tap(1)])
    stream = load_streams("streams.yaml")["taps"]
    profile = measured(replace(stream, name="../ä\0"), read_events("taps.jsonl", stream))
    file = write_profile(tmp_path / "streams.yaml", profile)
    assert file == tmp_path / "..%2Fä%00.profile.json"
    assert read_profile(tmp_path / "streams.yaml", "../ä\0") == profile


def warned(condition: str, head: str = "", source: str = "taps") -> list[str]:
    Path("r.cep").write_text(
        f"RULE r {head} FROM {source} PARTITION BY k PATTERN a -> b WITHIN 1 HOUR\n"
        f"DEFINE a AS k = 'a', b AS {condition}"
    )
    return [problem.title for problem in check_rules(["r.cep"]).problems if problem.code == "W0652"]


def profiled(*rows: dict[str, Any], name: str = "taps") -> None:
    cep_prints(f"profile {written(list(rows), name)}")


TAPS = [tap(1, kind="in", x=2, n=7, on=True), tap(2, kind="out", x=5.5, n=9, on=False)]


@pytest.mark.parametrize(
    ("condition", "title"),
    [
        ("kind = 'int'", "`kind` was never 'int' in 2 events of `taps`"),
        ("'int' = kind", "`kind` was never 'int' in 2 events of `taps`"),
        ("NOT (kind <> 'int' OR on)", "`kind` was never 'int' in 2 events of `taps`"),
        ("kind IN ('in', 'int')", "`kind` was never 'int' in 2 events of `taps`"),
        ("a.kind = 'int' AND on", "`kind` was never 'int' in 2 events of `taps`"),
        ("COUNT(*) FILTER (WHERE kind = 'int') OVER LAST 1 HOUR > 5", "`kind` was never 'int' in 2 events"),
        ("n = 8", "`n` was never 8 in 2 events of `taps`"),
        ("x = 5", "`x` was never 5 in 2 events of `taps`"),
        ("x > 5.5", "`x > 5.5` held for none of 2 events of `taps`"),
        ("9 < n", "`9 < n` held for none of 2 events of `taps`"),
        ("n <= 6", "`n <= 6` held for none of 2 events of `taps`"),
    ],
)
def test_a_value_that_no_event_had_is_named(condition: str, title: str) -> None:
    profiled(*TAPS)
    assert [text[: len(title)] for text in warned(condition)] == [title]


@pytest.mark.parametrize(
    "condition",
    [
        "kind = 'in'",
        "n = 7.0",
        "x = 2",
        "x >= 5.5",
        "n < 8",
        "kind = a.kind",
        "kind LIKE 'int%'",
        "on = TRUE",
    ],
)
def test_a_value_that_an_event_had_is_not_named(condition: str) -> None:
    profiled(*TAPS)
    assert warned(condition) == []


def test_without_a_profile_and_with_too_many_values_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert warned("kind = 'int'") == []
    monkeypatch.setattr(cep.profiles.measuring, "MAX_VALUES", 1)
    profiled(*TAPS)
    assert warned("kind = 'int'") == []


def test_the_value_of_a_parameter_counts() -> None:
    profiled(*TAPS)
    assert warned("kind = word", "PARAM word = 'int'") == ["`kind` was never 'int' in 2 events of `taps`"]
    assert check_rules(["r.cep"], parameters={"word": "in"}).problems == ()


def test_of_several_streams_all_must_lack_the_value() -> None:
    both = "taps, beeps"
    profiled(*TAPS)
    assert warned("kind = 'int'", source=both) == []  # the other one has no profile
    profiled(tap(1, kind="int"), name="beeps")
    assert warned("kind = 'int'", source=both) == []
    assert len(warned("kind = 'inn'", source=both)) == 1
    Path("r.cep").write_text(
        "RULE r FROM taps, beeps PARTITION BY k PATTERN a -> b WITHIN 1 HOUR\n"
        "DEFINE a ON taps AS kind = 'int', b ON beeps AS kind = 'int'"
    )
    titles = [problem.title for problem in check_rules(["r.cep"]).problems]
    assert titles == ["`kind` was never 'int' in 2 events of `taps`"]


def test_a_column_of_a_table_is_that_of_the_table() -> None:
    profiled({"iso": "DE", "risk": "low"}, name="lands")
    join = "JOIN lands ON kind = lands.iso"
    Path("r.cep").write_text(
        f"RULE r FROM taps {join} PARTITION BY k PATTERN a WITHIN 1 HOUR DEFINE a AS lands.risk = 'high'"
    )
    (problem,) = check_rules(["r.cep"]).problems
    assert problem.title == "`risk` was never 'high' in 1 events of `lands`"


def test_the_columns_that_no_rule_reads_are_named() -> None:
    profiled(*TAPS)
    warned("kind = 'in'")
    assert check_rules(["r.cep"]).unread == {"taps": ("x", "n", "on")}
    assert "no rule reads of `taps`: x, n, on\n" in cep_prints("check r.cep")


def test_why_names_the_value_too() -> None:
    profiled(*TAPS)
    Path("r.cep").write_text(
        "RULE r FROM taps PARTITION BY k PATTERN a -> b WITHIN 1 HOUR DEFINE a AS on, b AS kind = 'int'\n"
        "RULE other FROM taps PARTITION BY k PATTERN a WITHIN 1 HOUR DEFINE a AS kind = 'elsewhere'"
    )
    command = ["why", "r.cep", "--rule", "r", "-i", "taps.jsonl", "--key", "a"]
    result = CliRunner().invoke(cep.commands.cli.main, command)
    assert "warning[W0652]: `kind` was never 'int' in 2 events of `taps`\n" in result.stderr
    assert "elsewhere" not in result.output


def test_the_input_names_its_stream() -> None:
    written(TAPS)

    def refused(text: str) -> str:
        result = CliRunner().invoke(cep.commands.cli.main, ["profile", text])
        assert result.exit_code != 0
        return result.output

    assert "of which stream is `taps.jsonl`? Write STREAM=FILE, STREAM one of taps, beeps" in refused(
        "taps.jsonl"
    )
    assert "error[E0610]: there is no stream and no table `tap`\nhelp: did you mean `taps`?" in refused(
        "tap=e"
    )
    Path("streams.yaml").unlink()
    assert "error[E0612]: there is no `streams.yaml`" in refused("taps.jsonl")


def ran(command: str) -> Result:
    return CliRunner().invoke(cep.commands.cli.main, shlex.split(command))


def test_the_files_of_a_stream_are_profiled_together_in_the_order_given() -> None:
    for name, second, x in (("late", 90, 7.0), ("early", 1, 5.0), ("middle", 30, 6.0)):
        written([tap(second, kind="in", x=x, n=1, on=True)], name)
    Path("empty.jsonl").touch()
    written([tap(3, kind="in")], "beeps")
    inputs = "taps=late.jsonl beeps=beeps.jsonl taps=empty.jsonl taps=early.jsonl taps=middle.jsonl"
    shown = cep_prints(f"profile {inputs}")
    assert [line for line in shown.splitlines() if "events" in line] == ["taps: 3 events", "beeps: 1 events"]
    found = read_profile(Path("streams.yaml"), "taps")
    assert found is not None
    assert found.columns["x"].counts == {"5.0": 1, "6.0": 1, "7.0": 1}
    assert (found.n_disordered, found.most_late_us) == (2, 89 * _SECOND_US)
    assert (found.gap_us, found.gap_from_us) == (60 * _SECOND_US, (found.first_us or 0) + 29 * _SECOND_US)
    assert warned("x = 5") == warned("x = 6") == []
    assert warned("x = 8") == ["`x` was never 8 in 3 events of `taps`"]


def test_an_input_of_only_empty_files_is_refused() -> None:
    for name in ("a", "b"):
        Path(f"{name}.jsonl").touch()
    assert "error[E0603]: `a.jsonl` is empty" in ran("profile taps=a.jsonl taps=b.jsonl").output


def test_a_field_that_is_in_no_event_is_named() -> None:
    written([tap(1, kind="in", X=2, n=1, on=True), tap(2, kind="in", X=2, n=1, on=True)])
    written([tap(3, kind="in", X=2, n=1, on=True)], "more")
    for more in ("", " --quiet"):
        result = ran(f"profile taps=taps.jsonl taps=more.jsonl{more}")
        assert result.exit_code == 3
        assert (
            "absent fields            1  field `x` is in none of 3 events; the data have `X`: upper "
            "and lower case count; declare field: X\n"
        ) in result.stderr
    written([tap(4, kind="in", x=2, n=1, on=True)], "other")
    result = ran("profile taps=taps.jsonl taps=other.jsonl")
    assert (result.exit_code, "absent" in result.output) == (0, False)


EXACT = 2**53


@pytest.mark.parametrize(
    ("values", "condition", "n_warned"),
    [
        (["NaN", 5.0], "x > 1000", 0),
        (["NaN", 5.0], "1000 <= x", 0),
        (["NaN", 5.0], "x < 5", 1),
        (["NaN", 5.0], "x = 5", 0),
        (["NaN"], "x > 1000", 0),
        ([-0.0], "x = 0", 0),
        ([-0.0], "x = 0.0", 0),
        ([-0.0], "0 = x", 0),
        ([-0.0], "x IN (0, 7)", 1),
        ([-0.0], "x <= 0", 0),
        ([-0.0], "x < 0", 1),
        (["Infinity"], "x > 1e308", 0),
        (["-Infinity"], "x > 0", 1),
        ([1.5, EXACT], f"x = {EXACT + 1}", 0),  # as DOUBLE they are equal
    ],
)
def test_numbers_are_compared_as_rules_compare_them(
    values: list[object], condition: str, n_warned: int
) -> None:
    rows = [tap(second, kind="in", x=value, n=1, on=True) for second, value in enumerate(values)]
    profiled(*rows)
    assert len(warned(condition)) == n_warned
    assert_as_matched(condition, n_warned)


@pytest.mark.parametrize(
    ("condition", "n_warned"),
    [
        (f"n < {EXACT + 1}", 0),
        (f"n < {EXACT}", 1),
        (f"n <= {EXACT}", 0),
        (f"n > {EXACT - 1}", 0),
        (f"n >= {EXACT + 1}", 1),
        (f"n = {EXACT + 1}", 1),
        (f"n = {EXACT + 1}.0", 0),
        (f"n < {EXACT + 1}.0", 1),
        (f"n IN ({EXACT + 1})", 1),
        (f"n IN ({EXACT + 1}, 0.5)", 1),  # 0.5 alone: the other one is compared as a DOUBLE
    ],
)
def test_whole_numbers_are_compared_exactly(condition: str, n_warned: int) -> None:
    profiled(tap(1, kind="in", x=2, n=EXACT, on=True))
    assert len(warned(condition)) == n_warned
    if "0.5" not in condition:
        assert_as_matched(condition, n_warned)


def assert_as_matched(condition: str, n_warned: int) -> None:
    """Check that a condition without a warning matches an event, and one with a warning none.

    A list that has a value of the events and another one is warned of, and matches.
    """
    Path("m.cep").write_text(
        f"RULE m FROM taps PARTITION BY k PATTERN a WITHIN 1 HOUR DEFINE a AS {condition}"
    )
    matched = cep_prints("match m.cep -i taps.jsonl -q")
    assert bool(matched) == (n_warned == 0 or ", " in condition)


def test_nan_is_counted_however_events_are_divided() -> None:
    written([tap(second, x=x) for second, x in enumerate(["NaN", "NaN", 5, -0.0, "NaN", 0, "NaN", -0.0])])
    stream = load_streams("streams.yaml")["taps"]
    (whole,) = read_events("taps.jsonl", stream)
    for size in (1, 3, 8):
        parts = [type(whole)(whole.events.slice(at, size), whole.dead_letters) for at in range(0, 8, size)]
        column = measured(stream, parts).columns["x"]
        assert (column.n_nan, column.least, column.greatest) == (4, 0.0, 5.0)
        assert column.counts == {"NaN": 4, "0.0": 3, "5.0": 1}
    assert "  x     double     0.0 to 5.0; 3 values; NaN 4\n" in ran("profile taps=taps.jsonl").stdout


def test_columns_whose_values_are_not_counted_are_told_from_those_with_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schema = "{k: string, ts: timestamp, a: 'array<bigint>', m: 'map<string,bigint>', b: binary, x: double}"
    Path("streams.yaml").write_text(f"streams:\n  taps:\n    event_time: ts\n    schema: {schema}\n")
    monkeypatch.setattr(cep.profiles.measuring, "MAX_VALUES", 1)
    profiled(tap(1, a=[1], m={"a": 1}, b="YQ==", x=1), tap(2, a=None, m={}, b="YQ==", x=2))
    lines = cep_prints("profile taps.jsonl").splitlines()[4:]
    assert [line.rpartition("  ")[2] for line in lines] == [
        "a 2; 1 value",
        "2024-05-01T00:00:01Z to 2024-05-01T00:00:02Z",
        "not counted; NULL 1",
        "not counted",
        "not counted",
        "1.0 to 2.0; more than 10,000 values",
    ]


def test_a_value_is_one_line_and_short() -> None:
    profiled(tap(1, kind="a\nb\tc", x=1, n=1, on=True), tap(2, kind="l" * 100_000, x=1, n=1, on=True))
    shown = cep_prints("profile taps=taps.jsonl")
    assert len(shown.splitlines()) == 10
    assert f"  kind  string     a\\nb\\tc 1, {'l' * 60}... 1; 2 values\n" in shown
    warned("kind = 'z'")
    (problem,) = check_rules(["r.cep"]).problems
    assert problem.help == f"there are: a\\nb\\tc 1 times, {'l' * 60}... 1 times"


def no_constant(word: str) -> None:
    raise AssertionError(word)


def test_numbers_that_json_lacks_are_strings_in_all_outputs_and_read_in_both_forms() -> None:
    values = ["Infinity", "-Infinity", "NaN"]
    rows = [tap(second, kind="nan", x=value, n=1, on=True) for second, value in enumerate(values)]
    written(rows)
    shown = json.loads(cep_prints("profile taps=taps.jsonl --format json"), parse_constant=no_constant)
    file = Path("taps.profile.json")
    kept = json.loads(file.read_text(), parse_constant=no_constant)
    assert kept == {"format": 1, **shown}
    assert (kept["columns"]["x"]["least"], kept["columns"]["x"]["greatest"]) == ("-Infinity", "Infinity")
    found = read_profile(Path("streams.yaml"), "taps")
    assert found is not None
    assert (found.columns["x"].least, found.columns["x"].greatest) == (-float("inf"), float("inf"))
    assert warned("x > 1000") == []
    del kept["columns"]["x"]["n_nan"]  # as the first versions wrote it
    kept["columns"]["x"] |= {"greatest": float("inf"), "least": float("nan"), "counts": {"inf": 1, "nan": 1}}
    file.write_text(json.dumps(kept))
    found = read_profile(Path("streams.yaml"), "taps")
    assert found is not None
    column = found.columns["x"]
    assert (column.least, column.greatest, column.n_nan) == (None, float("inf"), 1)
    assert found.columns["kind"].n_nan == 0
    assert "-Infinity to Infinity; 3 values; NaN 1\n" in cep_prints("profile taps=taps.jsonl")


@pytest.mark.parametrize(
    "change",
    [
        {"stream": 1},
        {"n_events": "2"},
        {"n_events": -1},
        {"n_events": True},
        {"first_us": "now"},
        {"columns": []},
        {"columns": {"x": {"type": "double", "n_null": 0, "least": "5"}}},
        {"columns": {"x": {"type": "double", "n_null": 0, "least": [5]}}},
        {"columns": {"x": {"type": "double", "n_null": 0, "least": True}}},
        {"columns": {"x": {"type": "bigint", "n_null": 0, "least": 10**400}}},
        {"columns": {"x": {"type": "double", "n_null": None}}},
        {"columns": {"x": {"type": "double", "n_null": 0, "n_nan": 0.5}}},
        {"columns": {"x": {"type": 5, "n_null": 0}}},
        {"columns": {"x": {"type": "double", "n_null": 0, "counts": ["5"]}}},
        {"columns": {"x": {"type": "double", "n_null": 0, "counts": {"5": "many"}}}},
        {"columns": {"x": {"type": "double", "n_null": 0, "counts": {"five": 1}}}},
        {"columns": {"x": {"type": "double", "n_null": 0, "other": 1}}},
    ],
)
def test_a_profile_with_values_of_other_types_is_refused(change: dict[str, Any]) -> None:
    profiled(*TAPS)
    assert warned("x > 5.5")
    file = Path("taps.profile.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    result = ran("check r.cep")
    assert result.exit_code == 1
    assert "error[E0651]: `taps.profile.json` is no profile of this version\n" in result.output


def test_a_column_that_is_declared_otherwise_since_is_not_compared() -> None:
    profiled(*TAPS)
    assert len(warned("kind = 'int'")) == 1
    Path("streams.yaml").write_text(STREAMS.replace("n: bigint", "n: string"))
    assert warned("n = 'int'") == []
    assert len(warned("kind = 'int'")) == 1
