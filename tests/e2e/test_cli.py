"""The command `cep`, as a user calls it."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

import cep.commands.cli
import cep.commands.match
import cep.local.match_file
from cep.errors import RuleError
from cep.output.terminal import match_tables
from cep.rulebook import compile_rulebook, load_rulebook

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
def folder(compiled_engine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("streams.yaml").write_text(STREAMS)
    Path("rule.cep").write_text(RULE)
    Path("events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in EVENTS) + "broken\n")
    return tmp_path


def cli(*arguments: str, input: str | None = None) -> Result:  # noqa: A002 - click's word
    return CliRunner().invoke(cep.commands.cli.main, arguments, input=input)


ROOT = Path(__file__).parents[2]


def matches(lines: str) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in lines.splitlines()]
    for row in rows:
        assert len(row.pop("match_id")) == 32
    return rows


FIRST = {
    "rule": "probe_then_cash",
    "card": "c1",
    "match_start": "2024-05-01T10:00:00.000000Z",
    "match_end": "2024-05-01T10:02:30.000000Z",
    "loss": 250.0,
    "apart": 150_000_000,
    "ok": True,
}
SECOND = {
    "rule": "probe_then_cash",
    "card": "c2",
    "match_start": "2024-05-01T10:03:00.000000Z",
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
    assert json.loads(Path("late.jsonl").read_text()) == {
        **late, "ts": "2024-05-01T10:02:51.000000Z", "_late_seconds": 0.5
    }  # fmt: skip


def test_match_corrects_what_late_events_change(folder: Path) -> None:
    late = {"card": "c1", "ts": "2024-05-01T10:02:51Z", "amount": 1.0}
    with Path("events.jsonl").open("a") as file:
        file.write(json.dumps(late) + "\n")
    result = cli(
        *("match", "rule.cep", "-i", "events.jsonl", "--as-stream", "--late", "late.jsonl"),
        *("--late", "correct within 1 hour"),
    )
    assert result.exit_code == 0
    assert [line.split()[:2] for line in result.stderr.splitlines()][2] == ["late", "0"]
    assert Path("late.jsonl").read_text() == ""
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert {row["kind"] for row in rows} <= {"match", "retract"}
    assert list(rows[0])[:7] == ["rule", "card", "match_id", "match_start", "match_end", "revision", "kind"]


@pytest.mark.parametrize(
    ("ways", "expected"),
    [
        (("correct within soon",), "error[E0647]: `correct within soon` says no time\n"),
        (("correct within 0 seconds",), "error[E0647]: `correct within 0 seconds` says no time\n"),
        (("a.jsonl", "b.jsonl"), "--late occurs twice: give one file, and one `correct within`, at most\n"),
    ],
)
def test_late_says_what_it_can_be(folder: Path, ways: tuple[str, ...], expected: str) -> None:
    given = [part for way in ways for part in ("--late", way)]
    result = cli("match", "rule.cep", "-i", "events.jsonl", *given)
    assert result.exit_code != 0
    assert expected in result.stderr


def test_times_have_one_form_in_json_and_csv(folder: Path) -> None:
    Path("rule.cep").write_text(RULE.replace("cash.ok             AS ok", "probe.ts AS began"))
    for name in ("m.jsonl", "m.csv"):
        result = cli("match", "rule.cep", "-i", "events.jsonl", "-o", name)
        assert result.exit_code == 0, result.stderr
    names = ("match_start", "match_end", "began")
    from_json = [json.loads(line) for line in Path("m.jsonl").read_text().splitlines()]
    from_csv = list(csv.DictReader(Path("m.csv").read_text().splitlines()))
    assert [[row[name] for name in names] for row in from_csv] == [
        [row[name] for name in names] for row in from_json
    ]
    assert from_csv[1]["match_end"] == "2024-05-01T10:03:01.500000Z"
    assert from_csv[1]["began"] == "2024-05-01T10:03:00.000000Z"


def test_late_events_have_the_same_form_of_times_in_json_and_csv(folder: Path) -> None:
    with Path("events.jsonl").open("a") as file:
        file.write('{"card": "c1", "ts": "2024-05-01T10:02:51Z", "amount": 1.0}\n')
    for name in ("late.jsonl", "late.csv"):
        assert cli("match", ".", "-i", "events.jsonl", "--as-stream", "--late", name).exit_code == 0
    [from_csv] = csv.DictReader(Path("late.csv").read_text().splitlines())
    assert from_csv["ts"] == "2024-05-01T10:02:51.000000Z"
    assert json.loads(Path("late.jsonl").read_text())["ts"] == from_csv["ts"]


def test_quiet_leaves_out_the_summary_and_nothing_else(folder: Path) -> None:
    result = cli("match", "rule.cep", "-i", "events.jsonl", "--quiet", "--dead-letter", "dead.jsonl")
    assert (result.exit_code, result.stderr) == (0, "")
    assert matches(result.stdout) == [FIRST, SECOND]
    assert cli("check", ".", "-q").output == ""
    Path("rule.cep").write_text(RULE.replace("WITHIN 10 MINUTES\n", ""))
    for command in (("check", "-q", "rule.cep"), ("match", "-q", "rule.cep", "-i", "events.jsonl")):
        assert "warning[W0501]" in cli(*command).output
    Path("rule.cep").write_text(RULE.replace("amount < 5", "amout < 5"))
    result = cli("check", "rule.cep", "-q")
    assert (result.exit_code, "error[E0203]" in result.stdout) == (1, True)
    assert "checked" not in result.stdout


def test_quiet_says_what_is_lost_and_nowhere_else(folder: Path) -> None:
    times = ("10:04:00", "10:04:01", "10:04:02", "10:00:00")
    more = "".join(f'{{"card": "c3", "ts": "2024-05-01T{time}Z", "amount": 1}}\n' for time in times)
    EVENTS_FILE.write_text(EVENTS_FILE.read_text() + more)
    Path("rule.cep").write_text(RULE.replace("WITHIN 10 MINUTES", "WITHIN 10 MINUTES\nMAX RUNS 1 PER KEY"))
    asked = ("match", "rule.cep", "-i", "events.jsonl", "--as-stream", "-q")
    dropped = "dropped runs 2 more runs were open for one key than a rule may have: probe_then_cash 2"
    late = [
        *(
            "late 1",
            "12 % of the events, up to 3 minutes 52 seconds behind the watermark",
            "of card = c3 (1)",
        ),
        "to keep them, raise `lateness` of stream `payments` (now 10 seconds), or leave out --as-stream",
    ]

    def said(*more: str) -> list[str]:
        result = cli(*asked, *more)
        assert result.exit_code == 0
        lines = [" ".join(line.split()) for line in result.stderr.splitlines()]
        return [line for line in lines if not line.startswith("the watermark follows")]

    assert said() == ["malformed 1 not a JSON object (1)", *late, dropped]
    assert said("--dead-letter", "dead.jsonl") == [*late, dropped]
    assert said("--dead-letter", "dead.jsonl", "--late", "late.jsonl") == [dropped]


def test_a_field_that_no_event_has_is_said_and_is_the_exit_code(folder: Path) -> None:
    EVENTS_FILE.write_text(EVENTS_FILE.read_text().replace("broken\n", "").replace("amount", "Amount"))
    text = (
        "absent fields            1  field `amount` is in none of 4 events; the data have `Amount`: "
        "upper and lower case count; declare field: Amount"
    )
    result = cli("match", "rule.cep", "-i", "events.jsonl", "-q")
    assert (result.exit_code, result.stderr) == (3, f"{text}\n")
    result = cli("match", "rule.cep", "-i", "events.jsonl")
    assert (result.exit_code, result.stderr.splitlines()[-2]) == (3, text)
    Path("rule.cep").write_text(
        RULE.replace("amount", "ok").replace("< 5", "").replace("> 100 * probe.ok", "")
    )
    result = cli("match", "rule.cep", "-i", "events.jsonl")
    assert (result.exit_code, result.stderr.splitlines()[-2]) == (0, f"{text}; no rule reads it")


EVENTS_FILE = Path("events.jsonl")


def test_a_reason_in_the_summary_ends_where_the_value_begins(folder: Path) -> None:
    Path("streams.yaml").write_text(STREAMS.replace("ts: timestamp", "ts: {type: timestamp, unit: seconds}"))
    EVENTS_FILE.write_text('{"card": "c1", "ts": "1714557600", "amount": 1}\n' * 2)
    result = cli("match", "rule.cep", "-i", "events.jsonl")
    line = next(line for line in result.stderr.splitlines() if line.startswith("malformed"))
    assert line == "malformed                2  field `ts` is not of type timestamp (unit: seconds) (2)"


def test_progress_that_is_asked_for_is_lines_on_standard_error(folder: Path) -> None:
    asked = ("match", "rule.cep", "-i", "events.jsonl", "--progress")
    assert cli(*asked).stderr.startswith("events read: 4, malformed: 1\nevents ")
    assert matches(cli(*asked).stdout) == [FIRST, SECOND]
    assert cli(*asked, "--quiet", "--dead-letter", "dead.jsonl").stderr == ""


def test_progress_on_a_terminal_is_one_line_that_disappears(folder: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "cep", "match", "rule.cep", "-i", "events.jsonl"]
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=theirs
    ) as process:
        assert process.stdout is not None
        stdout = process.stdout.read().decode()
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 0, shown
    assert matches(stdout) == [FIRST, SECOND]
    assert shown.startswith("\r\x1b[Kevents read: 4, malformed: 1\r\x1b[Kevents  ")


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (["mat"], ["match"]),
        (["explain", "--format", "d"], ["dot"]),
        (["check", "--js"], ["--json"]),
        (["rules", "copy", "fraud/r"], ["fraud/rapid_drain"]),
    ],
)
def test_a_shell_completes_what_is_typed(typed: list[str], found: list[str], tmp_path: Path) -> None:
    command = tmp_path / "cep"
    command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m cep "$@"\n')
    command.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    words = " ".join(typed)
    script = (
        'eval "$(cep completion bash)"; complete -p cep > /dev/null || exit 1; '
        f"COMP_WORDS=(cep {words}); COMP_CWORD={len(typed)}; _cep_completion cep; echo ${{COMPREPLY[@]}}"
    )
    bash = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert (bash.returncode, bash.stdout.split()) == (0, found), bash.stderr
    asked = {"COMP_WORDS": f"cep {words}", "COMP_CWORD": str(len(typed)), "_CEP_COMPLETE": "zsh_complete"}
    zsh = subprocess.run([command], env=environment | asked, capture_output=True, text=True, check=True)
    assert zsh.stdout.split("\n")[:2] == ["plain", found[0]]
    asked = {"COMP_WORDS": f"cep {words}", "COMP_CWORD": typed[-1], "_CEP_COMPLETE": "fish_complete"}
    fish = subprocess.run([command], env=environment | asked, capture_output=True, text=True, check=True)
    assert re.match(rf"plain[,\n]{re.escape(found[0])}\b", fish.stdout)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_each_shell_asks_the_command(shell: str) -> None:
    result = cli("completion", shell)
    assert (result.exit_code, f"_CEP_COMPLETE={shell}_complete" in result.stdout) == (0, True)


WITHOUT_PYSPARK = "import sys; sys.modules['pyspark'] = None; from cep.__main__ import start; start()"


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        ("nowhere.yaml", "error[E0840]: the pipeline file `nowhere.yaml` cannot be read: "),
        ("wrong.yaml", "error[E0404]: the pipeline has no `source`\n"),
        ("right.yaml", "error[E0801]: PySpark is not installed\n"),
    ],
)
def test_what_is_wrong_with_a_pipeline_file_is_said_before_a_missing_pyspark(
    folder: Path, pipeline: str, message: str
) -> None:
    Path("wrong.yaml").write_text("rules: [rule.cep]\n")
    Path("right.yaml").write_text(
        "rules: [rule.cep]\nsource: {stream: payments, format: json, path: events.jsonl}\n"
        "sinks: [{format: console}]\nmode: batch\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PYSPARK, "run", pipeline],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr[: len(message)]) == (1, message), done.stderr


def test_match_on_a_terminal_prints_tables(folder: Path) -> None:
    compiled = cep.commands.match.compile_files([Path("rule.cep")], None)
    found = cep.match_file(compiled.rule_set, "events.jsonl")
    runner = CliRunner()
    with runner.isolation() as (out, _, _):
        cep.commands.match._print_tables(compiled.rule_set, found.matches, 1)
        lines = [line.rstrip() for line in out.getvalue().decode().splitlines() if line.strip()]
    assert lines == [
        "probe_then_cash: A tiny charge, then a large one",
        " start               lasted card loss  apart ok",
        " ────────────────────────────────────────────────",
        " 2024-05-01 10:00:00 2m 30s c1    250 2m 30s true",
        "... and 1 more; see --limit and --output",
    ]


def test_a_heading_is_broken_between_words_and_no_wider_than_it_need_be(folder: Path) -> None:
    Path("rule.cep").write_text(RULE.replace("AS loss", "AS loss_of_the_merchant"))
    compiled = cep.commands.match.compile_files([Path("rule.cep")], None)
    found = cep.match_file(compiled.rule_set, "events.jsonl")
    [table] = match_tables(compiled.rule_set, found.matches.slice(0, 1))
    console = Console(width=80, file=io.StringIO())
    with console.capture() as shown:
        console.print(table)
    lines = [line.rstrip() for line in shown.get().splitlines() if line.strip()]
    assert lines[-5:] == [
        "                                 loss_of_",
        "                                     the_",
        " start               lasted card merchant  apart ok",
        " ────────────────────────────────────────────────────",
        " 2024-05-01 10:00:00 2m 30s c1        250 2m 30s true",
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
            "error[E0602]: the format of standard input cannot be told\n"
            "help: give json or csv as --input-format, which `cep match` calls --format\n",
        ),
        (
            ("match", ".", "-i", "-", "--format", "parquet"),
            "error[E0606]: Parquet cannot be read from standard input\nhelp: give the file's name\n",
        ),
        (
            ("match", ".", "-i", "events.jsonl", "-o", "rule.cep/x.csv"),
            "error[E0618]: `rule.cep/x.csv` cannot be written: a file is where a folder is needed\n"
            "help: move the file away, or name another place\n",
        ),
    ],
)
def test_what_is_wrong_with_the_users_files_is_said_without_a_traceback(
    folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = cli(*arguments)
    assert result.exit_code == 1
    assert result.stderr == message
    assert result.stdout == ""


def test_an_error_of_rules_in_python_has_the_text_that_check_prints(folder: Path) -> None:
    Path("rule.cep").write_text(RULE.replace("amount > 100 *", "ok = 'x' AND amuont >"))
    with pytest.raises(RuleError) as raised:
        compile_rulebook(load_rulebook(["rule.cep"]))
    text = str(raised.value)
    assert text.count("  --> rule.cep:") == 2
    assert cli("check", "rule.cep").stdout == f"{text}\n\nchecked 1 file, 0 rules: 2 errors\n"
    assert cli("match", "rule.cep", "-i", "events.jsonl").stderr == f"{text}\n"


def test_wrong_usage_is_exit_code_2(folder: Path) -> None:
    assert cli("match", "rule.cep").exit_code == 2
    assert cli("march").exit_code == 2


def test_a_fault_of_ours_is_one_line_and_with_debug_a_traceback(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("no luck\nat all")

    monkeypatch.setattr(cep.local.match_file, "read_inputs", fail)
    result = cli("match", ".", "-i", "events.jsonl")
    assert result.exit_code == 70
    assert result.stderr.splitlines()[0] == "internal error: ZeroDivisionError: no luck"
    assert isinstance(cli("--debug", "match", ".", "-i", "events.jsonl").exception, ZeroDivisionError)


def test_an_interrupt_is_exit_code_130(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cep.local.match_file, "read_inputs", interrupt)
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


def loaded_by(*command: str) -> tuple[int, set[str]]:
    """Return the exit code of a command in a process of its own, and the modules that it loaded."""
    code = (
        "import sys, json; from cep.__main__ import start\n"
        f"sys.argv[1:] = {list(command)!r}\n"
        "try: start()\n"
        "except SystemExit as end: status = end.code or 0\n"
        "print('\\n' + json.dumps([status, *sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    status, *names = json.loads(done.stdout.splitlines()[-1])
    return status, set(names)


WITHOUT_ENGINE = (
    "check .", "completion bash", "diff . .", "explain .", "explain . --stage all",
    "explain . --format mermaid", "fmt .", "init new", "plot .", "rules list",
    "rules copy card_testing --to mine", "man", "--help", "--version",
)  # fmt: skip


@pytest.mark.parametrize("command", WITHOUT_ENGINE)
def test_a_verb_that_matches_no_events_loads_no_engine_no_arrow_and_no_spark(
    folder: Path, command: str
) -> None:
    status, names = loaded_by(*command.split())
    assert status == 0
    assert names & {"numba", "pyarrow", "pandas", "pyspark", "cep.engine", "spark_runtime"} == set()


@pytest.mark.parametrize("command", ["fmt .", "rules list", "init new", "completion bash"])
def test_a_verb_that_compiles_no_rules_loads_no_compiler(folder: Path, command: str) -> None:
    status, names = loaded_by(*command.split())
    assert (status, names & {"numpy", "yaml", "cep.compiler", "unittest"}) == (0, set())


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


NOT_NEEDED = (
    "numba", "pandas", "pyspark", "py4j", "networkx", "rich", "dateutil", "numpy.testing", "pyarrow.parquet",
    "pyarrow.dataset", "pyarrow.fs", "spark_runtime", "cep.explain", "cep.formats.parquet_rows",
    "cep.formats.payloads", "cep.engine.windows", "cep.engine.window_rules", "cep.spool.receivers",
    "cep.jit.numba_compiler", "cep.language.other_languages", "llvmlite.ir", "numpy._typing", "numpy.ma.core",
)  # fmt: skip
CASE = """cases:
  a probe without cash:
    events: [{at: 0 seconds, card: c, amount: 1}]
    expect: none
