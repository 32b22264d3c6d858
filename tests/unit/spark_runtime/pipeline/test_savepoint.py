"""Savepoints: what is refused, and what is read without Spark."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from cep.commands.cli import main
from cep.counts import Loss
from cep.errors import StateError
from cep.rulebook import compile_texts
from cep.spool.new_files import umask
from spark_runtime.pipeline.checkpoint import Checkpoint, SourceIdentity, last_done, open_checkpoint
from spark_runtime.pipeline.gaps import Entry, all_gaps, ledger_json
from spark_runtime.pipeline.generations import Filled, Generation, all_generations
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.pipeline.portable import portable, with_paths, without_paths
from spark_runtime.pipeline.restoring import restore
from spark_runtime.pipeline.savepoint import Manifest, new_folder, opened, require_finished, saved_file
from spark_runtime.pipeline.saving import require_saved_positions
from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.state.restored import Restored
from spark_runtime.state.snapshots import decode_state
from spark_runtime.storage.checkpoint_files import LocalFiles
from tests.forks import Forks
from tests.kills.points import AFTER, BEFORE
from tests.pages import DOCS
from tests.spark.stored_savepoint import CARDS, STORED, write

N_OPEN = 6
"""Open runs in the stored savepoint; events of the other cards wait."""

IMPORTS = """
import sys
for name in ("pyspark", "py4j"):
    sys.modules[name] = None
import pandas, llvmlite.binding
from spark_runtime.pipeline.restoring import restore
from tests.kills.points import Call, plant
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    """Return a process that cannot import Spark, but has what Arrow and kernels would import in each fork."""
    with Forks(IMPORTS) as made:
        yield made


COMMAND = """
import sys
from cep.commands.cli import main
main(sys.argv[1:])
"""


def test_state_is_read_from_a_savepoint_without_spark(forks: Forks) -> None:
    done = forks.run(COMMAND, "state", "show", STORED, CARDS[0], "--format", "json")
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    runs = [row for row in rows if "rule" in row]
    assert {next(iter(row)) for row in rows} == {"rule", "window_of", "windowed_value", "row_of"}
    assert [(run["rule"], run["waits_for"]) for run in runs] == [("testing", "large"), ("testing", "small")]
    assert runs[0]["started"] == "2026-11-01T12:01:00Z"


def test_the_open_runs_and_the_sizes_of_a_savepoint_are_listed() -> None:
    result = CliRunner().invoke(main, ["state", "ls", str(STORED), "--format", "json"])
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.output.splitlines()]
    by_rule = {row["rule"]: row["open_runs"] for row in rows if "rule" in row}
    assert by_rule == {"testing": N_OPEN, "often": 0, "hourly": 0}
    sizes = [row["bytes"] for row in rows if "group" in row]
    assert len(sizes) == 2
    assert min(sizes) > 0
    top = CliRunner().invoke(main, ["state", "top", str(STORED), "--limit", "2"])
    assert top.output.count("testing") == 2


def test_the_page_of_state_shows_what_is_printed() -> None:
    page = (DOCS / "operate/state.md").read_text()
    for command in ("ls saved/monday", f'show saved/monday "{CARDS[0]}"'):
        words = shlex.split(command.replace("saved/monday", str(STORED)))
        result = CliRunner().invoke(main, ["state", *words])
        assert f"$ cep state {command}\n{result.stdout}" in page


def copied(folder: Path) -> Path:
    target = folder / "saved"
    shutil.copytree(STORED, target)
    return target


