"""The README's files, commands and Python examples do what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import cep.commands.cli

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(compiled_engine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the README's three files, entered."""
    monkeypatch.chdir(tmp_path)
    Path("streams.yaml").write_text(blocks("yaml")[0])
    Path("card_testing.cep").write_text(blocks("cep")[0])
    Path("events.jsonl").write_text(blocks("json")[0])
    return tmp_path


def test_the_commands_print_what_the_readme_shows(folder: Path) -> None:
    shown = re.findall(r"^\$ cep (.*)\n((?:(?!\$).*\n)*)", blocks("console")[0], re.MULTILINE)
    assert len(shown) == 2
    for command, output in shown:
        result = CliRunner().invoke(cep.commands.cli.main, shlex.split(command))
        assert (result.exit_code, result.stdout) == (0, output)


def test_the_readme_has_one_example_for_tests_and_one_for_spark() -> None:
    assert ["spark_runtime" in block for block in blocks("python")] == [False, True]


def test_the_example_of_a_test_runs(folder: Path) -> None:
    exec(compile(blocks("python")[0], "README.md", "exec"), {})


@pytest.mark.spark
def test_the_example_for_pyspark_runs(folder: Path) -> None:
    # A session that other tests have started stays in the folder that it was started in.
    code = blocks("python")[1].replace('"events.jsonl"', repr(str(folder / "events.jsonl")))
    exec(compile(code, "README.md", "exec"), {})


@pytest.mark.spark
def test_the_pipeline_file_runs(folder: Path) -> None:
    Path("pipeline.yaml").write_text(blocks("yaml")[1])
    result = CliRunner().invoke(cep.commands.cli.main, ["run", "pipeline.yaml"])
    assert result.exit_code == 0, result.output
    assert "949" in result.stdout
    assert pq.read_table("out/matches").column("loss").to_pylist() == [949.0]


def test_links_between_documents_lead_somewhere() -> None:
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.relative_to(ROOT)}: {target}"
