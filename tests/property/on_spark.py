"""Drawn rules over drawn events in a batch on Spark. Spark must report the same matches as the oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, seed, settings

from cep.rule_set import RuleSet
from cep.schema.text_values import event_table_schema
from tests.oracle import TooManyRunsError
from tests.property.differential import Row, in_order, oracle_rows, programs_of, rows_of
from tests.property.strategies import Case, cases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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

    table = pa.Table.from_pylist(list(case.events), schema=event_table_schema(case.stream))
    time = case.stream.event_time
    instants = table.column(time).cast(pa.timestamp("us", tz="UTC"))
    table = table.set_column(table.schema.get_field_index(time), time, instants)
    columns = [f"CAST({field.name} AS {field.ddl}) AS {field.name}" for field in case.stream.fields]
    frame = session.createDataFrame(table).selectExpr(*columns).repartition(3)
    found = detect(frame, RuleSet(programs_of(case)), streams={case.stream.name: case.stream}).toArrow()
    return in_order(rows_of(found, case.rules))


def draw(n: int, first_seed: int, check: Callable[[Case], None]) -> None:
    """Call `check` with `n` cases drawn from `first_seed` on."""
    settings(
        max_examples=n,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )(seed(first_seed)(given(cases())(check)))()


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
