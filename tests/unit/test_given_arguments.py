"""Arguments of the functions without Spark, and streams that a program declares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cep import (
    BadFile,
    DeviceClock,
    Field,
    InputError,
    RuleError,
    Stream,
    find_matches,
    find_reasons,
    load_rules,
    match_file,
)
from cep.commands import agent_tools
from cep.commands.agent_tools import Access
from cep.schema.stream import TableSettings
from cep.why.reasons import Why

S = Stream("s", (Field("k", "string"), Field("ts", "timestamp"), Field("n", "int")), event_time="ts")
Z = replace(S, name="z")
RULE = "RULE r FROM s PARTITION BY k PATTERN a DEFINE a AS n > 0"
BOTH = "RULE j FROM s, z PARTITION BY s.k = z.k PATTERN a -> b DEFINE a ON s AS n > 0, b ON z AS n > 0"
ROWS: Any = [{"k": "x", "ts": 0, "n": 1}]


def any_(value: object) -> Any:
    """Return an argument of a type that is not allowed."""
    return value


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "s.csv"
    path.write_text('k,ts,n\nx,2024-05-01,1\n"')
    return str(path)


@pytest.mark.parametrize("given", [BadFile.FAIL, "fail"])
def test_a_bad_file_may_be_told_as_text(tmp_path: Path, given: Any) -> None:
    (tmp_path / "s.parquet").write_bytes(b"PAR1")
    rules = load_rules(RULE, S)
    with pytest.raises(InputError):
        match_file(rules, tmp_path / "s.parquet", on_bad_file=given)
    found = match_file(rules, tmp_path / "s.parquet", on_bad_file="quarantine")
    assert len(found.dead_letters) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("on_bad_file", "zzz"),
        ("on_bad_file", None),
        ("on_bad_file", True),
        ("on_bad_file", []),
        ("as_stream", "no"),
        ("as_stream", 1),
        ("file_format", 5),
        ("on_chunk", "x"),
    ],
)
def test_an_argument_of_match_file_is_of_its_type(file: str, name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"E0827.*{name} is "):
        match_file(load_rules(RULE, S), file, **{name: value})


class SparkFrame:
    """A DataFrame as Spark's class is called."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError


SparkFrame.__module__ = "pyspark.sql.classic.dataframe"


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: find_matches(RULE, S, ROWS, as_table="no"), "E0827.*as_table is 'no'"),  # type: ignore[call-overload]
        (lambda: find_matches(load_rules(RULE, S), "none.yaml", ROWS), "E0828.*streams cannot be given here"),
        (lambda: find_matches(RULE, S, {1: ROWS}), "E0832.*no rule reads stream 1"),
        (lambda: find_matches(RULE, S, SparkFrame()), r"E0832.*pyspark\.sql.*spark_runtime\.detect"),
        (lambda: find_matches(RULE, any_({5: S}), ROWS), "E0827.*stream `s` as 5"),
        (lambda: find_matches(RULE.replace("s ", "zz "), {"zz": S}, ROWS), "E0827.*stream `s` as 'zz'"),
        (lambda: find_reasons(any_(load_rules(RULE, S)), S, ROWS, "x"), r"E0827.*rules is RuleSet\(r"),
        (lambda: find_reasons(any_(None), S, ROWS, "x"), "E0827.*rules is None"),
        (lambda: find_reasons(any_(["r.cep"]), S, ROWS, "x"), "E0827.*rules is "),
        (lambda: find_reasons(RULE, any_(5), ROWS, "x"), "E0827.*streams is 5"),
        (lambda: find_reasons("r.cep", any_(5), ROWS, "x"), "E0827.*streams is 5"),
        (lambda: find_reasons(RULE, S, ROWS, "x", limit=any_("5")), "E0827.*limit is '5'"),
        (lambda: find_reasons(RULE, S, ROWS, "x", limit=0), "E0827.*limit is 0"),
        (lambda: find_reasons(RULE, S, ROWS, "x", rule=any_(5)), "E0827.*rule is 5"),
        (lambda: find_reasons(RULE, S, ROWS, {"k": "x"}), r"E0827.*key is \{'k': 'x'\}"),
        (lambda: find_reasons(RULE, S, {"other": ROWS}, "x"), "E0832.*no rule reads stream other"),
        (lambda: find_reasons(BOTH, {"s": S, "z": Z}, ROWS, "x"), "E0832.*rules read several streams"),
    ],
)
def test_an_argument_of_another_type_is_named(call: Callable[[], object], told: str) -> None:
    with pytest.raises(InputError, match=f"(?s){told}"):
        call()


