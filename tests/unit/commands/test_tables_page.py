"""The pages of tables and joins (docs/guides): their rules find what is shown, and so does `explain`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import cep.commands.cli
from cep.rulebook import check_rules
from cep.schema.table_rows import DELETES, UPSERTS
from tests.pages import DOCS, blocks, cep_prints, shown_commands

TABLES, JOINS = ((DOCS / name).read_text() for name in ("guides/tables.md", "guides/joins.md"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def tables(folder: Path) -> Path:
    Path("streams.yaml").write_text(blocks(TABLES, "yaml")[0])
    Path("limits.cep").write_text(blocks(TABLES, "cep")[0])
    Path("countries.csv").write_text(blocks(TABLES, "csv")[0])
    for name in ("transactions", "customers"):
        Path(f"{name}.jsonl").write_text(blocks(TABLES, f"json {name}")[0])
    return folder


def test_the_command_prints_what_the_page_of_tables_shows(tables: Path) -> None:
    ((command, output),) = shown_commands(TABLES)
    assert cep_prints(command) == output
    assert len(output.splitlines()) == 3


def test_the_other_rules_of_the_page_of_tables_are_rules(tables: Path) -> None:
    for rule in blocks(TABLES, "cep")[1:]:
        Path("other.cep").write_text(rule)
        assert check_rules(["other.cep"]).problems == ()


def test_explain_says_what_the_page_of_tables_shows(tables: Path) -> None:
    (shown,) = blocks(TABLES, "explain")
    assert shown in cep_prints("explain limits.cep")


def test_the_page_of_tables_has_every_word_of_an_operation() -> None:
    for word in (*UPSERTS, *DELETES):
        assert f"`{word}`" in TABLES, word


def test_the_commands_print_what_the_page_of_joins_shows(folder: Path) -> None:
    Path("streams.yaml").write_text(blocks(JOINS, "yaml")[0])
    for name in ("orders", "payments"):
        Path(f"{name}.jsonl").write_text(blocks(JOINS, f"json {name}")[0])
    for name in ("inner", "outer", "anti"):
        Path(f"{name}.cep").write_text(blocks(JOINS, f"cep {name}")[0])
        assert check_rules([f"{name}.cep"]).problems == ()
    *shown, (of_view, changes), (of_full, rows) = shown_commands(JOINS)
    assert [len(output.splitlines()) for _, output in shown] == [3, 3, 1]
    for command, output in shown:
        assert cep_prints(command) == output
    write_view(Path())
    assert cep_prints(of_view) == changes
    assert len(changes.splitlines()) == 5
    with Path("customer_accounts.cep").open("a") as file:
        file.write("\nVIEW other KEY account_id FROM accounts SELECT balance\n")
    assert cep_prints(of_view) != changes
    assert cep_prints(f"{of_view} --only customer_accounts") == changes
    Path("streams.yaml").write_text(blocks(JOINS, "yaml stock")[0])
    Path("stock_and_price.cep").write_text(blocks(JOINS, "cep stock_and_price")[0])
    for name in ("stock", "prices"):
        Path(f"{name}.jsonl").write_text(blocks(JOINS, f"json {name}")[0])
    assert cep_prints(of_full) == rows
    assert len(rows.splitlines()) == 5


def write_view(folder: Path) -> None:
    """Write the files of the view of the page of joins."""
    (folder / "streams.yaml").write_text(blocks(JOINS, "yaml accounts")[0])
    (folder / "customer_accounts.cep").write_text(blocks(JOINS, "cep customer_accounts")[0])
    for name in ("accounts", "customers"):
        (folder / f"{name}.jsonl").write_text(blocks(JOINS, f"json {name}")[0])


def test_the_summary_counts_versions_and_every_line(tables: Path) -> None:
    with Path("customers.jsonl").open("a") as file:
        file.write('{"customer_id":null,"updated_at":"2024-05-01T16:00:00Z","op":"d"}\n')
        file.write('{"customer_id":"ann","updated_at":"2024-05-01T16:00:00Z","op":"truncate"}\n')
        file.write('{"customer_id":"ann","updated_at":"2024-05-01T16:00:00Z"}\n')
    command = shown_commands(TABLES)[0][0].removesuffix(" --quiet") + " --dead-letter dead.jsonl"
    result = CliRunner().invoke(cep.commands.cli.main, shlex.split(command), prog_name="cep")
    assert "events                   6\n" in result.stderr
    assert "versions                 2  of table countries\n" in result.stderr
    assert "versions                 3  of table customers\n" in result.stderr
    assert "malformed                3  " in result.stderr
    reasons = re.findall(r'"reason": "((?:[^"\\]|\\.)*)"', Path("dead.jsonl").read_text())
    assert reasons == [
        "key is NULL: `customer_id`",
        'no such `op`: \\"truncate\\", known are insert, update and delete',
        "`op` is NULL",
    ]


def test_a_table_of_which_no_column_is_read_is_an_input_all_the_same(tables: Path) -> None:
    rule = blocks(TABLES, "cep")[1].replace("JOIN countries", "JOIN customers ON customer_id\nJOIN countries")
    Path("limits.cep").write_text(rule)
    command = shown_commands(TABLES)[0][0].removesuffix(" --quiet")
    result = CliRunner().invoke(cep.commands.cli.main, shlex.split(command), prog_name="cep")
    assert result.exit_code == 0
    assert "warning[W0518]: no column of `customers` is read" in result.stderr
    assert "versions                 3  of table customers\n" in result.stderr
    assert len(result.stdout.splitlines()) == 0


@pytest.mark.parametrize("missing", ["customers", "countries"])
def test_a_table_without_input_is_an_error_that_names_it(tables: Path, missing: str) -> None:
    inputs = {
        "transactions": "transactions.jsonl",
        "customers": "customers.jsonl",
        "countries": "countries.csv",
    }
    del inputs[missing]
    given = [word for name, file in inputs.items() for word in ("-i", f"{name}={file}")]
    result = CliRunner().invoke(cep.commands.cli.main, ["match", "limits.cep", *given], prog_name="cep")
    assert result.exit_code == 1
    assert f"error[E0621]: a rule joins table `{missing}`" in result.stderr


def test_more_rows_than_a_table_may_have_are_an_error(tables: Path) -> None:
    for name, more in (("countries", "static: true"), ("customers", "op: op")):
        text = blocks(TABLES, "yaml")[0].replace(more, f"{more}\n    max_rows: 1")
        Path("streams.yaml").write_text(text)
        with Path("customers.jsonl").open("a") as file:
            file.write('{"customer_id":"bob","updated_at":"2024-04-01T00:00:00Z","op":"c"}\n')
            file.write('{"customer_id":"cid","updated_at":"2024-04-01T00:00:00Z","op":"c"}\n')
        command = shown_commands(TABLES)[0][0]
        result = CliRunner().invoke(cep.commands.cli.main, shlex.split(command), prog_name="cep")
        assert f"error[E0619]: the table `{name}` has 2 rows, it may have 1" in result.stderr