@pytest.mark.parametrize("n_groups", [None, 1, 2, 5])
def test_a_stored_savepoint_is_restored_with_any_number_of_key_groups(
    tmp_path: Path, n_groups: int | None
) -> None:
    path = str(tmp_path / "checkpoint")
    result = CliRunner().invoke(
        main, ["restore", str(STORED), path, *([] if n_groups is None else ["--key-groups", str(n_groups)])]
    )
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith(
        {None: ", 2 key groups\n", 1: ", 1 key group\n"}.get(n_groups, " key groups\n")
    )
    stored = opened(str(STORED)).rules()
    rules = compile_texts(stored.texts, stored.streams).rule_set
    sources = {
        "payments": SourceIdentity("json", str(tmp_path / "in")),
        "cards": SourceIdentity("json", str(tmp_path / "cards")),
    }
    checkpoint = open_checkpoint(LocalFiles(path), path, StoredRules.of(stored.texts, rules), sources, 99)
    assert checkpoint.n_groups == (n_groups or 2)
    done = last_done(checkpoint, is_live=False)
    assert (done.batch, done.offsets) == (-1, {"payments": 1, "cards": 1})
    assert f"{tmp_path}/in/1.json:14" in done.reached.latest["payments"][1]
    assert checkpoint.origin is not None
    restored = Restored(f"{path}/restored", checkpoint.origin.groups)
    states = [
        decode_state(part, rules, checkpoint.n_groups)
        for group in checkpoint.origin.groups
        for part in restored.parts(group)
    ]
    n_open = sum(sum(matcher.open_runs.values()) for state in states for matcher in state)
    assert n_open == N_OPEN


def test_what_was_reported_of_a_day_is_in_a_savepoint(tmp_path: Path) -> None:
    saved, path = copied(tmp_path), str(tmp_path / "checkpoint")
    manifest = json.loads((saved / "savepoint.json").read_text())
    manifest["progress"]["reported"] = {"testing": {"20000": 3}}
    (saved / "savepoint.json").write_text(json.dumps(manifest))
    restore(str(saved), path)
    stored = opened(str(saved)).rules()
    rules = StoredRules.of(stored.texts, compile_texts(stored.texts, stored.streams).rule_set)
    sources = {name: SourceIdentity("json", str(tmp_path)) for name in ("payments", "cards")}
    done = last_done(open_checkpoint(LocalFiles(path), path, rules, sources, 2), is_live=False)
    assert (done.reported, done.waits) == ({"testing": {20000: 3}}, None)


def test_the_manifest_is_the_same_after_it_was_read() -> None:
    manifest = opened(str(STORED)).manifest
    assert Manifest.of_json(json.loads(manifest.to_json())) == manifest
    assert manifest.watermark is not None
    assert manifest.watermark.startswith("2026-11-01T12:0")


@pytest.mark.parametrize("name", sorted(opened(str(STORED)).manifest.files))
@pytest.mark.parametrize("is_missing", [True, False])
def test_a_damaged_or_missing_file_is_named_and_nothing_is_written(
    tmp_path: Path, name: str, is_missing: bool
) -> None:
    saved = copied(tmp_path)
    file = saved / name
    if is_missing:
        file.unlink()
    else:
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    with pytest.raises(StateError, match=rf"E0714.*{name}") as caught:
        restore(str(saved), str(tmp_path / "checkpoint"))
    assert "copy the savepoint again" in str(caught.value)
    assert [item.name for item in tmp_path.iterdir()] == ["saved"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 1, "files": 3}'])
def test_a_damaged_manifest_is_refused(tmp_path: Path, text: str) -> None:
    saved = copied(tmp_path)
    (saved / "savepoint.json").write_text(text)
    with pytest.raises(StateError, match=r"E0714.*savepoint\.json"):
        restore(str(saved), str(tmp_path / "checkpoint"))


def test_another_format_and_a_folder_that_is_no_savepoint_are_refused(tmp_path: Path) -> None:
    saved = copied(tmp_path)
    manifest = saved / "savepoint.json"
    manifest.write_text(manifest.read_text().replace('"format": 1,', '"format": 2,', 1))
    with pytest.raises(StateError, match=r"E0714.*has format 2, this version reads 1"):
        restore(str(saved), str(tmp_path / "checkpoint"))
    with pytest.raises(StateError, match=r"E0714.*is no savepoint"):
        restore(str(tmp_path), str(tmp_path / "checkpoint"))


def test_a_target_that_is_not_empty_is_refused_and_an_empty_one_is_not(tmp_path: Path) -> None:
    target = tmp_path / "checkpoint"
    target.mkdir()
    (target / "file").touch()
    with pytest.raises(StateError, match=r"E0716.*is not empty"):
        restore(str(STORED), str(target))
    assert [item.name for item in target.iterdir()] == ["file"]
    (target / "file").unlink()
    restore(str(STORED), str(target))
    assert (target / "pipeline.json").is_file()
    with pytest.raises(StateError, match=r"E0716.*no folder on a disk"):
        restore(str(STORED), "s3a://bucket/checkpoint")


