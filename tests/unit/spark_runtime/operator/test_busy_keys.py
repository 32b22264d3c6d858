"""Hot keys: what each key group notes of a micro-batch, and what the driver makes of it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from cep.compiler.compile import compile_sources
from cep.counts import Counts
from cep.engine.chains.chain import Chain
from cep.engine.matching.matcher import Matcher
from cep.errors import Source
from spark_runtime.operator.busy_keys import FEW, busy_keys, watch_keys
from spark_runtime.pipeline.hot_keys import HotKey, hot_keys
from spark_runtime.pipeline.pipeline import _shown
from spark_runtime.pipeline.progress import Totals
from spark_runtime.pipeline.runs import _Line
from tests.unit.engine.events import SECOND, STREAM, events
from tests.unit.spark_runtime.pipeline.test_metrics import samples, watched

RULES = compile_sources(
    [
        Source(
            "r.cep",
            "RULE r FROM events PARTITION BY k PATTERN a -> b WITHIN 1 DAY AFTER MATCH NO SKIP "
            "DEFINE a AS letter = 'a', b AS letter = 'b' "
            "RULE w FROM events PARTITION BY s WINDOW TUMBLING 1 HOUR HAVING COUNT(*) > 0 "
            "MEASURES COUNT(*) AS n",
        )
    ],
    {"events": STREAM},
).rule_set
EVENTS_BY_K, RUNS_OF_R, EVENTS_BY_S = "events of events by k", "open runs of r", "events of events by s"


@pytest.mark.parametrize("seed", range(4))
def test_a_key_group_notes_the_key_with_the_most_events_and_the_most_open_runs(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_runtime.operator.busy_keys.FEW", 5)
    drawn = random.Random(seed)
    chain, open_runs, time = Chain(RULES), Counter[str](), 0
    n_named = 0
    for _ in range(12):
        rows = [
            (drawn.choice("kkkmno"), time + at, drawn.choice("aaab"), 0.0, 0, drawn.choice("st"))
            for at in range(drawn.randrange(30))
        ]
        time += 40
        watch_keys(chain.matchers)
        if rows:
            chain.push_events(STREAM, events(*rows))
        chain.advance((time - drawn.randrange(10, 20)) * SECOND, lambda matches: None)
        chain.advance((time - 1) * SECOND, lambda matches: None)  # as with the wall clock
        for key, _, letter, *_ in rows:
            open_runs[key] = open_runs[key] + 1 if letter == "a" else 0
        of_group = {name: n for each in chain.matchers for name, n in each.open_runs.items()}
        found = busy_keys(chain.matchers, of_group, 20)
        assert found.keys() <= {EVENTS_BY_K, RUNS_OF_R, EVENTS_BY_S}
        # All events lie before the first advance, or in one of two: the busiest of one of them is noted.
        numbers = Counter(row[0] for row in rows)
        n, total, key = found.get(EVENTS_BY_K, [0, 0, ""])
        assert total in (0, len(rows))
        assert n <= max(numbers.values(), default=0)
        assert not key or key.removeprefix("k = ") in numbers
        touched = {key: n for key, n in open_runs.items() if numbers[key]}
        most = max(touched.values(), default=0)
        if most >= 5 and 100 * most > 20 * sum(open_runs.values()):
            n, _, key = found[RUNS_OF_R]
            assert n == most == open_runs[key.removeprefix("k = ")]
            n_named += 1
    assert n_named


def test_the_busiest_key_of_events_is_counted_exactly() -> None:
    chain = Chain(RULES)
    rows = [
        ("k" if at % 3 else "m", at // 100, "x" if at % 5 else "a", 0.0, 0, "s" if at % 2 else f"t{at}")
        for at in range(3 * FEW)
    ]
    watch_keys(chain.matchers)
    chain.push_events(STREAM, events(*rows))
    chain.advance(99 * SECOND, lambda matches: None)
    found = busy_keys(chain.matchers, {}, 20)
    assert found[EVENTS_BY_S] == [1500, 3 * FEW, "s = s"]
    of_k = sum(row[2] == "a" for row in rows)  # no rule by this key can use the others
    assert found[EVENTS_BY_K] == [0, of_k, ""]
    assert not busy_keys(chain.matchers, {}, 20)  # nothing since


def test_a_matcher_that_is_not_watched_notes_nothing() -> None:
    (matcher, *_) = Chain(RULES).matchers
    assert isinstance(matcher, Matcher)
    assert matcher.busy_from is None
    assert not matcher.busiest


BUSY = {
    "0": {EVENTS_BY_K: [3000, 4000, "k = c7"], RUNS_OF_R: [5000, 0, "k = c9"]},
    "1": {EVENTS_BY_K: [3100, 6000, "k = c8"]},
    "2": {EVENTS_BY_K: [0, 10, ""]},
}


def test_the_key_with_the_largest_share_of_all_key_groups_is_hot() -> None:
    hot = list(hot_keys(4, Counts(busy=BUSY), {"r": 10_000}, 20))
    assert hot == [
        HotKey(EVENTS_BY_K, "k = c8", 3100, 10_010, 4),
        HotKey(RUNS_OF_R, "k = c9", 5000, 10_000, 4),
    ]
    assert str(hot[1]) == "k = c9 has 5,000 of 10,000 open runs of r, micro-batch 4"
    assert [item.of for item in hot_keys(4, Counts(busy=BUSY), {"r": 10_000}, 31)] == [RUNS_OF_R]
    assert not list(hot_keys(4, Counts(busy=BUSY), {"r": 10_000}, 50))
    assert str(replace(hot[1], key="k = a\nb" + 3000 * "c")) == (
        rf"k = a\nb{53 * 'c'}... has 5,000 of 10,000 open runs of r, micro-batch 4"
    )


def test_the_summary_has_the_largest_share_of_the_run_and_metrics_that_of_the_last_micro_batch(
    tmp_path: Path,
) -> None:
    run = watched(tmp_path)
    assert run.run is not None
    totals: Totals = run.run.totals
    for batch, n in enumerate((2000, 3000, 2500)):
        found = totals.add(batch, [Counts(busy={"0": {EVENTS_BY_K: [n, 10_000, "k = c7"]}})])
        totals.note_hot(batch, found, 20)
    (hot,) = totals.summary(1.0, was_stopped=False).to_json()["hot_keys"]
    assert hot == {"of": EVENTS_BY_K, "key": "k = c7", "n": 3000, "total": 10_000, "batch": 1}
    lines = list(_shown(run.pipeline, totals.summary(1.0, was_stopped=False), is_quiet=False))
    assert f"hot key                30%  k = c7 has 3,000 of 10,000 {EVENTS_BY_K}, micro-batch 1" in lines
    assert f"\nhot key: k = c7 has 2,500 of 10,000 {EVENTS_BY_K}, micro-batch 2" in str(_Line(run.run)())
    name = f'cep_hot_key_share{{key="k = c7",of="{EVENTS_BY_K}"}}'
    assert samples(run)[name] == 0.25
    totals.note_hot(3, totals.add(3, [Counts()]), 20)
    assert name not in samples(run)
