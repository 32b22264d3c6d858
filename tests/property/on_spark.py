"""Drawn rules and events in a batch on Spark: the matches of the oracle, with the ids of a local run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis.strategies import SearchStrategy

from cep.compiler import ir
from cep.expression import Type
from cep.rule_set import RuleSet
from cep.schema.stream import Stream
from cep.schema.text_values import event_table_schema
from tests.oracle import TooManyRunsError
from tests.property import chains, tables, views
from tests.property.chains import Chained, chained, ids_of
from tests.property.differential import deliver, in_order, oracle_rows, programs_of, rows_of
from tests.property.features import features
from tests.property.strategies.cases import Case, Step, cases, cases_of_windows
from tests.property.tables import TableCase, Version, silent_cases, table_cases
from tests.property.views import ViewCase, view_cases

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AT_ONCE = (Step(10**6, advances=False, restores=False),)


def without_ties(case: Case) -> Case:
    """Return `case` with one event for each time and tie breakers: Spark does not keep the arrival order."""
    names = (case.stream.event_time, *case.stream.tie_break)
    first: dict[tuple[Any, ...], dict[str, Any]] = {}
    for event in case.events:
        first.setdefault(tuple(event[name] for name in names), event)
    return replace(case, events=tuple(first.values()), steps=())


def _frame(session: SparkSession, stream: Stream, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    from spark_runtime.dataflow.schema import spark_schema

    table = pa.Table.from_pylist(list(rows), schema=event_table_schema(stream))
    for number, field in enumerate(stream.fields):
        if field.type is Type.TIMESTAMP:
            instants = table.column(field.name).cast(pa.timestamp("us", tz="UTC"))
            table = table.set_column(number, field.name, instants)
    columns = [f"CAST({field.name} AS {field.ddl}) AS {field.name}" for field in stream.fields]
    tuples = [tuple(row.values()) for row in table.to_pylist()]  # PySpark 3.5 takes no Arrow table
    # Spark Connect needs the schema where there are no rows.
    return session.createDataFrame(tuples, spark_schema(table.schema)).selectExpr(*columns).repartition(3)


def without_tied_versions(drawn: TableCase) -> TableCase:
    """Return `drawn` with one version for each key, time and tie breakers."""
    tables = {table.name: table for table in drawn.tables}
    first: dict[tuple[Any, ...], Version] = {}
    for version in drawn.versions:
        table = tables[version.table]
        assert table.table is not None
        time = () if table.is_static else (table.event_time, *table.tie_break)
        place = (version.table, *(version.row[name] for name in (*table.table.key, *time)))
        first.setdefault(place, version)
    versions = tuple(replace(version, step=0) for version in first.values())
    return replace(drawn, case=without_ties(drawn.case), versions=versions)


@dataclass(frozen=True, slots=True)
class Compared:
    """What is reported of a case by the oracle, and by Spark; the matches of Spark and of a local run."""

    rules: Sequence[ir.Rule]
    expected: Sequence[Any]
    reported: Sequence[Any]
    of_spark: pa.Table
    of_local_run: Sequence[pa.Table]


def compare_rules(session: SparkSession, drawn: Case, has_matches: bool) -> Compared:
    """Return what is reported of rules over one stream.

    A case without any is drawn again if it must have some: the oracle takes milliseconds, Spark seconds.
    """
    case = without_ties(drawn)
    expected = oracle_rows(case)
    assume(expected or not has_matches)
    programs = programs_of(case)
    found = _detected(session, RuleSet(programs), case, {})
    local = [deliver(program, case, AT_ONCE) for program in programs]
    return Compared(case.rules, expected, in_order(rows_of(found, case.rules)), found, local)


def compare_tables(session: SparkSession, drawn: TableCase, has_matches: bool) -> Compared:
    """Return the same of rules with tables."""
    case = without_tied_versions(drawn)
    expected = tables.oracle_rows(case)
    assume(expected or not has_matches)
    programs = tables.programs_of(case)
    rules = RuleSet(programs)
    rows = {
        name: [version.row for version in case.versions if version.table == name] for name in rules.tables
    }
    found = _detected(session, rules, case.case, rows)
    local = [tables.deliver(program, case, AT_ONCE) for program in programs]
    return Compared(case.case.rules, expected, in_order(rows_of(found, case.case.rules)), found, local)


def compare_chains(session: SparkSession, drawn: Chained, has_matches: bool) -> Compared:
    """Return the same of rules over rules. Events of different streams cannot be in one table (E0615)."""
    plain = without_ties(drawn.case)
    rules = tuple(replace(rule, report=replace(rule.report, all_rows=False)) for rule in plain.rules)
    case = Chained(replace(plain, rules=rules))
    local = chains.engine_tables(case, AT_ONCE)
    expected = chains.oracle_rows(case, local)
    assume(expected or not has_matches)
    found = _detected(session, case.rule_set, case.case, {})
    return Compared(rules, expected, in_order(rows_of(found, rules)), found, local)


def compare_views(session: SparkSession, drawn: ViewCase, has_matches: bool) -> Compared:
    """Return the same of views, with one version for each key, time and tie breakers, and none late."""
    case = views.without_ties(views.in_time(drawn))
    expected = views.oracle_rows(case)
    assume(expected or not has_matches)
    programs = views.programs_of(case)
    rules = RuleSet(programs)
    frames = {name: _frame(session, table, case.rows(name)) for name, table in rules.tables.items()}
    from spark_runtime import detect
    from spark_runtime.compat.driver import to_arrow

    found = to_arrow(detect(frames, rules))
    local = [views.deliver(program, case) for program in programs]
    return Compared(case.rules, expected, views.rows_of(case, [found]), found, local)


def _detected(
    session: SparkSession, rules: RuleSet, case: Case, versions: Mapping[str, Sequence[dict[str, Any]]]
) -> pa.Table:
    from spark_runtime import detect
    from spark_runtime.compat.driver import to_arrow

    frames = {case.stream.name: _frame(session, case.stream, case.events)}
    frames |= {name: _frame(session, rules.tables[name], rows) for name, rows in versions.items()}
    return to_arrow(detect(frames, rules))


Compare = Callable[..., Compared]
"""Compares a drawn case on a session; with `has_matches` only one that has some."""

KINDS: dict[str, tuple[SearchStrategy[Any], Compare, int]] = {
    "rules": (cases(), compare_rules, 4),
    "window rules": (cases_of_windows(), compare_rules, 2),
    "tables": (table_cases(max_rules=2), compare_tables, 2),
    "silent windows": (silent_cases(), compare_tables, 2),
    "chains": (chained(), compare_chains, 2),
    "views": (view_cases(), compare_views, 2),
}
"""By name what draws a case, what compares it, and its share."""


def compare_on_spark(session: SparkSession, n: int, first_seed: int, only: str = "") -> Counter[str]:
    """Compare Spark with the oracle and a local run on `n` drawn cases. Return counts of features."""
    tally: Counter[str] = Counter()
    chosen = {name: kind for name, kind in KINDS.items() if only in ("", name)}
    whole = sum(share for _, _, share in chosen.values())
    for strategy, compare, share in chosen.values():
        test = settings(
            max_examples=-(-n * share // whole),
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )(seed(first_seed)(given(strategy)(_checking(session, compare, tally))))
        test()
    return tally


def _checking(session: SparkSession, compare: Compare, tally: Counter[str]) -> Callable[[Any], None]:
    def check(drawn: Any) -> None:
        try:
            done = compare(session, drawn, has_matches=tally["cases"] % 2 == 0)
        except TooManyRunsError:
            tally["too large"] += 1
            return
        assert done.reported == done.expected, drawn
        assert ids_of([done.of_spark]) == ids_of(done.of_local_run), drawn
        tally["cases"] += 1
        tally["with matches"] += bool(done.expected)
        tally["matches"] += len(done.expected)
        tally.update(f"cases with {form}" for form in features(done.rules))

    return check