"""
OF_WHY = {"cep.explain", "cep.explain.shown"}
OF_NUMBA_IN_C = {"numba._dynfunc", "numba._helperlib"}


def test_a_match_over_ten_events_loads_and_starts_nothing_that_it_does_not_need(folder: Path) -> None:
    Path("ten.jsonl").write_text("".join(json.dumps(EVENTS[n % 4]) + "\n" for n in range(10)))
    code = (
        "import sys; from cep.__main__ import start\n"
        "sys.argv[1:] = ['match', '.', '-i', 'ten.jsonl', '-o', 'out.jsonl']\n"
        "try: start()\n"
        "except SystemExit as end: assert not end.code\n"
        "import gc, json, os, pyarrow.compute\n"
        "assert not {'cumulative_sum', 'tan'} & {*vars(pyarrow.compute)}\n"
        "print(json.dumps([*sys.modules])); print(gc.get_threshold()[0], os.environ['OPENBLAS_NUM_THREADS'])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert (done.returncode, done.stderr.split()[:2]) == (0, ["events", "10"]), done.stderr
    loaded, process = done.stdout.splitlines()
    assert not_needed(json.loads(loaded)) == []
    assert process == "500000 1"


def not_needed(loaded: Iterable[str]) -> list[str]:
    """Return which of the modules that were loaded no small run needs."""
    names = [name for name in loaded if name not in OF_NUMBA_IN_C]
    prefixes = {".".join(name.split(".")[:n]) for name in names for n in (1, 2, 3)}
    return sorted(prefixes & set(NOT_NEEDED))


@pytest.mark.parametrize(
    "command", ["why . --key c1 -i events.jsonl", "why . --summary -i events.jsonl", "test ."]
)
def test_why_and_tests_of_rules_load_no_more_than_a_match(folder: Path, command: str) -> None:
    Path("rule.test.yaml").write_text(CASE)
    status, names = loaded_by(*command.split())
    assert (status, not_needed(name for name in names if name not in OF_WHY)) == (0, [])
    assert {"cep.engine.matching.matcher", "cep.jit.loading"} < names


@pytest.mark.parametrize("command", ["backtest", "tune --alerts-per-day 1", "scorecard"])
def test_a_backtest_starts_small_unless_it_runs_on_spark(command: str) -> None:
    code = (
        "import sys; from unittest.mock import patch; from cep.__main__ import start\n"
        f"sys.argv[1:] = [*{command.split()!r}, *sys.argv[1:]]\n"
        "with patch('cep.commands.cli.main'), patch('cep.commands.small_start.start_small') as small:\n"
        "    start()\n"
        "print(small.called)"
    )
    for more, is_small in (["."], True), ([".", "--spark"], False):
        done = subprocess.run([sys.executable, "-c", code, *more], capture_output=True, text=True, check=True)
        assert done.stdout == f"{is_small}\n"


def test_a_pipeline_file_is_examined_without_loading_pyspark(folder: Path) -> None:
    Path("pipeline.yaml").write_text(
        "rules: [rule.cep]\nsource: {stream: payments, format: json, path: events}\n"
        "sinks: [{format: json, path: out}]\nmode: batch\n"
    )
    Path("events").mkdir()
    _, names = loaded_by("doctor", "pipeline.yaml")
    assert "spark_runtime.connectors.files.sink" in names
    assert not {"pyspark", "pandas", "numba", "cep.engine.matching.matcher"} & names


def test_help_loads_no_heavy_package() -> None:
    code = (
        "import sys; from click.testing import CliRunner; import cep.commands.cli\n"
        "assert 'Run RULES' in CliRunner().invoke(cep.commands.cli.main, ['--help']).output\n"
        "heavy = {'numpy', 'pyarrow', 'numba', 'networkx', 'pyparsing', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_rule_file_given_as_events_is_named(folder: Path) -> None:
    swapped = cli("match", "events.jsonl", "--input", "rule.cep")
    assert swapped.exit_code == 2
    assert "write cep match rule.cep --input events.jsonl" in swapped.stderr
    twice = cli("match", "rule.cep", "--input", "payments=rule.cep")
    assert twice.stderr.endswith("Error: `payments=rule.cep` is a rule file, --input takes events\n")
    checked = cli("check", "events.jsonl")
    assert checked.exit_code == 1
    assert "error[E0611]: `events.jsonl` is a file of events, not of rules" in checked.stdout


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "payment=events.jsonl",
            "error[E0610]: no rule reads a stream `payment`\n"
            "help: did you mean payments=events.jsonl? streams of these rules: payments",
        ),
        (
            "other=events.jsonl",
            "error[E0610]: no rule reads a stream `other`\nhelp: streams of these rules: payments",
        ),
        ("payment=-", "error[E0610]: no rule reads a stream `payment`"),
        ("day=1.jsonl", "error[E0601]: there is no file or directory `day=1.jsonl`"),
    ],
)
def test_an_input_for_a_stream_that_no_rule_reads_is_named(folder: Path, given: str, message: str) -> None:
    result = cli("match", "rule.cep", "--input", given)
    assert result.exit_code == 1
    assert message in result.stderr


def test_a_file_whose_name_looks_like_an_input_of_a_stream_is_read(folder: Path) -> None:
    Path("day=1.jsonl").write_text(Path("events.jsonl").read_text())
    assert matches(cli("match", "rule.cep", "--input", "day=1.jsonl").stdout) == [FIRST, SECOND]


def test_a_rule_or_a_streams_file_is_not_run_as_a_pipeline(folder: Path) -> None:
    for file, what in (("rule.cep", "a rule file"), ("streams.yaml", "a streams file")):
        result = cli("run", file)
        assert result.exit_code == 1
        assert result.stderr.count("error") == 1
        assert f"error[E0831]: `{file}` is {what}, not a pipeline" in result.stderr
    Path("list.yaml").write_text("- a\n")
    assert cli("run", "list.yaml").stderr.count("error[E0402]") == 1
