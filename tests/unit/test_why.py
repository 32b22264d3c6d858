"""`cep why`: its input, and what goes wrong. docs/guides/why.md has an example of each reason."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import cep.commands.cli
import cep.why.answer
from tests.pages import cep_prints

STREAMS = """
streams:
  taps:
    event_time: ts
    schema: {k: string, n: bigint, ts: timestamp, kind: string}
  beeps:
    event_time: ts
    schema: {k: string, n: bigint, ts: timestamp, kind: string}
"""
RULE = """
RULE pair
FROM taps
PARTITION BY k
PATTERN a -> b
DEFINE a AS kind = 'a', b AS kind = 'b'
"""


@pytest.fixture
def folder(compiled_engine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("streams.yaml").write_text(STREAMS)
    return tmp_path


def write(rule: str, *events: tuple[str, int, str], name: str = "taps") -> None:
    """Write a rule, and events: key, second, kind."""
    Path("rule.cep").write_text(rule)
    rows = [
        {"k": key, "n": second % 2, "ts": f"2024-05-01T00:00:{second:02}Z", "kind": kind}
        for key, second, kind in events
    ]
    Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def told(options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cep_prints(f"why rule.cep -i taps.jsonl --format json {options}"))
    return found


def refused(options: str) -> Result:
    result = CliRunner().invoke(
        cep.commands.cli.main, ["why", "rule.cep", "-i", "taps.jsonl", *options.split()]
    )
    assert result.exit_code in (1, 2)
    return result


def test_a_match_has_the_id_of_cep_match_also_among_other_events_of_its_instant(folder: Path) -> None:
    write(RULE, ("x", 1, "other"), ("x", 1, "a"), ("x", 2, "other"), ("x", 2, "b"))
    match = json.loads(cep_prints("match rule.cep -i taps.jsonl -q"))
    assert [item["match_id"] for item in told("--key x")["matches"]] == [match["match_id"]]


def test_an_unknown_key_is_told_with_those_that_exist(folder: Path) -> None:
    write(RULE, ("left", 1, "a"), ("right", 2, "a"), ("right", 3, "a"))
    assert refused("--key rigth").output == (
        "error[E0898]: no event has the key `rigth` (k)\n"
        "help: did you mean --key right? keys with the most events: right; left\n"
    )
    assert "error[E0898]: say of which key (k)\n" in refused("").output
    assert "error[E0898]: `a,b` has 2 of 1 values of a key (k)\n" in refused("--key a --key b").output


def test_without_a_key_the_only_key_is_told(folder: Path) -> None:
    write(RULE, ("x", 1, "a"))
    assert told("")["key"] == {"k": "x"}


@pytest.mark.parametrize("options", ["--key x,1", "--key x --key 1"])
def test_a_key_of_several_columns_has_commas_or_several_options(folder: Path, options: str) -> None:
    write(RULE.replace("BY k", "BY k, n"), ("x", 1, "a"), ("x", 2, "b"), ("x", 3, "b"))
    found = told(options)
    assert found["key"] == {"k": "x", "n": 1}
    assert len(found["matches"]) == 1
    assert "`x,y` is no key" in refused("--key x,y").output


ODD_KEYS = """
streams:
  taps:
    event_time: ts
    schema: {b: boolean, d: date, t: timestamp, n: bigint, k: string, ts: timestamp, kind: string}
