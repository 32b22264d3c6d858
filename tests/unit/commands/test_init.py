"""`cep init` writes a project in which every command of its README works."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cep.commands.cli import main
from cep.errors import Source
from cep.language.layout import laid_out


def cep(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "deep" / "alerts"
    assert cep("init", folder).exit_code == 0
    monkeypatch.chdir(folder)
    return folder


def outputs(project: Path) -> dict[str, str]:
    """Run the commands of the README but `cep run`; return their outputs by verb."""
    (block,) = re.findall(r"```sh\n(.*?)```", (project / "README.md").read_text(), re.DOTALL)
    found = {}
    for line in block.splitlines():
        _, verb, *arguments = shlex.split(line)
        if verb != "run":
            result = cep(verb, *arguments)
            assert result.exit_code == 0, result.output
            found[verb] = result.stdout
    return found


def test_the_commands_of_the_new_project_work(project: Path) -> None:
    shown = outputs(project)
    assert list(shown) == ["check", "test", "match", "why"]
    assert shown["check"] == "checked 1 file, 1 rule: no problems\n"
    assert shown["test"].endswith("1 file, 3 cases: all passed\n")
    (match,) = map(json.loads, shown["match"].splitlines())
    assert (match["card_id"], match["probes"], match["probed"], match["loss"]) == ("c1", 3, 3.5, 949.0)
    assert "card_testing" in shown["why"]


def test_the_rule_of_the_new_project_has_the_usual_layout_and_its_tests_take_all_transitions(
    project: Path,
) -> None:
    text = (project / "rules/card_testing.cep").read_text()
    assert laid_out(Source("card_testing.cep", text)) == text
    assert "5 of 5 taken" in cep("test", "rules").output


def test_no_file_is_replaced(project: Path) -> None:
    (project / "README.md").write_text("mine")
    (project / "streams.yaml").unlink()
    result = cep("init", project)
    assert result.exit_code == 1
    assert "E0661" in result.output
    assert (project / "README.md").read_text() == "mine"
    assert not (project / "streams.yaml").exists()


@pytest.mark.spark
def test_the_pipeline_of_the_new_project_reports_what_match_reports(project: Path) -> None:
    (match,) = map(json.loads, outputs(project)["match"].splitlines())
    result = cep("run", "pipeline.yaml")
    assert result.exit_code == 0, result.output
    lines = [line for file in project.glob("out/alerts/**/*.json") for line in file.read_text().splitlines()]
    assert [json.loads(line)["match_id"] for line in lines] == [match["match_id"]]
