"""Rules of an earlier generation, written back to their files: `cep restore-rules`.

Only rule files are changed. A run takes them like any change of these files (`reloading`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from cep.errors import Source, StateError
from cep.program.changes import Changes, changes_of
from cep.rulebook import compile_texts
from cep.write_errors import writing
from spark_runtime.pipeline.generations import Generation, require_continues
from spark_runtime.pipeline.stored_rules import StoredRules

_ENDING = ".restored"
"""What a file is called until all of them are written."""


@dataclass(frozen=True)
class RulesBack:
    """What must be done so that the rule files are those of a generation.

    - `changes`: the verdict about the change from the latest generation.
    - `written`: the texts of the files that differ, by path. - `removed`: the files that the generation did
      not have. - `other_streams`: the streams that are declared differently in the latest generation.
    """

    changes: Changes
    written: Mapping[Path, str]
    removed: Sequence[Path]
    other_streams: Sequence[str]

    def apply(self) -> None:
        """Write the files, then remove the others. Raises InputError: a file cannot be written (E0609)."""
        for path, text in self.written.items():
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                file = path.with_name(path.name + _ENDING)
                file.write_text(text, encoding="utf-8")
                with suppress(FileNotFoundError):
                    file.chmod(path.stat().st_mode & 0o7777)
        for path in self.written:
            with writing(path):
                path.with_name(path.name + _ENDING).replace(path)
        for path in self.removed:
            with writing(path):
                path.unlink()


def rules_back(generations: Sequence[Generation], number: int, to: Path | None = None) -> RulesBack:
    """Return the changes that turn the rule files into those of generation `number`; change nothing.

    With `to`, they are written into this folder, and no file is removed.

    Raises StateError: the stored state cannot continue with these rules (E0701); a file has a text that no
    generation had, which would be lost; or it is not certain where the files are (E0717).
    """
    latest = generations[-1].rules
    wanted = next(item for item in generations if item.number == number).rules
    changes = changes_of(
        *(compile_texts(rules.texts, rules.streams).rule_set.programs for rules in (latest, wanted)),
        has_corrections=latest.has_corrections,
    )
    require_continues(changes)
    known: dict[Path, set[str]] = {}
    gone: list[Path] = []
    if to is not None:
        texts = _in_folder(wanted.texts, to)
    else:
        _require_places([item for item in generations if item.number >= number])
        texts = {_path(text): text.text for text in wanted.texts}
        gone = [path for path in map(_path, latest.texts) if path not in texts]
        for source in (source for item in generations for source in item.rules.texts):
            known.setdefault(_path(source), set()).add(source.text)
    found = {path: text for path in (*texts, *gone) if (text := _text(path)) is not None}
    for path, text in found.items():
        if text != texts.get(path) and text not in known.get(path, ()):
            raise StateError(
                "E0717",
                f"`{path}` has a text that no generation of this checkpoint had",
                "move it elsewhere first, or write the rules into another folder: --to DIR",
            )
    written = {path: text for path, text in texts.items() if found.get(path) != text}
    return RulesBack(
        changes, written, [path for path in gone if path in found], _other_streams(latest, wanted)
    )


def _require_places(generations: Sequence[Generation]) -> None:
    """Raise StateError (E0717) unless it is certain which file each text is, and which files were added."""
    for item in generations:
        for text in item.rules.texts:
            if not os.path.isabs(text.name):
                raise _uncertain(
                    f"it is not known where `{text.name}` of generation {item.number} is: the checkpoint was "
                    "restored from a savepoint"
                )
    for before, after in pairwise({_path(text) for text in item.rules.texts} for item in generations):
        for path in sorted(before - after):
            for other in sorted(after - before):
                if path.name == other.name:
                    raise _uncertain(f"`{path}` is perhaps the file that is now `{other}`")


def _uncertain(fact: str) -> StateError:
    return StateError("E0717", fact, "write the rules into another folder: --to DIR")


def _path(text: Source) -> Path:
    """Return the path of a rule file; a link to it is another name for it."""
    return Path(text.name).resolve()


def _in_folder(texts: Sequence[Source], folder: Path) -> dict[Path, str]:
    """Return texts with paths in a folder, as they are to each other.

    A savepoint of an earlier version may contain several files of one name, without their folders. Each of
    them gets a folder of its own.
    """
    paths = [Path(os.path.normpath(text.name)) for text in texts]
    if len(set(paths)) < len(paths):
        paths = [Path(str(number), path) for number, path in enumerate(paths, 1)]
    above = Path(os.path.commonpath([path.parent for path in paths]))
    return {folder / path.relative_to(above): text.text for path, text in zip(paths, texts, strict=True)}


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def _other_streams(latest: StoredRules, wanted: StoredRules) -> list[str]:
    both: Iterable[str] = latest.streams.keys() & wanted.streams.keys()
    return sorted(name for name in both if latest.streams[name] != wanted.streams[name])