"""


def write_odd_keys(rule: str) -> None:
    """Write a rule, and two keys of each type; the first has two events."""
    Path("streams.yaml").write_text(ODD_KEYS)
    Path("rule.cep").write_text(rule)
    first = {"b": True, "d": "2024-05-01", "t": "2024-05-01T01:02:03.5Z", "n": 1, "k": "x"}
    other = {"b": False, "d": "2024-05-02", "t": "2024-05-02T00:00:00Z", "n": 2, "k": "y"}
    rows = [
        {**key, "ts": f"2024-05-01T00:00:{second:02}Z", "kind": "a"}
        for second, key in enumerate([first, other, first])
    ]
    Path("taps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("column", "wrong", "keys"),
    [
        ("b", "1", "true; false"),
        ("b", "yes", "true; false"),
        ("n", "99999999999999999999", "1; 2"),
        ("n", "\udcff", "1; 2"),
        ("k", "\udcff", "x; y"),  # a byte that is not UTF-8, as Python reads it from the command line
        ("d", "1714521600000000", "2024-05-01T00:00:00Z; 2024-05-02T00:00:00Z"),
        ("t", "\udcff", "2024-05-01T01:02:03.5Z; 2024-05-02T00:00:00Z"),
    ],
)
@pytest.mark.parametrize("verb", ["why", "plot"])
def test_a_key_that_is_no_value_of_its_type_is_refused(
    folder: Path, verb: str, column: str, wrong: str, keys: str
) -> None:
    write_odd_keys(RULE.replace("BY k", f"BY {column}"))
    result = CliRunner().invoke(
        cep.commands.cli.main, [verb, "rule.cep", "-i", "taps.jsonl", "--key", wrong], catch_exceptions=False
    )
    shown = wrong.replace("\udcff", "\\udcff")
    assert (result.exit_code, result.output) == (
        1,
        f"error[E0898]: `{shown}` is no key ({column})\n"
        f"help: write --key; keys with the most events: {keys}\n",
    )


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [
        ("b", "true", True),
        ("d", "2024-05-01T00:00:00Z", "2024-05-01T00:00:00Z"),
        ("d", "2024-05-01", "2024-05-01T00:00:00Z"),
        ("t", "2024-05-01T01:02:03.5Z", "2024-05-01T01:02:03.5Z"),
    ],
)
def test_a_key_and_its_events_are_shown_as_events_have_them(
    folder: Path, column: str, text: str, value: str | bool
) -> None:
    written = f"{column} {'true' if value is True else value}"
    for rule in (RULE, WINDOW):
        write_odd_keys(rule.replace("BY k", f"BY {column}"))
        answer = told(f"--key {text}")
        assert (answer["key"], answer["n_events"]) == ({column: value}, 2)
        command = f"rule.cep -i taps.jsonl --key {text}"
        assert f", {written}: " in cep_prints(f"why {command}").splitlines()[0]
        assert f", {written}" in cep_prints(f"plot {command}")
    (window,) = answer["others"]
    assert window["events"][0]["values"]["t"] == "2024-05-01T01:02:03.5Z"


def test_another_key_is_shown_as_it_is_written(folder: Path) -> None:
    write_odd_keys(RULE.replace("BY k", "BY b").replace("'b'", "'a'").replace("b AS", "b AS n = 2 AND"))
    assert "it has the key false" in json.dumps(told("--key true"))


WINDOW = """
RULE w
FROM taps
PARTITION BY k
WINDOW TUMBLING 10 SECONDS
WHERE kind <> 'c'
HAVING COUNT(*) >= 2 AND MAX(n) < 1
MEASURES COUNT(*) AS n
"""


def test_of_a_key_with_a_comma_in_a_value_it_is_told_how_to_write_it(folder: Path) -> None:
    write(RULE.replace("PARTITION BY k", "PARTITION BY k, n"), ("x,y", 1, "a"))
    assert "help: write --key once for each value of the key\n" in refused("--key x,y,1").output
    assert told("--key x,y --key 1")["n_events"] == 1


def test_a_rule_without_steps_has_no_summary(folder: Path) -> None:
    write(WINDOW, ("x", 1, "a"))
    assert refused("--summary").output == (
        "error[E0899]: `w` is a window rule: it has no steps\n"
        "help: `--summary` counts the steps of a PATTERN; write --key KEY in its place\n"
    )


def test_a_window_has_the_events_that_count_and_the_parts_of_having_that_were_not_true(folder: Path) -> None:
    write(WINDOW, ("x", 0, "a"), ("x", 2, "b"), ("x", 4, "c"), ("x", 11, "a"), ("y", 12, "a"))
    found = told("--key x")
    match = json.loads(cep_prints("match rule.cep -i taps.jsonl -q"))
    (reported,), (other,) = found["reported"], found["others"]
    assert (reported["match_id"], reported["values"]) == (match["match_id"], {"n": 2})
    assert (reported["start"], reported["end"]) == ("2024-05-01T00:00:00Z", "2024-05-01T00:00:10Z")
    assert [event["time"][-3:] for event in reported["events"]] == ["00Z", "02Z"]
    assert (other["match_id"], other["values"]) == (None, {"n": 1})
    assert [(failed["text"], failed["by"], failed["says"]) for failed in other["failed"]] == [
        ("COUNT(*) >= 2", -1, "COUNT(*) is 1: 1 too small"),
        ("MAX(n) < 1", 0, "MAX(n) is 1: they are equal"),
    ]
    (refusal,) = found["refused"]
    assert (refusal["event"]["time"], refusal["says"]) == ("2024-05-01T00:00:04Z", "kind is 'c'")
    at = told("--key x --at 2024-05-01T00:00:05Z")
    assert (len(at["reported"]), at["others"]) == (1, [])


def test_a_window_that_was_suppressed_names_the_match_before_it(folder: Path) -> None:
    rule = WINDOW.replace("HAVING COUNT(*) >= 2 AND MAX(n) < 1\n", "") + "SUPPRESS FOR 15 SECONDS\n"
    write(rule, ("x", 0, "a"), ("x", 11, "a"), ("x", 31, "a"))
    found = told("--key x")
    (other,) = found["others"]
    first = found["reported"][0]["match_id"]
    assert (
        other["removed_by"]["says"] == f"too soon by 5 seconds after match {first}: SUPPRESS FOR 15 SECONDS"
    )
    assert len(found["reported"]) == 2


def test_windows_without_events_are_told_if_a_table_has_their_key(folder: Path) -> None:
    text = "tables:\n  keys: {key: [k], event_time: ts, schema: {k: string, ts: timestamp}}\n"
    Path("streams.yaml").write_text(STREAMS + text)
    write(WINDOW.replace("10 SECONDS", "10 SECONDS FOR EACH keys"), ("x", 1, "a"), ("x", 25, "a"))
    Path("keys.jsonl").write_text('{"k":"z","ts":"2024-05-01T00:00:01Z"}\n')
    found = json.loads(
        cep_prints("why rule.cep -i taps=taps.jsonl -i keys=keys.jsonl --key z --format json --limit 9")
    )
    assert (found["n_events"], found["n_others"]) == (0, 1)
    assert found["others"][0]["failed"][0]["says"] == "COUNT(*) is 0: 2 too small"


VIEW = """
VIEW rich
KEY k
FROM sums
JOIN names ON k
WHERE sums.n > 2
SELECT names.name AS name, sums.n AS n
"""
TABLES = """
tables:
  sums: {key: [k], event_time: ts, op: op, schema: {k: string, ts: timestamp, op: string, n: bigint}}
  names: {key: [k], event_time: ts, op: op, schema: {k: string, ts: timestamp, op: string, name: string}}
