"""The names of rule files in a savepoint, which do not depend on where these files are.

`<rules>/cards/burst.cep` is a file below the folder that contains all rule files of the savepoint. The first
run of a restored checkpoint knows this folder, and gives the files their paths. Savepoints of earlier
versions have only the last part of a path, so nobody knows the folders of their files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from cep.errors import Source
from spark_runtime.pipeline.stored_rules import StoredRules

_FOLDER = "<rules>/"


def without_folder(saved: Sequence[StoredRules]) -> list[StoredRules]:
    """Return rules without the folder that contains all of their files.

    If it is the root of the file system, only the last parts of paths remain: the others are the machine's.
    """
    names = {text.name for rules in saved for text in rules.texts}
    paths = [os.path.normpath(name) for name in names if os.path.isabs(name)]
    if not paths:  # a restored checkpoint, whose files nobody has placed
        return list(saved)
    folder = os.path.commonpath(map(os.path.dirname, paths))

    def portable(name: str) -> str:
        if not os.path.isabs(name):  # it was below another folder
            return name.removeprefix(_FOLDER)
        if folder == os.path.dirname(folder):
            return os.path.basename(name)
        return _FOLDER + os.path.relpath(name, folder)

    return [_renamed(rules, portable) for rules in saved]


def has_no_folder(rules: StoredRules) -> bool:
    """Return whether the rules are those of a savepoint, and can be placed."""
    return any(text.name.startswith(_FOLDER) for text in rules.texts)


def folder_of(saved: StoredRules, texts: Sequence[Source]) -> str | None:
    """Return the only folder in which all files of a savepoint are files of a pipeline; None: there is none.

    `texts` are those of the pipeline.
    """
    paths = [os.path.normpath(text.name) for text in texts]
    names = ["/" + text.name.removeprefix(_FOLDER) for text in saved.texts]
    found = [{path.removesuffix(name) for path in paths if path.endswith(name)} for name in names]
    folders = set.intersection(*found)
    return folders.pop() if len(folders) == 1 else None


def in_folder(saved: StoredRules, folder: str) -> StoredRules:
    """Return the rules of a savepoint with the paths of their files below a folder."""
    return _renamed(saved, lambda name: f"{folder}/{name.removeprefix(_FOLDER)}")


def _renamed(rules: StoredRules, name_of: Callable[[str], str]) -> StoredRules:
    return replace(rules, texts=tuple(Source(name_of(text.name), text.text) for text in rules.texts))
