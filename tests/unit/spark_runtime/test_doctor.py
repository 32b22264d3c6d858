"""`cep doctor`: what would keep a pipeline from running."""

from __future__ import annotations

import functools
import json
import os
import shutil
import sys
import threading
from pathlib import Path
from xml.etree import ElementTree

import pyspark
import pytest
from click.testing import CliRunner

import cep.commands.cli
import spark_runtime.doctor
from cep.errors import InputError, SetupError
from spark_runtime.connectors.console import sink as console
from spark_runtime.connectors.files.source import FolderSource
from spark_runtime.event_time.reached import Reached
from spark_runtime.pipeline import stored_state
from spark_runtime.pipeline.checkpoint import Origin, SourceIdentity, open_checkpoint, pipeline_json
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.sessions.java import find_java
from spark_runtime.state.contents import StoredGroup, StoredProgram, StoredState
from spark_runtime.storage.checkpoint_files import LocalFiles

RULE = "RULE r FROM s PARTITION BY k PATTERN a -> b WITHIN 1 HOUR DEFINE a AS x > 1, b AS x > a.x\n"
STREAMS = "streams: {s: {event_time: ts, schema: {k: string, ts: timestamp, x: bigint}}}\n"
PIPELINE = """
rules: [r.cep]
source: {stream: s, format: json, path: events}
sinks:
  - {format: json, path: alerts}
  - {format: console}
checkpoint: checkpoint
"""


_found_java = functools.cache(find_java)


@pytest.fixture(autouse=True)
def java_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java takes a tenth of a second to say its version, which is the same in all tests."""
    monkeypatch.setattr(spark_runtime.doctor, "find_java", _found_java)


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHELL", "/bin/sh")  # for which there is no completion
    (tmp_path / "r.cep").write_text(RULE)
    (tmp_path / "streams.yaml").write_text(STREAMS)
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "1.json").write_text('{"k": "a", "ts": "2024-01-01T00:00:00Z", "x": 2}\n')
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    return tmp_path / "pipeline.yaml"


def doctor(*args: str | Path) -> tuple[int, list[str]]:
    result = CliRunner().invoke(cep.commands.cli.main, ["doctor", *map(str, args)])
    return result.exit_code, result.output.splitlines()


def test_a_sound_pipeline_has_no_problem_and_only_its_folder_is_made(pipeline: Path) -> None:
    before = sorted(pipeline.parent.rglob("*"))
    code, lines = doctor(pipeline)
    assert code == 0
    assert lines[0] == f"ok      PySpark  {pyspark.__version__}"
    assert lines[1].startswith("ok      Java")
    assert lines[2:] == [
        f"ok      streams file  {os.path.relpath(pipeline.with_name('streams.yaml'))}",
        "ok      rules  1 in 1 file",
        "note    tests  beside 0 of 1 rule files",
        f"        help: write {pipeline.with_name('r.test.yaml')}; `cep lint` names all that lack tests",
        "ok      pipeline file  1 rule",
        "ok      extras  installed for console, files, json",
        "ok      checkpoint  the run starts from the beginning",
        "ok      source s (json)",
        "ok      sink of match (files)",
        "ok      sink of match (console)",
    ]
    assert sorted(pipeline.parent.rglob("*")) == sorted([*before, pipeline.parent / "alerts"])


def test_files_that_a_stream_has_read_may_be_gone(pipeline: Path) -> None:
    commits = pipeline.parent / "checkpoint" / "query" / "commits"
    commits.mkdir(parents=True)
    (commits / "0").write_text("v1\n{}")
    (pipeline.parent / "events" / "1.json").unlink()
    code, lines = doctor(pipeline)
    assert "ok      source s (json)" in lines
    assert code == 1  # by the checkpoint: it has no state
    assert "error[E0705]" in lines[lines.index("PROBLEM checkpoint") + 1]


def test_each_problem_is_told_with_its_help(pipeline: Path) -> None:
    (pipeline.parent / "events" / "1.json").unlink()
    (pipeline.parent / "events").rmdir()
    (pipeline.parent / "alerts").write_text("a file, where the folder is to be")
    code, lines = doctor(pipeline)
    assert code == 1
    problems = [line for line in lines if line.startswith("PROBLEM")]
    assert problems == ["PROBLEM source s (json)", "PROBLEM sink of match (files)"]
    assert "        error[E" in lines[lines.index(problems[0]) + 1]
    assert "ok      sink of match (console)" in lines


def test_a_wrong_pipeline_file_is_shown_as_cep_run_shows_it(pipeline: Path) -> None:
    pipeline.write_text(PIPELINE.replace("rules:", "rulez:"))
    code, lines = doctor(pipeline)
    assert code == 1
    assert any("rulez" in line for line in lines)


def test_what_does_not_answer_hides_nothing(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_runtime.doctor, "MOST_SECONDS", 0.3)
    is_over = threading.Event()
    monkeypatch.setattr(FolderSource, "check", lambda self: is_over.wait(60))  # then it has no problem
    findings = list(spark_runtime.doctor.examine_pipeline(pipeline))
    is_over.set()
    found = {finding.what: finding.problem for finding in findings}
    problem = found["source s (json)"]
    assert problem is not None
    assert problem.code == "E0848"
    assert found["sink of match (console)"] is None


def test_what_the_machine_lacks_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_java() -> None:
        raise SetupError("E0802", "Spark needs Java: no `java` on PATH", "install Java 17")

    monkeypatch.setattr(spark_runtime.doctor, "find_java", no_java)
    monkeypatch.chdir(tmp_path)
    code, lines = doctor()
    assert code == 1
    assert lines[1:4] == [
        "PROBLEM Java",
        "        error[E0802]: Spark needs Java: no `java` on PATH",
        "        help: install Java 17",
    ]


def test_a_sink_that_refuses_is_a_problem(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: object) -> None:
        raise InputError("E0852", "it must not be written", "give this user the right to write it")

    monkeypatch.setattr(console.ConsoleSink, "check", refused)
    code, lines = doctor(pipeline)
    assert code == 1
    assert "PROBLEM sink of match (console)" in lines


TABLES = """
tables:
  caps: {key: [k], event_time: at, schema: {k: string, at: timestamp, cap: bigint}}
  names: {key: [k], static: true, schema: {k: string, name: string}}
