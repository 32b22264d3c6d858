"""The results of tests as text, as data and as JUnit's XML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cep.diagnostics.diagnostic import excerpt, render, to_json
from cep.diagnostics.safe_text import for_cell
from cep.errors import Diagnostic
from cep.output.junit import Test, junit
from cep.rule_tests.coverage import Covered
from cep.rule_tests.mutants import Mutated


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A case that was run: it passed if it has no problems."""

    name: str
    problems: tuple[Diagnostic, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class FileResult:
    """The results of a test file. If it cannot be read, `problems` says why, and there are no cases."""

    file: str
    cases: tuple[CaseResult, ...] = ()
    covered: Covered | None = None
    mutated: Mutated | None = None
    problems: tuple[Diagnostic, ...] = ()

    @property
    def n_failed(self) -> int:
        """The cases that failed; a file that cannot be read counts as one."""
        return sum(bool(case.problems) for case in self.cases) + bool(self.problems)


def as_text(results: Sequence[FileResult], color: bool, quiet: bool) -> str:
    """Return the results as lines: failures with their places, then what was not tested."""
    return "\n".join(line for result in results for line in _lines(result, color, quiet)) + _summary(results)


def _lines(result: FileResult, color: bool, quiet: bool) -> Iterator[str]:
    if result.problems:
        yield render(result.problems, color) + "\n"
        return
    if quiet and not result.n_failed:
        return
    yield for_cell(result.file)
    for case in result.cases:
        yield f"  {'FAILED' if case.problems else 'passed'}  {for_cell(case.name)}"
        if case.problems:
            yield "\n" + render(case.problems, color) + "\n"
    if result.covered is not None and result.covered.n_all:
        yield f"  transitions: {result.covered.n_taken} of {result.covered.n_all} taken"
        yield from (f"    {for_cell(text)}" for text in result.covered.missing)
    if result.mutated is not None:
        n = len(result.mutated.unnoticed)
        yield f"  changes: {result.mutated.n_tried} tried, {n} of them noticed by no case"
        for mutant in result.mutated.unnoticed:
            place = excerpt(mutant.source, mutant.span, mutant.says)
            yield from (f"    {line}" for line in (place[0], *place[2:]))
    yield ""


def _summary(results: Sequence[FileResult]) -> str:
    n_cases = sum(len(result.cases) for result in results)
    n_failed = sum(result.n_failed for result in results)
    files = f"{len(results):,} file{'s' if len(results) != 1 else ''}"
    cases = f"{n_cases:,} case{'s' if n_cases != 1 else ''}"
    return f"\n{files}, {cases}: " + (f"{n_failed:,} failed" if n_failed else "all passed")


def as_data(results: Sequence[FileResult]) -> list[dict[str, Any]]:
    """Return the results as plain data."""
    found = []
    for result in results:
        item: dict[str, Any] = {
            "file": result.file,
            "problems": to_json(result.problems),
            "cases": [
                {"name": case.name, "passed": not case.problems, "problems": to_json(case.problems)}
                for case in result.cases
            ],
        }
        if result.covered is not None:
            taken, missing = result.covered.n_taken, list(result.covered.missing)
            item["transitions"] = {"taken": taken, "all": result.covered.n_all, "missing": missing}
        if result.mutated is not None:
            unnoticed = result.mutated.unnoticed
            places = to_json(Diagnostic("", "", mutant.source, mutant.span) for mutant in unnoticed)
            item["changes"] = {
                "tried": result.mutated.n_tried,
                "unnoticed": [
                    {"rule": mutant.rule, "change": mutant.says, "file": place["file"], "line": place["line"],
                     "column": place["column"]}
                    for mutant, place in zip(unnoticed, places, strict=True)
                ],
            }  # fmt: skip
        found.append(item)
    return found


def as_junit(results: Sequence[FileResult]) -> str:
    """Return the results as XML in the form of JUnit."""
    return junit({result.file: _tests(result) for result in results})


def _tests(result: FileResult) -> list[Test]:
    unread = [Test("the test file", result.problems, is_error=True)] if result.problems else []
    return [*unread, *(Test(case.name, case.problems, case.seconds) for case in result.cases)]
