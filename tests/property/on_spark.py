"""Drawn rules over drawn events in a batch on Spark. Spark must report the same matches as the oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from cep.expression import Type
from cep.rule_set import RuleSet
from cep.schema.stream import Stream
from cep.schema.text_values import event_table_schema
from tests.oracle import TooManyRunsError
from tests.property.differential import Row, in_order, oracle_rows, programs_of, rows_of
from tests.property.strategies import Case, cases
from tests.property.tables import TableCase, Version, table_cases
from tests.property.tables import oracle_rows as oracle_rows_of_tables
from tests.property.tables import programs_of as programs_of_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def without_ties(case: Case) -> Case:
    """Return `case` with one event for each time and tie breakers: Spark does not keep the arrival order."""
    names = (case.stream.event_time, *case.stream.tie_break)
    first: dict[tuple[Any, ...], dict[str, Any]] = {}
    for event in case.events:
        first.setdefault(tuple(event[name] for name in names), event)
    return replace(case, events=tuple(first.values()), steps=())


def spark_rows(session: SparkSession, case: Case) -> list[Row]:
    """Return the matches of `case` that Spark reports in a batch."""
    from spark_runtime import detect

    frame = _frame(session, case.stream, case.events)
    found = detect(frame, RuleSet(programs_of(case)), streams={case.stream.name: case.stream}).toArrow()
    return in_order(rows_of(found, case.rules))


def _frame(session: SparkSession, stream: Stream, rows: Sequence[dict[str, Any]]) -> DataFrame:
    table = pa.Table.from_pylist(list(rows), schema=event_table_schema(stream))
    for number, field in enumerate(stream.fields):
        if field.type is Type.TIMESTAMP:
            instants = table.column(field.name).cast(pa.timestamp("us", tz="UTC"))
            table = table.set_column(number, field.name, instants)
    columns = [f"CAST({field.name} AS {field.ddl}) AS {field.name}" for field in stream.fields]
    return session.createDataFrame(table).selectExpr(*columns).repartition(3)


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
    return replace(drawn, case=without_ties(drawn.case), versions=tuple(first.values()))


def spark_rows_of_tables(session: SparkSession, drawn: TableCase) -> list[Row]:
    """Return the matches of a case with tables that Spark reports in a batch."""
    from spark_runtime import detect

    case, rules = drawn.case, RuleSet(programs_of_tables(drawn))
    frames = {case.stream.name: _frame(session, case.stream, case.events)}
    for name, table in rules.tables.items():
        rows = [version.row for version in drawn.versions if version.table == name]
        frames[name] = _frame(session, table, rows)
    return in_order(rows_of(detect(frames, rules).toArrow(), case.rules))


def draw(
    n: int, first_seed: int, check: Callable[[Any], None], strategy: SearchStrategy[Any] | None = None
) -> None:
    """Call `check` with `n` cases drawn from `first_seed` on."""
    chosen = cases() if strategy is None else strategy
    settings(
        max_examples=n,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )(seed(first_seed)(given(chosen)(check)))()


def compare_on_spark(session: SparkSession, n: int, first_seed: int) -> Counter[str]:
    """Compare Spark with the oracle on `n` drawn cases. Return the counts of their features."""
    tally: Counter[str] = Counter()

    def check(drawn: Case) -> None:
        case = without_ties(drawn)
        try:
            expected = oracle_rows(case)
        except TooManyRunsError:
            tally["too large"] += 1
            return
        assert spark_rows(session, case) == expected, case
        tally["cases"] += 1
        tally["with matches"] += bool(expected)
        tally["matches"] += len(expected)

    draw(n, first_seed, check)
    return tally


def compare_tables_on_spark(session: SparkSession, n: int, first_seed: int) -> Counter[str]:
    """Compare Spark with the oracle on `n` drawn cases with tables."""
    tally: Counter[str] = Counter()

    def check(drawn: TableCase) -> None:
        case = without_tied_versions(drawn)
        try:
            expected = oracle_rows_of_tables(case)
        except TooManyRunsError:
            tally["too large"] += 1
            return
        assert spark_rows_of_tables(session, case) == expected, case
        tally["cases with tables"] += 1
        tally["with tables and matches"] += bool(expected)

    draw(n, first_seed, check, table_cases())
    return tally
