"""docs/connectors/spool.md: every option of `cep spool` is explained, and every option of the page exists."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import cep.commands.cli
from cep.commands.spool.verbs import spool

PAGE = (Path(__file__).parents[3] / "docs/connectors/spool.md").read_text()
EVERYWHERE = {"--into", "--quiet", "-q", "--progress", "--no-progress"}


def options(command: click.Command) -> set[str]:
    return {name for each in command.params for name in [*each.opts, *each.secondary_opts]}


@pytest.mark.parametrize("name", spool.commands)
def test_every_protocol_has_a_row_and_its_options_are_explained(name: str) -> None:
    assert f"| [`cep spool {name}`](#" in PAGE
    missing = [option for option in options(spool.commands[name]) - EVERYWHERE if f"`{option}" not in PAGE]
    assert missing == []


def test_every_option_that_the_page_names_is_there() -> None:
    known = set().union(*map(options, spool.commands.values()))
    of_gcloud = {option for option in re.findall(r"--[a-z][a-z-]+", PAGE) if option.startswith("--push-")}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) - known - of_gcloud == {"--kills", "--out"}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["http"], "Missing option '--into'"),
        (["http", "--into", "x", "--max-bytes", "lots"], "`lots` is not a size; write for example 64MiB"),
        (["http", "--into", "x", "--max-bytes", "0"], "`0` is not a size"),
        (["http", "--into", "x", "--max-bytes", "1"], "`1` leaves no room for messages; write 64KiB or more"),
        (["http", "--into", "x", "--header", "X: y"], "`X: y` is not the name of a header"),
        (["http", "--into", "x", "--header", "a b"], "`a b` is not the name of a header"),
        (
            ["http", "--into", "x", "--keep", "soon"],
            '`soon` is not a length of time; write for example "10 minutes"',
        ),
        (
            ["amqp", "--into", "x", "--address", "t", "--subscription", "s"],
            "--subscription needs --container-id",
        ),
    ],
)
def test_wrong_usage_is_told(arguments: list[str], text: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(cep.commands.cli.main, ["spool", *arguments], prog_name="cep")
    assert done.exit_code == 2
    assert text in done.output


def test_an_authority_without_tls_does_not_mean_no_tls(tmp_path: Path) -> None:
    arguments = ["spool", "rabbitmq", "--into", str(tmp_path), "--queue", "q", "--ca-file", "ca.pem"]
    done = CliRunner().invoke(cep.commands.cli.main, arguments, prog_name="cep")
    assert done.exit_code == 1
    assert "error[E0957]: `--ca-file` without `--tls`" in done.output


def test_a_variable_that_is_empty_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EMPTY", "")
    arguments = ["spool", "http", "--into", str(tmp_path), "--token-env", "EMPTY"]
    done = CliRunner().invoke(cep.commands.cli.main, arguments, prog_name="cep")
    assert done.exit_code == 1
    assert "error[E0957]: the variable `EMPTY` of the environment is empty" in done.output


@pytest.mark.parametrize(
    ("text", "n_bytes"), [("5", 5), ("64MiB", 64 << 20), ("10 GB", 10**10), ("2k", 2000), ("1Ti", 1 << 40)]
)
def test_sizes_are_read(text: str, n_bytes: int) -> None:
    from cep.commands.spool.running import size

    assert size(text) == n_bytes
