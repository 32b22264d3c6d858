"""The test file: YAML -> `RuleTests`. Every problem is reported with its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import yaml

from cep.compiler.compile import Compiled
from cep.diagnostics.diagnostic import did_you_mean, in_order
from cep.diagnostics.limits import TooManyErrorsError
from cep.errors import Diagnostic, RuleError, Source
from cep.language.front_ends import SUFFIXES, rule_files
from cep.output.rows import columns_of
from cep.rule_files import TEST_ENDING, beside_rule, nearest_streams_file, unreadable
from cep.rule_set import RuleSet
from cep.rule_tests.cases import Case, Expected, RuleTests
from cep.rule_tests.events import Cells, EventReader
from cep.rule_tests.expected import expected_value
from cep.rulebook import compile_rulebook, load_rulebook
from cep.schema.time_literals import parse_timestamp, time_for_people
from cep.settings.source_file import read_source
from cep.settings.yaml_document import MAX_BYTES, Document, Entry, span_of

MAX_TEXT = MAX_BYTES
"""Most characters of a value: a block of CSV is one."""

START_US = 1_704_067_200_000_000
"""The time from which relative times count, without `start`: 2024-01-01T00:00:00Z."""

OF_FILE = ("rules", "streams", "rule", "parameters", "start", "defaults", "tables", "cases")
"""The settings of a test file."""

OF_CASE = ("events", "expect", "defaults", "tables")
"""The settings of a case."""


def test_files(paths: Sequence[str | Path]) -> list[Path]:
    """Return the test files of `paths`: rule files with a test file next to them, test files, or folders.

    Raises RuleError: a path does not exist, or has no tests.
    """
    problems: list[Diagnostic] = []
    found: dict[Path, None] = {}
    for path in map(Path, paths):
        beside = [path]
        try:
            if path.is_dir():
                beside = sorted(file for file in path.rglob(f"*{TEST_ENDING}") if file.is_file())
            elif path.name.endswith(SUFFIXES) and path.is_file():
                beside = [file for file in [beside_rule(path)] if file.is_file()]
            elif not path.is_file():
                problems.append(Diagnostic("E0611", f"there is no file or directory `{path}`"))
                continue
        except OSError as error:
            problems.append(unreadable(path, error))
            continue
        if not beside:
            problems.append(_no_tests(path))
        found |= dict.fromkeys(beside)
    if problems:
        raise RuleError(problems)
    return list(found)


def _no_tests(path: Path) -> Diagnostic:
    if path.is_dir():
        rules = rule_files(path)
        advice = f"write {beside_rule(rules[0])}" if rules else f"names of test files end in {TEST_ENDING}"
        return Diagnostic("E0670", f"there are no test files in `{path}`", help=advice)
    return Diagnostic("E0670", f"`{path}` has no tests", help=f"write them to {beside_rule(path)}")


def read_tests(
    path: str | Path, streams: str | Path | None = None, parameters: Mapping[str, str] | None = None
) -> RuleTests:
    """Return the tests of the file at `path`, with their rules, compiled.

    `streams` is the streams file; without it, that of the test file or the nearest one of the rules.
    `parameters` are values of parameters of the rules; they precede those of the file.

    Raises RuleError: the file, its rules or their streams are wrong. The error contains every problem.
    """
    return read_test_text(text_of_tests(path), streams, parameters)


def text_of_tests(path: str | Path) -> Source:
    """Return the text of the test file at `path`. Raises RuleError: it cannot be read, or is too large."""
    try:
        return read_source(path, MAX_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise RuleError([Diagnostic("E0613", f"`{path}` cannot be read: {reason}")]) from error


def read_test_text(
    source: Source, streams: str | Path | None = None, parameters: Mapping[str, str] | None = None
) -> RuleTests:
    """Return the tests of a text, whose name is the path of its file; see `read_tests`."""
    document = Document(source, max_text=MAX_TEXT, begins="cases")
    tests = None
    with suppress(TooManyErrorsError):  # the last diagnostic reports it
        tests = _Reader(document, Path(source.name), streams, parameters or {}).tests()
    if tests is None or document.diagnostics:
        raise RuleError(in_order(document.diagnostics))
    return tests


class _Reader:
    """Reads one test file."""

    def __init__(
        self, document: Document, path: Path, streams: str | Path | None, parameters: Mapping[str, str]
    ) -> None:
        self.document = document
        self.path = path
        self.streams = streams
        self.parameters = parameters

    def tests(self) -> RuleTests | None:
        """Return the tests; None after a report."""
        root = self.document.root()
        found = None if root is None else self.document.settings(root, "a test file", OF_FILE, ("cases",))
        if found is None or "cases" not in found:
            return None
        compiled, files = self._compiled(found)
        names = None if compiled is None else self._names(compiled, found.get("rule"))
        start_us = self._start_us(found.get("start"))
        if compiled is None or names is None or start_us is None:
            return None
        reader = EventReader(self.document, compiled.rule_set, start_us, self.path.parent)
        defaults = reader.defaults(found["defaults"]) if "defaults" in found else {}
        tables = found.get("tables")
        entries = self.document.mapping(found["cases"], "`cases`") or []
        cases = [self._case(entry, reader, compiled, names, (defaults, tables)) for entry in entries]
        if not entries and not self.document.diagnostics:
            self.document.problem(
                "E0404", "there is no case", found["cases"], "empty", "write: name of the case: {events: ...}"
            )
        sound = tuple(case for case in cases if case is not None)
        return RuleTests(self.document.source, compiled, names, sound, (str(self.path), *files))

    def _compiled(self, found: Mapping[str, yaml.Node]) -> tuple[Compiled | None, tuple[str, ...]]:
        paths = self._paths(found)
        if paths is None:
            return None, ()
        given = self.streams
        if given is None and "streams" in found:
            text = self.document.text(found["streams"], "`streams`")
            given = None if text is None else self.path.parent / text
        book = load_rulebook(paths, given)
        values = self._parameters(found.get("parameters"))
        only: tuple[str, ...] = ()
        if "rule" in found:
            text = self.document.text(found["rule"], "`rule`")
            known = [rule.name for rule in compile_rulebook(book).rules]
            if text is None or text not in known:
                self._no_rule(found["rule"], text, known)
                return None, ()
            only = (text,)
        used = {given or nearest_streams_file(file) for file in paths if file.is_file()}
        files = (*(source.name for source in book.sources), *(str(file) for file in used if file is not None))
        return compile_rulebook(book, only, values), files

    def _parameters(self, node: yaml.Node | None) -> dict[str, str]:
        """Return the values of parameters, those of the file after those that are given."""
        entries = [] if node is None else self.document.mapping(node, "`parameters`") or []
        texts = {entry.name: self.document.text(entry.value, f"`{entry.name}`") for entry in entries}
        return {name: text for name, text in texts.items() if text is not None} | dict(self.parameters)

    def _no_rule(self, node: yaml.Node, text: str | None, known: Sequence[str]) -> None:
        if text is not None:
            advice = did_you_mean(text, known, "rules and views")
            self.document.problem("E0897", f"there is no rule and no view `{text}`", node, "unknown", advice)

    def _paths(self, found: Mapping[str, yaml.Node]) -> list[Path] | None:
        """Return the rule files: those that `rules` names, or the one next to the test file."""
        if "rules" in found:
            texts = self.document.texts(found["rules"], "`rules`")
            return None if texts is None else [self.path.parent / text for text, _ in texts]
        stem = self.path.name.removesuffix(TEST_ENDING)
        beside = [self.path.with_name(stem + suffix) for suffix in SUFFIXES]
        there = [file for file in beside if file.is_file()]
        if not there:
            title = f"there is no rule file `{beside[0].name}` beside the test file"
            advice = "name the rule file: rules: my_rule.cep"
            self.document.problem("E0404", title, None, "", advice)
        return there or None

    def _names(self, compiled: Compiled, node: yaml.Node | None) -> tuple[str, ...] | None:
        if node is None:
            return tuple(rule.name for rule in compiled.rules)
        text = self.document.text(node, "`rule`")
        return None if text is None else (text,)

    def _start_us(self, node: yaml.Node | None) -> int | None:
        if node is None:
            return START_US
        text = self.document.text(node, "`start`")
        time_us = None if text is None else parse_timestamp(text)
        if time_us is not None and time_for_people(time_us) is None:
            time_us = None
        if text is not None and time_us is None:
            title = f"`{text}` is not a point in time"
            self.document.problem("E0410", title, node, "not a time", "write 2024-05-01T10:00:00Z")
        return time_us

    def _case(
        self,
        entry: Entry,
        reader: EventReader,
        compiled: Compiled,
        names: Sequence[str],
        of_file: tuple[Cells, yaml.Node | None],
    ) -> Case | None:
        found = self.document.settings(entry.value, f"case `{entry.name}`", OF_CASE, ("events", "expect"))
        if found is None or "events" not in found or "expect" not in found:
            return None
        defaults, tables = of_file
        if "defaults" in found:
            defaults = {**defaults, **reader.defaults(found["defaults"])}
        rows = reader.tables([node for node in (tables, found.get("tables")) if node is not None], defaults)
        steps, events = reader.events(found["events"], defaults)
        expected = self._expected(found["expect"], compiled.rule_set, names, reader.start_us)
        span = span_of(entry.key, len(self.document.source.text))
        return Case(entry.name, span, steps, events, rows, expected)

    def _expected(
        self, node: yaml.Node, rules: RuleSet, names: Sequence[str], start_us: int
    ) -> tuple[Expected, ...]:
        if isinstance(node, yaml.ScalarNode) and node.value.casefold() == "none":
            return ()
        if not isinstance(node, yaml.SequenceNode):
            title = "`expect` must be a list of matches, or none"
            self.document.problem("E0402", title, node, "expected a list", "write: - {loss: 949}, or none")
            return ()
        of_rule = columns_of(rules)
        known = dict.fromkeys(column for name in names for column in of_rule[name])
        types = {field.name: field.type for field in rules.match_schema}
        found = []
        for item in node.value:
            given = self.document.settings(item, "a match of these rules", known) or {}
            values = {
                name: expected_value(self.document, value, types[name], name, start_us)
                for name, value in given.items()
            }
            found.append(Expected(values, span_of(item, len(self.document.source.text))))
        return tuple(found)
