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
    assert (same.exit_code, same.stdout.splitlines()[0]) == (0, "same      testing  6 open runs continue")
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


def test_events_from_standard_input_cannot_be_read_twice(folder: Path) -> None:
    result = diff("card_testing.cep", "card_testing.cep", "--input", "-")
    assert result.exit_code == 2
    assert "--input is read twice here: give a file" in result.output
