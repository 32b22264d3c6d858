"""`cep why` on the files of a pipeline, and on the open runs of a checkpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cep.commands.cli import main
from tests.pages import cep_prints
from tests.spark.stored_savepoint import STORED

OPEN_RUNS = """\
key card 0: 2 open runs

run 1 of testing: started 2026-11-01T12:01:00Z, 1 minute 1 second of event time ago
  waits  for large until 2026-11-01T13:01:00Z
  holds  COUNT(DISTINCT small.shop) = 2
  takes  an event as large: amount > 100 AND NOT shop IN (small.shop)

run 2 of testing: started 2026-11-01T12:02:00Z, 1 second of event time ago
  waits  for small until 2026-11-01T13:02:00Z
  holds  COUNT(DISTINCT small.shop) = 1
  takes  an event as small: amount < 5
"""


CHECKPOINT_TAKES = "--checkpoint takes --key, and besides it only RULES, --rule and --format"


def cli(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["why", *arguments], prog_name="cep")


@pytest.fixture
def project(compiled_engine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a project that `cep init` wrote, which is the current one."""
    assert CliRunner().invoke(main, ["init", str(tmp_path / "alerts")]).exit_code == 0
    monkeypatch.chdir(tmp_path / "alerts")
    return tmp_path / "alerts"


def test_a_pipeline_file_gives_rules_parameters_and_files_of_events(project: Path) -> None:
    by_hand = cep_prints("why rules --key c2 -i events --input-format json --format json")
    assert json.loads(cep_prints("why pipeline.yaml --key c2 --format json"))["attempts"]
    told, expected = (
        [(one["missing"], one["ending"], len(one["refusals"])) for one in json.loads(text)["attempts"]]
        for text in (cep_prints("why pipeline.yaml --key c2 --format json"), by_hand)
    )
    assert told == expected


def test_a_log_of_messages_is_refused_with_what_to_do_instead(project: Path) -> None:
    text = Path("pipeline.yaml").read_text()
    source = "source: {stream: transactions, format: json, path: events}"
    assert source in text
    kafka = "source: {stream: transactions, format: kafka, brokers: 'localhost:9092', topic: t}"
    text = text.replace(source, kafka).replace("mode: batch", "mode: stream\ncheckpoint: out/checkpoint")
    Path("pipeline.yaml").write_text(text)
    result = cli("pipeline.yaml", "--key", "c2")
    assert (result.exit_code, result.stderr) == (
        1,
        "error[E0835]: `cep why` reads files on this machine: the source of `transactions` is kafka\n"
        "help: write the events in question to a file, and add --input transactions=FILE; for what waits "
        f"now: cep why --checkpoint {project / 'out/checkpoint'} --key KEY\n",
    )
    given = cli("pipeline.yaml", "--key", "c2", "--input", "events/transactions.jsonl")
    assert given.stdout == cep_prints("why rules --key c2 -i events/transactions.jsonl").replace(
        "--> rules/", f"--> {project / 'rules'}/"
    )


def test_the_open_runs_of_a_checkpoint_say_what_they_wait_for_and_what_they_take() -> None:
    shown = cep_prints(f"why --key 'card 0' --checkpoint {STORED}")
    assert shown == OPEN_RUNS
    (run, _) = json.loads(cep_prints(f"why --key 'card 0' --checkpoint {STORED} --format json"))["open_runs"]
    assert (run["waits_for"], run["takes"]) == (
        "large",
        {"large": "amount > 100 AND NOT shop IN (small.shop)"},
    )
    assert cep_prints(f"why --rule often --key 'card 0' --checkpoint {STORED}") == "key card 0: 0 open runs\n"


WITHOUT_SPARK = f"""
import json, sys
from collections import Counter
for name in ("pyspark", "py4j"):
    sys.modules[name] = None
files = Counter()
sys.addaudithook(lambda name, given: files.update([str(given[0])] if name == "open" else []))
sys.argv = ["cep", "why", "--key", "card 0", "--checkpoint", {str(STORED)!r}]
from cep.__main__ import start
try:
    start()
finally:
    print(json.dumps([n for name, n in files.items() if name.startswith({str(STORED)!r})]))
"""


@pytest.fixture(scope="module")
def explained() -> tuple[str, list[int]]:
    """Return what the command says without Spark, and how often it opens each file of the checkpoint."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_SPARK], capture_output=True, text=True, check=True)
    *lines, times = done.stdout.splitlines(keepends=True)
    return "".join(lines), json.loads(times)


def test_open_runs_are_explained_without_spark(explained: tuple[str, list[int]]) -> None:
    assert explained[0] == OPEN_RUNS


def test_each_file_of_a_checkpoint_is_read_once(explained: tuple[str, list[int]]) -> None:
    times = explained[1]
    assert len(times) >= 3  # the manifest, the rules, a key group
    assert set(times) == {1}


def test_a_rule_that_the_checkpoint_lacks_is_named_also_if_a_file_names_it(tmp_path: Path) -> None:
    rule = tmp_path / "rule.cep"
    rule.write_text("RULE testin FROM p PARTITION BY k PATTERN a WITHIN 1 HOUR DEFINE a AS x > 1")
    for given in (["--rule", "testin"], [str(rule)]):
        result = cli(*given, "--key", "card 0", "--checkpoint", str(STORED))
        assert (result.exit_code, result.stderr) == (
            1,
            "error[E0897]: the checkpoint has no rule `testin`\n"
            "help: did you mean `testing`? rules: hourly, often, testing\n",
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--checkpoint c", CHECKPOINT_TAKES),
        ("--checkpoint c --key 1 -i x", CHECKPOINT_TAKES),
        ("--key 1", "Missing argument 'RULES...'."),
        ("rules --key 1", "Missing option '-i' / '--input'."),
        ("p.yaml --set a=1 --key 1", "--set and --streams are for rule files: p.yaml has these settings"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(arguments: str, message: str) -> None:
    result = cli(*arguments.split())
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, f"Error: {message}")
