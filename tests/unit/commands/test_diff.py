"""`cep diff` says what a change of rules does to stored state, and its page shows it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import cep.commands.cli
from spark_runtime.pipeline.savepoint import opened
from tests.pages import DOCS
from tests.unit.test_readme import blocks
from tests.unit.test_readme import folder as folder

STORED = Path(__file__).parents[2] / "spark/savepoints/1"
BURST = "RULE burst FROM transactions PARTITION BY card_id PATTERN a{3} WITHIN 1 MINUTE DEFINE a AS approved"

STREAMS = """streams:
  payments:
    schema: {ts: timestamp, card: string, amount: double, shop: string}
    event_time: ts
tables:
  cards: {schema: {ts: timestamp, card: string, most: double}, event_time: ts, key: [card]}
"""


def diff(*arguments: str) -> Result:
    return CliRunner().invoke(cep.commands.cli.main, ["diff", *arguments], prog_name="cep")


def changed(right: str, other: str) -> str:
    """Write the README's rule, changed, as `new.cep`; return the path."""
    text = Path("card_testing.cep").read_text()
    assert right in text
    Path("new.cep").write_text(text.replace(right, other))
    return "new.cep"


def test_the_page_shows_what_it_prints(folder: Path) -> None:
    Path("new_rules").mkdir()
    shutil.move(changed("WITHIN 10 MINUTES", "WITHIN 9 MINUTES"), "new_rules/new.cep")
    Path("new_rules/burst.cep").write_text(BURST)
    result = diff("card_testing.cep", "new_rules")
    assert result.exit_code == 3
    shown = f"$ cep diff card_testing.cep new_rules\n{result.stdout}"
    assert shown in (DOCS / "operate/running.md").read_text()


@pytest.mark.parametrize(
    ("right", "other", "code", "output"),
    [
        ("PATTERN", "PATTERN", 0, "same      card_testing\n"),
        ("SEVERITY high", "SEVERITY low", 0, "words     card_testing  its severity\n"),
        ("COUNT(probe.*) ", "COUNT(probe.*) + 1", 0, "measures  card_testing  its measures\n"),
        ("RULE card_testing", "RULE testing", 3,
         "new       testing       it was called `card_testing`, and match ids contain the name; it begins\n"
         "gone      card_testing  it is called `testing` now\n"),
        ("amount < 5", "amount < 6", 3, "changed   card_testing  its conditions; it begins again\n"),
    ],
)  # fmt: skip
def test_the_exit_code_says_whether_state_ends(
    folder: Path, right: str, other: str, code: int, output: str
) -> None:
    result = diff("card_testing.cep", changed(right, other))
    assert (result.exit_code, result.stdout) == (code, output)


def test_a_stream_that_is_declared_otherwise_is_refused_with_the_way_out(folder: Path) -> None:
    Path("other").mkdir()
    text = Path("streams.yaml").read_text()
    Path("other/streams.yaml").write_text(text.replace("amount: double", "amount: bigint"))
    shutil.copy("card_testing.cep", "other")
    result = diff("card_testing.cep", "other")
    assert result.exit_code == 1
    assert result.stdout.endswith(
        "refused   stream `transactions` has changed: column `amount` is bigint instead of double\n"
        "          help: restore its declaration, or start from a new checkpoint\n"
    )
    found = json.loads(diff("card_testing.cep", "other", "--format", "json").stdout)
    assert [sorted(refusal) for refusal in found["refused"]] == [["fact", "help"]]


def test_a_pipeline_file_is_compared_by_its_rules(folder: Path) -> None:
    Path("pipeline.yaml").write_text(
        blocks("yaml")[1].replace("card_testing.cep", changed("amount < 5", "amount < 6"))
    )
    result = diff("card_testing.cep", "pipeline.yaml")
    assert (result.exit_code, result.stdout) == (
        3, "changed   card_testing  its conditions; it begins again\n",
    )  # fmt: skip


