"""The open runs in a snapshot, as a person reads them."""

from __future__ import annotations

from cep.engine.kernels.layout import NEVER
from cep.engine.matching.matcher import Matcher
from cep.engine.state.codec import decode
from cep.engine.state.open_runs import RunsOfRule, keys_of, runs_of_rules
from tests.unit.engine.events import SECOND, prepared, program


def stored(pattern: str, clauses: str, *rows: tuple[object, ...], measures: str = "") -> RunsOfRule:
    """Return the open runs after these events."""
    define = ", ".join(f"{name} AS letter = '{name}'" for name in "abc" if name in pattern)
    compiled = program(pattern, clauses, define=define, measures=measures)
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, *rows))
    matcher.advance(5 * SECOND)
    sections = decode(matcher.snapshot())
    (found,) = runs_of_rules(compiled, sections)
    assert len(found.rows) == matcher.n_open_runs
    assert keys_of(compiled, sections).to_pydict() == {"k": ["k", "l"]}
    return found


def test_a_run_says_its_key_its_times_and_what_it_waits_for() -> None:
    found = stored("a -> b -> c", "WITHIN 10 SECONDS", ("k", 1, "a"), ("l", 2, "a"), ("k", 3, "b"))
    assert found.rule.name == "r"
    assert found.slots.tolist() == [0, 1]
    assert found.started_us.tolist() == [1 * SECOND, 2 * SECOND]
    assert found.until_us.tolist() == [11 * SECOND, 12 * SECOND]
    assert [found.waits_for(run) for run in range(2)] == ["c", "b"]


def test_without_a_window_no_time_ends_a_run() -> None:
    found = stored("a -> (b | c)", "", ("k", 1, "a"), ("l", 2, "a"))
    assert found.until_us.tolist() == [NEVER, NEVER]
    assert found.waits_for(0) == "b or c"


def test_an_absence_has_its_end() -> None:
    found = stored("a -> !b FOR 7 SECONDS", "", ("k", 1, "a"), ("l", 2, "a"))
    assert found.until_us.tolist() == [8 * SECOND, 9 * SECOND]
    assert found.waits_for(0) == "the end of an absence"
    found = stored("a -> !b", "WITHIN 10 SECONDS", ("k", 1, "a"), ("l", 2, "a"))
    assert found.waits_for(0) == "the end of the window"


def test_a_run_holds_the_values_that_measures_read() -> None:
    measures = "a.x AS x, a.s AS s, b.n AS n, COUNT(a.*) AS many"
    rows = ("k", 1, "a", 2.5, 1, "ü"), ("l", 2, "a", 1.5, 1, None)
    found = stored("a -> b", "WITHIN 10 SECONDS", *rows, measures=measures)
    assert [sorted(map(str, found.values(run).values())) for run in range(2)] == [
        ["1", "2.5", "None", "ü"],
        ["1", "1.5", "None", "None"],
    ]
