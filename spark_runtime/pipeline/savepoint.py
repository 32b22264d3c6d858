"""A savepoint: what a pipeline remembers after a micro-batch, in a folder that can be copied anywhere.

    <savepoint>/savepoint.json        the manifest
    <savepoint>/rules.json            the rules (`stored_rules`)
    <savepoint>/groups/<label>        the state of a key group (`state.snapshots`)
    <savepoint>/sources/<stream>.log  what a source keeps in a checkpoint beside its position
    <savepoint>/history/<number>.json the rules from one change to the next (`generations`)
    <savepoint>/gaps.json             what rules did not see (`gaps`)
    <savepoint>/course.log            how far the stream had come (`course`)

Earlier versions wrote neither the history nor the gaps nor the course.

The manifest has the length and the checksum of each other file. No file contains a folder of the machine: the
folder of a source is replaced by its stream in angle brackets.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from cep.errors import StateError
from cep.rule_set import RuleSet
from cep.settings.file_mode import PRIVATE, FileMode
from cep.spool.new_files import umask
from cep.write_errors import writing
from spark_runtime.event_time.reached import Reached
from spark_runtime.pipeline.generations import Generation
from spark_runtime.pipeline.stored_rules import FORMAT as RULES_FORMAT
from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.state.contents import StoredGroup, StoredState, programs_in
from spark_runtime.storage.checkpoint_files import is_file_there, is_there

FORMAT = 1

MANIFEST, RULES, GROUPS, SOURCES = "savepoint.json", "rules.json", "groups", "sources"
HISTORY, GAPS, COURSE = "history", "gaps.json", "course.log"

_FILES = re.compile(
    rf"{re.escape(RULES)}|{GROUPS}/[0-9]+|{SOURCES}/[^/]+\.log|{HISTORY}/[0-9]+\.json"
    rf"|{re.escape(GAPS)}|{re.escape(COURSE)}"
)

_AGAIN = "copy the savepoint again as a whole, or make another one"


@dataclass(frozen=True, slots=True)
class SavedSource:
    """The source of a stream.

    `format`: the name of its kind, as in the pipeline file. `place`: where its input is, as in
    `SourceIdentity`; empty if that is a path. `position`: its offset; None: nothing was read.
    """

    format: str
    place: str
    position: Any


@dataclass(frozen=True, slots=True)
class SavedFile:
    """The length of a file in bytes, and its SHA-256 in hexadecimal digits."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a savepoint contains.

    - `run`, `micro_batch`: the stream, as sinks know it, and its last micro-batch in the savepoint.
    - `watermark`: the event time that was reached, for people; None: no event was read.
    - `rules`: for each rule, the fingerprint of its stored state, in hexadecimal digits. - `progress`: what
      else the checkpoint records about the micro-batch (`Done`), by name.
    - `files`: the other files of the savepoint.
    """

    run: str
    micro_batch: int
    watermark: str | None
    key_groups: int
    rules: Mapping[str, str]
    sources: Mapping[str, SavedSource]
    progress: Mapping[str, Any]
    files: Mapping[str, SavedFile]

    def to_json(self) -> str:
        """Return the manifest as a text for people and programs."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Manifest:
        """Return what `to_json` wrote; raise ValueError, KeyError or TypeError for other values."""
        sources = {str(name): SavedSource(**of) for name, of in found["sources"].items()}
        files = {str(name): SavedFile(**of) for name, of in found["files"].items()}
        if not all(map(_FILES.fullmatch, files)):
            raise ValueError("a file that a savepoint does not have")
        return cls(
            run=str(found["run"]),
            micro_batch=int(found["micro_batch"]),
            watermark=found["watermark"],
            key_groups=int(found["key_groups"]),
            rules=dict(found["rules"]),
            sources=sources,
            progress=dict(found["progress"]),
            files=files,
        )


