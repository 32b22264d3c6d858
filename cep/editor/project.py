"""The files around a text that is being edited: problems as `cep check` reports them, and the files it reads.

`opened` are the texts that editors have, saved or not, by their absolute path. They take
precedence over the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cep.diagnostics.diagnostic import in_order
from cep.errors import Diagnostic, RuleError, Source
from cep.language.front_ends import SUFFIXES, read_rules
from cep.lint.findings import lint_book, read_tested
from cep.profiles.never_seen import profiles_of
from cep.profiles.profile import Profile
from cep.rule_files import STREAMS_FILE, TEST_ENDING, beside_rule, nearest_streams_file
from cep.rule_tests.reading import read_test_text
from cep.rulebook import Rulebook, check_book, no_streams
from cep.schema.stream import Stream
from cep.settings.schema_file import parse_streams
from cep.settings.source_file import read_source
from cep.settings.yaml_document import MAX_BYTES

Texts = Mapping[Path, str]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a rule file reads: its streams, their file, what profiles say about them, and other rule files."""

    streams: Mapping[str, Stream]
    streams_file: Source | None
    profiles: Mapping[str, Profile]
    sources: tuple[Source, ...]


def problems(path: Path, opened: Texts, *, with_lint: bool = False) -> dict[Path, tuple[Diagnostic, ...]]:
    """Return the problems of a rule file, a streams file or a test file, by the file that has them.

    With `with_lint` these are also the findings of `cep lint`, for rules without errors.

    The file itself is always among the keys. A problem without a place belongs to the file itself. Other
    files have no such problems.
    """
    found: list[Diagnostic] = []
    if path.name.endswith(SUFFIXES):
        found = _of_rules(path, opened, with_lint=with_lint)
    elif path.name == STREAMS_FILE:
        found = parse_streams(_source(path, opened))[1]
    elif path.name.endswith(TEST_ENDING):
        try:
            read_test_text(_source(path, opened))
        except RuleError as error:
            found = list(error.diagnostics)
    by_file: dict[Path, list[Diagnostic]] = {path: []}
    for problem in in_order(found):
        by_file.setdefault(path if problem.source is None else Path(problem.source.name), []).append(problem)
    return {file: tuple(of_file) for file, of_file in by_file.items()}


def dependents(path: Path, opened: Texts) -> tuple[Path, ...]:
    """Return the open files whose problems depend on a file: themselves, readers of streams, other rules."""
    if path.name == STREAMS_FILE:
        return tuple(file for file in opened if file == path or path.parent in file.parents)
    return tuple(file for file in opened if file == path or file.parent == path.parent)


def surroundings(path: Path, opened: Texts) -> Surroundings:
    """Return what a rule file reads. Rule files in its folder are among `sources`, itself first."""
    beside = nearest_streams_file(path)
    source = None if beside is None else _source(beside.resolve(), opened)
    streams = {} if source is None else parse_streams(source)[0]
    others = [file for file in _neighbours(path) if file != path]
    sources = (_source(path, opened), *(_source(file, opened) for file in others))
    return Surroundings(streams, source, profiles_of(beside, streams), sources)


def test_file(path: Path, opened: Texts) -> Source | None:
    """Return the test file of a rule file, if there is one."""
    if not path.name.endswith(SUFFIXES):
        return None  # another file that an editor has opened as rules
    file = beside_rule(path)
    return _source(file, opened) if file in opened or file.is_file() else None


def _of_rules(path: Path, opened: Texts, *, with_lint: bool) -> list[Diagnostic]:
    beside = nearest_streams_file(path)
    if beside is None:
        return [no_streams(path)]
    streams, found = parse_streams(_source(beside.resolve(), opened))
    if any(problem.is_error for problem in found):
        return found
    source = _source(path, opened)
    sources = (source, *(_source(file, opened) for file in _read_by(source, path)))
    book = Rulebook(sources, streams, beside)
    checked = check_book(book).problems
    if with_lint and not any(problem.is_error for problem in checked):
        checked = tuple(lint_book(book, read_tested([path]))[0])
    return [problem for problem in checked if problem.source in (None, source)]


def _read_by(source: Source, path: Path) -> Iterator[Path]:
    """Yield the other rule files of the folder, if the rules read the matches of one that they lack."""
    rules = read_rules(source)[0]
    known = {rule.name.text for rule in rules}
    if any(rule.streams[number].text not in known for rule in rules for number in rule.matches):
        yield from (file for file in _neighbours(path) if file != path)


def _neighbours(path: Path) -> list[Path]:
    return sorted(file for file in path.parent.glob("*") if file.name.endswith(SUFFIXES) and file.is_file())


def _source(path: Path, opened: Texts) -> Source:
    if path in opened:
        return Source(str(path), opened[path])
    try:
        return read_source(path, MAX_BYTES)
    except (OSError, UnicodeDecodeError, RuleError):
        return Source(str(path), "")
