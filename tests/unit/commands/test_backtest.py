"""`cep backtest`, `cep tune`, `cep scorecard` as a user calls them."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cep.commands.cli import main
from tests.pages import cep_prints

RULE = """\
RULE drain
  PARAM small = 5, wait = 10 MINUTES
FROM payments
PARTITION BY card
PATTERN probe->{2,} -> cashout
WITHIN 1 HOUR
DEFINE
  probe   AS amount < small,
  cashout AS amount > 100 AND ts - FIRST(probe.ts) <= wait
MEASURES cashout.amount AS loss
AFTER MATCH SKIP PAST LAST EVENT
"""
STREAMS = """\
streams:
  payments:
    event_time: ts
    tie_break: [tx]
    schema: {tx: bigint, card: string, ts: timestamp, amount: double}
"""
INPUT = ("-i", "events.jsonl")


def event(tx: int, card: str, day: int, minute: int, amount: float) -> str:
    time = f"2024-05-{day:02}T10:{minute:02}:00Z"
    return json.dumps({"tx": tx, "card": card, "ts": time, "amount": amount}) + "\n"


def events_of(cards: dict[str, tuple[int, tuple[float, ...]]]) -> str:
    return "".join(
        event(100 * number + minute, card, day, minute, amount)
        for number, (card, (day, amounts)) in enumerate(cards.items())
        for minute, amount in enumerate(amounts)
    )


@pytest.fixture
def folder(compiled_engine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a rule, its streams and events of five days, which is the current one."""
    monkeypatch.chdir(tmp_path)
    Path("drain.cep").write_text(RULE)
    Path("streams.yaml").write_text(STREAMS)
    cards = {
        "<b>&'\"": (1, (1.0, 2.0, 300.0)),
        "c2": (2, (4.0, 4.5, 200.0)),
        "c3": (2, (7.0, 8.0, 400.0)),
        "c4": (5, (1.0, 9.0, 500.0)),
        "c5": (6, (50.0,)),
    }
    Path("events.jsonl").write_text(events_of(cards))
    Path("truth.csv").write_text(
        "rule,card,start,end,label\n"
        'drain,"<b>&\'""",2024-05-01T00:00:00Z,2024-05-02T00:00:00Z,fraud\n'
        "drain,c3,2024-05-02T00:00:00Z,2024-05-03T00:00:00Z,fraud\n"
        "drain,c2,2024-05-02T00:00:00Z,2024-05-03T00:00:00Z,near_miss\n"
    )
    return tmp_path