@dataclass(frozen=True)
class Savepoint:
    """An opened savepoint."""

    folder: Path
    manifest: Manifest

    def data(self, name: str) -> bytes:
        """Return the bytes of a file. Raises StateError: it is missing or damaged (E0714)."""
        place, saved = self.folder / name, self.manifest.files[name]
        try:
            data = place.read_bytes()
        except OSError as error:
            raise _not_read(place, error) from error
        if saved != saved_file(data):
            raise _unreadable(f"`{place}` does not contain what was written", _AGAIN)
        return data

    def rules(self) -> StoredRules:
        """Return the rules. Raises StateError (E0714): they are missing, damaged, or in an unknown format."""
        found = json.loads(self.data(RULES))
        if found["format"] != RULES_FORMAT:
            raise _other_format(self.folder / RULES, found["format"], RULES_FORMAT)
        return StoredRules.of_json(found)

    def rule_set(self) -> RuleSet:
        """Return the compiled rules. Raises StateError as `rules` does."""
        return self.rules().rule_set()

    @property
    def reached(self) -> Reached:
        """The event time that was reached."""
        return Reached.of_json(json.dumps(self.manifest.progress["reached"]))

    def groups(self) -> Iterator[tuple[int, bytes]]:
        """Yield the label and the state of each key group.

        Raises StateError: a file is missing or damaged (E0714).
        """
        for name in self.manifest.files:
            folder, _, label = name.partition("/")
            if folder == GROUPS:
                yield int(label), self.data(name)

    def history(self) -> list[Generation]:
        """Return the generations of rules, the oldest first; savepoints of earlier versions have none.

        Raises StateError: one is missing or damaged (E0714).
        """
        names = [name for name in self.manifest.files if name.startswith(f"{HISTORY}/")]
        numbers = sorted(int(name.removeprefix(f"{HISTORY}/").removesuffix(".json")) for name in names)
        try:
            return [
                Generation.of_json(number, json.loads(self.data(f"{HISTORY}/{number}.json")))
                for number in numbers
            ]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _unreadable(f"`{self.folder}/{HISTORY}` is damaged", _AGAIN) from error

    def stored_state(self) -> StoredState:
        """Return the rules and the state, for people. Raises StateError as `rules` and `groups` do."""
        stored = self.rules()
        rules = stored.rule_set()
        groups = (
            StoredGroup(label, len(data), False, tuple(programs_in(data, rules)))
            for label, data in self.groups()
        )
        return StoredState(stored.texts, rules, self.reached, groups)


def is_savepoint(path: str) -> bool:
    """Return whether a folder on a disk of this machine is a savepoint, perhaps a damaged one.

    Raises StateError: the folder cannot be read (E0702).
    """
    return is_file_there(Path(path) / MANIFEST)


def opened(path: str) -> Savepoint:
    """Return the savepoint in a folder, of which only the manifest is read.

    Raises StateError: there is none, or it is damaged or of a different version (E0714).
    """
    place = Path(path) / MANIFEST
    try:
        data = place.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise _unreadable(
            f"`{path}` is no savepoint: it has no {MANIFEST}", "give a folder that `cep savepoint` wrote"
        ) from error
    except OSError as error:
        raise _not_read(place, error) from error
    try:
        found = json.loads(data)
        if found["format"] != FORMAT:
            raise _other_format(place, found["format"], FORMAT)
        return Savepoint(Path(path), Manifest.of_json(found))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(f"`{place}` is damaged", _AGAIN) from error


def saved_file(data: bytes) -> SavedFile:
    """Return what a manifest says about a file."""
    return SavedFile(len(data), sha256(data).hexdigest())


def _other_format(place: Path, found: object, known: int) -> StateError:
    return _unreadable(
        f"`{place}` has format {found}, this version reads {known}",
        "use the version of spark-cep that wrote it",
    )


def _not_read(place: Path, error: OSError) -> StateError:
    """Return the error for a file that cannot be read. Another copy would be as forbidden as this one."""
    help_text = "let the user who runs this read it" if isinstance(error, PermissionError) else _AGAIN
    return _unreadable(f"`{place}` cannot be read: {error.strerror or error}", help_text)


def _unreadable(fact: str, help_text: str) -> StateError:
    return StateError("E0714", fact, help_text)


def require_finished(path: str) -> None:
    """Raise StateError if `cep restore` began to write a checkpoint here, and has not finished (E0705).

    Otherwise a run would begin without the state.
    """
    target = Path(path).absolute()
    hidden = _unfinished(target)
    if is_there(hidden) and not any(target.glob("*.json")):
        raise StateError(
            "E0705",
            f"`{path}` is not the checkpoint that `cep restore` began to write: it has not finished",
            f"run `cep restore` again; to begin without its state, remove `{hidden}`",
        )


def _unfinished(target: Path) -> Path:
    """Return where the contents of a folder are until all of them are written."""
    return target.with_name(f".{target.name}.unfinished")


@contextmanager
def new_folder(path: str, mode: FileMode = PRIVATE) -> Iterator[Path]:
    """Yield a folder whose contents appear at `path` in one step, unless an error is raised.

    It and all files that are created in the context have `mode`.

    Raises StateError: `path` is not empty, or not on a disk (E0716).
    """
    if "://" in path:
        raise StateError(
            "E0716",
            f"`{path}` is no folder on a disk",
            "name a folder on a disk, and copy it there afterwards",
        )
    target = Path(path).absolute()
    hidden = _unfinished(target)
    with umask(mode.umask), writing(target):
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise StateError(
                "E0716", f"`{path}` is not empty", "name a folder that is empty, or does not exist"
            )
        if hidden.exists():
            shutil.rmtree(hidden)
        hidden.mkdir(parents=True)
        try:
            yield hidden
            hidden.rename(target)
        except BaseException:
            shutil.rmtree(hidden, ignore_errors=True)
            raise