def modes(folder: Path) -> set[tuple[bool, str]]:
    """Return the modes of a folder and of all that is in it; with each, whether it is that of a folder."""
    return {(item.is_dir(), f"{item.stat().st_mode & 0o777:o}") for item in (folder, *folder.rglob("*"))}


def test_only_the_user_may_read_a_savepoint_and_a_restored_checkpoint(tmp_path: Path) -> None:
    with umask(0o022):
        restore(str(STORED), str(tmp_path / "restored"))
        with new_folder(str(tmp_path / "of/saved")) as place:
            (place / "groups").mkdir()
            (place / "groups/0").touch()
        (tmp_path / "usual").touch()
    private = {(True, "700"), (False, "600")}
    assert modes(tmp_path / "restored") == modes(tmp_path / "of") == private
    assert (tmp_path / "usual").stat().st_mode & 0o777 == 0o644


def test_a_checkpoint_restored_for_a_pipeline_has_its_file_mode(tmp_path: Path) -> None:
    file = write(tmp_path, both=True)
    file.write_text(file.read_text() + 'file_mode: "0640"\n')
    with umask(0o022):
        restore(str(STORED), str(tmp_path / "checkpoint"), pipeline=load_pipeline(file))
    assert modes(tmp_path / "checkpoint") == {(True, "750"), (False, "640")}


def test_a_restored_checkpoint_that_has_not_run_needs_a_run_first(tmp_path: Path) -> None:
    file = write(tmp_path, both=True)
    path = str(tmp_path / "checkpoint")
    restore(str(STORED), path)
    for words in (
        ("state", "ls", path),
        ("savepoint", path, str(tmp_path / "again")),
        ("approve", str(file)),
    ):
        told = CliRunner().invoke(main, words)
        assert told.exit_code == 1, told.output
        assert f"error[E0705]: `{path}` was restored from a savepoint, and has not run since" in told.output
        assert "`cep run`" in told.output
        assert "the folder that `checkpoint`" not in told.output


def test_other_rules_are_refused_as_after_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoint")
    restore(str(STORED), path)
    stored = opened(str(STORED)).rules()
    texts = tuple(replace(text, text=text.text.replace("1 HOUR", "2 HOURS")) for text in stored.texts)
    rules = compile_texts(texts, stored.streams).rule_set
    sources = {name: SourceIdentity("json", "/in") for name in ("payments", "cards")}
    with pytest.raises(StateError, match=r"E0701.*rule `testing` has changed"):
        open_checkpoint(LocalFiles(path), path, StoredRules.of(texts, rules), sources, 2)


def pipeline_with(folder: Path, old: str, new: str) -> Path:
    """Write the pipeline of the stored savepoint with changed rules."""
    file = write(folder, both=True)
    rules = folder / "rules.cep"
    assert old in rules.read_text()
    rules.write_text(rules.read_text().replace(old, new))
    return file


@pytest.mark.parametrize("n_groups", [2, 3])
def test_open_runs_continue_with_changed_measures_and_end_with_another_window(
    tmp_path: Path, n_groups: int
) -> None:
    for name, old, new, n_open in (
        ("measures", "large.amount AS amount ALL", "large.amount + 1 AS more ALL", N_OPEN),
        ("changed", "WITHIN 1 HOUR", "WITHIN 2 HOURS", 0),
    ):
        file = pipeline_with(tmp_path / name, old, new)
        path = tmp_path / name / "checkpoint"
        given = ["restore", str(STORED), str(path), "--pipeline", str(file), "--key-groups", str(n_groups)]
        result = CliRunner().invoke(main, given)
        assert result.exit_code == 0, result.output
        assert f"rule testing: {name}" in result.output
        rules = load_pipeline(file).rules
        groups = frozenset(int(part.name) for part in (path / "restored").iterdir())
        assert len(groups) == n_groups
        restored = Restored(f"{path}/restored", groups)
        states = [decode_state(part, rules, n_groups) for of in groups for part in restored.parts(of)]
        assert sum(sum(matcher.open_runs.values()) for state in states for matcher in state) == n_open