def cep(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_alerts_are_counted_by_rule(folder: Path) -> None:
    assert cep_prints("backtest drain.cep -i events.jsonl --truth truth.csv") == (
        "rule   alerts  a day  keys  planted  found  recall  precision  near misses\n"
        "drain       2    0.4     2        2      1     50%        50%            1\n\n"
        "13 events, 2024-05-01 to 2024-05-06, 5 days\n"
    )


def test_the_matches_are_those_of_a_run(folder: Path) -> None:
    assert cep("backtest", "drain.cep", *INPUT, "-o", "found.jsonl").exit_code == 0
    assert cep("match", "drain.cep", *INPUT, "-o", "matches.jsonl").exit_code == 0
    assert Path("found.jsonl").read_text() == Path("matches.jsonl").read_text() != ""


def test_rules_of_different_keys_run_together(folder: Path) -> None:
    Path("drain.cep").write_text(
        f"{RULE}\nRULE large FROM payments PARTITION BY tx PATTERN a DEFINE a AS amount > 100\n"
    )
    wanted = [("large", 4, 4), ("drain", 2, 2)]
    for more in ("", "--against drain.cep", "--sweep small=5", "--report page.html"):
        data = json.loads(cep_prints(f"backtest drain.cep -i events.jsonl --format json {more}"))
        assert [(of["rule"], of["alerts"], of["keys"]) for of in data["rules"]] == wanted
    card = json.loads(cep_prints("scorecard drain.cep -i events.jsonl --format json"))
    assert sorted((of["rule"], of["alerts"]) for of in card["rules"]) == [("drain", 2), ("large", 4)]


def test_what_any_of_the_runs_lost_is_said_once(folder: Path) -> None:
    streams = STREAMS.replace("amount: double", "amount: double, shop: string")
    other = "  visits:\n    event_time: ts\n    schema: {card: string, ts: timestamp}\n"
    Path("streams.yaml").write_text(streams + other)
    Path("old.cep").write_text(RULE)
    Path("drain.cep").write_text(RULE.replace("amount > 100", "shop IS NULL"))
    result = cep("backtest", "drain.cep", *INPUT, "--against", "old.cep")  # which runs last
    assert result.exit_code == 3
    assert result.stderr.count("field `shop`") == 1
    Path("more.cep").write_text(
        "RULE visited FROM visits PARTITION BY card PATTERN a DEFINE a AS card > ''\n"
    )
    Path("visits.jsonl").write_text('{"card": "c", "ts": "2024-05-01T10:00:00Z"}\nno JSON\n')
    inputs = ("-i", "payments=events.jsonl", "-i", "visits=visits.jsonl")
    for more in (("--sweep", "small=5,6"), ("--against", "old.cep"), ()):
        result = cep("backtest", "old.cep", "more.cep", *inputs, *more)
        assert result.exit_code == 0
        assert [line.split()[:2] for line in result.stderr.splitlines()] == [["malformed", "1"]]


def test_keys_of_digits_are_those_of_the_matches(folder: Path) -> None:
    text = Path("events.jsonl").read_text()
    Path("events.jsonl").write_text(text.replace('"c3"', '"003"'))
    Path("truth.csv").write_text("rule,start,end,card\ndrain,2024-05-02,2024-05-03,003\n")
    (found,) = json.loads(
        cep_prints("backtest drain.cep -i events.jsonl --truth truth.csv --set small=10 --format json")
    )["rules"]
    assert (found["planted"], found["found"], found["recall"]) == (1, 1, 1.0)
    text = cep_prints("tune drain.cep -i events.jsonl --truth truth.csv --recall 100% --parameter small")
    assert "\nproposed: --set small=9\n" in text


def test_a_truth_without_stories_has_no_recall(folder: Path) -> None:
    Path("truth.csv").write_text("rule,start,end,card\n")
    assert cep_prints("backtest drain.cep -i events.jsonl --truth truth.csv") == (
        "rule   alerts  a day  keys\ndrain       2    0.4     2\n\n"
        "13 events, 2024-05-01 to 2024-05-06, 5 days\n"
    )
    result = cep("tune", "drain.cep", *INPUT, "--truth", "truth.csv", "--recall", "90%")
    assert "no value of `small` that was tried gives a recall of at least 90%" in result.stdout


def test_the_columns_of_a_truth_are_shown_as_text(folder: Path) -> None:
    Path("truth.jsonl").write_text('{"rule": "drain", "\\ud800\\u001b[31m": 1}\n')
    result = cep("backtest", "drain.cep", *INPUT, "--truth", "truth.jsonl")
    assert result.exit_code == 1
    assert "`truth.jsonl` has no column `start`, `end`" in result.stderr
    assert "\\ud800\\x1b[31m" in result.stderr


def test_a_sweep_has_a_row_for_each_value(folder: Path) -> None:
    assert cep_prints("backtest drain.cep -i events.jsonl --truth truth.csv --sweep small=2,5,10") == (
        "drain\n"
        "small  alerts  a day  keys  planted  found  recall  precision  near misses\n"
        "2           0      0     0        2      0      0%                       0\n"
        "5           2    0.4     2        2      1     50%        50%            1\n"
        "10          4    0.8     4        2      2    100%        50%            1\n\n"
        "13 events, 2024-05-01 to 2024-05-06, 5 days\n"
    )
    data = json.loads(
        cep_prints("backtest drain.cep -i events.jsonl --sweep small=5 --sweep wait=10s,1h --format json")
    )
    found = [(row["values"], row["alerts"]) for row in data["sweep"]]
    assert found == [({"small": "5", "wait": "10s"}, 0), ({"small": "5", "wait": "1h"}, 2)]


def test_only_rules_with_the_parameter_are_in_a_sweep(folder: Path) -> None:
    Path("drain.cep").write_text(RULE + "\n" + RULE.replace("small", "tiny").replace("drain", "other"))
    data = json.loads(cep_prints("backtest drain.cep -i events.jsonl --sweep drain.small=2,10 --format json"))
    assert [(row["rule"], row["alerts"]) for row in data["sweep"]] == [("drain", 0), ("drain", 4)]
    assert [row["rule"] for row in data["rules"]] == ["drain", "other"]


def test_a_rule_that_reads_the_matches_of_a_changed_rule_is_in_a_sweep(folder: Path) -> None:
    outer = "RULE large FROM MATCHES OF drain PARTITION BY card PATTERN x DEFINE x AS loss > 350\n"
    other = RULE.replace("small", "tiny").replace("drain", "other")
    Path("drain.cep").write_text(f"{RULE}\n{outer}\n{other}")
    data = json.loads(cep_prints("backtest drain.cep -i events.jsonl --sweep small=2,10 --format json"))
    assert [(row["values"]["small"], row["rule"], row["alerts"]) for row in data["sweep"]] == [
        ("2", "drain", 0),
        ("2", "large", 0),
        ("10", "drain", 4),
        ("10", "large", 2),
    ]


def test_a_range_without_events_has_no_alerts(folder: Path) -> None:
    options = ("--from", "2030-01-01", "--margin", "1 day")
    data = json.loads(cep("backtest", "drain.cep", *INPUT, *options, "--format", "json").stdout)
    assert (data["from"], data["to"], data["days"]) == ("2030-01-01", "2030-01-01", 1.0)
    assert (data["events"], data["rules"][0]["alerts"]) == (0, 0)
    assert cep("backtest", "drain.cep", *INPUT, *options, "--report", "r.html").exit_code == 0


def test_two_rule_sets_are_compared_over_the_same_events(folder: Path) -> None:
    Path("old").mkdir()
    Path("old/drain.cep").write_text(
        RULE.replace("small = 5,", "small = 10,").replace("amount > 100", "amount > 250")
    )
    Path("old/streams.yaml").write_text(STREAMS)
    assert cep_prints("backtest drain.cep -i events.jsonl --against old") == (
        "rule   alerts  a day  keys\n"
        "drain       2    0.4     2\n\n"
        "rule   same  other events  newly  no longer\n"
        "drain     1             0      1          2\n\n"
        "rule   key  day         other events  newly  no longer\n"
        "drain  c2   2024-05-02                    1\n"
        "drain  c3   2024-05-02                               1\n"
        "drain  c4   2024-05-05                               1\n\n"
        "13 events, 2024-05-01 to 2024-05-06, 5 days\n"
    )


def test_streams_that_differ_are_not_compared(folder: Path) -> None:
    Path("old").mkdir()
    Path("old/drain.cep").write_text(RULE)
    Path("old/streams.yaml").write_text(STREAMS.replace("tie_break: [tx]", "lateness: 1 minute"))
    result = cep("backtest", "drain.cep", *INPUT, "--against", "old")
    assert (result.exit_code, "E0614" in result.stderr) == (1, True)


def test_a_range_and_a_sample_are_as_in_history(folder: Path) -> None:
    data = json.loads(
        cep_prints(
            "backtest drain.cep -i events.jsonl --from 2024-05-02 --to 2024-05-06T00:00Z --margin '1 day' "
            "--sample 50% --set small=10 --truth truth.csv --format json"
        )
    )
    assert {name: data[name] for name in ("from", "to", "days", "share_of_keys")} == {
        "from": "2024-05-02",
        "to": "2024-05-06",
        "days": 4.0,
        "share_of_keys": 0.5,
    }
    (row,) = data["rules"]
    assert row["alerts_a_day"] == row["alerts"] / 4 / 0.5
    assert 0 < data["events"] < 13


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--from", "soon"), "--from soon is no time"),
        (("--from", "2024-05-02", "--to", "2024-05-02"), "--from must be before --to"),
        (("--margin", "1 day"), "--margin is that of a range"),
        (("--margin", "long", "--to", "2024-05-02"), "--margin long is no duration"),
        (("--sample", "0%"), "--sample 0% is no share"),
        (("--sample", "much"), "--sample much is no share"),
        (("--same", "a=b"), "--same is about the columns of --truth"),
        (("--same", "a", "--truth", "truth.csv"), "`a` is not COLUMN=COLUMN"),
        (("--report", "r.html", "--spark"), "leave out --spark"),
        (("--report", "r.pdf"), "--report writes a page of HTML: name it r.html"),
        (("--report", "."), "--report writes a page of HTML: name it report.html"),
    ],
)
def test_options_that_make_no_sense_are_refused(folder: Path, arguments: tuple[str, ...], says: str) -> None:
    result = cep("backtest", "drain.cep", *INPUT, *arguments)
    assert (result.exit_code, says in result.stderr) == (2, True), result.stderr