"""
JOINED_RULE = """
RULE r FROM s JOIN caps ON k JOIN names ON k = names.k PARTITION BY k PATTERN a
DEFINE a AS x > caps.cap AND names.name IS NOT NULL
"""
JOINED_PIPELINE = """
rules: [r.cep]
sources:
  - {stream: s, format: json, path: events}
  - {table: caps, format: json, path: caps}
  - {table: names, format: csv, path: names.csv}
sinks: [{format: console}]
checkpoint: checkpoint
"""


def test_tables_are_asked_as_sources_are(pipeline: Path) -> None:
    folder = pipeline.parent
    (folder / "streams.yaml").write_text(STREAMS + TABLES)
    (folder / "r.cep").write_text(JOINED_RULE)
    pipeline.write_text(JOINED_PIPELINE)
    (folder / "names.csv").write_text("k,name\na,Anna\nb,Bo\n")
    code, lines = doctor(pipeline)
    assert code != 0
    assert "PROBLEM table caps (json)" in lines
    assert "ok      table names (csv, static)  2 rows" in lines
    (folder / "caps").mkdir()
    (folder / "caps/1.json").write_text('{"k": "a", "at": "2024-01-01T00:00:00Z", "cap": 2}\n')
    (folder / "names.csv").write_text("k,name\n,Anna\n")
    code, lines = doctor(pipeline)
    assert code != 0
    assert "ok      table caps (json)" in lines
    assert "error[E0712]" in lines[lines.index("PROBLEM table names (csv, static)") + 1]


def test_a_folder_without_a_project_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, lines = doctor()
    assert code == 0
    assert lines[-2:] == [
        "note    streams file  none here or above",
        "        help: `cep init alerts` writes a project, `cep new RULE` a rule",
    ]
    (tmp_path / "streams.yaml").write_text(STREAMS)
    assert doctor()[1][-2:] == [
        "note    rules  none here",
        "        help: `cep new RULE` writes one, with tests",
    ]


def test_the_rules_of_the_project_are_checked_and_their_tests_counted(
    pipeline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pipeline.parent)
    (pipeline.parent / "r.test.yaml").write_text("cases: {}")
    (pipeline.parent / "u.cep").write_text(RULE.replace("RULE r", "RULE u").replace("x > 1", "y > 1"))
    code, lines = doctor()
    assert code == 1
    at = lines.index("PROBLEM rules")
    assert lines[at - 1] == "ok      streams file  streams.yaml"
    assert lines[at + 1] == "        error[E0203]: stream `s` has no column `y`"
    assert lines[-2:] == [
        "note    tests  beside 1 of 2 rule files",
        "        help: write u.test.yaml; `cep lint` names all that lack tests",
    ]


@pytest.mark.parametrize(
    ("shell", "file", "line"),
    [
        ("bash", ".bashrc", 'eval "$(cep completion bash)"'),
        ("zsh", ".zshrc", 'eval "$(cep completion zsh)"'),
        ("fish", ".config/fish/completions/cep.fish", "cep completion fish | source"),
    ],
)
def test_a_shell_without_completion_is_told_how(
    shell: str, file: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    monkeypatch.setenv("HOME", str(tmp_path))
    code, lines = doctor()
    at = lines.index(f"note    completion  not set up for {shell}")
    assert lines[at + 1] == f"        help: `cep completion {shell} --help` says which line to add"
    assert code == 0
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(f"# mine\n{line}\n")
    assert f"ok      completion  {shell}" in doctor()[1]


def test_an_extra_that_is_missing_is_a_finding_of_its_own(
    pipeline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    source = "{stream: s, format: kafka, brokers: 'localhost:1', topic: t}"
    pipeline.write_text(PIPELINE.replace("{stream: s, format: json, path: events}", source))
    code, lines = doctor(pipeline)
    assert code == 1
    at = lines.index("PROBLEM extras")
    assert "error[E0683]" in lines[at + 1]
    assert any("pip install 'spark-cep[kafka]'" in line for line in lines[at:])


def test_findings_are_json_and_junit_too(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pipeline.parent)
    (pipeline.parent / "alerts").write_text("a file, where the folder is to be")
    result = CliRunner().invoke(cep.commands.cli.main, ["doctor", str(pipeline.name), "--format", "json"])
    rows = {row["what"]: row for row in json.loads(result.output)}
    assert result.exit_code == 1
    assert rows["PySpark"]["note"] == pyspark.__version__
    assert [row["what"] for row in rows.values() if not row["ok"]] == ["sink of match (files)"]
    assert rows["sink of match (files)"]["problems"][0]["code"] == "E0618"
    assert (rows["tests"]["group"], rows["sink of match (console)"]["group"]) == ("project", "pipeline.yaml")
    result = CliRunner().invoke(cep.commands.cli.main, ["doctor", str(pipeline.name), "--format", "junit"])
    suites = {suite.get("name"): suite.get("failures") for suite in ElementTree.fromstring(result.output)}
    assert suites == {"machine": "0", "project": "0", "pipeline.yaml": "1"}


def of_checkpoint(pipeline: Path) -> str:
    """Return the first line of the checkpoint's problem; empty if it has none."""
    code, lines = doctor(pipeline)
    if "PROBLEM checkpoint" not in lines:
        return ""
    assert code == 1
    return lines[lines.index("PROBLEM checkpoint") + 1].strip()