"""


def test_a_view_has_its_rows_over_time_and_what_was_missing_in_between(folder: Path) -> None:
    Path("streams.yaml").write_text(STREAMS + TABLES)
    Path("rule.cep").write_text(VIEW)
    ts = '"ts":"2024-05-01T00:00:0{}Z"'
    sums = [(1, '"n":5'), (3, '"n":1'), (5, '"n":7')]
    Path("sums.jsonl").write_text(
        "".join(f'{{"k":"x","op":"u",{ts.format(at)},{value}}}\n' for at, value in sums)
    )
    Path("names.jsonl").write_text(f'{{"k":"x","op":"u",{ts.format(2)},"name":"X"}}\n')
    found = json.loads(
        cep_prints("why rule.cep -i sums=sums.jsonl -i names=names.jsonl --key x --format json")
    )
    times = [(one["start"][-3:-1], (one["end"] or "on")[-3:-1]) for one in found["reported"]]
    assert times == [("02", "03"), ("05", "o")]
    assert [one["values"] for one in found["reported"]] == [{"name": "X", "n": 5}, {"name": "X", "n": 7}]
    missing = [(one["start"][-3:-1], failed["says"]) for one in found["others"] for failed in one["failed"]]
    assert missing == [("01", "there was no row of `names`"), ("03", "sums.n is 1: 1 too small")]
    assert [(table["table"], len(table["rows"])) for table in found["tables"]] == [("sums", 3), ("names", 1)]


@pytest.mark.parametrize("inner", ["window", "view"])
def test_a_rule_over_a_window_rule_or_a_view_is_told(folder: Path, inner: str) -> None:
    Path("streams.yaml").write_text(STREAMS + TABLES)
    name = {"window": "w", "view": "rich"}[inner]
    condition = {"window": "n > 1", "view": "n > 6"}[inner]
    outer = f"RULE o FROM MATCHES OF {name} PARTITION BY k PATTERN a DEFINE a AS {condition}\n"
    rules = {"window": WINDOW.replace("HAVING COUNT(*) >= 2 AND MAX(n) < 1\n", ""), "view": VIEW}
    write(rules[inner] + outer, ("x", 0, "a"), ("x", 2, "b"), ("x", 11, "a"))
    Path("sums.jsonl").write_text(
        '{"k":"x","op":"u","ts":"2024-05-01T00:00:01Z","n":5}\n'
        '{"k":"x","op":"u","ts":"2024-05-01T00:00:03Z","n":7}\n'
    )
    Path("names.jsonl").write_text('{"k":"x","op":"u","ts":"2024-05-01T00:00:00Z","name":"X"}\n')
    inputs = {"window": "-i taps.jsonl", "view": "-i sums=sums.jsonl -i names=names.jsonl"}[inner]
    found = json.loads(cep_prints(f"why rule.cep --rule o {inputs} --key x --format json"))
    assert (len(found["matches"]), found["n_events"]) == (1, 2)


def test_one_of_several_rules_must_be_named(folder: Path) -> None:
    write(RULE + RULE.replace("pair", "other"), ("x", 1, "a"))
    assert "of which rule? Write --rule, one of pair, other" in refused("--key x").output
    assert told("--key x --rule other")["rule"] == "other"


def test_a_time_that_is_none_is_refused(folder: Path) -> None:
    write(RULE, ("x", 1, "a"))
    assert "--at noon is no time: write 2024-05-01T10:04:00Z" in refused("--key x --at noon").output
    assert "leave out --key and --at" in refused("--summary --key x").output


def test_where_nothing_began_the_nearest_events_are_told(folder: Path) -> None:
    write(RULE, ("x", 1, "A"), ("x", 2, "b"))
    (attempt,) = told("--key x")["attempts"]
    assert (attempt["steps"], attempt["missing"], attempt["waits_for"]) == ([], 2, ["a"])
    assert [item["reason"] for item in attempt["refusals"]] == ["case", "value"]


def test_at_a_time_at_which_no_run_was_open_it_is_not_said_that_none_began(folder: Path) -> None:
    write(RULE, ("x", 1, "a"), ("x", 2, "b"), ("x", 9, "b"))
    ended = {time: told(f"--key x --at {time}")["attempts"][0]["ending"]["says"] for time in
             ("2024-05-01T00:00:05Z", "2024-06-01T00:00:00Z")}  # fmt: skip
    assert ended == {
        "2024-05-01T00:00:05Z": "no run was open at 2024-05-01T00:00:05Z",
        "2024-06-01T00:00:00Z": "no run was open at 2024-06-01T00:00:00Z: the events of the key are from "
        "2024-05-01T00:00:01Z to 2024-05-01T00:00:09Z",
    }


def test_an_attempt_that_a_match_skipped_before_its_time_was_over_was_skipped(folder: Path) -> None:
    rule = """
