"""`cep why`: its input, and what goes wrong. docs/guides/why.md has an example of each reason."""

from __future__ import annotations

import json
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


def test_a_rule_without_steps_is_refused(folder: Path) -> None:
    write("RULE w FROM taps PARTITION BY k WINDOW TUMBLING 1 MINUTE MEASURES COUNT(*) AS n", ("x", 1, "a"))
    assert refused("--key x").output == (
        "error[E0899]: `w` is a window rule: it has no steps\nhelp: `cep why` explains rules with a PATTERN\n"
    )


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