def test_a_range_without_events_says_when_there_are_some(folder: Path) -> None:
    found = cep_prints("backtest drain.cep -i events.jsonl --from 2025-05-01 --to 2025-05-03")
    assert found.splitlines()[-1] == (
        "0 events, 2025-05-01 to 2025-05-03, 2 days; the files have events from 2024-05-01 to 2024-05-06"
    )


def test_without_events_and_bounds_no_range_is_shown(folder: Path) -> None:
    Path("events.jsonl").write_text(event(1, "c", 1, 0, 1.0))
    words = "backtest drain.cep -i events.jsonl --sample 0.0001%"
    assert cep_prints(words).splitlines()[-1].startswith("0 events, 0.0001% of the keys")
    assert "1970" not in cep_prints(words)
    found = json.loads(cep_prints(f"{words} --format json"))
    assert (found["events"], found["from"], found["to"]) == (0, None, None)


def test_an_unknown_parameter_of_a_sweep_is_refused(folder: Path) -> None:
    result = cep("backtest", "drain.cep", *INPUT, "--sweep", "smal=1")
    assert (result.exit_code, "E0889" in result.stderr) == (1, True)


def test_progress_names_each_run(folder: Path) -> None:
    result = cep("backtest", "drain.cep", *INPUT, "--sweep", "small=2,5", "--progress")
    assert "events read: 13\n" in result.stderr
    assert "run with small=2\n" in result.stderr
    assert "run with small=5\n" in result.stderr


def test_malformed_lines_are_reported_as_by_match(folder: Path) -> None:
    with Path("events.jsonl").open("a") as file:
        file.write("no event\n")
    result = cep("backtest", "drain.cep", *INPUT)
    assert (result.exit_code, result.stderr.startswith("malformed")) == (0, True)
    missing = cep("backtest", "drain.cep", "-i", "missing.jsonl")
    assert missing.exit_code == 1


def test_tuning_tries_the_values_seen_and_finer_ones(folder: Path) -> None:
    text = cep_prints("tune drain.cep -i events.jsonl --truth truth.csv --recall 100% --parameter small")
    assert "\nproposed: --set small=9\n" in text
    (found,) = json.loads(
        cep_prints("tune drain.cep -i events.jsonl --alerts-per-day 0.7 --parameter small --format json")
    )["parameters"]
    best = next(row for row in found["tried"] if row["value"] == found["proposed"])
    assert found["declared"] == "5"
    assert best["alerts"] == 3
    assert found["proposed"] == "9"
    assert {"1", "5", "500"} <= {row["value"] for row in found["tried"]}


def test_values_that_no_parameter_can_have_are_not_tried(folder: Path) -> None:
    text = Path("events.jsonl").read_text()
    Path("events.jsonl").write_text(text.replace(" 50.0}", ' "NaN"}').replace(" 9.0}", ' "-Infinity"}'))
    result = cep("tune", "drain.cep", *INPUT, "--alerts-per-day", "1", "--parameter", "small")
    assert (result.exit_code, "5 (now" in result.stdout) == (0, True), result.output


