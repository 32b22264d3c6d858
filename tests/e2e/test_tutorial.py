"""`docs/start/tutorial.md`: its files and commands, one after another in one folder, print what it shows."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from cep.commands.cli import main
from tests.java_classes import own_spark

PAGE = (Path(__file__).parents[2] / "docs" / "start" / "tutorial.md").read_text()

# A file has its name in the line before it; a console has commands, each with its output.
_BLOCK = re.compile(r"([^\n]*)\n\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)

_OTHER_EACH_TIME = re.compile(r"^(seconds|events/s) +[\d.,]+|( passed) in .*|^\.+ +\[100%\]\n", re.MULTILINE)

_OF_SPARK = "cep run"


def steps() -> list[tuple[str, str]]:
    """Return the files as (name, text) and the commands as ("$ ...", output), in the order of the page."""
    found = []
    for before, kind, text in _BLOCK.findall(PAGE):
        if kind == "console":
            found += [(f"$ {command}", output) for command, output in _COMMAND.findall(text)]
        else:
            found.append((re.findall(r"`([\w./-]+\.\w+)`", before)[-1], text))
    return found


def first_of_spark() -> int:
    return next(number for number, (name, _) in enumerate(steps()) if name == "$ mkdir in")


def follow(folder: Path, first: int, last: int | None) -> None:
    """Write the files and run the commands of some steps."""
    for name, text in steps()[first:last]:
        if not name.startswith("$ "):
            (folder / name).write_text(text)
            continue
        assert _settled(_output(folder, name[2:])) == _settled(text), name


def _output(folder: Path, command: str) -> str:
    """Return what a command prints. `cep run` has the session of this process: a Java takes ten seconds."""
    if command.startswith(_OF_SPARK):
        with contextlib.chdir(folder):
            return CliRunner().invoke(main, shlex.split(command)[1:]).output
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=own_spark(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ).stdout


def _settled(output: str) -> str:
    return _OTHER_EACH_TIME.sub(r"\1\2", output)


def test_the_steps_without_spark_print_what_the_page_shows(tmp_path: Path) -> None:
    commands = [name for name, _ in steps() if name.startswith("$ ")]
    assert len(commands) == 14
    follow(tmp_path, 0, first_of_spark())


@pytest.mark.spark
def test_the_stream_prints_what_the_page_shows(spark: SparkSession, tmp_path: Path) -> None:
    first = first_of_spark()
    for name, text in steps()[:first]:
        if not name.startswith("$ "):
            (tmp_path / name).write_text(text)
    follow(tmp_path, first, None)
