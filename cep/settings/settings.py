"""The settings of one source or sink of a pipeline file, each read with its place for error messages."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from cep.errors import SetupError
from cep.packages import require_package
from cep.settings.roots import is_inside
from cep.settings.yaml_document import Document

_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_REMOTE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one source or sink.

    A method that finds a problem records it with its place and returns None; all problems are shown together.

    - `document`: the pipeline file.
    - `folder`: the folder that relative paths start at.
    - `node`: the place of the whole.
    - `what`: what it is called in messages: ``a sink``.
    - `found`: the settings that are given.
    """

    document: Document
    folder: Path
    node: yaml.Node
    what: str
    found: Mapping[str, yaml.Node]

    def __contains__(self, name: str) -> bool:
        return name in self.found

    @property
    def n_problems(self) -> int:
        """How many problems the document has."""
        return len(self.document.diagnostics)

    def problem(self, code: str, title: str, name: str, label: str, help_text: str) -> None:
        """Record a problem of a setting, or of the whole source or sink if the setting is not given."""
        self.document.problem(code, title, self.found.get(name, self.node), label, help_text)

    def missing(self, name: str, other: str = "") -> None:
        """Record that a setting is missing; `other` could be given instead."""
        has_no = f"has neither `{name}` nor `{other}`" if other else f"has no `{name}`"
        self.problem("E0404", f"{self.what} {has_no}", name, f"`{name}` is missing", f"add: {name}: ...")

    def inside(self, name: str, known: Collection[str], required: Collection[str]) -> Settings | None:
        """Return the settings of a setting that is a mapping."""
        node, what = self.found[name], f"`{name}`"
        found = self.document.settings(node, what, known, required)
        return None if found is None else Settings(self.document, self.folder, node, what, found)

    def text(self, name: str) -> str | None:
        """Return a string; a missing text is a problem."""
        node = self._needed(name)
        return None if node is None else self.document.text(node, f"`{name}`")

    def secret(self, name: str) -> str | None:
        """Return a string in which `${NAME}` may stand for an environment variable, as it is written."""
        node = self.found.get(name)
        if isinstance(node, yaml.ScalarNode) and _VARIABLE.search(node.value):
            return str(node.value) if has_no_nul(self.document, node, node.value) else None
        return self.text_without_nul(name)

    def text_without_nul(self, name: str) -> str | None:
        """Return a string without NUL; a missing string is a problem."""
        text = self.text(name)
        return text if text is None or has_no_nul(self.document, self.found[name], text) else None

    def require_package(self, package: str, extra: str) -> bool:
        """Return whether a package of the format is installed; a missing package is a problem."""
        node = self.found["format"]
        try:
            require_package(f"{self.what} of format {node.value}", package, extra)
        except SetupError as error:
            self.document.problem(error.code, error.args[0], node, "cannot be used", error.help)
            return False
        return True

    def path(self, name: str) -> str | None:
        """Return a path, unchanged if it has a scheme, else absolute. A missing path is a problem."""
        node = self._needed(name)
        return None if node is None else path_of(self.document, node, f"`{name}`", self.folder)

    def names(self, name: str) -> tuple[str, ...] | None:
        """Return a string or a list of strings without duplicates; a missing setting is a problem."""
        node = self._needed(name)
        texts = None if node is None else self.document.texts(node, f"`{name}`")
        if texts is None or not all(has_no_nul(self.document, place, text) for text, place in texts):
            return None
        return tuple(dict.fromkeys(text for text, _ in texts))

    def boolean(self, name: str) -> bool | None:
        """Return true or false; None if it is wrong or missing."""
        return self.document.boolean(self.found[name], f"`{name}`") if name in self.found else None

    def integer(self, name: str, default: int | None = None) -> int | None:
        """Return a whole number of at least 0."""
        return self.document.integer(self.found[name], f"`{name}`") if name in self.found else default

    def word(self, name: str, words: Sequence[str]) -> str | None:
        """Return one of some words; None if it is wrong or missing."""
        return one_of(self.document, self.found[name], f"`{name}`", words) if name in self.found else None

    def _needed(self, name: str) -> yaml.Node | None:
        if name not in self.found:
            self.missing(name)
        return self.found.get(name)


def path_of(document: Document, node: yaml.Node, what: str, folder: Path) -> str | None:
    """Return a path unchanged if it has a scheme, else relative to `folder`."""
    text = document.text(node, what)
    if text is None or not _can_be_path(document, node, text):
        return None
    if not _REMOTE.match(text):
        if not Path(text).is_absolute():
            document.relative.append(text)
        text = str((folder / text).resolve())
    return text if check_place(document, node, text) else None


def has_no_nul(document: Document, node: yaml.Node, text: str) -> bool:
    """Return whether a text can be a path or an option of a library; report a problem if not."""
    if "\0" in text:
        document.problem("E0402", "a value contains a NUL character", node, "no path has one", "remove it")
        return False
    return True


def _can_be_path(document: Document, node: yaml.Node, text: str) -> bool:
    """Return whether the system accepts a text as a path; report a problem if not."""
    if not has_no_nul(document, node, text):
        return False
    try:
        text.encode(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())
    except UnicodeEncodeError:
        document.problem(
            "E0402",
            "a path has a character that the locale of this process cannot write",
            node,
            f"not in {sys.getfilesystemencoding()}",
            "set the locale: export LC_ALL=C.UTF-8",
        )
        return False
    return True


def check_place(document: Document, node: yaml.Node, path: str) -> bool:
    """Return whether a path is possible, and below a root of the document; report a problem if not."""
    if not _can_be_path(document, node, path):
        return False
    is_allowed = is_inside(path, document.roots)
    if not is_allowed:
        document.problem(
            "E0839",
            "a path outside of the declared roots",
            node,
            f"not below {' or '.join(document.roots)}",
            "write a path below a root; or declare another root: --root DIR",
        )
    return is_allowed


def one_of(document: Document, node: yaml.Node, what: str, words: Sequence[str]) -> str | None:
    """Return a string that is one of some words; anything else is a problem."""
    text = document.text(node, what)
    if text is None or text in words:
        return text
    document.problem("E0841", f"{what} cannot be `{text}`", node, "not known", f"write {' or '.join(words)}")
    return None
