"""Rules over rules: the engine against the oracle, however events are delivered."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import assume, given, settings

from cep.engine.chains.chain import Chain
from tests.deep import n_cases
from tests.property.chains import AT_ONCE, Chained, chained, check, engine_tables, ids_of
from tests.property.differential import stream_table
from tests.property.strategies.cases import Step
from tests.property.test_engine import SLOW

GATE = settings(
    max_examples=n_cases(80), deadline=None, derandomize=True, database=None, suppress_health_check=SLOW
)
FEW = settings(GATE, max_examples=n_cases(25))


@GATE
@given(chained())
def test_rules_over_rules_report_what_the_oracle_reports(case: Chained) -> None:
    assume(check(case) >= 0)


@FEW
@given(chained())
def test_deliveries_snapshots_and_restores_change_nothing(case: Chained) -> None:
    one_by_one = tuple(Step(1, advances=True, restores=True) for _ in case.case.events)
    tables = engine_tables(case, AT_ONCE)
    ids = ids_of(tables)
    assert ids_of(engine_tables(case, one_by_one)) == ids
    assert ids_of(engine_tables(case, case.case.steps)) == ids


@FEW
@given(chained())
def test_nothing_happens_before_the_next_deadline(case: Chained) -> None:
    rule_set, stream = case.rule_set, case.case.stream
    chain = Chain(rule_set)
    chain.push_events(stream, stream_table(stream, case.case.events))
    tables: list[pa.Table] = []
    while (due_us := chain.next_deadline_us()) is not None:
        before = sum(table.num_rows for table in tables)
        chain.advance(due_us - 1, tables.append)
        assert sum(table.num_rows for table in tables) == before
        chain.advance(due_us, tables.append)
    chain.finish(tables.append)
    assert ids_of(tables) == ids_of(engine_tables(case, AT_ONCE))
