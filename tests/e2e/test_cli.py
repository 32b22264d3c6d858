"""The command `cep`, as a user calls it."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import cep.cli
import cep.local

STREAMS = """\
streams:
  payments:
    event_time: ts
    lateness: 10 seconds
    schema: {card: string, ts: timestamp, amount: double, ok: boolean}
"""
RULE = """\
RULE probe_then_cash
  TITLE 'A tiny charge, then a large one'
FROM payments
PARTITION BY card
PATTERN probe -> cash
WITHIN 10 MINUTES
DEFINE
  probe AS amount < 5,
  cash  AS amount > 100 * probe.amount
MEASURES
  cash.amount         AS loss,
  cash.ts - probe.ts  AS apart,
  cash.ok             AS ok
"""
EVENTS = [
    {"card": "c1", "ts": "2024-05-01T10:00:00Z", "amount": 1.0, "ok": True},
    {"card": "c1", "ts": "2024-05-01T10:02:30Z", "amount": 250.0, "ok": True},
    {"card": "c2", "ts": "2024-05-01T10:03:00Z", "amount": 2.0, "ok": True},
    {"card": "c2", "ts": "2024-05-01T10:03:01.5Z", "amount": 900.0},
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("streams.yaml").write_text(STREAMS)
    Path("rule.cep").write_text(RULE)
    Path("events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in EVENTS) + "broken\n")
    return tmp_path


def cli(*arguments: str, input: str | None = None) -> Result:  # noqa: A002 - click's word
    return CliRunner().invoke(cep.cli.main, arguments, input=input)


ROOT = Path(__file__).parents[2]


def matches(lines: str) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in lines.splitlines()]
    for row in rows:
        assert len(row.pop("match_id")) == 32
    return rows


FIRST = {
    "rule": "probe_then_cash",
    "card": "c1",
    "match_start": "2024-05-01T10:00:00Z",
    "match_end": "2024-05-01T10:02:30Z",
    "loss": 250.0,
    "apart": 150_000_000,
    "ok": True,
}
SECOND = {
    "rule": "probe_then_cash",
    "card": "c2",
    "match_start": "2024-05-01T10:03:00Z",
    "match_end": "2024-05-01T10:03:01.500000Z",
    "loss": 900.0,
    "apart": 1_500_000,
    "ok": None,
}


def test_check_says_that_all_is_well(folder: Path) -> None:
    result = cli("check", ".")
    assert (result.exit_code, result.stdout) == (0, "checked 1 file, 1 rule: no problems\n")


def test_check_shows_every_problem_with_its_place(folder: Path) -> None:
    Path("bad.cep").write_text(RULE.replace("probe_then_cash", "other").replace("amount < 5", "amout < 5"))
    result = cli("check", ".")
    assert result.exit_code == 1
    assert "error[E0203]: stream `payments` has no column `amout`" in result.stdout
    assert " --> bad.cep:8:12" in result.stdout
    assert result.stdout.endswith("checked 2 files, 1 rule: 1 error\n")
    assert result.stderr == ""


def test_check_as_json_is_a_list_of_problems(folder: Path) -> None:
    Path("rule.cep").write_text(RULE.replace("amount < 5", "amout < 5"))
    result = cli("check", "--json", "rule.cep")
    assert result.exit_code == 1
    [problem] = json.loads(result.stdout)
    assert (problem["code"], problem["file"], problem["line"], problem["column"]) == (
        "E0203",
        "rule.cep",
        8,
        12,
    )


def test_a_warning_is_no_failure(folder: Path) -> None:
    Path("rule.cep").write_text(RULE.replace("WITHIN 10 MINUTES\n", ""))
    result = cli("check", "rule.cep")
    assert result.exit_code == 0
    assert "warning[W0501]" in result.stdout
    assert result.stdout.endswith("checked 1 file, 1 rule: 1 warning\n")


def test_match_prints_json_lines_and_a_summary(folder: Path) -> None:
    result = cli("match", "rule.cep", "--input", "events.jsonl")
    assert result.exit_code == 0
    assert matches(result.stdout) == [FIRST, SECOND]
    summary = [line.split(None, 1) for line in result.stderr.splitlines()]
    assert summary[:5] == [
        ["events", "4"],
        ["malformed", "1  not a JSON object (1)"],
        ["late", "0"],
        ["duplicates", "0"],
        ["matches", "2  probe_then_cash 2"],
    ]
    assert summary[5][0] == "seconds"


def test_match_reads_standard_input(folder: Path) -> None:
    text = Path("events.jsonl").read_text()
    result = cli("match", ".", "-i", "-", "--format", "json", "--limit", "1", input=text)
    assert result.exit_code == 0
    assert matches(result.stdout) == [FIRST]


def test_match_writes_the_format_of_the_file_name(folder: Path) -> None:
    for name in ("out/m.jsonl", "out/m.csv", "out/m.parquet"):
        result = cli("match", ".", "-i", "events.jsonl", "-o", name)
        assert (result.exit_code, result.stdout) == (0, "")
    assert matches(Path("out/m.jsonl").read_text()) == [FIRST, SECOND]
    assert [row["loss"] for row in csv.DictReader(Path("out/m.csv").read_text().splitlines())] == [
        "250",
        "900",
    ]
    assert pq.read_table("out/m.parquet").column("loss").to_pylist() == [250.0, 900.0]


def test_match_writes_dead_letters_and_late_events(folder: Path) -> None:
    late = {"card": "c1", "ts": "2024-05-01T10:02:51Z", "amount": 1.0}
    with Path("events.jsonl").open("a") as file:
        file.write(json.dumps(late) + "\n")
    result = cli(
        "match",
        ".",
        "-i",
        "events.jsonl",
        "--as-stream",
        "--dead-letter",
        "bad.jsonl",
        "--late",
        "late.jsonl",
    )
    assert result.exit_code == 0
    assert [line.split()[:2] for line in result.stderr.splitlines()][2] == ["late", "1"]
    assert json.loads(Path("bad.jsonl").read_text()) == {
        "reason": "not a JSON object", "source": "events.jsonl", "position": 5, "raw": "broken"
    }  # fmt: skip
    assert json.loads(Path("late.jsonl").read_text()) == {**late, "ok": None}


def test_match_on_a_terminal_prints_tables(folder: Path) -> None:
    compiled = cep.cli._compiled([Path("rule.cep")], None)
    found = cep.local.match_file(compiled.programs, "events.jsonl")
    runner = CliRunner()
    with runner.isolation() as (out, _, _):
        cep.cli._print_tables(compiled.programs, found.matches, 1)
        lines = [line.rstrip() for line in out.getvalue().decode().splitlines() if line.strip()]
    assert lines == [
        "probe_then_cash: A tiny charge, then a large one",
        " start               lasted card loss  apart ok",
        " ────────────────────────────────────────────────",
        " 2024-05-01 10:00:00 2m 30s c1    250 2m 30s true",
        "... and 1 more; see --limit and --output",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("match", ".", "-i", "nowhere.json"),
            "error[E0601]: there is no file or directory `nowhere.json`\n",
        ),
        (
            ("match", "nowhere", "-i", "events.jsonl"),
            "error[E0611]: there is no file or directory `nowhere`\n",
        ),
        (
            ("match", ".", "-i", "events.jsonl", "-o", "out.xlsx"),
            "error[E0608]: the format of `out.xlsx` cannot be told\n"
            "help: names of output files end in .jsonl, .json, .ndjson, .csv, .parquet\n",
        ),
        (
            ("match", ".", "-i", "events.jsonl", "--stream", "refunds"),
            "error[E0610]: no rule reads a stream `refunds`\nhelp: streams of these rules: payments\n",
        ),
        (
            ("match", ".", "-i", "-"),
            "error[E0602]: the format of standard input cannot be told\nhelp: give --format json or csv\n",
        ),
        (
            ("match", ".", "-i", "-", "--format", "parquet"),
            "error[E0606]: Parquet cannot be read from standard input\nhelp: give the file's name\n",
        ),
        (
            ("match", ".", "-i", "events.jsonl", "-o", "rule.cep/x.csv"),
            "error[E0609]: `rule.cep/x.csv` cannot be written: File exists\n",
        ),
    ],
)
def test_what_is_wrong_with_the_users_files_is_said_without_a_traceback(
    folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = cli(*arguments)
    assert result.exit_code == 1
    assert result.stderr.rstrip("\n") == message.rstrip("\n")
    assert result.stdout == ""


def test_wrong_usage_is_exit_code_2(folder: Path) -> None:
    assert cli("match", "rule.cep").exit_code == 2
    assert cli("march").exit_code == 2


def test_a_fault_of_ours_is_one_line_and_with_debug_a_traceback(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("no luck\nat all")

    monkeypatch.setattr(cep.local, "match_file", fail)
    result = cli("match", ".", "-i", "events.jsonl")
    assert result.exit_code == 70
    assert result.stderr.splitlines()[0] == "internal error: ZeroDivisionError: no luck"
    assert isinstance(cli("--debug", "match", ".", "-i", "events.jsonl").exception, ZeroDivisionError)


def test_an_interrupt_is_exit_code_130(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cep.local, "match_file", interrupt)
    result = cli("match", ".", "-i", "events.jsonl")
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


def test_explain_shows_what_a_rule_became(folder: Path) -> None:
    result = cli("explain", "rule.cep")
    assert result.exit_code == 0
    assert result.stdout.startswith("rule probe_then_cash\n  stream     payments, partitioned by card\n")


def test_explain_shows_each_stage_and_draws_the_automaton(folder: Path) -> None:
    for stage, kind in (("ast", "Rule"), ("ir", "Rule"), ("nfa", "Nfa"), ("program", "program of payments")):
        assert cli("explain", "rule.cep", "--stage", stage).stdout.startswith(
            f"rule probe_then_cash: {kind}\n"
        )
    assert cli("explain", "rule.cep", "--stage", "all").stdout.count("rule probe_then_cash: ") == 4
    assert cli("explain", "rule.cep", "--format", "dot").stdout.startswith("digraph rules {\n")
    assert cli("explain", "rule.cep", "--format", "mermaid").stdout.startswith("flowchart LR\n")
    result = cli("explain", "rule.cep", "--format", "dot", "--stage", "ir")
    assert (result.exit_code, "leave out --stage" in result.stderr) == (2, True)


def test_check_and_explain_load_no_engine(folder: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from click.testing import CliRunner; import cep.cli\n"
        "for command in (['check', '.'], ['explain', '.'], ['explain', '.', '--stage', 'all']):\n"
        "    result = CliRunner().invoke(cep.cli.main, command)\n"
        "    assert result.exit_code == 0, result.output\n"
        "heavy = {'numba', 'cep.engine', 'pandas', 'pyspark'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_installed_command_runs_in_a_process_of_its_own_without_pandas(folder: Path) -> None:
    code = (
        "import sys; from cep.__main__ import start; sys.argv[1:] = ['match', '.', '-i', 'events.jsonl']\n"
        "try: start()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'pandas', 'pyspark'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, len(matches(done.stdout))) == (0, 2), done.stderr


def test_help_loads_no_heavy_package() -> None:
    code = (
        "import sys; from click.testing import CliRunner; import cep.cli\n"
        "assert 'Run RULES' in CliRunner().invoke(cep.cli.main, ['--help']).output\n"
        "heavy = {'numpy', 'pyarrow', 'numba', 'networkx', 'pyparsing', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
