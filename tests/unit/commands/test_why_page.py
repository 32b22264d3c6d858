"""docs/guides/why.md: its commands print what the page shows, and each reason has its example."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from cep.commands.cli import main
from cep.why.reasons import OF_ENDING, OF_REFUSAL, Reason
from tests.pages import DOCS, blocks, cep_prints, shown_commands
from tests.unit.commands.test_plot import assert_nothing_covers

PAGE = (DOCS / "guides/why.md").read_text()
EXAMPLE = re.compile(r"^\| `(\w+)` \| `(\w+)` `(\w+)` \| `+(.*?)`+ \| .*\|$", re.MULTILINE)
EXAMPLES = EXAMPLE.findall(PAGE)
OPTIONS = {
    "over_limit": "-i payments=payments.jsonl -i accounts=accounts.jsonl",
    "two_events": "-i payments.jsonl --at 2024-05-01T17:10:00Z",
}


@pytest.fixture
def folder(compiled_engine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that the page describes, which is the current one."""
    monkeypatch.chdir(tmp_path)
    Path("streams.yaml").write_text(blocks(PAGE, "yaml")[0])
    Path("rules.cep").write_text(blocks(PAGE, "cep")[0])
    for name, content in zip(("payments.jsonl", "accounts.jsonl"), blocks(PAGE, "json"), strict=True):
        Path(name).write_text(content)
    return tmp_path


def test_the_commands_print_what_the_page_shows(folder: Path) -> None:
    shown = [(command, output) for command, output in shown_commands(PAGE) if "rules.cep" in command]
    assert len(shown) == 3
    for command, output in shown:
        assert cep_prints(command) == output


def write_blocks(page: str, **files: tuple[str, str]) -> None:
    """Write files: the first block of a kind on a page that begins with, or contains, a text."""
    text = (DOCS / page).read_text()
    for name, (kind, words) in files.items():
        place = Path(name.replace("__", "."))
        place.write_text(next(block for block in blocks(text, rf"{kind}[^\n]*") if words in block))


PICTURES = {
    "visits.cep": ("--only failing -i requests.jsonl --key 10.0.0.1", "failing_windows.svg"),
    "customer_accounts.cep": (
        "-i accounts=accounts.jsonl -i customers=customers.jsonl --key a1",
        "customer_accounts.svg",
    ),
}


@pytest.mark.parametrize("rules", PICTURES)
def test_windows_and_views_are_told_and_drawn_as_the_page_shows(folder: Path, rules: str) -> None:
    if rules == "visits.cep":
        write_blocks(
            "guides/window_rules.md",
            streams__yaml=("yaml", "requests:"),
            visits__cep=("cep", "RULE failing"),
            requests__jsonl=("json", "10.0.0.1"),
        )
    else:
        write_blocks(
            "guides/joins.md",
            streams__yaml=("yaml", "tables:"),
            customer_accounts__cep=("cep", "VIEW customer_accounts"),
            accounts__jsonl=("json", "account_id"),
            customers__jsonl=("json", "Anna"),
        )
    ((command, output),) = [shown for shown in shown_commands(PAGE) if rules in shown[0]]
    assert cep_prints(command) == output
    options, image = PICTURES[rules]
    drawn = cep_prints(f"plot {rules} {options}")
    assert f"](../images/{image})" in PAGE
    assert drawn == (DOCS / "images" / image).read_text(), f"copy it to docs/images/{image}"
    assert_nothing_covers(drawn)


def test_a_line_that_is_no_event_is_named(folder: Path) -> None:
    with Path("payments.jsonl").open("a") as file:
        file.write('{"tx":29,"account":"ana","ts":"2024-05-01T0')
    result = CliRunner().invoke(
        main, ["why", "rules.cep", "--rule", "drain", "--key", "ana", "-i", "payments.jsonl"]
    )
    assert result.exit_code == 0
    assert result.stderr == (
        "malformed: 1, not among the events; the first is payments.jsonl:29: not a JSON object\n"
    )


@pytest.mark.parametrize(("reason", "rule", "key", "says"), EXAMPLES)
def test_an_example_of_a_reason_gives_it(folder: Path, reason: str, rule: str, key: str, says: str) -> None:
    options = OPTIONS.get(rule, "-i payments.jsonl")
    options += " --at 2024-05-01T17:01:00Z" if reason == Reason.SKIPPED and "--at" not in options else ""
    told = json.loads(cep_prints(f"why rules.cep --rule {rule} --key {key} {options} --format json"))
    found = [attempt["ending"] for attempt in told["attempts"]]
    found += [match["removed_by"] for match in told["matches"] if match["removed_by"]]
    for refusal in (refusal for attempt in told["attempts"] for refusal in attempt["refusals"]):
        found += [refusal, *refusal["failed"]]
    assert any(item["reason"] == reason and item["says"].startswith(says.strip()) for item in found)


def test_the_lists_of_reasons_are_complete() -> None:
    refused, ended = PAGE.split("\nAn attempt ended, or a match was removed")
    assert {reason for reason, *_ in EXAMPLE.findall(refused)} == OF_REFUSAL
    assert {reason for reason, *_ in EXAMPLE.findall(ended)} == OF_ENDING
    assert set(Reason) == OF_REFUSAL | OF_ENDING


def test_a_failed_part_has_its_place_values_and_difference(folder: Path) -> None:
    told = json.loads(cep_prints("why rules.cep --rule drain --key ana -i payments.jsonl --format json"))
    assert told["attempts"][0]["refusals"][0]["failed"] == [
        {
            "reason": "value",
            "part": 1,
            "text": "amount > 500",
            "values": {"amount": 420.0},
            "by": -80.0,
            "says": "amount is 420: 80 too small",
            "span": {"file": "rules.cep", "line": 8, "column": 37},
        }
    ]
