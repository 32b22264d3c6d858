"""The settings of one source or sink of a pipeline file, each read with its place for errors."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from cep.errors import SetupError
from cep.packages import require_package
from cep.schema.time_literals import parse_duration
from cep.settings.file_mode import HELP, PRIVATE, FileMode, parse_file_mode
from cep.settings.yaml_document import Document

_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_REMOTE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one source or sink.

    A method that finds a problem notes it with its place and returns None; all problems are shown together.

    Parameters
    ----------
    document
        The pipeline file.
    folder
        The folder that relative paths start at.
    node
        The place of the whole.
    what
        What it is, for messages: ``a sink``.
    found
        The settings that are there.
    """

    document: Document
    folder: Path
    node: yaml.Node
    what: str
    found: Mapping[str, yaml.Node]

    def __contains__(self, name: str) -> bool:
        return name in self.found

    def text(self, name: str) -> str | None:
        """Return a text; it is a problem if it is missing."""
        node = self._needed(name)
        return None if node is None else self.document.text(node, f"`{name}`")

    def secret(self, name: str) -> str | None:
        """Return a text in which `${NAME}` may stand for a variable of the environment, as it is written."""
        node = self.found.get(name)
        if isinstance(node, yaml.ScalarNode) and _VARIABLE.search(node.value):
            return str(node.value)
        return self.text(name)

    def require_package(self, package: str, extra: str) -> bool:
        """Return whether a package of the format is installed; that it is missing is a problem."""
        node = self.found["format"]
        try:
            require_package(f"{self.what} of format {node.value}", package, extra)
        except SetupError as error:
            self.document.problem(error.code, error.args[0], node, "cannot be used", error.help)
            return False
        return True

    def path(self, name: str) -> str | None:
        """Return a path: as it is if it has a scheme, else absolute. It is a problem if it is missing."""
        node = self._needed(name)
        return None if node is None else path_of(self.document, node, f"`{name}`", self.folder)

    def integer(self, name: str, default: int) -> int | None:
        """Return a whole number from 0."""
        return self.document.integer(self.found[name], f"`{name}`") if name in self.found else default

    def positive(self, name: str) -> int | None:
        """Return a whole number from 1; None also without it."""
        if name not in self.found:
            return None
        node = self.found[name]
        value = self.document.integer(node, f"`{name}`")
        if value == 0:
            self.document.problem(
                "E0402", f"`{name}` must be at least 1", node, "too small", "write 1 or more"
            )
        return value

    def word(self, name: str, words: Sequence[str], default: str) -> str:
        """Return one of some words."""
        if name not in self.found:
            return default
        return one_of(self.document, self.found[name], f"`{name}`", words) or default

    def file_mode(self, name: str) -> FileMode:
        """Return who may read files; without it their user only."""
        text = self.document.text(self.found[name], f"`{name}`") if name in self.found else None
        mode = PRIVATE if text is None else parse_file_mode(text)
        if mode is None:
            self.document.problem(
                "E0841",
                f"`{name}` cannot be `{text}`",
                self.found[name],
                "expected 6, then 0, 4 or 6 for the group and for all others",
                HELP,
            )
        return mode or PRIVATE

    def seconds(self, name: str) -> float | None:
        """Return a duration in seconds; None also without it."""
        text = self.document.text(self.found[name], f"`{name}`") if name in self.found else None
        length_us = None if text is None else parse_duration(text)
        if text is not None and length_us is None:
            self.document.problem(
                "E0409",
                f"`{text}` is not a length of time",
                self.found[name],
                "expected a duration",
                'for example "5 minutes"',
            )
        return None if length_us is None else length_us / 1e6

    def options(self, ours: Collection[str]) -> dict[str, str]:
        """Return the texts of `options`, without `ours`, which are decided elsewhere and are refused.

        `${NAME}` in them is a variable of the environment; it is not replaced here.
        """
        node = self.found.get("options")
        texts: dict[str, str] = {}
        for entry in [] if node is None else self.document.mapping(node, "`options`") or []:
            if entry.name in ours:
                self.document.problem(
                    "E0843",
                    f"`{entry.name}` is not for `options`",
                    entry.value,
                    "the pipeline decides about it",
                    "remove it",
                )
            elif not isinstance(entry.value, yaml.ScalarNode):
                self.document.text(entry.value, f"`{entry.name}`")  # notes that it is no text
            else:
                texts[entry.name] = str(entry.value.value)
        return texts

    def _needed(self, name: str) -> yaml.Node | None:
        if name not in self.found:
            self.document.problem(
                "E0404",
                f"{self.what} has no `{name}`",
                self.node,
                f"`{name}` is missing",
                f"add: {name}: ...",
            )
        return self.found.get(name)


def path_of(document: Document, node: yaml.Node, what: str, folder: Path) -> str | None:
    """Return a path as it is if it has a scheme, else from `folder` on."""
    text = document.text(node, what)
    if text is None or _REMOTE.match(text):
        return text
    return str((folder / text).resolve())


def one_of(document: Document, node: yaml.Node, what: str, words: Sequence[str]) -> str | None:
    """Return a text that is one of some words; what else is there is a problem."""
    text = document.text(node, what)
    if text is None or text in words:
        return text
    document.problem("E0841", f"{what} cannot be `{text}`", node, "not known", f"write {' or '.join(words)}")
    return None