@pytest.mark.parametrize("place", ["streams.yaml", "streams.yaml/a/b"])
def test_a_file_in_place_of_a_checkpoint_is_a_problem(pipeline: Path, place: str) -> None:
    pipeline.write_text(PIPELINE.replace("checkpoint: checkpoint", f"checkpoint: {place}"))
    told = f"error[E0618]: `{pipeline.parent}/{place}` cannot be written: a file is where a folder is needed"
    assert of_checkpoint(pipeline) == told


def begin(pipeline: Path, monkeypatch: pytest.MonkeyPatch, *programs: StoredProgram) -> None:
    """Let the pipeline have run; `programs` is the state of its only key group."""
    made = load_pipeline(pipeline)
    sources = {entry.stream: SourceIdentity(entry.name, entry.spec.place) for entry in made.sources}
    rules = StoredRules.of(made.texts, made.rules)
    files = LocalFiles(made.checkpoint)
    open_checkpoint(files, made.checkpoint, rules, sources, 1)
    for folder in ("commits", "offsets"):
        files.write(f"query/{folder}/0", "v1\n{}\n0\n")
    files.write("query/metadata", "{}")
    give_state(pipeline, monkeypatch, *programs)


def give_state(pipeline: Path, monkeypatch: pytest.MonkeyPatch, *programs: StoredProgram) -> None:
    made = load_pipeline(pipeline)
    group = StoredGroup(0, 1, False, programs)
    state = StoredState(made.texts, made.rules, Reached(), iter([group]))
    monkeypatch.setattr(stored_state, "stored_state", lambda path: state)


