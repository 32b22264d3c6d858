"""Rule files of a savepoint get their paths when a restored checkpoint runs."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from cep.commands.cli import main
from cep.errors import Source
from spark_runtime.pipeline.checkpoint import SourceIdentity, open_checkpoint
from spark_runtime.pipeline.generations import Generation, all_generations
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.pipeline.reloading import Reloading
from spark_runtime.pipeline.restoring import restore
from spark_runtime.pipeline.rule_places import without_folder
from spark_runtime.pipeline.savepoint import opened, saved_file
from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.storage.checkpoint_files import LocalFiles
from tests.spark.stored_savepoint import RULES, STORED, write

TESTING, HOURLY, OFTEN = (f"{text.strip()}\n" for text in RULES.split("\n\n"))
ALL = {"a/x.cep": TESTING + HOURLY, "b/x.cep": OFTEN}
CHANGED = ALL | {"b/x.cep": OFTEN.replace("seen >= 3", "seen >= 2")}
LATER = CHANGED | {"b/later.cep": OFTEN.replace("RULE often", "RULE later")}


class Project:
    """A pipeline with rule files in the folder `r`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rules = folder, folder / "r"
        self.file = write(folder, both=True)
        self.file.write_text(self.file.read_text().replace("[rules.cep]", "[r]"))

    def stored(self, texts: Mapping[str, str]) -> StoredRules:
        """Write rule files, and return the rules as a checkpoint has them."""
        shutil.rmtree(self.rules, ignore_errors=True)
        for name, text in texts.items():
            (self.rules / name).parent.mkdir(parents=True, exist_ok=True)
            (self.rules / name).write_text(text)
        pipeline = load_pipeline(self.file)
        return StoredRules.of(pipeline.texts, pipeline.rules)

    def texts(self) -> dict[str, str]:
        return {str(file.relative_to(self.rules)): file.read_text() for file in self.rules.rglob("*.cep")}

    def run(self, checkpoint: Path) -> None:
        """Do with the rules what a run does before its first micro-batch."""
        pipeline = load_pipeline(self.file)
        files = LocalFiles(str(checkpoint))
        sources = {s.stream: SourceIdentity(s.name, s.spec.place) for s in pipeline.sources}
        rules = StoredRules.of(pipeline.texts, pipeline.rules)
        found = open_checkpoint(files, str(checkpoint), rules, sources, 2, accepts_other_rules=True)
        Reloading(found, pipeline, lambda text: None, list)


def base_names(saved: Sequence[StoredRules]) -> list[StoredRules]:
    """What savepoints of earlier versions contain."""
    return [
        replace(rules, texts=tuple(Source(Path(text.name).name, text.text) for text in rules.texts))
        for rules in saved
    ]


def restored(folder: Path, saved: Sequence[StoredRules]) -> Path:
    """Return a checkpoint that was restored from a savepoint with these generations of rules."""
    place, path = folder / "saved", folder / "restored"
    shutil.copytree(STORED, place)
    texts = {"rules.json": saved[-1].to_json()}
    for number, rules in enumerate(saved):
        texts[f"history/{number}.json"] = Generation(number, rules, number).to_json()
    (place / "history").mkdir()
    for name, text in texts.items():
        (place / name).write_text(text)
    manifest = opened(str(place)).manifest
    files = {name: saved_file((place / name).read_bytes()) for name in texts}
    whole = replace(manifest, files={**manifest.files, **files})
    (place / "savepoint.json").write_text(whole.to_json())
    restore(str(place), str(path))
    return path


