"""docs/reference/cli.md: every example does what the page shows."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import cep.commands.cli
import cep.commands.group
import cep.commands.rules
import cep.commands.spool.verbs
import cep.commands.state
from tests.unit.test_readme import folder as folder

PAGE = (Path(__file__).parents[3] / "docs/reference/cli.md").read_text()
MAIN = cep.commands.cli.main
CONTEXT = click.Context(MAIN)
VERBS = {
    name: command
    for name in MAIN.list_commands(CONTEXT)
    if (command := MAIN.get_command(CONTEXT, name)) is not None
}
EXAMPLES = re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def without_times(text: str) -> str:
    return re.sub(r"(?<=^seconds)  .*$", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_prints_what_the_page_shows(folder: Path, number: int) -> None:
    commands = re.findall(r"^\$ cep (.*)\n((?:(?!\$).*\n)*)", EXAMPLES[number], re.MULTILINE)
    assert len(commands) == EXAMPLES[number].count("$ cep ")
    for name, content in re.findall(r"^```json (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        (folder / name).write_text(content)
    for command, output in commands:
        result = CliRunner().invoke(cep.commands.cli.main, shlex.split(command), prog_name="cep")
        assert (result.exit_code, without_times(result.output)) == (0, without_times(output))


def test_every_command_has_a_section_and_an_example() -> None:
    for name in VERBS:
        assert f"\n## `cep {name}`\n" in PAGE
        assert re.search(rf"^(\$ )?cep {name}\b", PAGE, re.MULTILINE)


def test_the_table_of_exit_codes_is_that_of_the_code() -> None:
    table = PAGE.partition("## Exit codes")[2].partition("## Parameters")[0]
    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)]
    assert codes == list(cep.commands.group.MEANING_OF_EXIT)
    assert f"Exit codes: {codes[0]} done, {codes[1]} " in (MAIN.epilog or "")


def test_a_command_ends_with_a_named_exit_code_only() -> None:
    folder = Path(cep.commands.group.__file__).parent
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".exit"):
                assert not any(isinstance(arg, ast.Constant) for arg in node.args), f"{file}:{node.lineno}"


def test_the_manual_page_has_every_command_and_every_option() -> None:
    page = CliRunner().invoke(MAIN, ["man"], prog_name="cep").output
    for name, command in VERBS.items():
        shown = re.escape(name.replace("-", "\\-"))
        assert re.search(rf"^\.SS cep {shown}\b", page, re.MULTILINE), name
        for parameter in command.params:
            for option in parameter.opts if isinstance(parameter, click.Option) else ():
                assert option.replace("-", "\\-") in page, option
    assert all(f"\\fB{code}\\fR" in page for code in cep.commands.group.MEANING_OF_EXIT)


@pytest.mark.skipif(shutil.which("man") is None, reason="needs man")
def test_man_reads_the_manual_page_without_a_warning(tmp_path: Path) -> None:
    page = tmp_path / "cep.1"
    page.write_text(CliRunner().invoke(MAIN, ["man"], prog_name="cep").output)
    done = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-l", str(page)], capture_output=True, text=True, check=True
    )
    assert (done.stderr, "cep why" in done.stdout) == ("", True)


def test_every_option_that_the_page_names_is_there() -> None:
    options = {
        option
        for command in [
            cep.commands.cli.main,
            *VERBS.values(),
            *cep.commands.rules.rules.commands.values(),
            *cep.commands.spool.verbs.spool.commands.values(),
            *cep.commands.state.state.commands.values(),
        ]
        for parameter in command.params
        for option in [*parameter.opts, *parameter.secondary_opts]
    }
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) - options == {"--help"}


def test_every_exit_code_of_the_command_is_explained() -> None:
    codes = {str(value) for name, value in vars(cep.commands.group).items() if name.startswith("EXIT_")}
    assert set(re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)) == {"0", "2", *codes}
    assert set(re.findall(r"(?<=[:,] )\d+(?= )", MAIN.epilog or "")) == {"0", "2", *codes}


OF_A_PIPELINE = {
    "approve",
    "doctor",
    "gaps",
    "history",
    "lsp",
    "mcp",
    "restore-rules",
    "package",
    "replay",
    "restore",
    "run",
    "savepoint",
    "spool",
    "state",
    "warm",
}
"""Verbs whose example needs Spark, a checkpoint, a server or a minute: it is only parsed."""


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_the_help_of_a_command_ends_with_an_example_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(MAIN, [verb, "--help"], prog_name="cep").output.splitlines()
    example = shown[-1].partition("Example: ")[2]
    assert example == cep.commands.cli.EXAMPLES[verb]
    name, *arguments = shlex.split(example)
    assert (name, arguments[0]) == ("cep", verb)
    assert CliRunner().invoke(MAIN, ["init", "."]).exit_code == 0
    shutil.copytree("rules", "new_rules")
    shutil.copy("streams.yaml", "new_rules")
    if verb not in OF_A_PIPELINE:
        result = CliRunner().invoke(MAIN, arguments)
        assert result.exit_code == 0, result.output
        return
    command, rest = VERBS[verb], arguments[1:]
    while isinstance(command, click.Group):
        command, rest = command.commands[rest[0]], rest[1:]
    command.make_context(verb, rest)


def test_each_command_has_one_example() -> None:
    assert set(cep.commands.cli.EXAMPLES) == set(VERBS)


def test_no_page_gives_a_pipeline_file_to_a_command_of_rule_files() -> None:
    pages = {page: page.read_text() for page in (Path(__file__).parents[3] / "docs").rglob("*.md")}
    wrong = [
        page for page, text in pages.items() if re.search(r"cep (check|lint|fmt) \S*pipeline\S*\.yaml", text)
    ]
    assert not wrong
