"""cep/output/compare.py: what fires newly, and what no longer."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from cep import load_rules
from cep.local.find_matches import find_matches
from cep.output.compare import Fired, by_rule, compare
from cep.rule_set import KIND, RETRACT, REVISION, RuleSet
from cep.schema.stream import Field, Stream

DAY_US = 86_400_000_000
STREAM = Stream("t", (Field("k", "string"), Field("ts", "timestamp"), Field("x", "double")), "ts")

RISE = """RULE rise FROM t PARTITION BY k
PATTERN a{{{n}}} -> b WITHIN 1 MINUTE
DEFINE a AS a.x < 10, b AS b.x > {limit}
"""


def rise(n: int = 1, limit: int = 100) -> RuleSet:
    return load_rules(RISE.format(n=n, limit=limit), STREAM)


def event(key: str, seconds: float, x: float, day: int = 0) -> dict[str, object]:
    return {"k": key, "ts": int(day * DAY_US + seconds * 1_000_000), "x": x}


EVENTS = [
    *(event("one", 0, 1.0), event("one", 1, 150.0)),
    *(event("two", 0, 1.0), event("two", 1, 250.0)),
    *(event("two", 0, 1.0, 1), event("two", 1, 150.0, 1)),
]


def compared(before: RuleSet, now: RuleSet, events: list[dict[str, object]]) -> tuple[Fired, ...]:
    tables = [find_matches(rules, None, events, as_table=True) for rules in (before, now)]
    return compare(before, tables[0], now, tables[1])


def test_the_same_rules_report_the_same() -> None:
    found = compared(rise(), rise(), EVENTS)
    assert [item.is_same for item in found] == [True] * 3
    assert by_rule(found) == {"rise": Fired("rise", (), "", same=3)}


def test_a_stricter_rule_no_longer_fires_for_some_keys_on_some_days() -> None:
    assert compared(rise(), rise(limit=200), EVENTS) == (
        Fired("rise", (("k", "one"),), "1970-01-01", no_longer=1),
        Fired("rise", (("k", "two"),), "1970-01-01", same=1),
        Fired("rise", (("k", "two"),), "1970-01-02", no_longer=1),
    )
    assert by_rule(compared(rise(limit=200), rise(), EVENTS)) == {
        "rise": Fired("rise", (), "", same=1, newly=2)
    }


def test_a_match_of_other_events_at_the_same_time_has_moved() -> None:
    events = [event("one", 0, 1.0), event("one", 1, 1.0), event("one", 2, 150.0), *EVENTS[2:]]
    assert compared(rise(), rise(n=2), events) == (
        Fired("rise", (("k", "one"),), "1970-01-01", moved=1),
        Fired("rise", (("k", "two"),), "1970-01-01", no_longer=1),
        Fired("rise", (("k", "two"),), "1970-01-02", no_longer=1),
    )


def test_a_match_with_a_row_for_each_event_counts_once() -> None:
    rules = load_rules(RISE.format(n=1, limit=100) + "ALL ROWS PER MATCH\n", STREAM)
    assert by_rule(compared(rules, rules, EVENTS))["rise"].same == 3


def test_rules_of_other_names_and_other_keys_share_nothing() -> None:
    other = load_rules(RISE.format(n=1, limit=100).replace("rise", "up"), STREAM)
    found = by_rule(compared(rise(), other, EVENTS))
    assert (found["rise"].no_longer, found["up"].newly) == (3, 3)


def test_a_row_that_was_withdrawn_does_not_count() -> None:
    rules = rise()
    matches = find_matches(rules, None, EVENTS[:2], as_table=True)
    rows = [(0, "match"), (0, RETRACT)], [(0, "match"), (0, RETRACT), (1, "match")]
    withdrawn, again = (
        pa.concat_tables([matches] * len(of))
        .append_column(REVISION, pa.array([number for number, _ in of]))
        .append_column(KIND, pa.array([kind for _, kind in of]))
        for of in rows
    )
    assert by_rule(compare(rules, matches, rules, withdrawn))["rise"].no_longer == 1
    assert by_rule(compare(rules, matches, rules, again))["rise"].same == 1


@pytest.mark.parametrize("seed", range(20))
def test_each_match_counts_once_on_each_side(seed: int) -> None:
    import random

    draw = random.Random(seed)
    events = [
        event(draw.choice("ab"), draw.randrange(600), draw.choice((1.0, 150.0, 250.0))) for _ in range(80)
    ]
    before, now = rise(draw.choice((1, 2))), rise(draw.choice((1, 2, 3)), draw.choice((100, 200)))
    found = compared(before, now, events)
    totals = Counter[str]()
    for item in found:
        totals.update(then=item.same + item.moved + item.no_longer, now=item.same + item.moved + item.newly)
    ids = [{match["match_id"] for match in find_matches(rules, None, events)} for rules in (before, now)]
    assert (totals["then"], totals["now"]) == (len(ids[0]), len(ids[1]))
    assert sum(item.same for item in found) == len(ids[0] & ids[1])