def cep(*words: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(main, list(map(str, words)))
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return Project(tmp_path / "project")


def test_a_savepoint_has_the_names_of_rule_files_below_their_folder(project: Project) -> None:
    saved = without_folder([project.stored(ALL), project.stored({"a/x.cep": TESTING + HOURLY})])
    assert [[text.name for text in rules.texts] for rules in saved] == [
        ["<rules>/a/x.cep", "<rules>/b/x.cep"],
        ["<rules>/a/x.cep"],
    ]
    assert str(project.folder) not in "".join(rules.to_json() for rules in saved)
    assert without_folder(saved) == saved
    (of,) = saved[:1]
    far = replace(of, texts=(Source("/r1/x.cep", ""), Source("/r2/sub/x.cep", "")))
    assert [text.name for text in without_folder([far])[0].texts] == ["x.cep", "x.cep"]
    other = without_folder([of, project.stored(ALL)])  # which may have been below another folder
    assert [text.name for text in other[0].texts] == ["a/x.cep", "b/x.cep"]


@pytest.mark.parametrize("moves", [False, True])
def test_rules_of_a_restored_checkpoint_are_written_back_once_it_has_run(
    project: Project, tmp_path: Path, moves: bool
) -> None:
    path = restored(tmp_path, without_folder([project.stored(ALL), project.stored(LATER)]))
    if moves:
        project = Project(tmp_path / "other")
        project.stored(LATER)
    told = cep("restore-rules", path, "0", code=1)
    assert "error[E0717]: it is not known where `<rules>/a/x.cep` of generation 0 is" in told
    assert "--to DIR" in told
    assert project.texts() == LATER
    project.run(path)
    told = cep("restore-rules", path, "0")
    assert f"written: {project.rules}/b/x.cep\nremoved: {project.rules}/b/later.cep\n" in told
    assert told.count("written: ") == told.count("removed: ") == 1
    assert project.texts() == ALL
    cep("restore-rules", path, "1")
    assert project.texts() == LATER
    assert list(Path.cwd().iterdir()) == []
    told = cep("history", path, "--diff")
    assert "-DEFINE a AS seen >= 3" in told
    assert "testing" not in told.partition("+++")[2]


def test_rules_that_change_before_the_first_run_do_not_hide_where_the_files_are(
    project: Project, tmp_path: Path
) -> None:
    path = restored(tmp_path, without_folder([project.stored(ALL)]))
    project.stored(CHANGED)
    project.run(path)
    names = [text.name for text in all_generations(LocalFiles(str(path)))[0].rules.texts]
    assert names == [str(project.rules / name) for name in ALL]


@pytest.mark.parametrize("texts", [{"a/x.cep": RULES}, {"old/a/x.cep": TESTING + HOURLY, "b/x.cep": OFTEN}])
def test_files_that_are_in_other_folders_than_before_are_not_placed(
    project: Project, tmp_path: Path, texts: dict[str, str]
) -> None:
    path = restored(tmp_path, without_folder([project.stored(CHANGED), project.stored(ALL)]))
    project.stored(texts)
    project.run(path)
    assert "error[E0717]" in cep("restore-rules", path, "0", code=1)
    assert project.texts() == texts


def test_a_savepoint_of_an_earlier_version_is_written_only_to_another_folder(
    project: Project, tmp_path: Path
) -> None:
    path = restored(tmp_path, base_names([project.stored(ALL), project.stored(LATER)]))
    for _ in range(2):
        told = cep("restore-rules", path, "0", code=1)
        assert "error[E0717]: it is not known where `x.cep` of generation 0 is" in told
        project.run(path)
    assert project.texts() == LATER
    assert list(Path.cwd().iterdir()) == []
    cep("restore-rules", path, "0", "--to", tmp_path / "back")
    found = {
        str(file.relative_to(tmp_path / "back")): file.read_text()
        for file in (tmp_path / "back").rglob("*.cep")
    }
    assert found == {"1/x.cep": TESTING + HOURLY, "2/x.cep": OFTEN}


def test_the_difference_of_texts_of_one_name_is_complete(project: Project, tmp_path: Path) -> None:
    path = restored(tmp_path, base_names([project.stored(ALL), project.stored(CHANGED)]))
    told = cep("history", path, "--diff")
    assert "-DEFINE a AS seen >= 3 " in told
    swapped = {"a/x.cep": CHANGED["a/x.cep"].replace("< 5", "< 6"), "b/x.cep": CHANGED["b/x.cep"]}
    shutil.rmtree(tmp_path / "saved")
    shutil.rmtree(path)
    path = restored(tmp_path, base_names([project.stored(CHANGED), project.stored(swapped)]))
    assert "+DEFINE small AS amount < 6," in cep("history", path, "--diff")


def test_the_files_of_a_project_that_has_moved_are_not_removed(project: Project, tmp_path: Path) -> None:
    path = restored(tmp_path, [project.stored(ALL), project.stored(CHANGED)])
    moved = tmp_path / "moved"
    shutil.move(project.folder, moved)
    now = Project.__new__(Project)
    now.folder, now.rules, now.file = moved, moved / "r", moved / project.file.name
    now.run(path)
    told = cep("restore-rules", path, "0", code=1)
    assert (
        f"error[E0717]: `{project.rules}/a/x.cep` is perhaps the file that is now `{now.rules}/a/x.cep`"
        in told
    )
    assert now.texts() == CHANGED
    assert not project.folder.exists()
    link = tmp_path / "project"
    link.symlink_to(moved)
    assert f"written: {now.rules}/b/x.cep\n" in cep("restore-rules", path, "0")
    assert now.texts() == ALL


def test_rules_above_the_pipeline_file_stay_within_the_folder_that_is_named(
    project: Project, tmp_path: Path
) -> None:
    first, second = (
        Source(f"{project.folder}/{name}", text)
        for name, text in (("pipe/../../up/x.cep", TESTING + HOURLY), ("pipe/r/y.cep", OFTEN))
    )
    rules = replace(project.stored(ALL), texts=(first, second))
    path = restored(tmp_path, [rules])
    cep("restore-rules", path, "0", "--to", tmp_path / "back")
    files = sorted(str(file.relative_to(tmp_path / "back")) for file in (tmp_path / "back").rglob("*.cep"))
    assert files == ["project/pipe/r/y.cep", "up/x.cep"]