def test_reasons_are_found_with_a_stream_beside_a_rule_file(tmp_path: Path) -> None:
    (tmp_path / "r.cep").write_text(RULE)
    for rules in (RULE, tmp_path / "r.cep"):
        found = find_reasons(rules, S, ROWS, "x")
        assert isinstance(found, Why)
        assert len(found.matches) == 1


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("y", "give `key`; keys with the most events: xx1"),
        ("xx2", "did you mean xx1? keys with the most events: xx1"),
    ],
)
def test_an_unknown_key_is_asked_for_as_an_argument(tmp_path: Path, key: str, advice: str) -> None:
    rows = [{"k": "xx1", "ts": 0, "n": 1}]
    with pytest.raises(InputError) as raised:
        find_reasons(RULE, S, rows, key)
    assert (raised.value.code, raised.value.help) == ("E0898", advice)
    (tmp_path / "r.cep").write_text(RULE)
    (tmp_path / "streams.yaml").write_text(
        "streams: {s: {event_time: ts, schema: {k: string, ts: timestamp, n: int}}}"
    )
    (tmp_path / "s.jsonl").write_text('{"k": "xx1", "ts": "2024-05-01", "n": 1}\n')
    access = Access((str(tmp_path),))
    with pytest.raises(InputError) as raised:
        agent_tools.why(access, [str(tmp_path / "r.cep")], [str(tmp_path / "s.jsonl")], [key])
    assert raised.value.help == advice


def test_a_rule_set_is_equal_only_to_itself() -> None:
    both = RULE + "\n" + RULE.replace("RULE r", "RULE q")
    one, other = load_rules(both, S), load_rules(both, S)
    assert one == one
    assert one != other
    assert one.versions == other.versions
    assert len({one, other}) == 2


# ---------------------------------------------------------------- streams that a program declares


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"event_time": "at"}, "E0407.*`event_time` of stream `s` names `at`"),
        ({"event_time": "k"}, "E0408.*`k` of stream `s` is string, not timestamp"),
        ({"tie_break": ("seq",)}, "E0407.*`tie_break` of stream `s` names `seq`"),
        ({"fields": (*S.fields, Field("k", "int"))}, "E0405.*has the column `k` twice"),
        ({"fields": ()}, "E0404.*stream `s` has no column"),
        ({"fields": (*S.fields, Field("l", "timestamp", zone="Mars/X"))}, "E0417.*no time zone `Mars/X`"),
        ({"fields": (*S.fields, Field("l", "timestamp", unit="hours"))}, "E0420.*no unit `hours`"),
        ({"fields": (*S.fields, Field("l", "timestamp", format="%Q"))}, "E0419.*column `l` of stream `s`"),
        ({"fields": (*S.fields, Field("l", "long"))}, "E0406.*no column type `long`"),
        ({"fields": (*S.fields, Field("l", "DECIMAL(5,2)"))}, r"E0406.*write decimal\(5,2\)"),
        (
            {"fields": (*S.fields, Field("l", "array<int>")), "tie_break": ("l",)},
            "E0402.*`l`, which is array",
        ),
        ({"lateness_us": -1}, "E0409.*`lateness_us`"),
        ({"min_valid_us": 5, "max_valid_us": 5}, "E0410.*`min_valid_us` of stream `s`"),
        ({"table": TableSettings(("id",))}, "E0407.*`key` of table `s` names `id`"),
        (
            {"device_clock": DeviceClock("k", "at", "ts", "ts")},
            "E0407.*`device_clock` of stream `s` names `at`",
        ),
        ({"fields": None}, "E0827.*`fields` of stream 's' is None"),
        ({"fields": list(S.fields)}, "E0827.*`fields` of stream 's' is .*a tuple of Field"),
        ({"fields": ("k",)}, "E0827.*`fields` of stream 's'"),
        ({"fields": (Field("k", any_(None)),)}, "E0827.*`ddl` of column 'k' of stream 's' is None"),
        ({"name": None}, "E0827.*`name` of stream None is None"),
        ({"lateness_us": "x"}, "E0827.*`lateness_us` of stream 's' is 'x'"),
        ({"tie_break": "n"}, "E0827.*`tie_break` of stream 's' is 'n'"),
        ({"table": "x"}, "E0827.*`table` of stream 's' is 'x'"),
    ],
)
def test_a_stream_that_a_program_declares_is_checked_where_it_is_used(
    changes: dict[str, Any], told: str
) -> None:
    stream = replace(S, **changes)
    uses: list[Callable[[], object]] = [
        lambda: load_rules(RULE, stream),
        lambda: find_matches(RULE, {stream.name: stream}, ROWS),
        lambda: find_reasons(RULE, stream, ROWS, "x"),
    ]
    for use in uses:
        with pytest.raises((InputError, RuleError), match=f"(?s){told}"):
            use()
