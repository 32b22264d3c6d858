"""The rules that come with the package: a list of them, and copies as a start for a user's own rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from cep.diagnostics.diagnostic import suggestion
from cep.errors import InputError, RuleError, Source
from cep.language.ast import stream_names
from cep.language.front_ends import RULE_TEXT, read_rules
from cep.rule_files import STREAMS_FILE
from cep.write_errors import writing

(RULE_SUFFIX,) = RULE_TEXT.suffixes
"""Ending of the rule files of the library."""

_TESTS = ".test.yaml"
"""Ending of the file with the tests of a rule."""


@dataclass(frozen=True, slots=True)
class LibraryRule:
    """A rule of the library: its folder, its name, what it detects, the streams that it reads, its file."""

    folder: str
    name: str
    title: str
    streams: tuple[str, ...]
    file: Traversable

    @property
    def path(self) -> str:
        """The name of the rule with its folder, as `cep rules` shows and accepts it."""
        return f"{self.folder}/{self.name}"


def library_rules() -> tuple[LibraryRule, ...]:
    """Return all rules of the library, by folder and name."""
    folders = sorted((item for item in _library().iterdir() if item.is_dir()), key=lambda item: item.name)
    return tuple(rule for folder in folders for rule in _rules_in(folder))


def copy_rules(names: Sequence[str], to: Path) -> tuple[list[Path], list[Path]]:
    """Copy rules with their streams files and tests; return the files written and those that existed before.

    A name is the name of a rule, with or without its folder, or the name of a folder. Each file keeps its
    folder. If one of the files exists with other content, nothing is copied.
    """
    files: dict[Path, bytes] = {}
    for rule in _chosen(names):
        folder = to / rule.folder
        files[folder / f"{rule.name}{RULE_SUFFIX}"] = rule.file.read_bytes()
        inside = _library() / rule.folder
        for name in (STREAMS_FILE, f"{rule.name}{_TESTS}"):
            if (inside / name).is_file():
                files[folder / name] = (inside / name).read_bytes()
    there = [path for path in files if path.exists()]
    for path in there:
        if not path.is_file() or path.read_bytes() != files[path]:
            raise InputError(
                "E0661",
                f"`{path}` is there and differs from the library's: nothing was copied",
                "move it away, or name another folder with --to",
            )
    written = [path for path in files if path not in there]
    for path in written:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[path])
    return written, there


def _library() -> Traversable:
    """Return the folder of the library: inside an installed package, next to `cep` in a checkout."""
    installed = resources.files("cep") / "library"
    return installed if installed.is_dir() else Path(__file__).parents[1] / "rules"


def _rules_in(folder: Traversable) -> Iterator[LibraryRule]:
    for file in sorted(folder.iterdir(), key=lambda item: item.name):
        if file.name.endswith(RULE_SUFFIX):
            name = file.name.removesuffix(RULE_SUFFIX)
            rules, problems = read_rules(Source(f"{folder.name}/{file.name}", file.read_text("utf-8")))
            if problems:
                raise RuleError(problems)
            (rule,) = (rule for rule in rules if rule.name.text == name)  # it may read matches of the others
            title = rule.title.text if rule.title else ""
            yield LibraryRule(folder.name, name, title, tuple(stream_names(rules)), file)


def _chosen(names: Iterable[str]) -> list[LibraryRule]:
    rules = library_rules()
    chosen: dict[str, LibraryRule] = {}
    for name in names:
        found = [rule for rule in rules if name in (rule.folder, rule.name, rule.path)]
        if not found:
            near = suggestion(name, {word for rule in rules for word in (rule.folder, rule.name, rule.path)})
            guess = f"did you mean `{near}`? " if near else ""
            raise InputError(
                "E0660",
                f"the library has no rule and no folder `{name}`",
                f"{guess}`cep rules list` shows all rules",
            )
        chosen |= {rule.path: rule for rule in found}
    return list(chosen.values())