@pytest.mark.parametrize(
    ("parameter", "condition", "amount", "proposed"),
    [
        ("p = 5", "n > p", 1, str(2**62)),
        ("p = 5", "amount > p", 1.7976931348623157e308, None),  # no whole number is so large
        ("p = 5.0", "amount > p", 1.7976931348623157e308, "1.7976931348623157e+308"),
        ("p = -5.0", "amount < p", -1.7976931348623157e308, "-1.7976931348623157e+308"),
        ("p = 1e308", "amount * 1.0 > p", 1.2e308, "1.25e+308"),
    ],
)
def test_the_greatest_numbers_are_tuned(
    folder: Path, parameter: str, condition: str, amount: float, proposed: str | None
) -> None:
    Path("drain.cep").write_text(
        f"RULE r PARAM {parameter} FROM payments PARTITION BY card PATTERN x DEFINE x AS {condition}\n"
    )
    Path("streams.yaml").write_text(STREAMS.replace("tx: bigint", "tx: bigint, n: bigint"))
    row = json.loads(event(1, "c", 1, 0, amount)) | {"n": 2**62}
    Path("events.jsonl").write_text(json.dumps(row) + "\n")
    result = cep("tune", "drain.cep", *INPUT, "--alerts-per-day", "0", "--format", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    (found,) = json.loads(result.stdout)["parameters"]
    assert found["proposed"] == proposed
    assert len(found["tried"]) > 1


def test_a_proposal_changes_no_other_rule(folder: Path) -> None:
    other = RULE.replace("drain", "other").replace("wait", "pause")
    Path("other.cep").write_text(other)
    files = ("drain.cep", "other.cep", *INPUT)
    words = ("--only", "drain", "--alerts-per-day", "0.7")
    result = cep("tune", *files, *words, "--parameter", "small")
    assert "proposed: --set drain.small=9\n" in result.stdout
    together = cep("tune", *files, *words, "--together")
    (line,) = (line for line in together.stdout.splitlines() if line.startswith("proposed: "))
    assert line.startswith("proposed: --set drain.small=")
    (found,) = json.loads(cep("tune", *files, *words, "--parameter", "small", "--format", "json").stdout)[
        "parameters"
    ]
    assert (found["proposed"], found["set"]) == ("9", ["drain.small=9"])
    joint = json.loads(cep("tune", *files, *words, "--together", "--format", "json").stdout)
    assert joint["set"][0] == line.split()[2]
    rows = {
        row["rule"]: row["alerts"]
        for row in json.loads(cep("backtest", *files, "--set", found["set"][0], "--format", "json").stdout)[
            "rules"
        ]
    }
    assert rows == {"drain": 3, "other": 2}
    kept = cep("tune", *files, "--only", "other", "--alerts-per-day", "0.4", "--format", "json").stdout
    assert [one["set"] for one in json.loads(kept)["parameters"]] == [[], []]


@pytest.mark.parametrize("name", ["a=b", "a``=b", " a = b ", "drain.small"])
def test_a_proposal_of_a_quoted_name_can_be_pasted(folder: Path, name: str) -> None:
    text = RULE.replace("small", f"`{name}`")
    Path("drain.cep").write_text(f"{text}\n{text.replace('drain', '`o=r`', 1)}")
    for rule in ("drain", "o=r"):
        tune = ("tune", "drain.cep", *INPUT, "--only", rule, "--alerts-per-day", "0.7")
        result = cep(*tune, "--parameter", name.replace("``", "`"))
        (line,) = (line for line in result.stdout.splitlines() if line.startswith("proposed: "))
        pasted = shlex.split(line.removeprefix("proposed: "))
        found = cep("backtest", "drain.cep", *INPUT, *pasted, "--format", "json")
        assert found.exit_code == 0, found.stderr
        rows = {row["rule"]: row["alerts"] for row in json.loads(found.stdout)["rules"]}
        assert rows == {"drain": 2, "o=r": 2} | {rule: 3}
        swept = cep("backtest", "drain.cep", *INPUT, "--sweep", f"{pasted[1]},5", "--format", "json")
        assert [row["alerts"] for row in json.loads(swept.stdout)["sweep"]] == [3, 2]


def test_each_value_is_tried_whatever_was_set(folder: Path) -> None:
    given = ("--set", "drain.small=4", "--set", "small=5", "--parameter", "small")
    result = cep("tune", "drain.cep", *INPUT, "--alerts-per-day", "0.7", *given, "--format", "json")
    (found,) = json.loads(result.stdout)["parameters"]
    assert (found["declared"], found["proposed"]) == ("5", "9")


LARGE = "RULE large PARAM lim = 0.0 FROM payments PARTITION BY card PATTERN x DEFINE x AS amount > lim\n"


def test_a_tuning_says_what_was_read(folder: Path) -> None:
    tune = "tune drain.cep -i events.jsonl --alerts-per-day 0.7 --parameter small"
    assert cep_prints(tune).endswith(
        "\n\nproposed: --set small=9\n\n13 events, 2024-05-01 to 2024-05-06, 5 days\n"
    )
    assert cep_prints(f"{tune} --together").endswith(" runs\n\n13 events, 2024-05-01 to 2024-05-06, 5 days\n")
    for options in ("", " --together"):
        data = json.loads(cep_prints(f"{tune} --format json{options}"))
        assert (data["events"], data["from"], data["to"]) == (13, "2024-05-01", "2024-05-06")


def test_without_events_nothing_is_proposed(folder: Path) -> None:
    tune = "tune drain.cep -i events.jsonl --alerts-per-day 3 --from 2031-01-01 --to 2031-01-02"
    for options in ("", " --together"):
        assert cep_prints(tune + options) == (
            "no events, so no proposal\n\n"
            "0 events, 2031-01-01 to 2031-01-02, 1 day; the files have events from 2024-05-01 to 2024-05-06\n"
        )
    data = json.loads(cep_prints(f"{tune} --format json"))
    assert data["events"] == 0
    for one in data["parameters"]:
        assert (one["proposed"], one["set"], one["tried"]) == (None, [], [])
    data = json.loads(cep_prints(f"{tune} --together --format json"))
    assert data["declared"] == {"small": "5", "wait": "10 MINUTES"}
    assert (data["proposed"], data["set"], data["tried"]) == (None, [], [])
    Path("events.jsonl").write_text("no event\n")
    result = cep("tune", "drain.cep", *INPUT, "--alerts-per-day", "3")
    assert (result.exit_code, result.stdout) == (0, "no events, so no proposal\n\n0 events\n")
    assert result.stderr.startswith("malformed")


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ("no event\n", "0 events\nmalformed                1  not a JSON object (1)\n"),
        (
            event(1, "c", 1, 0, 1.0).replace("amount", "amuont"),
            "1 event, 2024-05-01 to 2024-05-01, 1 day\nabsent fields            1  field `amount` is in none",
        ),
    ],
)
def test_a_column_without_numbers_is_named_and_what_was_lost(folder: Path, events: str, told: str) -> None:
    Path("drain.cep").write_text(LARGE)
    Path("events.jsonl").write_text(events)
    result = cep("tune", "drain.cep", *INPUT, "--alerts-per-day", "3")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(told)
    says = "parameter `lim` is 0, and the column `amount`, which is compared with it, has no numbers"
    assert says in result.stderr


def test_a_column_of_matches_is_not_that_of_the_events(folder: Path) -> None:
    inner = RULE.replace("AS loss", "AS amount")
    outer = LARGE.replace("FROM payments", "FROM MATCHES OF drain")
    Path("drain.cep").write_text(f"{inner}\n{outer}")
    words = ("--alerts-per-day", "3", "--only", "large")
    result = cep("tune", "drain.cep", *INPUT, *words)
    says = "parameter `lim` is 0, and `amount`, which is compared with it, is no column of the events"
    assert (result.exit_code, says in result.stderr) == (1, True), result.stderr
    Path("drain.cep").write_text(f"{inner}\n{outer.replace('0.0', '100.0')}")
    result = cep("tune", "drain.cep", *INPUT, *words, "--format", "json")
    (found,) = json.loads(result.stdout)["parameters"]
    assert {"25.0", "50.0", "200.0", "400.0"} <= {row["value"] for row in found["tried"]}