RULE pairs
FROM taps
PARTITION BY k
PATTERN a ->> b->{2,3}
WITHIN < 8 SECONDS
DEFINE b AS kind = 'b'
AFTER MATCH SKIP TO LAST b
MATCH PREFERRED
"""
    events = [("x", second, kind) for second, kind in ((1, "a"), (2, "b"), (3, "a"), (4, "b"), (7, "a"))]
    write(rule, *events, ("x", 11, "a"), ("x", 13, "b"))
    # The match of the first event is chosen when its window is over, at 9 s. It skips the run of the third
    # event two seconds before the window of this run is over. No event came in between.
    found = told("--key x --at 2024-05-01T00:00:05Z --limit 20")
    took = {
        tuple(step["event"]["time"] for step in attempt["steps"]): attempt for attempt in found["attempts"]
    }
    attempt = took["2024-05-01T00:00:03Z", "2024-05-01T00:00:04Z"]
    assert (attempt["ending"]["reason"], attempt["ending"]["says"]) == (
        "skipped",
        "skipped by the match that began at 2024-05-01T00:00:01Z",
    )
    assert [one["reason"] for one in attempt["refusals"]].count("late") == 0


def of_kinds(pattern: str, *rest: str) -> str:
    """Return a rule whose variables are events of the kind of their name."""
    defined = ", ".join(f"{name} AS kind = '{name}'" for name in "abcm" if re.search(rf"\b{name}\b", pattern))
    return f"RULE r FROM taps PARTITION BY k PATTERN {pattern} DEFINE {defined} {' '.join(rest)}\n"


@pytest.mark.parametrize("later", [(("x", 40, "z"),), ()])
@pytest.mark.parametrize(
    ("pattern", "events"),
    [
        ("a -> b -> !c FOR 5 SECONDS WITHIN 1 MINUTE", ((0, "a"), (1, "a"), (2, "b"))),
        ("a -> b -> !c FOR 5 SECONDS -> !m FOR 5 SECONDS WITHIN 1 MINUTE", ((0, "a"), (1, "a"), (2, "b"))),
        ("a -> b -> !c WITHIN 9 SECONDS", ((0, "a"), (0, "a"), (1, "b"))),
        ("a -> b ->[<= 1 MINUTE] c? -> !m WITHIN 9 SECONDS", ((0, "a"), (0, "a"), (1, "b"))),
        ("a ->> b -> !c WITHIN 4 EVENTS", ((0, "a"), (1, "b"), (2, "b"), (3, "z"))),
    ],
)
def test_an_attempt_that_a_match_skipped_at_the_end_of_its_own_wait_was_skipped(
    folder: Path, pattern: str, events: tuple[tuple[int, str], ...], later: tuple[tuple[str, int, str], ...]
) -> None:
    write(of_kinds(pattern), *(("x", *event) for event in events), *later)
    found = told("--key x --at 2024-05-01T00:00:02Z")
    assert [match["start"] for match in found["matches"]] == ["2024-05-01T00:00:00Z"]
    assert [attempt["ending"]["says"] for attempt in found["attempts"]] == [
        "skipped by the match that began at 2024-05-01T00:00:00Z"
    ]
    assert told("--key x")["attempts"] == []


def test_a_limit_that_is_over_with_an_absence_ended_the_attempt(folder: Path) -> None:
    write(of_kinds("a -> !c FOR 5 SECONDS -> b WITHIN 5 SECONDS"), ("x", 1, "a"), ("x", 9, "b"))
    (attempt,) = told("--key x")["attempts"]
    says = "WITHIN 5 SECONDS was over; the next event of the key came 3 seconds later"
    assert (attempt["ending"]["reason"], attempt["ending"]["says"]) == ("window", says)


@pytest.mark.parametrize(
    ("pattern", "events", "waits_for", "missing"),
    [
        ("a{2} b WITHIN 2 EVENTS", "aab", ["b"], 1),
        ("a->{2,} -> b WITHIN 3 EVENTS", "aaab", ["a", "b"], 1),
        ("a -> b -> c -> m WITHIN 2 EVENTS", "abcm", ["c"], 2),
        ("a -> ((b -> c) WITHIN 1 EVENT)", "abc", ["c"], 1),
        ("a -> b WITHIN 1 EVENT", "ab", ["b"], 1),
    ],
)
@pytest.mark.parametrize("rest", ["", "ON TIMEOUT"])
def test_an_attempt_that_took_the_last_event_of_a_limit_still_lacks_events(
    folder: Path, pattern: str, events: str, waits_for: list[str], missing: int, rest: str
) -> None:
    write(of_kinds(pattern, rest), *(("x", second, kind) for second, kind in enumerate(events)))
    attempt = told("--key x --limit 9")["attempts"][0]
    assert attempt["ending"]["says"] == "it took the last event that a limit allows"
    assert (attempt["missing"], attempt["waits_for"]) == (missing, waits_for)
    (late,) = [one for one in attempt["refusals"] if one["reason"] == "late"]
    assert (late["variable"], late["says"]) == (waits_for[-1], "after the last event that the limit allows")


def test_an_attempt_that_was_skipped_by_the_match_of_the_event_that_it_took_still_lacks_events(
    folder: Path,
) -> None:
    rule = of_kinds("(a -> b | m -> b -> c)").replace("a AS", "a AS n = 1 AND").replace("m'", "a' AND n = 0")
    write(rule, ("x", 0, "a"), ("x", 1, "a"), ("x", 2, "b"))
    (attempt,) = told("--key x --at 2024-05-01T00:00:02Z")["attempts"]
    assert [step["variable"] for step in attempt["steps"]] == ["m", "b"]
    assert (attempt["ending"]["reason"], attempt["missing"], attempt["waits_for"]) == ("skipped", 1, ["c"])


def test_event_time_passes_with_the_events_of_any_key(folder: Path) -> None:
    rule = of_kinds("a -> b WITHIN 10 SECONDS", "ON TIMEOUT")
    ended = {}
    for second in (11, 10, 9):
        write(rule, ("x", 0, "a"), ("y", second, "b"))
        found = told("--key x")
        assert [match["is_timeout"] for match in found["matches"]] == [True]
        (attempt,) = found["attempts"]
        ended[second] = (attempt["ending"]["reason"], attempt["ending"]["says"])
    over = ("window", "WITHIN 10 SECONDS was over; no further event of the key came")
    left = "the input ended, 1 second before WITHIN 10 SECONDS was over, and it is reported as a timeout"
    assert ended == {11: over, 10: over, 9: ("open", left)}


def test_of_matches_event_time_passes_with_the_events_of_their_rule(folder: Path) -> None:
    outer = "RULE o FROM MATCHES OF r PARTITION BY k PATTERN p -> q WITHIN 30 SECONDS DEFINE {}\n"
    rules = of_kinds("a -> b WITHIN 10 SECONDS") + outer.format("p AS TRUE, q AS k = 'z'")
    write(rules, ("x", 0, "a"), ("x", 1, "b"), ("y", 21, "c"))
    (attempt,) = told("--key x --rule o")["attempts"]
    assert attempt["ending"]["says"] == "the input ended, 10 seconds before WITHIN 30 SECONDS was over"


BEFORE = "an event came before for which `a` holds, which must not come"


@pytest.mark.parametrize(
    ("pattern", "events", "reason", "says", "because"),
    [
        ("!a -> b WITHIN 9 SECONDS", "aab", "absence", BEFORE, 1),
        ("!a b WITHIN 9 SECONDS", "aab", "absence", BEFORE, 1),
        ("!a FOR 2 SECONDS -> b", "aab", "absence", BEFORE, 1),
        ("^ b", "aab", "anchor", "`^` asks for the first event of the key", 0),
        (
            "(b -> c) WITHOUT m",
            "am",
            "excluded",
            "`b` holds, but the pattern keeps it out here: `m` holds, too",
            None,
        ),
    ],
)
def test_what_kept_a_run_from_starting_is_told(
    folder: Path, pattern: str, events: str, reason: str, says: str, because: int | None
) -> None:
    rule = of_kinds(pattern).replace("b AS kind = 'b'", "b AS kind IN ('b', 'm')")
    write(rule, *(("x", second, kind) for second, kind in enumerate(events)))
    (attempt,) = told("--key x")["attempts"]
    (refusal,) = [one for one in attempt["refusals"] if not one["failed"]]
    assert (refusal["reason"], refusal["says"]) == (reason, says)
    cause = None if because is None else f"2024-05-01T00:00:0{because}Z"
    assert (refusal["because"] and refusal["because"]["time"]) == cause
    shown = cep_prints("why rule.cep -i taps.jsonl --key x")
    assert f"[{reason}] {says}" + (f": {cause}\n" if cause else "\n") in shown
    assert "more\n" not in shown  # all are shown


def test_an_event_that_a_match_took_last_may_start_no_run(folder: Path) -> None:
    rule = of_kinds("a -> b").replace("a AS kind = 'a'", "a AS kind IN ('a', 'b')")
    write(rule, ("x", 1, "a"), ("x", 2, "b"), ("x", 5, "z"))
    (attempt,) = told("--key x --at 2024-05-01T00:00:04Z")["attempts"]
    says = "no run may start here: it was skipped by the match that began at 2024-05-01T00:00:01Z"
    (refusal,) = [one for one in attempt["refusals"] if not one["failed"]]
    assert (refusal["reason"], refusal["says"]) == ("skipped", says)


@pytest.mark.parametrize(
    ("pattern", "reason", "variable"),
    [
        ("a -> ((b -> c) WITHOUT m)", "excluded", "m"),
        ("a -> (((b -> c) WITHOUT m) | d)", "branch", "b"),
        ("a -> (((b WITHOUT m) -> c) | d)", "branch", "b"),
    ],
)
def test_an_event_that_begins_an_element_and_is_kept_out_of_it_ends_the_attempt(
    folder: Path, pattern: str, reason: str, variable: str
) -> None:
    defined = ", ".join(f"{name} AS kind = '{name}'" for name in "acd" if name in pattern)
    rule = RULE[: RULE.index("PATTERN")]
    rule += f"PATTERN {pattern}\nDEFINE {defined}, b AS kind IN ('b', 'm'), m AS kind = 'm'\n"
    write(rule, ("x", 1, "a"), ("x", 2, "m"), ("x", 3, "b"), ("x", 4, "c"), ("x", 5, "d"))
    (attempt,) = told("--key x")["attempts"]
    ending = attempt["ending"]
    assert (ending["reason"], ending["variable"]) == (reason, variable)
    assert ending["event"]["time"] == "2024-05-01T00:00:02Z"
    if reason == "excluded":
        says = "`b` holds, but the pattern keeps it out here: `m` holds, too"
        assert (attempt["refusals"][0]["reason"], attempt["refusals"][0]["says"]) == (reason, says)
    write(rule, ("x", 1, "a"), ("x", 3, "b"), ("x", 4, "c"), ("x", 5, "d"))
    assert [len(match["steps"]) for match in told("--key x")["matches"]] == [3]


def test_of_many_events_those_around_a_time_are_examined(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cep.why.answer, "MAX_EVENTS", 4)
    rule = RULE.replace("DEFINE", "WITHIN 5 SECONDS DEFINE")
    write(rule, *(("x", second, "a" if second % 10 == 0 else "c") for second in range(50)))
    found = told("--key x --at 2024-05-01T00:00:21Z")
    assert [attempt["steps"][0]["event"]["time"] for attempt in found["attempts"]] == ["2024-05-01T00:00:20Z"]
    assert found["attempts"][0]["ending"]["reason"] in ("open", "window")


def test_rules_over_rules_and_several_streams_are_told(folder: Path) -> None:
    rules = (
        RULE
        + """