def test_rules_with_which_the_state_cannot_continue_are_refused_and_nothing_is_written(
    tmp_path: Path,
) -> None:
    other = pipeline_with(tmp_path / "types", "amount > 100", "amount > 101")
    streams = tmp_path / "types/streams.yaml"
    streams.write_text(streams.read_text().replace("amount: double", "amount: bigint"))
    gone = pipeline_with(tmp_path / "gone", ", MAX(cards.most) AS most", "")
    rules = tmp_path / "gone/rules.cep"
    rules.write_text(rules.read_text().replace("JOIN cards ON card PARTITION", "PARTITION"))
    gone.write_text(gone.read_text().replace("  - {table: cards, format: json, path: cards}\n", ""))
    for file, why in ((other, "`amount`"), (gone, "input `cards` is gone")):
        with pytest.raises(StateError, match=rf"E0701.*{why}"):
            restore(str(STORED), str(tmp_path / "checkpoint"), pipeline=load_pipeline(file))
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize(
    ("source", "n_lines", "why"),
    [
        (SourceIdentity("postgres", "orders by slot"), 3, "its replication slot keeps the log only"),
        (SourceIdentity("json", "/in"), 4, "a source that only Spark reads"),
    ],
)
def test_a_source_whose_position_is_elsewhere_is_refused(
    tmp_path: Path, source: SourceIdentity, n_lines: int, why: str
) -> None:
    offsets = tmp_path / "query/offsets"
    offsets.mkdir(parents=True)
    checkpoint = Checkpoint(str(tmp_path), "run", 2, LocalFiles(str(tmp_path)))
    (offsets / "0").write_text("v1\n{}\n0\n")
    require_saved_positions(checkpoint, 0, {"s": SourceIdentity("json", "/in")})
    (offsets / "0").write_text("v1\n{}\n" + "0\n" * (n_lines - 2))
    with pytest.raises(StateError, match=rf"E0715.*{why}"):
        require_saved_positions(checkpoint, 0, {"s": source})


def test_restored_state_that_is_missing_or_cut_off_is_refused(tmp_path: Path) -> None:
    restore(str(STORED), str(tmp_path / "checkpoint"))
    folder = tmp_path / "checkpoint/restored"
    labels = frozenset(int(file.name) for file in folder.iterdir())
    restored = Restored(str(folder), labels)
    assert restored.parts(max(labels) + 1) == []
    file = folder / str(min(labels))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(StateError, match=r"E0702.*is cut off"):
        restored.parts(min(labels))
    file.unlink()
    with pytest.raises(StateError, match=r"E0702.*cannot be read"):
        restored.parts(min(labels))


_RESTORING, _SAVEPOINT = "spark_runtime.pipeline.restoring", "spark_runtime.pipeline.savepoint"

KILLED = """
import sys
from spark_runtime.pipeline.restoring import restore
from tests.kills.points import Call, plant
folder, path, module, name, moment, nth = sys.argv[1:]
plant(Call(module, name, moment), int(nth))
restore(folder, path, 3)
"""


@pytest.mark.parametrize(
    ("module", "name", "moment", "nth", "is_whole"),
    [
        (_RESTORING, "add_part", BEFORE, 1, False),
        (_RESTORING, "add_part", AFTER, 1, False),
        (_RESTORING, "add_part", BEFORE, 3, False),
        (_RESTORING, "divided_state", BEFORE, 2, False),
        (_RESTORING, "_progress", BEFORE, 1, False),
        (_RESTORING, "pipeline_json", AFTER, 1, False),
        (_SAVEPOINT, "Path.rename", BEFORE, 1, False),
        (_SAVEPOINT, "Path.rename", AFTER, 1, True),
    ],
)
def test_a_restore_that_is_killed_leaves_nothing_or_all_of_it(
    forks: Forks, tmp_path: Path, module: str, name: str, moment: str, nth: int, is_whole: bool
) -> None:
    path, beside = tmp_path / "checkpoint", tmp_path / "beside"
    done = forks.run(KILLED, STORED, path, module, name, moment, nth)
    assert done.code == -signal.SIGKILL, done.err
    assert path.exists() == is_whole
    if not is_whole:
        with pytest.raises(StateError, match=r"E0705.*it has not finished"):  # of a run that would begin anew
            require_finished(str(path))
        restore(str(STORED), str(path), 3)
    require_finished(str(path))
    restore(str(STORED), str(beside), 3)
    assert contents(path) == contents(beside)
    assert [place.name for place in sorted(tmp_path.iterdir())] == ["beside", "checkpoint"]