def test_open_runs_of_a_savepoint_are_counted_without_spark(tmp_path: Path) -> None:
    (text,) = opened(str(STORED)).rules().texts
    (tmp_path / "streams.yaml").write_text(STREAMS)
    new = tmp_path / "new.cep"
    new.write_text(text.text)
    same = diff(str(new), "--checkpoint", str(STORED))
    assert same.exit_code == 0
    assert same.stdout.splitlines() == [
        "same      testing  6 open runs continue",
        "same      often    0 open runs continue",
        "same      hourly   its open windows continue",  # it has no runs
    ]
    hourly = text.text.index("RULE hourly")
    new.write_text(text.text[:hourly])
    gone = diff(str(new), "--checkpoint", str(STORED))
    assert gone.stdout.splitlines()[2] == "gone      hourly   its open windows end"
    new.write_text(text.text.replace("amount > 100", "amount > 99"))
    found = json.loads(diff(str(new), "--checkpoint", str(STORED), "--format", "json").stdout)
    assert found["rules"][0] == {
        "rule": "testing", "verdict": "changed", "reasons": ["its conditions"], "open_runs": 6,
    }  # fmt: skip
    assert found["begins_after"] == "2026-11-01T12:03:00Z"
    told = diff(str(new), "--checkpoint", str(STORED)).stdout.splitlines()
    when = "in the last 5 seconds before the change"
    assert told[-1] == f"matches of changed and removed rules that end {when} are reported by neither version"


def with_corrections(folder: Path, late: str) -> str:
    """Write a pipeline of the rules in the stored savepoint."""
    (text,) = opened(str(STORED)).rules().texts
    (folder / "new.cep").write_text(text.text)
    (folder / "streams.yaml").write_text(STREAMS)
    file = folder / f"{'with' if late else 'without'}.yaml"
    file.write_text(
        "rules: [new.cep]\nsources:\n- {stream: payments, format: json, path: in}\n"
        "- {table: cards, format: json, path: cards}\n"
        f"sinks: [{{format: console}}]\ncheckpoint: c\n{late}"
    )
    return str(file)


def test_corrections_that_a_pipeline_adds_or_removes_are_refused(tmp_path: Path) -> None:
    files = [with_corrections(tmp_path, late) for late in ("", "late: correct within 1 hour\n")]
    assert diff(files[0], "--checkpoint", str(STORED)).exit_code == 0
    for arguments in ([files[1], "--checkpoint", str(STORED)], files):
        result = diff(*arguments)
        assert result.exit_code == 1
        assert result.stdout.endswith(
            "refused   the stored state was written without corrections\n"
            "          help: leave out `correct within`, or start from a new checkpoint\n"
        )
    assert "was written with corrections" in diff(*reversed(files)).stdout
    assert diff(str(tmp_path / "new.cep"), files[1]).exit_code == 0  # rule files say nothing about it


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a.cep",), "Give the old rules and the new ones."),
        (("a.cep", "b.cep", "--checkpoint", "c"), "With --checkpoint, give only the new rules"),
    ],
)
def test_the_old_rules_are_given_or_in_the_checkpoint(arguments: tuple[str, ...], said: str) -> None:
    result = diff(*arguments)
    assert result.exit_code == 2
    assert said in result.output


def test_with_events_it_says_what_would_fire_newly_and_what_no_longer(folder: Path) -> None:
    result = diff(
        "card_testing.cep", changed("WITHIN 10 MINUTES", "WITHIN 1 MINUTE"), "--input", "events.jsonl"
    )
    assert result.exit_code == 3
    assert result.stdout.endswith("2024-05-01  card_testing  card_id c1: no longer 1\n")
    shown = f"$ cep diff card_testing.cep new.cep --input events.jsonl\n{result.stdout}"
    assert shown in (DOCS / "reference/cli.md").read_text()
    back = diff("new.cep", "card_testing.cep", "--input", "transactions=events.jsonl", "--format", "json")
    assert json.loads(back.stdout)["matches"] == [
        {
            "rule": "card_testing",
            "key": {"card_id": "c1"},
            "day": "2024-05-01",
            "same": 0,
            "moved": 0,
            "newly": 1,
            "no_longer": 0,
        }
    ]


def test_rules_with_events_that_report_the_same(folder: Path) -> None:
    result = diff("card_testing.cep", changed("SEVERITY high", "STATUS shadow"), "--input", "events.jsonl")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].split() == ["card_testing", "1", "0", "0", "0"]


def diff_of(old: str, new: str, events: str, *more: str, changed_type: str = "string") -> Result:
    """Return what is said of two texts of rules over `p` in JSON lines, in which `c` is a key."""
    schema = "{ts: timestamp, c: string, d: string, x: bigint}"
    for name, text, fields in (
        ("old", old, schema),
        ("new", new, schema.replace("d: string", f"d: {changed_type}")),
    ):
        Path(name).mkdir(exist_ok=True)
        streams = [f"  {stream}: {{event_time: ts, schema: {fields}}}\n" for stream in "pq"]
        Path(name, "streams.yaml").write_text("".join(["streams:\n", *streams]))
        Path(name, "t.cep").write_text(text)
    Path("p.jsonl").write_text(events)
    return diff("old", "new", "--input", "p=p.jsonl", *more)