def test_a_source_that_has_moved_is_a_problem(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(pipeline, monkeypatch)
    assert of_checkpoint(pipeline) == ""
    shutil.copytree(pipeline.parent / "events", pipeline.parent / "moved")
    pipeline.write_text(PIPELINE.replace("path: events", "path: moved"))
    before = {path: path.read_text() for path in pipeline.parent.rglob("*") if path.is_file()}
    assert of_checkpoint(pipeline).startswith("error[E0710]: the source of stream `s` was `json ")
    assert before == {path: path.read_text() for path in pipeline.parent.rglob("*") if path.is_file()}


def test_changed_rules_that_may_not_change_are_a_problem(
    pipeline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(pipeline, monkeypatch)
    (pipeline.parent / "r.cep").write_text(RULE.replace("x > 1", "x > 3"))
    assert of_checkpoint(pipeline) == ""
    pipeline.write_text(f"{PIPELINE}reload: never\n")
    assert of_checkpoint(pipeline).startswith("error[E0701]")


@pytest.mark.parametrize("is_corrected", [False, True])
def test_corrections_that_the_state_lacks_or_has_are_a_problem(
    pipeline: Path, monkeypatch: pytest.MonkeyPatch, is_corrected: bool
) -> None:
    corrected = f"{PIPELINE}late: {{correct_within: 1 hour}}\n"
    (program,) = load_pipeline(pipeline).rules.programs
    pipeline.write_text(corrected if is_corrected else PIPELINE)
    begin(pipeline, monkeypatch, StoredProgram(1, None if is_corrected else program, None))
    assert of_checkpoint(pipeline) == ""
    pipeline.write_text(PIPELINE if is_corrected else corrected)
    give_state(pipeline, monkeypatch, StoredProgram(1, None if is_corrected else program, None))
    how = "with" if is_corrected else "without"
    assert of_checkpoint(pipeline) == f"error[E0649]: the stored state was written {how} corrections"


def test_a_restored_checkpoint_that_has_not_run_is_sound(pipeline: Path) -> None:
    made = load_pipeline(pipeline)
    files = LocalFiles(made.checkpoint)
    sources = {"s": SourceIdentity("json", "")}
    files.write("pipeline.json", pipeline_json(sources, "run", 1, Origin("saved", 3, frozenset())))
    files.write("rules.json", StoredRules.of(made.texts, made.rules).to_json())
    files.write("done.json", json.dumps({"-1": [Reached().to_json(), {}, False, {}]}))
    files.write("restored/0", "")
    before = sorted(pipeline.parent.rglob("*"))
    assert "ok      checkpoint  the run continues from the savepoint that was restored" in doctor(pipeline)[1]
    assert sorted(pipeline.parent.rglob("*")) == sorted([*before, pipeline.parent / "alerts"])
    files.write("pipeline.json", "{}")
    assert of_checkpoint(pipeline).startswith("error[E0706]")
