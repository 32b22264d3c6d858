"""The records of the rules that ran on a checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from cep.commands.cli import main
from cep.errors import Source, StateError
from cep.program.changes import RuleChange, Verdict
from spark_runtime.pipeline.approval import Approval, approval_of, approve
from spark_runtime.pipeline.cause import cause_of
from spark_runtime.pipeline.checkpoint import open_checkpoint, read_checkpoint, recorded_rules, rules_after
from spark_runtime.pipeline.generations import (
    Cause,
    Generation,
    read_generation,
    standing,
    withdraw,
    write_generation,
)
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.pipeline.reloading import Reloading
from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.pipeline.watched_files import WatchedFiles
from spark_runtime.storage.checkpoint_files import LocalFiles
from tests.unit.spark_runtime.pipeline.test_checkpoint import begin, opened, refusal, rule, stored

ONE, TWO, THREE = stored(rule("one")), stored(rule("one", 6)), stored(rule("one", 7))
FIRST = Generation(0, ONE)
SECOND = Generation(
    1, TWO, 3, 17, (RuleChange("one", Verdict.CHANGED, ("its window",)),), Cause("now", "ann")
)


def recorded(folder: Path, *generations: Generation) -> LocalFiles:
    files = LocalFiles(str(folder))
    for generation in generations:
        write_generation(files, generation)
    return files


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    files = recorded(tmp_path, FIRST, SECOND)
    assert [read_generation(files, number) for number in (0, 1)] == [FIRST, SECOND]


def test_the_micro_batch_of_a_record_says_whose_state_is_stored(tmp_path: Path) -> None:
    files = recorded(tmp_path, FIRST, SECOND)
    before, after = standing(files, 2, THREE), standing(files, 3, THREE)
    assert (before.stored, before.latest, before.is_pending) == (FIRST, SECOND, True)
    assert (after.stored, after.latest, after.is_pending) == (SECOND, SECOND, False)
    assert withdraw(files, before).latest == FIRST
    assert standing(files, 3, THREE).latest == FIRST


def test_a_checkpoint_without_records_has_the_rules_of_its_file(tmp_path: Path) -> None:
    assert standing(LocalFiles(str(tmp_path)), 3, THREE).latest.rules == THREE


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"batch": 1}'])
def test_a_damaged_record_is_named(tmp_path: Path, text: str) -> None:
    files = recorded(tmp_path, FIRST, SECOND)
    (tmp_path / "rules/1.json").write_text(text)
    with pytest.raises(StateError, match=r"E0702.*`rules/1\.json`"):
        standing(files, 3, ONE)


def test_rules_that_were_recorded_but_have_planned_nothing_may_be_taken_back(tmp_path: Path) -> None:
    begin(tmp_path, ONE)
    recorded(tmp_path, FIRST, replace(SECOND, batch=1))
    assert opened(tmp_path, ONE)
    assert not (tmp_path / "rules/1.json").exists()


def test_rules_that_have_planned_a_micro_batch_are_those_of_the_checkpoint(tmp_path: Path) -> None:
    begin(tmp_path, ONE)
    recorded(tmp_path, FIRST, replace(SECOND, batch=1))
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan/1.json").write_text('{"shares": [], "offsets": {}, "reached": "[null, {}, false, {}]", '
                                          '"ends": false, "cap_us": null}')  # fmt: skip
    assert "rule `one` has changed" in refusal(tmp_path, ONE)
    assert opened(tmp_path, TWO)
    # The stored state is still that of the rules before.
    checkpoint, rules = read_checkpoint(LocalFiles(str(tmp_path)), str(tmp_path))
    assert rules == ONE
    assert rules_after(checkpoint, 1).stored.rules == TWO


def test_the_history_has_all_rules_also_of_an_older_checkpoint(tmp_path: Path) -> None:
    begin(tmp_path, ONE)
    files = LocalFiles(str(tmp_path))
    assert [of.rules for of in recorded_rules(files, str(tmp_path))] == [ONE]
    recorded(tmp_path, FIRST, SECOND)
    assert list(recorded_rules(files, str(tmp_path))) == [FIRST, SECOND]


def test_an_approval_is_of_one_change(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    assert approval_of(files, ONE, TWO) is None
    approval = Approval(ONE.version, TWO.version, "ann", "now")
    approve(files, approval)
    assert approval_of(files, ONE, TWO) == approval
    for before, now in ((TWO, ONE), (ONE, THREE), (THREE, TWO)):
        assert approval_of(files, before, now) is None
    (tmp_path / "approved.json").write_text(json.dumps({"by": "ann"}))
    assert approval_of(files, ONE, TWO) is None


class OfAnotherUser(LocalFiles):
    """A checkpoint in which another user has written the approval, and only that user may read it."""

    def read_bytes(self, name: str) -> bytes | None:
        if name == "approved.json":
            raise PermissionError(13, "Permission denied")
        return super().read_bytes(name)


def test_an_approval_that_cannot_be_read_is_reported_once_and_the_run_continues(tmp_path: Path) -> None:
    (tmp_path / "streams.yaml").write_text(
        "streams: {taps: {event_time: ts, schema: {ts: timestamp, k: string, v: double}}}\n"
    )
    text = "RULE r FROM taps PARTITION BY k PATTERN a DEFINE a AS v > 1\n"
    (tmp_path / "r.cep").write_text(text)
    (tmp_path / "pipeline.yaml").write_text(
        "rules: [r.cep]\nsource: {stream: taps, format: json, path: in}\nsinks: [{format: console}]\n"
        "checkpoint: checkpoint\ntrigger: 1 second\n"
    )
    before = load_pipeline(tmp_path / "pipeline.yaml")
    files = OfAnotherUser(str(tmp_path / "checkpoint"))
    stored_rules = StoredRules.of(before.texts, before.rules)
    checkpoint = open_checkpoint(files, before.checkpoint, stored_rules, {}, 1)
    (tmp_path / "r.cep").write_text(text.replace("> 1", "> 2"))
    said: list[str] = []
    reloading = Reloading(checkpoint, load_pipeline(tmp_path / "pipeline.yaml"), said.append, tuple)
    assert [reloading.look(now_s) for now_s in (0, 2, 4)] == [False, False, False]
    assert reloading.turn.rules.version == stored_rules.version
    told = "`approved.json` in the checkpoint cannot be read, so nothing is approved: Permission denied"
    assert [line for line in said if "approved.json" in line] == [f"warning: {told}"]


@pytest.mark.parametrize("late", ["", "late: correct within 1 hour\n"])
@pytest.mark.parametrize("reload", ["on change", "after approval", "never"])
def test_rules_that_only_have_another_order_take_state_over_if_it_depends_on_the_order(
    tmp_path: Path, late: str, reload: str
) -> None:
    (tmp_path / "streams.yaml").write_text(
        "streams: {taps: {event_time: ts, schema: {ts: timestamp, k: string, v: double}}}\n"
    )
    texts = [
        f"RULE {name} FROM taps PARTITION BY k PATTERN a DEFINE a AS v > {name[1:]}\n"
        for name in ("r1", "r2")
    ]
    (tmp_path / "r.cep").write_text("".join(texts))
    (tmp_path / "pipeline.yaml").write_text(
        "rules: [r.cep]\nsource: {stream: taps, format: json, path: in}\nsinks: [{format: console}]\n"
        f"checkpoint: checkpoint\nreload: {reload}\n{late}"
    )
    before = load_pipeline(tmp_path / "pipeline.yaml")
    files = LocalFiles(str(tmp_path / "checkpoint"))
    stored_rules = StoredRules.of(before.texts, before.rules)
    checkpoint = open_checkpoint(files, before.checkpoint, stored_rules, {}, 1)
    said: list[str] = []
    assert Reloading(checkpoint, before, said.append, tuple).following() is None
    (tmp_path / "r.cep").write_text("".join(reversed(texts)))
    now = load_pipeline(tmp_path / "pipeline.yaml")
    reloading = Reloading(checkpoint, now, said.append, tuple)
    if late:
        assert reloading.turn.rules == stored_rules
        turn = reloading.following()
        assert turn is not None
        assert turn.change is not None
        assert [rule.name for rule in turn.change.before.rules] == ["r1", "r2"]
        reloading.take(turn)
        again = Reloading(checkpoint, now, said.append, tuple)
        assert again.following() is None
        pending = again.turn.change
        assert pending is not None
        assert [rule.name for rule in pending.before.rules] == ["r1", "r2"]
    assert [rule.name for rule in reloading.turn.pipeline.rules.rules] == ["r2", "r1"]
    assert reloading.following() is None
    assert said == []


def test_the_version_of_rules_depends_on_texts_and_streams_and_not_on_the_names_of_files() -> None:
    moved = replace(ONE, texts=tuple(Source("/elsewhere/x.cep", text.text) for text in ONE.texts))
    assert moved.version == ONE.version != TWO.version


# ---------------------------------------------------------------- files


def test_files_have_changed_once_when_they_have_been_the_same_for_a_second(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "streams.yaml").write_text("streams: {}")
    (tmp_path / "rules/a.cep").write_text("a")
    watched = WatchedFiles([str(tmp_path / "rules"), str(tmp_path / "more*.cep")])
    assert not watched.have_changed(0)
    (tmp_path / "rules/a.cep").write_text("ab")
    assert [watched.have_changed(now) for now in (1, 1.9, 2.1, 9)] == [False, False, True, False]
    (tmp_path / "rules/a.cep").write_text("abc")
    assert not watched.have_changed(10)
    (tmp_path / "rules/a.cep").write_text("abcd")  # still being written
    assert [watched.have_changed(now) for now in (11.5, 12.4, 12.6)] == [False, False, True]


@pytest.mark.parametrize("name", ["rules/sub/b.cep", "more-1.cep", "streams.yaml"])
def test_a_file_that_comes_or_goes_is_a_change(tmp_path: Path, name: str) -> None:
    (tmp_path / "rules/sub").mkdir(parents=True)
    (tmp_path / "rules/a.cep").write_text("a")
    watched = WatchedFiles([str(tmp_path / "rules"), str(tmp_path / "more*.cep")])
    (tmp_path / name).write_text("text")
    assert [watched.have_changed(now) for now in (0, 2)] == [False, True]
    (tmp_path / name).unlink()
    assert [watched.have_changed(now) for now in (3, 5)] == [False, True]


# ---------------------------------------------------------------- git


def test_author_and_commit_are_those_of_git_if_the_files_are_as_committed(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = {f"GIT_{of}_{what}": "ann@x" for of in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *words],
            env=os.environ | who,
            capture_output=True,
            check=True,
            text=True,
        )
        return done.stdout.strip()

    file = tmp_path / "a.cep"
    file.write_text("a")
    texts = [Source(str(file), "a")]
    assert (cause_of(texts).author, cause_of(texts).commit) == ("", "")
    git("init", "-q")
    git("add", "a.cep")
    git("commit", "-qm", "first")
    assert (cause_of(texts).author, cause_of(texts).commit) == ("ann@x", git("rev-parse", "HEAD"))
    file.write_text("b")
    assert cause_of(texts).commit == ""
    assert cause_of([Source("no file", "a")]).commit == ""


@pytest.mark.parametrize("late", ["", "late: correct within 1 hour\n"])
def test_a_change_that_adds_or_removes_corrections_is_not_approved(tmp_path: Path, late: str) -> None:
    (tmp_path / "streams.yaml").write_text(
        "streams: {taps: {event_time: ts, schema: {ts: timestamp, k: string, v: double}}}\n"
    )
    (tmp_path / "r.cep").write_text("RULE r FROM taps PARTITION BY k PATTERN a DEFINE a AS v > 1\n")
    file = tmp_path / "pipeline.yaml"
    text = "rules: [r.cep]\nsource: {stream: taps, format: json, path: in}\nsinks: [{format: console}]\n"
    text += f"checkpoint: {tmp_path}/checkpoint\n"
    file.write_text(text + late)
    before = load_pipeline(file)
    begin(tmp_path / "checkpoint", StoredRules.of(before.texts, before.rules))
    (tmp_path / "checkpoint/plan").mkdir()
    same = CliRunner().invoke(main, ["approve", str(file)])
    assert (same.exit_code, "nothing to approve" in same.output) == (0, True), same.output
    file.write_text(text if late else text + "late: correct within 1 hour\n")
    result = CliRunner().invoke(main, ["approve", str(file)])
    how = "with" if late else "without"
    assert result.exit_code == 1
    assert f"error[E0649]: the stored state was written {how} corrections" in result.output