def test_each_parameter_is_tuned_alone(folder: Path) -> None:
    data = json.loads(cep_prints("tune drain.cep -i events.jsonl --alerts-per-day 9 --format json"))
    found = data["parameters"]
    assert [one["parameter"] for one in found] == ["small", "wait"]
    assert "150 SECONDS" in [row["value"] for row in found[1]["tried"]]


def test_parameters_are_tuned_together(folder: Path) -> None:
    data = json.loads(
        cep_prints("tune drain.cep -i events.jsonl --alerts-per-day 0.7 --together --format json")
    )
    assert data["declared"] == {"small": "5", "wait": "10 MINUTES"}
    best = next(row for row in data["tried"] if row["values"] == data["proposed"])
    assert best["alerts_a_day"] <= 0.7
    assert data["is_complete"]
    values = {name: {row["values"][name] for row in data["tried"]} for name in ("small", "wait")}
    assert min(map(len, values.values())) > 3
    assert len(data["tried"]) <= 100
    text = cep_prints("tune drain.cep -i events.jsonl --alerts-per-day 0.7 --together --runs 4")
    assert "\n4 runs; more were not allowed\n" in text
    assert text.startswith("small, wait")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--alerts-per-day", "3", "--runs", "9"), 2, "--runs is for --together"),
        ((), 2, "Write --alerts-per-day N or --recall SHARE"),
        (("--recall", "90%", "--alerts-per-day", "3"), 2, "Write --alerts-per-day N or --recall SHARE"),
        (("--recall", "90%"), 2, "write --truth FILE"),
        (("--recall", "much", "--truth", "truth.csv"), 2, "--recall much is no share"),
        (("--alerts-per-day", "-5"), 2, "-5.0 is not in the range x>=0"),
        (("--alerts-per-day", "nan"), 2, "nan is no amount"),
        (("--alerts-per-day", "3", "--parameter", "big"), 1, "E0693"),
        (("--alerts-per-day", "3", "--parameter", "small", "--parameter", "wiat"), 1, "parameter `wiat`\n"),
    ],
)
def test_what_cannot_be_tuned_is_refused(
    folder: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    result = cep("tune", "drain.cep", *INPUT, *arguments)
    assert (result.exit_code, says in result.stderr) == (code, True), result.stderr


def test_a_value_outside_of_the_quantiles_is_found(folder: Path) -> None:
    Path("drain.cep").write_text(
        "RULE large PARAM big = 5.0 FROM payments PARTITION BY card PATTERN x WITHIN 1 HOUR "
        "DEFINE x AS amount > big\n"
    )
    Path("events.jsonl").write_text("".join(event(n, "c", 1 + n % 5, n % 60, 1.01**n) for n in range(3000)))
    tune = "tune drain.cep -i events.jsonl --format json --alerts-per-day"
    (found,) = json.loads(cep_prints(f"{tune} 1"))["parameters"]
    best = next(row for row in found["tried"] if row["value"] == found["proposed"])
    assert 0 < best["alerts_a_day"] <= 1
    (found,) = json.loads(cep_prints(f"{tune} 0"))["parameters"]
    assert 1.01**2999 <= float(found["proposed"]) < 1.02 * 1.01**2999


def test_a_value_that_meets_the_goal_as_the_table_shows_it_is_proposed(folder: Path) -> None:
    """40 alerts in 19.997 days are 2.00028 a day; the table has 20 days and 2.0 alerts a day."""
    Path("drain.cep").write_text(
        "RULE large PARAM big = 5.0 FROM payments PARTITION BY card PATTERN x WITHIN 1 HOUR "
        "DEFINE x AS amount > big\n"
    )
    days = [event(100 * day + n, "c", 1 + day, n + 4 * (day == 0), 9) for day in range(21) for n in (1, 2)]
    Path("events.jsonl").write_text("".join(days[:-2]) + event(9999, "c", 21, 1, 1))
    assert ", 20 days" in cep_prints("backtest drain.cep -i events.jsonl")
    text = cep_prints("tune drain.cep -i events.jsonl --alerts-per-day 2")
    assert "5.0 (now, best)      40    2.0" in text
    assert "\nkeep big=5.0\n" in text
    data = json.loads(cep_prints("tune drain.cep -i events.jsonl --alerts-per-day 2 --format json"))
    (found,) = data["parameters"]
    assert found["proposed"] == "5.0"
    best = next(row for row in found["tried"] if row["value"] == "5.0")
    assert (best["alerts"], best["alerts_a_day"]) == (40, pytest.approx(2.00028, abs=1e-5))
    thresholds = ("--max-per-day", "2", "--silent-days", "0")
    assert "alerts a day" not in cep("scorecard", "drain.cep", *INPUT, *thresholds).stdout


def test_a_parameter_that_has_no_values_in_between_does_not_stop_the_others(folder: Path) -> None:
    rule = RULE.replace("wait = 10", "kind = 'c1', none = 0 SECONDS, wait = 10")
    Path("drain.cep").write_text(rule.replace("amount < small", "amount < small AND card <> kind"))
    result = cep("tune", "drain.cep", *INPUT, "--alerts-per-day", "3", "--format", "json")
    assert result.exit_code == 0
    assert [one["parameter"] for one in json.loads(result.stdout)["parameters"]] == ["small", "wait"]
    assert "not tuned: parameter `kind` is not a number or a duration\n" in result.stderr
    assert "not tuned: parameter `none` is 0, and no column is compared with it\n" in result.stderr
    assert cep("tune", "drain.cep", *INPUT, "--alerts-per-day", "3", "--together").exit_code == 0
    named = ("--parameter", "small", "--parameter", "kind")
    result = cep("tune", "drain.cep", *INPUT, "--alerts-per-day", "3", *named)
    assert (result.exit_code, "E0693" in result.stderr) == (1, True)
    assert "parameter `kind` is not a number" in result.stderr


@pytest.mark.parametrize(
    ("parameter", "part", "condition"),
    [
        ("n = 3", "x->{2,n}", "TRUE"),
        ("n = 1", "x->{n}", "TRUE"),
        ("n = 400", "x->{n}", "TRUE"),
        ("n = 30 MINUTES", "x ->[10 MINUTES, n] y", "TRUE"),
        ("n = 1", "x", "amount > PREV(amount, n)"),
        ("n = 500 MICROSECONDS", "x -> y WITHIN n", "TRUE"),
        ("n = 36000 DAYS", "x -> y WITHIN n", "TRUE"),
        ("n = 3", "x", "amount > n"),
    ],
)
def test_values_that_do_not_compile_are_not_tried(
    folder: Path, parameter: str, part: str, condition: str
) -> None:
    Path("drain.cep").write_text(
        f"RULE r PARAM {parameter} FROM payments PARTITION BY card PATTERN {part} "
        f"{'' if 'WITHIN' in part else 'WITHIN 1 DAY'} DEFINE x AS {condition}\n"
    )
    with Path("events.jsonl").open("a") as file:
        file.write(event(999, "c9", 6, 9, 1e300))
    for options in ((), ("--together",)):
        result = cep("tune", "drain.cep", *INPUT, "--alerts-per-day", "0", *options)
        assert (result.exit_code, " (now" in result.stdout) == (0, True), result.output


def test_a_rule_without_parameters_is_told_how_to_get_one(folder: Path) -> None:
    Path("drain.cep").write_text(
        re.sub("  PARAM.*\n", "", RULE).replace("small", "5").replace("wait", "1 HOUR")
    )
    result = cep("tune", "drain.cep", *INPUT, "--alerts-per-day", "3")
    assert (result.exit_code, "name a constant: PARAM small = 5" in result.stderr) == (1, True)


def test_one_of_several_rules_must_be_chosen(folder: Path) -> None:
    Path("drain.cep").write_text(RULE + "\n" + RULE.replace("drain", "other"))
    result = cep("tune", "drain.cep", *INPUT, "--alerts-per-day", "3")
    assert (result.exit_code, "Write one --only, one of drain, other" in result.stderr) == (2, True)
    (found, _) = json.loads(
        cep_prints("tune drain.cep -i events.jsonl --alerts-per-day 3 --only other --format json")
    )["parameters"]
    assert found["parameter"] == "small"


def test_the_score_card_has_tests_verdicts_and_the_date_of_the_last_change(folder: Path) -> None:
    Path("drain.test.yaml").write_text(
        "rules: drain.cep\ndefaults: {card: c}\ncases:\n"
        "  no event:\n    events: [{at: 0 seconds, amount: 1}]\n    expect: none\n"
    )
    match_ids = [
        row["match_id"] for row in map(json.loads, cep_prints("match drain.cep -i events.jsonl").splitlines())
    ]
    Path("verdicts.csv").write_text(f"match_id,verdict\n{match_ids[0]},confirmed\n{match_ids[1]},false\n")
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x", "--date=2020-02-03T00:00:00Z"]):
        environment = {"GIT_COMMITTER_DATE": "2021-03-04T00:00:00Z", "PATH": "/usr/bin:/bin"}
        subprocess.run([*git, *command], check=True, env=environment)
    data = json.loads(
        cep_prints(
            "scorecard drain.cep -i events.jsonl --verdicts verdicts.csv "
            "--min-verdicts 2 --min-confirmed 60% --format json"
        )
    )
    (row,) = data["rules"]
    assert (row["tests"], row["verdicts"], row["confirmed"]) == (1, 2, 1)
    assert row["changed"] == "2021-03-04"
    assert (row["advice"], row["reason"]) == ("tune", "50% of 2 verdicts confirm it")


def test_each_rule_has_the_date_of_its_own_lines_whatever_is_not_committed(folder: Path) -> None:
    import os

    def commit(text: str, year: int) -> None:
        Path("drain.cep").write_text(text)
        environment = {"GIT_COMMITTER_DATE": f"{year}-01-01T00:00:00Z", "PATH": "/usr/bin:/bin"}
        git = ("git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        for command in (["add", "drain.cep"], ["commit", "-qm", "x"]):
            subprocess.run([*git, *command], check=True, env=environment)

    def changed(text: str) -> dict[str, str]:
        Path("drain.cep").write_text(text)
        os.utime("drain.cep", (86_400 * 366, 86_400 * 366))
        cards = json.loads(cep_prints("scorecard drain.cep -i events.jsonl --format json"))["rules"]
        return {card["rule"]: card["changed"] for card in cards}

    one, two, new = (RULE.replace("drain", name) + "\n" for name in ("one", "two", "new"))
    subprocess.run(["git", "init", "-q"], check=True)
    commit(one, 2020)
    commit(one + two, 2022)
    of_file, of_rules = "1971-01-02", {"one": "2020-01-01", "two": "2022-01-01"}
    assert changed(one + two) == of_rules
    assert changed(new + one + two) == {"new": of_file, **of_rules}
    assert changed(two + one) == of_rules
    assert changed(one.replace("> 100", "> 10") + two) == {**of_rules, "one": of_file}
    assert changed((new + one + two).replace("\n", "\r\n")) == {"new": of_file, **of_rules}
    commit(one.replace("MEASURES cashout.amount AS loss\n", "") + two, 2024)
    assert changed(Path("drain.cep").read_text()) == {**of_rules, "one": "2024-01-01"}


def test_without_events_there_is_no_advice(folder: Path) -> None:
    words = "scorecard drain.cep -i events.jsonl --from 2025-01-01 --to 2025-03-05"
    (card,) = json.loads(cep_prints(f"{words} --format json"))["rules"]
    assert (card["advice"], card["reason"]) == (None, "no events, so no advice; no tests")
    shown = cep_prints(words)
    assert "no events, so no advice" in shown
    assert "retire" not in shown


def test_without_git_the_date_is_that_of_the_file(folder: Path) -> None:
    import os

    os.utime("drain.cep", (86_400 * 366, 86_400 * 366))
    (row,) = json.loads(cep_prints("scorecard drain.cep -i events.jsonl --format json"))["rules"]
    assert (row["changed"], row["tests"], row["reason"]) == ("1971-01-02", 0, "no tests")


@pytest.mark.parametrize("text", ["match_id,verdict\nabc,maybe\n", "match_id\nabc\n", "\udcff"])
def test_a_file_that_has_no_verdicts_is_refused(folder: Path, text: str) -> None:
    Path("verdicts.csv").write_bytes(text.encode(errors="surrogateescape"))
    result = cep("scorecard", "drain.cep", *INPUT, "--verdicts", "verdicts.csv")
    assert (result.exit_code, "E0694" in result.stderr) == (1, True)
    assert cep("scorecard", "drain.cep", *INPUT, "--verdicts", "none.jsonl").exit_code == 1


@pytest.mark.parametrize("text", ["", "id,verdict\n", "match_id;verdict\na;yes\n"])
def test_a_file_of_verdicts_without_the_columns_is_no_file_without_verdicts(folder: Path, text: str) -> None:
    Path("verdicts.csv").write_text(text)
    result = cep("scorecard", "drain.cep", *INPUT, "--verdicts", "verdicts.csv")
    assert result.exit_code == 1
    assert "its first line has no match_id" in result.stderr
    assert "write CSV with the columns match_id and verdict" in result.stderr


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", f"match_id,verdict,note\na,yes,\nb,no,{'x' * 131_073}\n", "line 3: field larger than"),
        ("a.csv", 'match_id,verdict,note\na,yes,"b\nc,no,\n', "line 2: unexpected end of data"),
        ("a.csv", 'match_id,verdict,note\na,yes,"b\nc"\nd,maybe,\n', "a.csv:4 is no verdict"),
        ("a.csv", "match_id,verdict\n\na,yes\n\nd\n", "a.csv:5 is no verdict"),
        ("A.CSV", "match_id,verdict\na,yes\nd,maybe\n", "A.CSV:3 is no verdict"),
        ("a.jsonl", f"\n{'[' * 100_000}\n", "a.jsonl:2 is no verdict"),
        ("a.jsonl", '{"match_id":"a","verdict":"yes","note":"\u2028"}\n{"match_id"\n', "a.jsonl:2 is no"),
        ("a.jsonl", "match_id,verdict\n", "a.jsonl:1 is no verdict"),
        (
            "a.csv",
            "match_id,verdict\na,yes\nb,no\na,1\na,no\n",
            "a.csv:5 contradicts line 2 about the alert a",
        ),
    ],
)
def test_a_verdict_that_cannot_be_read_or_contradicts_another_is_named_with_its_line(
    folder: Path, name: str, text: str, says: str
) -> None:
    Path(name).write_text(text)
    result = cep("scorecard", "drain.cep", *INPUT, "--verdicts", name)
    assert (result.exit_code, "E0694" in result.stderr) == (1, True), result.output
    assert says in result.stderr