def contents(checkpoint: Path) -> dict[str, bytes]:
    """Return the files of a restored checkpoint, but for the name of its stream, which is in a checksum."""
    found = {
        str(file.relative_to(checkpoint)): file.read_bytes()
        for file in checkpoint.rglob("*")
        if file.is_file()
    }
    run = json.loads(found["pipeline.json"])["run"]
    found["pipeline.json"] = found["pipeline.json"].replace(run.encode(), b"?").rstrip()
    return found


def test_the_history_and_the_gaps_of_a_savepoint_come_before_the_first_micro_batch(tmp_path: Path) -> None:
    saved = copied(tmp_path)
    rules = opened(str(saved)).rules()
    late, dead = (
        Entry(loss, "payments", number, 3, 10, 20, 7) for number, loss in ((1, Loss.LATE), (0, Loss.DEAD))
    )
    marks = Filled(tuple(dead.to_list()), ("often",), matches=4)
    history = [Generation(0, rules), Generation(1, rules, 6, filled=(marks,))]
    (saved / "history").mkdir()
    for generation in history:
        (saved / f"history/{generation.number}.json").write_text(generation.to_json())
    (saved / "gaps.json").write_text(ledger_json([late, dead]))
    manifest = opened(str(saved)).manifest
    added = ("gaps.json", "history/0.json", "history/1.json")
    files = {name: saved_file((saved / name).read_bytes()) for name in added}
    whole = replace(manifest, files={**manifest.files, **files})
    (saved / "savepoint.json").write_text(whole.to_json())

    restore(str(saved), str(tmp_path / "same"))
    files_now = LocalFiles(str(tmp_path / "same"))
    gaps = all_gaps(files_now, str(tmp_path / "same"))
    assert {(gap.loss, frozenset(gap.rules), gap.n, gap.filled and gap.filled.matches) for gap in gaps} == {
        (Loss.DEAD, frozenset(("testing", "hourly")), 3, None),
        (Loss.DEAD, frozenset(("often",)), 3, 4),
        (Loss.LATE, frozenset(("testing", "hourly", "often")), 3, None),
    }
    assert {generation.batch for generation in all_generations(files_now)} == {-1}
    told = CliRunner().invoke(main, ["history", str(tmp_path / "same")]).output
    assert told.count("before the restore") == 2

    file = pipeline_with(tmp_path / "changed", "RULE often", "RULE frequent")
    restore(str(saved), str(tmp_path / "other"), None, load_pipeline(file))
    gaps = all_gaps(LocalFiles(str(tmp_path / "other")), str(tmp_path / "other"))
    assert [gap.rules for gap in gaps if gap.loss == Loss.LATE_START] == [("frequent",)]
    assert {"testing", "often"} <= {rule for gap in gaps if gap.loss == Loss.LATE for rule in gap.rules}


def test_texts_name_no_folder_of_a_source_and_later_that_of_another_machine() -> None:
    then = {"s": "/data/in", "t": "/data/in/{day}/x.json", "u": "topic"}
    value = {"s[/data/in/a.json]": [5, "/data/in/a.json:12"], "t": "/data/inner/b", "u[3]": None}
    found = without_paths(value, then)
    assert found == {"s[<s>/a.json]": [5, "<s>/a.json:12"], "t": "/data/inner/b", "u[3]": None}
    now = with_paths(found, {"s": "/elsewhere", "u": "topic"})
    assert now == {"s[/elsewhere/a.json]": [5, "/elsewhere/a.json:12"], "t": "/data/inner/b", "u[3]": None}
    assert [portable(place) for place in then.values()] == ["", "", "topic"]