RULE answered
FROM MATCHES OF pair, beeps
PARTITION BY k
PATTERN pair -> beep
WITHIN 5 SECONDS
DEFINE pair ON pair AS TRUE, beep ON beeps AS kind = 'ok'
"""
    )
    write(rules, ("x", 9, "ok"), ("x", 4, "no"), name="beeps")
    write(rules, ("x", 1, "a"), ("x", 3, "b"))
    command = "why rule.cep --rule answered --key x -i taps=taps.jsonl -i beeps=beeps.jsonl --format json"
    (attempt,) = json.loads(cep_prints(command))["attempts"]
    assert [(step["variable"], step["event"]["stream"]) for step in attempt["steps"]] == [("pair", "pair")]
    reasons = [(item["reason"], item["by_us"]) for item in attempt["refusals"]]
    assert reasons == [("value", None), ("late", 1_000_000)]
    assert attempt["ending"]["reason"] == "window"


def test_the_summary_counts_what_each_part_refuses_alone(folder: Path) -> None:
    rule = RULE.replace("kind = 'b'", "kind = 'b' AND n = 1 AND n < 10 * COUNT(a.*)")
    write(rule, ("x", 1, "a"), ("x", 2, "b"), ("x", 3, "c"), ("y", 5, "b"), ("z", 6, "a"), ("z", 7, "b"))
    found = json.loads(cep_prints("why rule.cep -i taps.jsonl --summary --format json"))
    assert [found[name] for name in ("n_events", "n_keys", "n_began", "n_matches")] == [6, 3, 2, 1]
    a, b = found["steps"]
    assert (a["n_candidates"], a["n_taken"], a["n_reached"]) == (2, 2, 2)
    assert (b["n_candidates"], b["n_waited"], b["n_taken"], b["n_reached"]) == (2, 1, 1, 1)
    parts = [(part["text"], part["n_true"], part["n_alone"]) for part in b["parts"]]
    assert parts == [("kind = 'b'", 3, 1), ("n = 1", 4, 1), ("n < 10 * COUNT(a.*)", None, 0)]


def test_the_halves_of_between_are_parts_with_texts_of_their_own(folder: Path) -> None:
    write(RULE.replace("kind = 'b'", "n BETWEEN 0 AND 0"), ("x", 2, "a"), ("x", 3, "b"))
    found = json.loads(cep_prints("why rule.cep -i taps.jsonl --summary --format json"))
    assert [(part["text"], part["n_true"], part["n_alone"]) for part in found["steps"][1]["parts"]] == [
        ("n >= 0", 2, 0),
        ("n <= 0", 1, 1),
    ]
    (refusal,) = told("--key x")["attempts"][0]["refusals"]
    assert [failed["text"] for failed in refusal["failed"]] == ["n <= 0"]
    write(WINDOW.replace("MAX(n) < 1", "MAX(n) BETWEEN 1 AND 2"), ("x", 0, "a"), ("x", 2, "a"))
    assert [failed["text"] for failed in told("--key x")["others"][0]["failed"]] == ["MAX(n) >= 1"]


@pytest.mark.parametrize("limit", ["--limit 9", "--limit 9 --at 2024-05-01T00:00:48Z"])
def test_attempts_before_the_examined_events_are_not_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(cep.why.answer, "MAX_EVENTS", 4)
    rule = RULE.replace("DEFINE", "WITHIN 5 SECONDS DEFINE")
    later = [("x", second, "a" if second % 9 else "b") for second in range(30, 50)]
    write(rule, ("x", 1, "a"), ("x", 2, "b"), *later)
    found = told(f"--key x {limit}")
    first = [attempt["steps"][0]["event"]["time"] for attempt in found["attempts"]]
    assert first
    assert min(first) >= "2024-05-01T00:00:46Z"