def test_a_line_break_in_a_note_is_none_between_verdicts(folder: Path) -> None:
    known = json.loads(cep("match", "drain.cep", *INPUT, "-q").stdout.splitlines()[0])["match_id"]
    Path("A.CSV").write_bytes(f'match_id,verdict,note\r\n{known},yes,"a\r\nb\x0c"\r\n'.encode())
    result = cep("scorecard", "drain.cep", *INPUT, "--verdicts", "A.CSV")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "1 of 1" in result.stdout


@pytest.mark.filterwarnings("error")
def test_no_verdict_confirms_nothing_and_refutes_nothing(folder: Path) -> None:
    result = cep("scorecard", "drain.cep", *INPUT, "--min-verdicts", "0")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "keep" in result.stdout


def test_verdicts_with_a_byte_order_mark_count_and_those_of_no_alert_are_told(folder: Path) -> None:
    found = cep("match", "drain.cep", *INPUT, "-q").stdout.splitlines()
    known = json.loads(found[0])["match_id"]
    text = f"match_id,verdict\r\n{known},Yes\r\n0a1b,no\r\n"
    Path("verdicts.csv").write_bytes(text.encode("utf-8-sig"))
    result = cep("scorecard", "drain.cep", *INPUT, "--verdicts", "verdicts.csv")
    assert (result.exit_code, result.stderr) == (0, "1 of 2 verdicts are of no alert of this run\n")
    assert "1 of 1" in result.stdout


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--max-noise", "nan", "--max-noise nan is no share"),
        ("--min-confirmed", "300%", "--min-confirmed 300% is no share"),
        ("--max-per-day", "nan", "nan is no amount"),
        ("--silent-days", "-1", "-1.0 is not in the range"),
        ("--min-verdicts", "-1", "-1 is not in the range"),
    ],
)
def test_thresholds_that_judge_nothing_are_refused(folder: Path, option: str, value: str, says: str) -> None:
    result = cep("scorecard", "drain.cep", *INPUT, option, value)
    assert (result.exit_code, says in result.stderr) == (2, True), result.stderr