def one(name: str = "one", key: str = "c", what: str = "x > 0", stream: str = "p") -> str:
    return f"RULE {name} FROM {stream} PARTITION BY {key} PATTERN a DEFINE a AS {what}\n"


TIME = '{"ts": "2024-05-01T10:00:00Z"'
SOUND = f'{TIME}, "c": "k", "d": "l", "x": 1}}\n'


def losses(result: Result) -> list[str]:
    """Return the lines about what was lost, with single spaces."""
    found = [" ".join(line.split()) for line in result.stderr.splitlines()]
    return [line for line in found if line.startswith(("malformed", "absent", "dropped", "of the"))]


def test_what_the_events_lack_is_said_once_for_both_rules(
    compiled_engine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    events = f'{SOUND}no JSON\n{TIME}, "x": 1, "d": "l"}}\n'
    for more in ((), ("--format", "json")):
        result = diff_of(one(), one(), events, *more)
        assert result.exit_code == 0
        assert losses(result) == ["malformed 2 key is NULL (1); not a JSON object (1)"]
    result = diff_of(one(), one(key="d"), events)  # in which the third event has a key
    assert result.exit_code == 3
    assert losses(result) == [
        "of the old rules:", "malformed 2 key is NULL (1); not a JSON object (1)",
        "of the new rules:", "malformed 1 not a JSON object (1)",
    ]  # fmt: skip
    assert losses(diff_of(one(), one(), SOUND)) == []


@pytest.mark.parametrize("is_old", [True, False])
def test_a_field_that_no_event_has_is_said_if_either_reads_it(
    compiled_engine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_old: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    rules = [one(), one(what="d = 'l'")]
    result = diff_of(*(reversed(rules) if is_old else rules), f'{TIME}, "c": "k", "x": 1}}\n')
    assert result.exit_code == 3
    assert [line[:48] for line in losses(result)] == ["absent fields 1 field `d` is in none of 1 event;"]
    same = diff_of(
        rules[1], rules[1].replace("RULE one", "RULE one SEVERITY high"), f'{TIME}, "c": "k", "x": 1}}\n'
    )
    assert same.exit_code == 3  # as for `cep match`
    assert same.stdout.startswith("words ")


def test_losses_of_several_streams_are_added(
    compiled_engine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("q.jsonl").write_text(f"{SOUND}no JSON\nneither\n")
    result = diff_of(one(), one(stream="q"), f"{SOUND}no JSON\n", "--input", "q=q.jsonl")
    assert losses(result) == ["malformed 3 not a JSON object (3)"]


def test_a_stream_that_is_declared_in_two_ways_has_the_losses_of_each(
    compiled_engine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = diff_of(one(), one(), f"{SOUND}no JSON\n", changed_type="bigint")
    assert result.exit_code == 0
    assert losses(result) == [
        "of the old rules:", "malformed 1 not a JSON object (1)",
        "of the new rules:", "malformed 2 field `d` is not of type bigint (1); not a JSON object (1)",
    ]  # fmt: skip


def test_dropped_runs_are_said_of_the_rules_that_dropped_more(
    compiled_engine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rule = "RULE one FROM p PARTITION BY c PATTERN a -> b MAX RUNS {} PER KEY DEFINE a AS x > 0, b AS x < 0\n"
    events = "".join(SOUND.replace("10:00", f"10:0{minute}") for minute in range(4))
    result = diff_of(rule.format(2), rule.format(1), events)
    assert [line[:15] for line in losses(result)] == ["dropped runs 3 "]


def test_a_key_cannot_begin_a_line(
    compiled_engine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = diff_of(one(), one(what="x > 1"), SOUND.replace('"k"', '"k\\n2024-05-02\\t\\u001b[2J"'))
    assert result.stdout.splitlines()[-1] == r"2024-05-01  one      c k\n2024-05-02\t\x1b[2J: no longer 1"


def test_events_from_standard_input_cannot_be_read_twice(folder: Path) -> None:
    result = diff("card_testing.cep", "card_testing.cep", "--input", "-")
    assert result.exit_code == 2
    assert "--input is read twice here: give a file" in result.output
