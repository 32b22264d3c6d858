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


Times = list[tuple[int, int]]
"""First and last second of matches."""


def matches(times: dict[str, Times], prefix: str) -> pa.Table:
    """Return matches of `rise` by key; their ids begin with `prefix`."""
    rows = [
        {"rule": "rise", "k": key, "match_id": f"{prefix}{key}-{number}",
         "match_start": start * 1_000_000, "match_end": end * 1_000_000}
        for key, of_key in times.items()
        for number, (start, end) in enumerate(of_key)
    ]  # fmt: skip
    time = pa.timestamp("us", tz="UTC")
    kinds = {
        "rule": pa.string(),
        "k": pa.string(),
        "match_id": pa.string(),
        "match_start": time,
        "match_end": time,
    }
    return pa.Table.from_pylist(rows, pa.schema(kinds))


def most_pairs(then: Times, now: Times) -> int:
    """Return the number of pairs of a maximum matching of intervals that overlap (Kuhn)."""
    paired: dict[int, int] = {}

    def finds(old: int, seen: set[int]) -> bool:
        for new, (start, end) in enumerate(now):
            if new in seen or start > then[old][1] or then[old][0] > end:
                continue
            seen.add(new)
            if new not in paired or finds(paired[new], seen):
                paired[new] = old
                return True
        return False

    return sum(finds(old, set()) for old in range(len(then)))


@pytest.mark.parametrize(
    ("then", "now", "moved"),
    [
        ([(0, 100), (50, 60)], [(70, 80)], 1),
        ([(70, 80)], [(0, 100), (50, 60)], 1),
        ([(0, 100), (50, 60)], [(55, 58), (70, 80)], 2),
        ([(0, 10)], [(10, 20)], 1),
        ([(0, 10)], [(11, 20)], 0),
        ([(5, 6), (0, 3)], [(0, 9), (2, 4)], 2),
    ],
)
def test_as_many_matches_that_overlap_as_possible_have_moved(then: Times, now: Times, moved: int) -> None:
    found = by_rule(compare(rise(), matches({"a": then}, "then"), rise(), matches({"a": now}, "now")))
    assert found == {"rise": Fired("rise", (), "", 0, moved, len(now) - moved, len(then) - moved)}


def test_what_has_moved_is_the_most_that_can_be_paired() -> None:
    import random

    draw = random.Random(3)

    def some() -> Times:
        starts = [draw.randrange(30) for _ in range(draw.randrange(7))]
        return [(start, start + draw.choice((0, 1, 2, 5, 20))) for start in starts]

    then, now = ({f"{key:04}": some() for key in range(5_000)} for _ in range(2))
    found = compare(rise(), matches(then, "then"), rise(), matches(now, "now"))
    wanted = {}
    for key, of_key in then.items():
        moved = most_pairs(of_key, now[key])
        if of_key or now[key]:
            wanted[key] = Fired(
                "rise", (("k", key),), "1970-01-01", 0, moved, len(now[key]) - moved, len(of_key) - moved
            )
    assert {dict(item.key)["k"]: item for item in found} == wanted
    backwards = compare(rise(), matches(now, "then"), rise(), matches(then, "now"))
    assert [item.moved for item in backwards] == [item.moved for item in found]


def test_the_order_of_the_matches_does_not_matter() -> None:
    then = {"a": [(0, 200_000), (100, 90_000), (150, 160), (5, 7)]}
    now = {"a": [(80_000, 170_000), (155, 300_000), (6, 6), (9, 9)]}
    tables = matches(then, "then"), matches(now, "now")
    turned = [table.take(pa.array(range(len(table) - 1, -1, -1))) for table in tables]
    assert compare(rise(), tables[0], rise(), tables[1]) == compare(rise(), turned[0], rise(), turned[1])


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