def test_stories_of_rules_that_do_not_run_are_told(folder: Path) -> None:
    text = Path("truth.csv").read_text()
    Path("truth.csv").write_text(text.replace("drain,c", "drian,c"))
    result = cep("backtest", "drain.cep", *INPUT, "--truth", "truth.csv")
    assert "`truth.csv` is also about rules that do not run: drian\n" in result.stderr


def test_a_story_that_ends_before_it_begins_is_refused(folder: Path) -> None:
    text = Path("truth.csv").read_text()
    Path("truth.csv").write_text(text.replace("2024-05-02T00:00:00Z,fraud", "2024-04-02T00:00:00Z,fraud"))
    result = cep("backtest", "drain.cep", *INPUT, "--truth", "truth.csv")
    assert result.exit_code == 1
    assert "`start` of `truth.csv` is after `end` in row 1" in result.stderr


class _Page(HTMLParser):
    """What a page has: its tags in their nesting, its words, and where it leads."""

    VOID = frozenset(("meta", "br", "path", "rect", "circle"))

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_report_is_a_page_that_needs_nothing_else(folder: Path) -> None:
    result = cep(
        "backtest",
        "drain.cep",
        *INPUT,
        "--truth",
        "truth.csv",
        "--sweep",
        "small=2..10..4",
        "--report",
        "r.html",
    )
    assert result.exit_code == 0, result.output
    text = Path("r.html").read_text()
    page = _Page(text)
    assert page.open == []
    assert page.addresses == []
    assert not {"script", "link", "img", "iframe", "b"} & set(page.tags)
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", text)
    assert text.count("prefers-color-scheme: dark") >= 2
    words = "".join(page.words)
    for shown in ("Alerts by day", "Keys with the most alerts", "drain, by small", "Alerts of drain"):
        assert shown in words
    assert page.tags.count("details") == 2
    assert "drain: <b>&'\"" in words  # as it is in the events, and not as a tag
    assert "costs most" in words  # the funnel
    assert "as cashout" in words  # why
    assert {"2024-05-01: 1", "2024-05-02: 1", "10: 0.8", "10: 100%"} <= set(page.words)


BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
MEASURE = (
    "<script>document.title = [document.documentElement.scrollWidth <= innerWidth, "
    "getComputedStyle(document.body).backgroundColor].join(' ')</script></body>"
)


BUSY = (
    "RULE busy FROM payments PARTITION BY card WINDOW TUMBLING 1 DAY HAVING COUNT(*) > 2 "
    "MEASURES COUNT(*) AS n\n"
)


@pytest.mark.skipif(BROWSER is None, reason="there is no browser")
@pytest.mark.parametrize(("scheme", "color"), [(0, "rgb(20, 23, 29)"), (1, "rgb(255, 255, 255)")])
@pytest.mark.parametrize("width", [500, 1100])
def test_a_browser_shows_the_report_in_its_width_and_in_dark_and_light(
    folder: Path, scheme: int, color: str, width: int
) -> None:
    Path("busy.cep").write_text(BUSY)
    result = cep(
        "backtest", "drain.cep", "busy.cep", *INPUT, "--sweep", "small=2..10..4", "--report", "r.html"
    )
    assert result.exit_code == 0, result.output
    page = Path("r.html").read_text().replace("<details>", "<details open>")
    Path("measured.html").write_text(page.replace("</body>", MEASURE))
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/browser"]
    options += [f"--window-size={width},900", f"--blink-settings=preferredColorScheme={scheme}"]
    shown = subprocess.run(
        [str(BROWSER), *options, "--dump-dom", f"file://{folder}/measured.html"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert f"<title>true {color}</title>" in shown.stdout


def test_a_window_rule_has_a_report_without_a_funnel(folder: Path) -> None:
    Path("busy.cep").write_text(BUSY)
    result = cep("backtest", "busy.cep", *INPUT, "--report", "r.html")
    assert result.exit_code == 0, result.output
    text = Path("r.html").read_text()
    page = _Page(text)
    assert page.open == []
    assert page.tags.count("details") == 4
    assert text.count('class="band"') == 4  # each alert opens its window
    assert "counted" in "".join(page.words)


VIEW = """
tables:
  cards:
    key: [card]
    event_time: since
    op: op
    schema: {card: string, since: timestamp, op: string, owner: string}
"""


def write_view(folder: Path) -> None:
    """Write a view, and its table with three rows that are new or have changed."""
    (folder / "views").mkdir()
    (folder / "views/owned.cep").write_text("VIEW owned KEY card FROM cards SELECT cards.owner AS owner\n")
    (folder / "views/streams.yaml").write_text(STREAMS + VIEW)
    rows = [("c1", 1, "c", "ann"), ("c1", 2, "u", "ben"), ("c1", 3, "d", "ben"), ("c2", 3, "c", "ann")]
    (folder / "cards.jsonl").write_text(
        "".join(
            json.dumps({"card": card, "since": f"2024-05-0{day}T10:00:00Z", "op": op, "owner": owner}) + "\n"
            for card, day, op, owner in rows
        )
    )


def test_a_view_counts_each_row_that_is_new_or_has_changed(folder: Path) -> None:
    write_view(folder)
    inputs = ("-i", "cards=cards.jsonl", "--report", "r.html")
    data = json.loads(cep("backtest", "views/owned.cep", *inputs, "--format", "json").stdout)
    assert [(row["rule"], row["alerts"], row["keys"]) for row in data["rules"]] == [("owned", 3, 2)]
    assert (data["from"], data["to"], data["days"], data["events"]) == ("2024-05-01", "2024-05-03", 2.0, 4)
    text = Path("r.html").read_text()
    assert _Page(text).tags.count("details") == 3
    assert "owner ben" in "".join(_Page(text).words)
    half = json.loads(
        cep("backtest", "views/owned.cep", *inputs[:2], "--sample", "50%", "--format", "json").stdout
    )
    chosen = {
        card for card in ("c1", "c2") if int.from_bytes(sha256(card.encode()).digest()[:4]) < 0.5 * 2**32
    }
    assert half["rules"][0]["alerts"] == 2 * ("c1" in chosen) + ("c2" in chosen)
    cards = json.loads(cep("scorecard", "views/owned.cep", *inputs[:2], "--format", "json").stdout)
    assert cards["rules"] == []


def test_a_report_of_no_alerts_is_a_page(folder: Path) -> None:
    result = cep("backtest", "drain.cep", *INPUT, "--set", "small=0", "--report", "out/r.html")
    assert result.exit_code == 0, result.output
    assert _Page(Path("out/r.html").read_text()).tags.count("details") == 0
