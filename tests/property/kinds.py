"""Kinds of random cases: how one is drawn, what both sides report of it, which others are derived from it.

Hypothesis draws the rules and a first stream. More streams and deliveries are derived from it, because
drawing and compiling take most of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Protocol

from hypothesis.strategies import SearchStrategy, one_of

from cep.compiler.compile import compile_rules
from cep.program.program import Program
from cep.rule_set import RuleSet
from tests.property import chains, differential, tables, views
from tests.property.chains import Chained, chained
from tests.property.changed_rules import ChangedRules, changed_sets
from tests.property.differential import Row, programs_of, rows_by
from tests.property.strategies.cases import (
    Case,
    Step,
    cases,
    cases_of_values,
    cases_of_windows,
    cases_of_zones,
)
from tests.property.strategies.events import MAX_EVENTS
from tests.property.tables import TableCase, delivered_as, silent_cases, table_cases, with_versions
from tests.property.variants import Pool, smaller, variants
from tests.property.views import Change, ViewCase, view_cases


class Kind(Protocol):
    """A kind of cases."""

    @property
    def strategy(self) -> SearchStrategy[Any]:
        """Draws a case."""

    def plain(self, case: Any) -> Case:
        """Return the rules, the events and their delivery."""

    def compiled(self, case: Any, *, optimize: bool = True) -> Any:
        """Return the compiled rules, with or without the optimizations of the compiler."""

    def both(self, case: Any, programs: Any) -> tuple[list[Any], list[Any]]:
        """Return what the oracle and what the engine report.

        Raises
        ------
        TooManyRunsError
            The case is too large for the oracle.
        """

    def derived(self, case: Any, pool: Pool, random: Random, n: int) -> Iterator[Any]:
        """Yield `n` cases of the same rules."""

    def smaller(self, case: Any, fails: Callable[[Any], bool]) -> Any:
        """Return a smaller case that still fails."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules over one stream."""

    strategy: SearchStrategy[Case]

    def plain(self, case: Case) -> Case:
        return case

    def compiled(self, case: Case, *, optimize: bool = True) -> Sequence[Program]:
        return programs_of(case, optimize=optimize)

    def both(self, case: Case, programs: Sequence[Program]) -> tuple[list[Row], list[Row]]:
        return differential.oracle_rows(case), rows_by(programs, case)

    def derived(self, case: Case, pool: Pool, random: Random, n: int) -> Iterator[Case]:
        return variants(case, pool, random, n)

    def smaller(self, case: Case, fails: Callable[[Case], bool]) -> Case:
        return smaller(case, fails)


@dataclass(frozen=True, slots=True)
class WithTables:
    """Rules with joined tables."""

    strategy: SearchStrategy[TableCase]

    def plain(self, case: TableCase) -> Case:
        return case.case

    def compiled(self, case: TableCase, *, optimize: bool = True) -> Sequence[Program]:
        return tables.programs_of(case, optimize=optimize)

    def both(self, case: TableCase, programs: Sequence[Program]) -> tuple[list[Row], list[Row]]:
        return tables.oracle_rows(case), tables.engine_rows(case, programs, case.case.steps)

    def derived(self, case: TableCase, pool: Pool, random: Random, n: int) -> Iterator[TableCase]:
        return (with_versions(case, one, random) for one in variants(case.case, pool, random, n))

    def smaller(self, case: TableCase, fails: Callable[[TableCase], bool]) -> TableCase:
        for number in reversed(range(len(case.versions))):
            versions = case.versions[:number] + case.versions[number + 1 :]
            if fails(less := replace(case, versions=versions)):
                case = less
        whole = case
        plain = smaller(case.case, lambda less: fails(delivered_as(whole, less)))
        return delivered_as(whole, plain)


@dataclass(frozen=True, slots=True)
class OverRules:
    """Rules over the matches of rules."""

    strategy: SearchStrategy[Chained]

    def plain(self, case: Chained) -> Case:
        return case.case

    def compiled(self, case: Chained, *, optimize: bool = True) -> RuleSet:
        streams = {case.case.stream.name: case.case.stream}
        return RuleSet(compile_rules(case.case.rules, streams, optimize=optimize))

    def both(self, case: Chained, programs: RuleSet) -> tuple[list[Row], list[Row]]:
        found = chains.engine_tables(case, case.case.steps, programs)
        return chains.oracle_rows(case, found), chains.engine_rows(case, found)

    def derived(self, case: Chained, pool: Pool, random: Random, n: int) -> Iterator[Chained]:
        return (Chained(one) for one in variants(case.case, pool, random, n))

    def smaller(self, case: Chained, fails: Callable[[Chained], bool]) -> Chained:
        return Chained(smaller(case.case, lambda less: fails(Chained(less))))


@dataclass(frozen=True, slots=True)
class Views:
    """Views of tables. They have no events."""

    strategy: SearchStrategy[ViewCase]

    def plain(self, case: ViewCase) -> Case:
        steps = [Step(0, advances=True, restores=restores) for restores in case.restores]
        steps.append(Step(0, advances=True, restores=False))
        return Case(case.rules, case.tables["base"], (), tuple(steps))

    def compiled(self, case: ViewCase, *, optimize: bool = True) -> Sequence[Program]:
        return views.programs_of(case, optimize=optimize)

    def both(self, case: ViewCase, programs: Sequence[Program]) -> tuple[list[Change], list[Change]]:
        return views.oracle_rows(case), views.engine_rows(case, programs)

    def derived(self, case: ViewCase, pool: Pool, random: Random, n: int) -> Iterator[ViewCase]:
        return (views.with_versions(case, random) for _ in range(n))

    def smaller(self, case: ViewCase, fails: Callable[[ViewCase], bool]) -> ViewCase:
        return views.smaller(case, fails)


KINDS: dict[str, Kind] = {
    "rules": Rules(cases()),
    "long streams": Rules(cases(max_events=4 * MAX_EVENTS, max_size=3)),
    "windowed values": Rules(cases_of_values()),
    "window rules": Rules(cases_of_windows()),
    "zones": Rules(cases_of_zones()),
    "silent windows": WithTables(silent_cases()),
    "tables": WithTables(one_of(table_cases(max_rules=2), table_cases(has_window_rules=True))),
    "chains": OverRules(chained()),
    "views": Views(view_cases()),
    "changed rules": ChangedRules(changed_sets()),
}
"""The kinds by name."""
