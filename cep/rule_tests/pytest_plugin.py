"""A pytest plug-in: each case of a test file of rules is a test."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cep.rule_tests.cases import Case, RuleTests

_ENDING = ".test.yaml"


class CaseFailedError(Exception):
    """A case failed; the text says where and why."""


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect test files of rules: those with a rule file next to them, or with `rules` and `cases`."""
    if not file_path.name.endswith(_ENDING):
        return None
    beside = file_path.with_name(file_path.name.removesuffix(_ENDING) + ".cep")
    if not beside.is_file():
        lines = file_path.read_text(encoding="utf-8", errors="replace").splitlines()
        if not any(line.startswith("rules:") for line in lines) or "cases:" not in map(str.strip, lines):
            return None
    file: pytest.Collector = RuleTestFile.from_parent(parent, path=file_path)
    return file


class RuleTestFile(pytest.File):
    """A test file of rules."""

    def collect(self) -> Iterable[pytest.Item]:
        """Yield a test for each case."""
        from cep.rule_tests.reading import read_tests

        tests = read_tests(self.path)
        for case in tests.cases:
            yield RuleTestCase.from_parent(self, name=case.name, tests=tests, case=case)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the problems of a file that cannot be read, without a traceback."""
        from cep.errors import CepError

        if isinstance(excinfo.value, CepError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)


class RuleTestCase(pytest.Item):
    """A case of a test file."""

    def __init__(self, *, tests: RuleTests, case: Case, **of_pytest: Any) -> None:
        super().__init__(**of_pytest)
        self.tests = tests
        self.case = case

    def runtest(self) -> None:
        """Run the case in all ways of delivery."""
        from cep.diagnostics.diagnostic import render
        from cep.rule_tests.checking import check_case

        problems = check_case(self.tests, self.case)
        if problems:
            raise CaseFailedError(render(problems))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the problems with their places, without a traceback."""
        if isinstance(excinfo.value, CaseFailedError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return where the case is."""
        line = self.tests.source.text.count("\n", 0, self.case.span.start)
        return self.path, line, f"{self.path.name}: {self.case.name}"
