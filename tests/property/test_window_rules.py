"""Window rules have the rows of the oracle, however the events are delivered.

The examples are the same each time; `python -m tests.property` draws new ones.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cep.compiler.compile import compile_sources
from cep.engine.corrections.corrector import Corrector
from cep.engine.matching.matcher import Matcher
from cep.engine.prepare.predicates import prepare
from cep.errors import Source
from cep.rule_set import Corrections
from cep.schema.stream import Stream
from tests.deep import n_cases
from tests.property.corrected_rules import FOREVER_US, Correction, check, delivered
from tests.property.differential import engine_rows, match_ids, oracle_rows, programs_of, stream_table
from tests.property.strategies.cases import Case, Step, cases_of_windows, cases_of_zones
from tests.property.strategies.events import FIELDS, SECOND_US
from tests.property.test_engine import GATE

SOME = settings(GATE, max_examples=n_cases(40))


@SOME
@given(cases_of_windows())
def test_window_rules_have_the_rows_of_the_oracle(case: Case) -> None:
    expected = oracle_rows(case)
    assert engine_rows(case) == expected
    one_by_one = tuple(Step(1, advances=True, restores=True, ahead=True) for _ in case.events)
    assert engine_rows(case, one_by_one) == expected
    assert match_ids(case, one_by_one) == match_ids(case, case.steps)


@SOME
@given(cases_of_zones())
def test_windows_of_days_in_a_zone_have_the_rows_of_the_oracle(case: Case) -> None:
    assert engine_rows(case) == oracle_rows(case)


@SOME
@given(st.data())
def test_with_corrections_what_stands_is_what_a_batch_reports(data: st.DataObject) -> None:
    case = data.draw(cases_of_windows(max_events=12))
    correction: Correction = data.draw(delivered(programs_of(case), case.stream, case.events))
    check(correction)


def test_a_row_with_other_values_takes_the_place_of_the_one_that_was_reported() -> None:
    text = (
        "RULE r FROM events PARTITION BY k WINDOW TUMBLING 10 SECONDS MEASURES COUNT(*) AS n, MAX(d) AS most"
    )
    stream = Stream("events", FIELDS, "ts", ("t",))
    (program,) = compile_sources([Source("r.cep", text)], {"events": stream}).programs
    corrector = Corrector(program, Corrections(FOREVER_US))

    def rows_after(second: int, d: float | None, until: int) -> list[tuple[object, ...]]:
        event = dict.fromkeys((field.name for field in FIELDS), None) | {
            "k": 1,
            "ts": second * SECOND_US,
            "d": d,
        }
        corrector.push(prepare(program, stream_table(stream, [event])))
        rows = corrector.advance(until * SECOND_US).to_pylist()
        return [(row["kind"], row["revision"], row["n"], row["most"]) for row in rows]

    assert rows_after(1, 2.0, 12) == [("match", 0, 1, 2.0)]
    assert rows_after(3, 1.0, 13) == [("retract", 1, 1, 2.0), ("match", 2, 2, 2.0)]
    assert rows_after(4, 5.0, 14) == [("retract", 3, 2, 2.0), ("match", 4, 3, 5.0)]
    assert rows_after(14, None, 15) == []


def test_a_window_that_ends_at_the_next_instant_has_its_first_event_after_a_restore() -> None:
    text = "RULE r FROM events PARTITION BY k WINDOW HOPPING 4 SECONDS EVERY 2 SECONDS MEASURES COUNT(*) AS n"
    stream = Stream("events", FIELDS, "ts")
    (program,) = compile_sources([Source("r.cep", text)], {"events": stream}).programs
    matcher = Matcher(program)
    event = dict.fromkeys((field.name for field in FIELDS), None) | {"k": 1, "ts": 0}
    matcher.push(prepare(program, stream_table(stream, [event])))
    rows = matcher.advance(4 * SECOND_US - 1).to_pylist()
    assert matcher.next_deadline_us() == 4 * SECOND_US
    matcher = Matcher.restore(program, matcher.snapshot())
    rows += matcher.advance(4 * SECOND_US).to_pylist()
    assert [row["n"] for row in rows] == [1, 1]
    assert (matcher.next_deadline_us(), matcher.finish().num_rows) == (None, 0)
    assert Matcher.restore(program, matcher.snapshot()).n_keys == 0
