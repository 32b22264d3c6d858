"""`cep history` explains the rules that ran, `cep restore-rules` writes earlier ones back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from cep.commands.cli import main
from cep.program.changes import changes_of
from cep.program.program import Program
from cep.rulebook import compile_rulebook, load_rulebook
from spark_runtime.event_time.reached import Reached
from spark_runtime.pipeline.generations import Cause, Generation, write_generation
from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.storage.checkpoint_files import LocalFiles

STREAMS = """streams:
  t: {event_time: ts, schema: {k: string, ts: timestamp, x: double}}
"""
ONE = """RULE up
FROM t
PARTITION BY k
PATTERN a -> b
WITHIN 1 MINUTE
DEFINE a AS x < 1, b AS x > 2
"""
TWO = ONE.replace("1 MINUTE", "2 MINUTES")
OTHER = ONE.replace("RULE up", "RULE other")


class Recorded:
    """A checkpoint in which generations of the rules of a folder are recorded."""

    def __init__(self, folder: Path) -> None:
        self.rules, self.checkpoint = folder / "rules", folder / "checkpoint"
        self.rules.mkdir()
        (folder / "streams.yaml").write_text(STREAMS)
        self.latest: Generation | None = None
        self._programs: tuple[Program, ...] = ()

    def record(self, **texts: str) -> None:
        """Write rule files, and record them as the next generation."""
        for file in self.rules.iterdir():
            file.unlink()
        for name, text in texts.items():
            (self.rules / f"{name}.cep").write_text(text)
        book = load_rulebook([self.rules])
        rules = compile_rulebook(book).rule_set
        stored = StoredRules.of(book.sources, rules)
        if self.latest is None:
            self.latest = Generation(0, stored, cause=Cause("2026-11-02T08:00:12+00:00"))
        else:
            changes = changes_of(self._programs, rules.programs)
            cause = Cause("2026-11-09T14:31:05+00:00")
            self.latest = self.latest.following(stored, self.latest.batch + 10, Reached(), changes, cause)
        self._programs = rules.programs
        write_generation(LocalFiles(str(self.checkpoint)), self.latest)

    def texts(self) -> dict[str, str]:
        return {file.stem: file.read_text() for file in self.rules.iterdir()}


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    found = Recorded(tmp_path)
    found.record(up=ONE)
    found.record(up=TWO, other=OTHER)
    return found


def cep(*words: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(main, list(map(str, words)))
    assert result.exit_code == code, result.output
    return result.output


def test_history_names_the_version_of_each_rule_from_the_generation_on_in_which_it_began(
    recorded: Recorded,
) -> None:
    first, second = map(json.loads, cep("history", recorded.checkpoint, "--format", "json").splitlines())
    assert first["versions"].keys() == {"up"}
    assert second["versions"]["up"] != first["versions"]["up"]
    lines = cep("history", recorded.checkpoint).splitlines()
    assert lines[1] == f"   version   up  {first['versions']['up']}"
    assert lines[3:] == [
        "   new       other",
        "   changed   up     its window or limits",
        f"   version   other  {second['versions']['other']}",
        f"   version   up     {second['versions']['up']}",
    ]
    told = cep("history", recorded.checkpoint, "--rule-version", first["versions"]["up"])
    assert told.startswith("up: generation 0, from micro-batch 0 to 9, 2026-11-02T08:00:12+00:00\nRULE up\n")
    assert "WITHIN 1 MINUTE\n" in told
    told = cep("history", recorded.checkpoint, "--rule-version", second["versions"]["up"])
    assert told.startswith("up: generation 1, from micro-batch 10 on, 2026-11-09")
    assert "no rule of this checkpoint has the version 0" in cep(
        "history", recorded.checkpoint, "--rule-version", "0", code=2
    )


def test_history_shows_how_texts_differ(recorded: Recorded) -> None:
    told = cep("history", recorded.checkpoint, "--diff")
    assert "-WITHIN 1 MINUTE\n+WITHIN 2 MINUTES\n" in told
    assert "+RULE other\n" in told


def test_rules_are_written_back_with_a_verdict_and_what_came_later_is_removed(recorded: Recorded) -> None:
    (recorded.rules / "up.cep").chmod(0o640)
    would = cep("restore-rules", recorded.checkpoint, "0", "--dry-run")
    assert recorded.texts() == {"up": TWO, "other": OTHER}
    assert f"would be removed: {recorded.rules / 'other.cep'}\n" in would
    told = cep("restore-rules", recorded.checkpoint, "0")
    assert told == (
        "  changed   up     its window or limits; its open runs end\n"
        "  gone      other  its open runs end\n"
        f"written: {recorded.rules / 'up.cep'}\n"
        f"removed: {recorded.rules / 'other.cep'}\n"
        "the pipeline takes them after `cep approve PIPELINE`, or at once with `reload: on change`\n"
    )
    assert recorded.texts() == {"up": ONE}
    assert (recorded.rules / "up.cep").stat().st_mode & 0o777 == 0o640
    assert "nothing to write: the files have the rules of generation 0" in cep(
        "restore-rules", recorded.checkpoint, "0"
    )
    cep("restore-rules", recorded.checkpoint, "1")
    assert recorded.texts() == {"up": TWO, "other": OTHER}


@pytest.mark.parametrize("name", ["up", "other"])
def test_a_text_that_never_ran_is_not_lost(recorded: Recorded, name: str) -> None:
    edited = recorded.texts() | {name: recorded.texts()[name].replace("x > 2", "x > 3")}
    (recorded.rules / f"{name}.cep").write_text(edited[name])
    told = cep("restore-rules", recorded.checkpoint, "0", code=1)
    assert f"error[E0717]: `{recorded.rules / name}.cep` has a text that no generation of this" in told
    assert recorded.texts() == edited


def test_rules_are_written_to_another_folder(recorded: Recorded, tmp_path: Path) -> None:
    (recorded.rules / "up.cep").write_text("-- edited\n" + TWO)
    to = tmp_path / "elsewhere"
    told = cep("restore-rules", recorded.checkpoint, "1", "--to", to)
    assert {file.name: file.read_text() for file in to.iterdir()} == {"up.cep": TWO, "other.cep": OTHER}
    assert "cep approve" not in told
    (to / "up.cep").write_text("another")
    assert "error[E0717]" in cep("restore-rules", recorded.checkpoint, "1", "--to", to, code=1)
    assert (to / "up.cep").read_text() == "another"


def test_a_generation_that_does_not_exist(recorded: Recorded) -> None:
    assert "there is no generation 7: the latest is 1" in cep(
        "restore-rules", recorded.checkpoint, "7", code=2
    )


def test_streams_that_were_declared_otherwise_are_named(recorded: Recorded) -> None:
    (recorded.rules.parent / "streams.yaml").write_text(
        STREAMS.replace("event_time: ts", "event_time: ts, lateness: 1 second")
    )
    recorded.record(up=TWO)
    told = cep("restore-rules", recorded.checkpoint, "0")
    assert "note: `t` was declared otherwise then; the streams file is left as it is\n" in told


def test_a_checkpoint_that_has_moved_writes_to_the_same_files(recorded: Recorded, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.move(recorded.checkpoint, moved)
    cep("restore-rules", moved, "0")
    assert recorded.texts() == {"up": ONE}
