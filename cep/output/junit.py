"""Results as JUnit XML, which continuous-integration servers read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape  # that of xml.sax loads urllib

from cep.diagnostics.diagnostic import Diagnostic, render
from cep.diagnostics.safe_text import for_xml


@dataclass(frozen=True, slots=True)
class Test:
    """A thing that was tested: it passed if it has no problems. An error is a test that could not run."""

    name: str
    problems: Sequence[Diagnostic] = ()
    seconds: float = 0.0
    is_error: bool = False

    __test__ = False  # pytest looks for tests in classes of this name


def junit(suites: Mapping[str, Sequence[Test]]) -> str:
    """Return the tests of each suite as XML; the name of a suite is that of its file."""
    lines = ['<?xml version="1.0" encoding="utf-8"?>', "<testsuites>"]
    for name, tests in suites.items():
        errors = sum(bool(test.problems) and test.is_error for test in tests)
        failures = sum(bool(test.problems) for test in tests) - errors
        counts = f'tests="{len(tests)}" failures="{failures}" errors="{errors}"'
        lines.append(f"  <testsuite name={_quoted(name)} {counts}>")
        lines += (line for test in tests for line in _test(name, test))
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>"])


def by_file(files: Iterable[str], problems: Iterable[Diagnostic]) -> str:
    """Return a suite for each of `files`. Its tests are its problems; without a problem, it has one test that
    passed.

    A problem without a file is in a separate suite.
    """
    suites: dict[str, list[Test]] = {file: [] for file in files}
    for problem in problems:
        name = "settings" if problem.source is None else problem.source.name
        suites.setdefault(name, []).append(Test(f"{problem.code}: {problem.title}", [problem]))
    return junit({name: tests or [Test("no problems")] for name, tests in suites.items()})


def _test(suite: str, test: Test) -> list[str]:
    names = f"classname={_quoted(suite)} name={_quoted(test.name)}"
    first = f'    <testcase {names} time="{test.seconds:.3f}"'
    if not test.problems:
        return [first + "/>"]
    kind, title = "error" if test.is_error else "failure", _quoted(test.problems[0].title)
    text = _cdata(render(test.problems))
    return [first + ">", f"      <{kind} message={title}>{text}</{kind}>", "    </testcase>"]


def _quoted(text: str) -> str:
    """Return a text as the value of an attribute."""
    return '"' + escape(for_xml(text)).replace("\n", "&#10;").replace("\t", "&#9;") + '"'


def _cdata(text: str) -> str:
    """Return a text that XML reads as it is."""
    return f"<![CDATA[{for_xml(text).replace(']]>', ']]]]><![CDATA[>')}]]>"
