"""The tests beside a rule, for a lens above it: how many there are, and what they say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from cep.editor.names import NameKind, places
from cep.editor.project import Texts, test_file
from cep.errors import Diagnostic, RuleError, Source, Span
from cep.rule_files import beside_rule
from cep.rule_tests.reading import read_tests
from cep.settings.yaml_document import Document

RUN_TESTS = "cep.runTests"
"""The command of the lens. Its arguments are the address of the rule file and the rule's name."""


@dataclass(frozen=True, slots=True)
class Lens:
    """A line above a rule that runs its tests."""

    span: Span
    rule: str
    title: str


@dataclass(frozen=True, slots=True)
class TestRun:
    """The results of the tests beside a rule file; `problems` are places in the test file."""

    file: Path
    text: str
    n_cases: int
    n_failed: int
    problems: tuple[Diagnostic, ...]


def lenses(path: Path, text: str, opened: Texts) -> Iterator[Lens]:
    """Yield a lens for each rule of a file that has a test file beside it."""
    tests = test_file(path, opened)
    if tests is None:
        return
    root = Document(tests).root()
    pairs = root.value if isinstance(root, yaml.MappingNode) else ()
    cases = next((value for key, value in pairs if key.value == "cases"), None)
    n_cases = len(cases.value) if isinstance(cases, yaml.MappingNode) else 0
    noun = "case" if n_cases == 1 else "cases"
    for place in places([Source(str(path), text)]):
        if place.symbol.kind is NameKind.RULE and place.is_declaration:
            yield Lens(place.span, place.symbol.text, f"run {n_cases} {noun} of {Path(tests.name).name}")


def run_tests(path: Path, rule: str) -> TestRun:
    """Run the test file beside a rule file, as saved. `rule` is named in the answer."""
    from cep.rule_tests.checking import check_case  # loads the engine

    file = beside_rule(path)
    try:
        tests = read_tests(file)
    except RuleError as error:
        return TestRun(file, f"{file.name}: {error.diagnostics[0].title}", 0, 0, tuple(error.diagnostics))
    found = [tuple(check_case(tests, case)) for case in tests.cases]
    n_failed = sum(map(bool, found))
    noun = "case" if len(found) == 1 else "cases"
    said = f"{n_failed} of {len(found)} {noun} failed" if n_failed else f"{len(found)} {noun} passed"
    problems = tuple(problem for of_case in found for problem in of_case)
    return TestRun(file, f"{rule}: {said}", len(found), n_failed, problems)
