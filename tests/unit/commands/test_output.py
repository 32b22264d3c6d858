"""What the command does with outputs that cannot be written and with odd arguments and files."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from cep.commands.cli import main
from tests.unit.test_readme import folder as folder

_SETTLED = {**os.environ, "PYTHONWARNINGS": "ignore"}
KEY = "\u202e<b>\x07\x1b[31m\n"
SHOWN = r"\u202e<b>\x07\x1b[31m"


def cep(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def in_shell(command: str, before: str = "true") -> subprocess.CompletedProcess[str]:
    """Run a line of a shell in which `cep` is this command."""
    line = command.replace("cep ", f"{shlex.quote(sys.executable)} -m cep ", 1)
    line = f"{before} && {line}"
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=_SETTLED, check=False)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", ["explain card_testing.cep", "--version", "--help", "-h", "run -h"])
def test_a_full_disk_behind_standard_output_is_named(command: str, folder: Path) -> None:
    done = in_shell(f"cep {command} > /dev/full")
    assert done.returncode == 1
    assert done.stderr.startswith("error[E0616]: no space is left to write `standard output`: ")


@pytest.mark.parametrize("command", ["new abc", "doctor"])
def test_a_current_folder_that_was_removed_is_named(command: str, tmp_path: Path) -> None:
    done = in_shell(f"cep {command}", before=f"mkdir {tmp_path}/gone && cd {tmp_path}/gone && rmdir ../gone")
    assert (done.returncode, done.stderr) == (
        1,
        "error[E0601]: the current folder does not exist any more\nhelp: go to another folder: cd FOLDER\n",
    )


def test_a_path_that_the_locale_cannot_write_is_named(folder: Path) -> None:
    Path("pipeline.yaml").write_text(
        "rules: [card_testing.cep]\nsource: {stream: transactions, format: json, path: ä}\n"
        "sinks: [{format: console}]\nmode: batch\n",
        encoding="utf-8",
    )
    done = in_shell("cep why pipeline.yaml --key c1", before="export LC_ALL=C PYTHONUTF8=0")
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        1, "error[E0402]: a path has a character that the locale of this process cannot write",
    )  # fmt: skip
    assert "LC_ALL=C.UTF-8" in done.stderr


@pytest.mark.parametrize(
    "command", [["explain", "card_testing.cep"], ["--version"], ["--help"], ["run", "-h"]]
)
def test_if_nobody_reads_the_output_any_more_the_command_ends_silently_with_its_own_exit_code(
    command: list[str], folder: Path
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    line = [sys.executable, "-m", "cep", *command]
    done = subprocess.run(line, stdout=writer, stderr=subprocess.PIPE, env=_SETTLED, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
@pytest.mark.parametrize(
    "line",
    ["match card_testing.cep -i events.jsonl", "explain card_testing.cep", "state --help", "--version"],
)
def test_output_behind_a_closed_standard_output_is_lost_which_is_an_error(
    folder: Path, line: str, closed: str
) -> None:
    done = in_shell(f"cep {line} {closed}")
    assert done.returncode == 1
    said = "error[E0609]: `standard output` cannot be written: Bad file descriptor\n"
    assert done.stderr == (said if closed == ">&-" else "")


@pytest.mark.parametrize(
    "line",
    [
        "match card_testing.cep -i events.jsonl 2>&-",
        "match card_testing.cep -i events.jsonl -o m.jsonl -q >&-",
        "fmt card_testing.cep -q >&-",
    ],
)
def test_without_output_a_closed_standard_output_is_no_error_nor_is_a_closed_standard_error(
    folder: Path, line: str
) -> None:
    done = in_shell(f"cep {line}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("verb", ["match", "backtest"])
@pytest.mark.parametrize("given", ["events.jsonl", "."])
def test_an_output_that_is_an_input_is_refused_and_the_input_stays(
    folder: Path, verb: str, given: str
) -> None:
    before = (folder / "events.jsonl").read_bytes()
    done = cep(verb, "card_testing.cep", "-i", given, "-o", "./events.jsonl")
    assert done.exit_code == 2
    assert "`events.jsonl` is an input, and an output would replace it" in done.output
    assert (folder / "events.jsonl").read_bytes() == before


def test_two_outputs_with_one_name_are_refused(folder: Path) -> None:
    done = cep("match", "card_testing.cep", "-i", "events.jsonl", "-o", "a.csv", "--dead-letter", "a.csv")
    assert done.exit_code == 2
    assert "`a.csv` is named for two outputs" in done.output
    assert not (folder / "a.csv").exists()


@pytest.fixture
def everything(folder: Path) -> Path:
    """Return a folder with a file of each kind that a command reads."""
    Path("rules").mkdir()
    for name in ("rules/a.cep", "other.cep"):
        Path(name).write_text(Path("card_testing.cep").read_text())
    Path("streams.json").write_text(json.dumps(yaml.safe_load(Path("streams.yaml").read_text())))
    assert cep("profile", "events.jsonl").exit_code == 0
    Path("events.html").write_bytes(Path("events.jsonl").read_bytes())
    Path("events.hard.jsonl").hardlink_to("events.jsonl")
    Path("truth.jsonl").write_text(
        '{"rule": "card_testing", "card_id": "c1", "start": "2024-05-01T00:00:00Z", '
        '"end": "2024-05-02T00:00:00Z"}\n'
    )
    Path("pipeline.yaml").write_text(
        "rules: [rules]\nsources: [{stream: transactions, format: json, path: /data/in}]\n"
        "sinks: [{format: json, path: /data/out}]\nmode: batch\n"
    )
    for name in ("matches.jsonl", "matches.csv", "sink/part.parquet"):
        assert cep("match", "card_testing.cep", "-i", "events.jsonl", "-o", name).exit_code == 0
    return folder


_EVENTS = "-i events.jsonl"


@pytest.mark.parametrize(
    ("line", "file"),
    [
        (f"match card_testing.cep {_EVENTS} --streams streams.json -o streams.json", "streams.json"),
        (f"match card_testing.cep {_EVENTS} -o ./events.hard.jsonl", "events.jsonl"),
        (f"match card_testing.cep {_EVENTS} -o of_rule.jsonl", "card_testing.cep"),
        (f"match rules {_EVENTS} --dead-letter of_folder.jsonl", "rules/a.cep"),
        (f"match rules {_EVENTS} --late of_streams.jsonl", "streams.yaml"),
        (f"match rules {_EVENTS} --shadow-output of_streams.jsonl", "streams.yaml"),
        (f"backtest card_testing.cep {_EVENTS} --truth truth.jsonl -o truth.jsonl", "truth.jsonl"),
        (f"backtest rules --against other.cep {_EVENTS} -o of_other.jsonl", "other.cep"),
        ("backtest rules -i events.html --input-format json --report events.html", "events.html"),
        (f"backtest rules {_EVENTS} --report of_folder.html", "rules/a.cep"),
        ("plot card_testing.cep -o card_testing.cep", "card_testing.cep"),
        ("plot rules -o streams.yaml", "streams.yaml"),
        ("plot rules -o rules/../rules/a.cep", "rules/a.cep"),
        (f"plot card_testing.cep {_EVENTS} --key c1 -o events.jsonl", "events.jsonl"),
        (f"plot rules {_EVENTS} --key c1 -o transactions.profile.json", "transactions.profile.json"),
        ("plot matches.jsonl -o matches.jsonl", "matches.jsonl"),
        ("plot matches.csv -o matches.csv", "matches.csv"),
        ("plot sink -o sink/part.parquet", "sink/part.parquet"),
        ("profile transactions.profile.json", "transactions.profile.json"),
        ("profile events.jsonl --streams transactions.profile.json", "transactions.profile.json"),
        ("package pipeline.yaml --cpu host -o pipeline.yaml", "pipeline.yaml"),
        ("package pipeline.yaml --cpu host -o rules/a.cep", "rules/a.cep"),
        ("package pipeline.yaml --cpu host -o streams.yaml", "streams.yaml"),
    ],
)
def test_no_output_replaces_a_file_that_the_command_reads(everything: Path, line: str, file: str) -> None:
    for name in ("of_rule.jsonl", "of_folder.jsonl", "of_streams.jsonl", "of_other.jsonl", "of_folder.html"):
        Path(name).symlink_to(file)
    if "--streams transactions" in line:
        Path("transactions.profile.json").write_bytes(Path("streams.json").read_bytes())
    before = Path(file).read_bytes()
    done = cep(*line.split())
    assert done.exit_code == 2, done.output
    assert f"{Path(file).name}` is an input, and an output would replace it" in done.output
    assert Path(file).read_bytes() == before


def test_an_output_never_replaces_the_file_behind_standard_input(folder: Path) -> None:
    before = Path("events.jsonl").read_bytes()
    done = in_shell("cep match card_testing.cep -i - --format json -o events.jsonl < events.jsonl")
    assert done.returncode == 2
    assert "is an input, and an output would replace it" in done.stderr
    assert Path("events.jsonl").read_bytes() == before


@pytest.mark.parametrize("other", ["new/../o.jsonl", "{folder}/o.jsonl", "hard.jsonl", "link.jsonl"])
@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("option", ["--dead-letter", "--late", "--shadow-output"])
def test_two_outputs_to_one_file_are_refused_however_it_is_written(
    folder: Path, other: str, is_new: bool, option: str
) -> None:
    Path("link.jsonl").symlink_to("o.jsonl")
    if not is_new or other == "hard.jsonl":
        Path("o.jsonl").write_text("")
        Path("hard.jsonl").hardlink_to("o.jsonl")
    other = other.format(folder=folder)
    done = cep("match", "card_testing.cep", "-i", "events.jsonl", "-o", "o.jsonl", option, other)
    assert done.exit_code == 2, done.output
    assert f"`{other}`, which is the file `o.jsonl`, is named for two outputs" in done.output


@pytest.mark.parametrize(
    ("outputs", "says"),
    [
        ("--late late.jsonl -o late.a.jsonl", "is named for two outputs"),
        ("--late events.jsonl", "`events.a.jsonl` is an input"),
    ],
)
def test_the_file_of_late_events_of_each_stream_is_an_output(folder: Path, outputs: str, says: str) -> None:
    schema = "{event_time: ts, schema: {id: string, ts: timestamp}}"
    Path("streams.yaml").write_text(f"streams:\n  a: {schema}\n  b: {schema}\n")
    Path("both.cep").write_text(
        "RULE both FROM a, b PARTITION BY id PATTERN x -> y WITHIN 1 HOUR "
        "DEFINE x ON a AS id IS NOT NULL, y ON b AS id IS NOT NULL"
    )
    for name in ("events.a.jsonl", "events.b.jsonl"):
        Path(name).write_text('{"id": "1", "ts": "2024-05-01T10:00:00Z"}\n')
    done = cep(*f"match both.cep -i a=events.a.jsonl -i b=events.b.jsonl {outputs}".split())
    assert done.exit_code == 2, done.output
    assert says in done.output


@pytest.fixture
def odd_key(folder: Path) -> Path:
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    text = "".join(json.dumps({**line, "card_id": KEY}) + "\n" for line in lines if line["card_id"] == "c1")
    (folder / "events.jsonl").write_text(text)
    return folder


@pytest.mark.parametrize(
    "line",
    [
        ["why", "card_testing.cep", "-i", "events.jsonl", "--key", KEY],
        ["why", "card_testing.cep", "-i", "events.jsonl", "--key", "c1"],
        ["profile", "events.jsonl"],
        ["diff", "card_testing.cep", "other.cep", "-i", "events.jsonl"],
    ],
)
def test_characters_that_steer_a_terminal_are_shown_not_sent(odd_key: Path, line: list[str]) -> None:
    text = (odd_key / "card_testing.cep").read_text()
    (odd_key / "other.cep").write_text(text.replace("10 MINUTES", "1 MINUTE"))
    done = cep(*line)
    assert SHOWN in done.output, done.output
    assert all(sign not in done.output for sign in "\u202e\x07\x1b")


STEERING = "\u202e\x07\x1b\x00\x85"


@pytest.fixture
def odd_rule(odd_key: Path) -> Path:
    """A rule, `card_testing.cep`, and a former one, `other.cep`, whose name would steer a terminal."""
    rule = (odd_key / "card_testing.cep").read_text().replace("card_testing", f"`{KEY.strip()}`", 1)
    (odd_key / "card_testing.cep").write_text(rule)
    (odd_key / "other.cep").write_text(rule.replace("10 MINUTES", "1 MINUTE"))
    return odd_key


@pytest.mark.parametrize(
    "line",
    [
        "match card_testing.cep -i events.jsonl -o m.jsonl",
        "backtest card_testing.cep -i events.jsonl",
        "backtest card_testing.cep -i events.jsonl --against other.cep",
        "scorecard card_testing.cep -i events.jsonl",
        "explain card_testing.cep",
        "explain card_testing.cep --stage nfa",
        "why card_testing.cep -i events.jsonl --summary",
        "diff other.cep card_testing.cep",
        "plot card_testing.cep --format dot",
        "check card_testing.cep",
        "lint card_testing.cep",
        "tune card_testing.cep -i events.jsonl --only nope --max-per-day 5",
        "why both.cep -i events.jsonl --key x",
    ],
)
def test_the_name_of_a_rule_does_not_steer_a_terminal(odd_rule: Path, line: str) -> None:
    rule = (odd_rule / "card_testing.cep").read_text()
    (odd_rule / "both.cep").write_text(rule + rule.replace("<b>", "<c>"))
    done = cep(*line.split())
    assert "internal error" not in done.output
    assert SHOWN in done.output or line.startswith(("check", "lint", "tune"))
    assert all(sign not in done.output for sign in STEERING)


def test_the_table_of_a_rule_does_not_steer_a_terminal(odd_rule: Path) -> None:
    from io import StringIO

    from rich.console import Console

    from cep.local.match_file import match_file
    from cep.output.terminal import match_tables
    from cep.rulebook import load_rules

    rules = load_rules(["card_testing.cep"])
    screen = Console(file=StringIO(), width=200)
    for table in match_tables(rules, match_file(rules, "events.jsonl").matches):
        screen.print(table)
    assert isinstance(screen.file, StringIO)
    shown = screen.file.getvalue()
    assert shown.count(SHOWN) == 2
    assert all(sign not in shown for sign in STEERING)


def test_the_name_of_a_case_does_not_steer_a_terminal(odd_rule: Path) -> None:
    case = {"events": [{"tx_id": "t", "card_id": "c", "at": "0 s"}], "expect": []}
    tests = {"rules": "card_testing.cep", "cases": {KEY: case}}
    (odd_rule / "card_testing.test.yaml").write_text(json.dumps(tests))
    done = cep("test", "card_testing.cep")
    assert SHOWN in done.output, done.output
    assert all(sign not in done.output for sign in STEERING)


def test_the_page_of_a_backtest_has_no_characters_that_html_lacks(odd_rule: Path) -> None:
    done = cep("backtest", "card_testing.cep", "-i", "events.jsonl", "--report", "page.html")
    assert done.exit_code == 0, done.output
    page = Path("page.html").read_text()
    assert "\ufffd[31m" in page
    assert all(sign not in page for sign in "\x00\x07\x1b")


def test_a_name_with_line_feeds_stays_in_its_line_of_a_table(odd_key: Path) -> None:
    from cep.backtest.figures import table_text

    assert table_text(["rule", "n"], [["a\nb\u2028", "1"]]).split("\n")[1:] == [r"a\nb\u2028  1"]


def test_a_picture_of_a_key_with_control_characters_is_xml(odd_key: Path) -> None:
    from xml.etree import ElementTree

    done = cep("plot", "card_testing.cep", "-i", "events.jsonl", "--key", KEY, "-o", "new/folder/a.svg")
    assert done.exit_code == 0, done.output
    assert "\ufffd[31m" in "".join(ElementTree.parse("new/folder/a.svg").getroot().itertext())


def test_an_error_names_only_the_beginning_of_a_long_key(folder: Path) -> None:
    text = (folder / "events.jsonl").read_text()
    (folder / "events.jsonl").write_text(text.replace('"c1"', f'"{"x" * 5000}"'))
    done = cep("why", "card_testing.cep", "-i", "events.jsonl", "--key", "y")
    assert f"{'x' * 60}...; " in done.output or f"{'x' * 60}...\n" in done.output
    assert len(done.output) < 400


@pytest.mark.parametrize(
    ("line", "where"),
    [
        (["match", "card_testing.cep", "-i", ""], " after `-i`"),
        (["match", "", "-i", "events.jsonl"], " after `match`"),
        (["new", ""], " after `new`"),
    ],
)
def test_an_empty_argument_is_not_the_current_folder(folder: Path, line: list[str], where: str) -> None:
    done = cep(*line)
    assert done.exit_code == 2
    assert f"an argument{where} is empty: is a variable of the shell not set?" in done.output


def test_the_key_may_be_an_empty_text(folder: Path) -> None:
    text = (folder / "events.jsonl").read_text()
    (folder / "events.jsonl").write_text(text.replace('"c1"', '""'))
    done = cep("why", "card_testing.cep", "-i", "events.jsonl", "--key", "")
    assert (done.exit_code, "1 match" in done.output) == (0, True)


@pytest.mark.parametrize("verb", [["history"], ["state", "ls"]])
def test_a_file_in_place_of_a_checkpoint_is_told(folder: Path, verb: list[str]) -> None:
    done = cep(*verb, "events.jsonl")
    assert done.exit_code == 1
    assert "error[E0705]: `events.jsonl` is not the checkpoint of a pipeline" in done.output


def test_an_empty_test_file_is_told_what_to_begin_with(folder: Path) -> None:
    (folder / "card_testing.test.yaml").touch()
    assert "error[E0402]: the file is empty\n" in cep("test", ".").output
    assert "help: write: cases:\n" in cep("test", ".").output


def test_an_error_in_an_event_of_a_test_is_told_once(folder: Path) -> None:
    text = "cases:\n  a:\n    events: [{at: 0 seconds, NULL: 1}]\n    expect: none\n"
    (folder / "card_testing.test.yaml").write_text(text)
    assert cep("test", ".").output.count("error[E0402]: a name must be a text") == 1


def test_a_pipe_is_an_input_that_is_not_empty(folder: Path) -> None:
    done = in_shell("cep match card_testing.cep -i <(cat events.jsonl) --format json -q")
    assert (done.returncode, done.stdout.count("match_id")) == (0, 1), done.stderr
    done = in_shell("cep diff card_testing.cep card_testing.cep -i <(cat events.jsonl)")
    assert (done.returncode, "--input is read twice here: give a file" in done.stderr) == (2, True)


def test_a_link_to_a_rule_file_that_is_gone_is_not_passed_over(folder: Path) -> None:
    (folder / ".#other.cep").symlink_to("ann@host.17")  # as Emacs locks a file
    assert cep("check", ".").exit_code == 0
    (folder / "other.cep").symlink_to("gone.cep")
    assert "`other.cep` cannot be read: No such file or directory\n" in cep("check", ".").output


def test_a_profile_beside_the_events_is_not_read_as_events(folder: Path) -> None:
    for _ in range(2):
        assert cep("profile", ".").exit_code == 0
    assert (folder / "transactions.profile.json").exists()
    assert cep("match", ".", "-i", ".").output.count("match_id") == 1
    (folder / "users.profile.json").write_bytes((folder / "events.jsonl").read_bytes())
    assert "events                  10\n" in cep("match", ".", "-i", ".").output


def test_standard_input_is_of_one_stream_only(folder: Path) -> None:
    (folder / "streams.yaml").write_text(
        "streams:\n"
        "  a: {event_time: ts, schema: {ts: timestamp, k: string}}\n"
        "  b: {event_time: ts, schema: {ts: timestamp, k: string}}\n"
    )
    rule = "RULE r FROM a, b PARTITION BY k PATTERN x -> y DEFINE x ON a AS k > '', y ON b AS k > ''"
    (folder / "r.cep").write_text(rule)
    done = cep("match", "r.cep", "-i", "a=-", "-i", "b=-", "--format", "json")
    assert done.exit_code == 2
    assert "standard input has the events of one stream: give the other ones files" in done.output
