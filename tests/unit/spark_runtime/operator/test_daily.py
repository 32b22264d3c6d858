"""Alerts of a rule and day over all keys: a plain model of lists says which are reported."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from cep.counts import Counts
from cep.engine.chains.chain import Chain
from cep.engine.event_time.watermark import START_OF_TIME_US
from cep.errors import StateError
from spark_runtime.event_time.done import Done
from spark_runtime.event_time.reached import Reached
from spark_runtime.operator.call import Call
from spark_runtime.operator.daily import KEPT_DAYS, Days, FirstOfDays
from spark_runtime.operator.limits import GroupLimits, Limit, Limits, Then
from spark_runtime.pipeline.checkpoint import Checkpoint, last_done, write_done
from spark_runtime.storage.checkpoint_files import LocalFiles
from spark_runtime.wire.output import carried_schema
from tests.unit.engine.events import SECOND, STREAM, events
from tests.unit.spark_runtime.operator.test_limits import RULES

DAY = 86_400
NAMES = ("low", "by_s", "high", "unheard")

Match = tuple[int, str, str]
"""When it ends, in seconds, its id and its rule. `high` has two rows for each."""


def table(matches: list[Match]) -> pa.Table:
    """Return matches as the operator has them."""
    schema = carried_schema(RULES.rule_set.match_schema)
    rows = [
        dict.fromkeys(schema.names)
        | {"rule": name, "match_id": number, "match_end": end * SECOND, "k": f"k{end % 3}", "s": "s"}
        for end, number, name in matches
        for _ in range(1 + (name == "high"))
    ]
    return pa.Table.from_pylist(rows, schema=schema)


def found(tables: list[pa.Table]) -> list[Match]:
    rows = [row for each in tables for row in each.to_pylist()]
    return sorted({(row["match_end"] // SECOND, row["match_id"], row["rule"]) for row in rows})


def reported_by_model(matches: list[Match], most: int, before: Counter[tuple[str, int]]) -> list[Match]:
    """Return which are reported, and count them by rule and day in `before`."""
    kept = []
    for end, number, name in sorted(matches):
        if before[name, end // DAY] < most:
            before[name, end // DAY] += 1
            kept.append((end, number, name))
    return kept


def split(drawn: random.Random, items: list[Match], n: int) -> list[list[Match]]:
    parts: list[list[Match]] = [[] for _ in range(n)]
    for item in items:
        drawn.choice(parts).append(item)
    return parts


@pytest.mark.parametrize("seed", range(12))
def test_the_first_of_each_day_are_reported_however_key_groups_and_micro_batches_divide_them(
    seed: int,
) -> None:
    drawn = random.Random(seed)
    most = drawn.randrange(1, 9)
    matches = [(drawn.randrange(-2 * DAY, 3 * DAY), f"m{at:03}", drawn.choice(NAMES)) for at in range(150)]
    known: Counter[tuple[str, int]] = Counter()
    days: Days = {}
    n_reported = n_dropped = 0
    limit = Limit(most, Then.NEWEST)
    for of_batch in split(drawn, matches, 4):
        expected = reported_by_model(of_batch, most, known)
        answers = []
        for _ in range(2):  # a micro-batch that is repeated finds the same in another order
            first, counts = FirstOfDays(limit, RULES.rule_set, days), Counts()
            drawn.shuffle(of_batch)
            for of_group in split(drawn, of_batch, 3):
                part = FirstOfDays(limit, RULES.rule_set)
                for some in split(drawn, of_group, 2):
                    part.add(table(some))
                for rest in part.tables():
                    first.add(rest)
                counts.add(part.counts())
            kept = found([*first.tables()])
            counts.add(first.counts())
            answers.append((kept, first.days(), counts))
        assert answers[0] == answers[1]
        assert answers[0][0] == expected
        dropped = Counter(name for *_, name in of_batch) - Counter(name for *_, name in expected)
        assert answers[0][2] == Counts(
            dropped_matches=dropped, beyond={"alerts_per_day": dropped.total()} if dropped else {}
        )
        days = answers[0][1]
        assert days == {name: {day: n for (rule, day), n in known.items() if rule == name} for name in days}
        n_reported += len(expected)
        n_dropped += dropped.total()
    by_day = Counter((name, end // DAY) for end, _, name in matches)
    assert n_reported == sum(min(n, most) for n in by_day.values())
    assert n_dropped


def test_what_is_dropped_is_counted_by_rule_and_key_and_its_rows_are_taken_off() -> None:
    first = FirstOfDays(Limit(1, Then.NEWEST), RULES.rule_set, {"low": {0: 1}, "unheard": {0: 1}})
    first.add(table([(0, "a", "low"), (3, "b", "low"), (1, "c", "high"), (4, "d", "high")]))
    first.add(table([(6, "e", "unheard"), (DAY, "f", "low")]))
    assert found([*first.tables()]) == [(1, "c", "high"), (DAY, "f", "low")]
    assert first.counts() == Counts(
        dropped_matches={"low": 2, "high": 1, "unheard": 1}, beyond={"alerts_per_day": 4}
    )
    assert first.counts().dropped_keys == {"low: k = k0": 2, "high: k = k1": 1, "unheard: s = s": 1}
    assert (first.counts().rows, first.counts().shadow_rows) == (-4, -1)


def test_a_pipeline_that_is_to_fail_fails_with_the_rule_and_the_day() -> None:
    first = FirstOfDays(Limit(3), RULES.rule_set, {"low": {1: 2}})
    first.add(table([(DAY, "a", "low"), (5, "b", "low")]))
    assert len([*first.tables()]) == 1
    part = FirstOfDays(Limit(3), RULES.rule_set)
    part.add(table([(DAY + at, f"c{at}", "high") for at in range(9)]))
    (rest,) = part.tables()
    first.add(rest)
    with pytest.raises(StateError) as caught:
        [*first.tables()]
    assert str(caught.value) == (
        "error[E0722]: rule `high` has more than 3 matches of 1970-01-02 (UTC) over all keys, beyond "
        "`limits: alerts_per_day`\n"
        "help: raise the limit, let the rule report less, or say what is lost: then: drop_newest"
    )


def test_a_match_of_a_day_whose_number_is_forgotten_counts_on_the_first_day_that_is_known() -> None:
    limit = Limit(2, Then.NEWEST)
    first = FirstOfDays(limit, RULES.rule_set, {})
    first.add(table([(day * DAY, f"m{day}", "low") for day in range(KEPT_DAYS + 9)]))
    assert len(found([*first.tables()])) == KEPT_DAYS + 9
    days = first.days()
    assert [*days["low"]] == [*range(9, KEPT_DAYS + 9)]
    first = FirstOfDays(limit, RULES.rule_set, days)
    first.add(table([(0, "x", "low"), (1, "y", "low"), (2 * DAY, "z", "low")]))
    assert found([*first.tables()]) == [(0, "x", "low")]
    assert first.days()["low"][9] == 2


def test_a_call_of_a_key_group_passes_on_the_first_of_each_day_after_its_other_limits() -> None:
    chain = Chain(RULES.rule_set)
    limits = Limits(matches=Limit(3, Then.NEWEST), alerts_per_day=Limit(2, Then.NEWEST))
    call = Call(chain, gets_whole=False, by_own_events=False, limits=GroupLimits(limits, 1, 0, chain.rules))
    rows = [("k", at, "a", 0.0, 0, "s") for at in range(5)]
    chain.push_events(STREAM, events(*rows, ("k", 5, "b", 0.0, 0, "s")))
    call.advance(None, 5 * SECOND)
    call.keep_limits()
    counts = Counts()
    for text in call.results().counts:
        counts.add(Counts.of_json(text))
    assert counts.matches == {"low": 5, "by_s": 5}
    rows_by_rule = Counter(row["rule"] for each in call.found.matches for row in each.to_pylist())
    assert counts.beyond["matches"] == 7
    assert counts.beyond.get("alerts_per_day", 0) == sum(counts.dropped_matches.values()) - 7
    assert counts.rows == rows_by_rule.total() == 10 - sum(counts.dropped_matches.values())
    assert 0 < max(rows_by_rule.values()) <= 2


@pytest.mark.parametrize("reported", [{}, {"low": {0: 3, -1: 2}, "high": {19_000: 1}}])
def test_the_numbers_of_days_are_part_of_the_progress(
    tmp_path: Path, reported: dict[str, dict[int, int]]
) -> None:
    files = LocalFiles(str(tmp_path))
    for number in (0, 1):
        files.write(f"query/offsets/{number}", "")
    checkpoint = Checkpoint(str(tmp_path), "run", 2, files)
    write_done(checkpoint, Done(0, Reached(START_OF_TIME_US), {}, ended=False, reported=reported))
    write_done(checkpoint, Done(1, Reached(START_OF_TIME_US), {}, ended=False, reported={"low": {0: 9}}))
    assert last_done(checkpoint, is_live=False).reported == reported
    assert last_done(checkpoint, is_live=False).waits is None
    n_parts = [len(entry) for entry in json.loads((tmp_path / "done.json").read_text()).values()]
    assert n_parts == [7 if reported else 5, 7]
