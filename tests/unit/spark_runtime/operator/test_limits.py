"""Limits over all keys, as a key group keeps them: a plain model of a few rules says what remains."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest

from cep.compiler.compile import compile_sources
from cep.counts import MOST_NAMES, Counts
from cep.engine.chains.chain import Chain
from cep.engine.matching.matcher import Matcher
from cep.engine.matching.shedding import MOST_KEYS
from cep.engine.prepare.predicates import prepare
from cep.errors import Source, StateError
from cep.program.opcodes import SEVERITIES
from cep.rule_set import Corrections
from cep.schema.text_values import event_table_schema
from cep.settings.schema_file import load_streams
from spark_runtime.operator.call import Call, Moment
from spark_runtime.operator.limits import GroupLimits, Limit, Limits, Then
from spark_runtime.operator.operator import KeyGroups
from spark_runtime.state.heaviest import heaviest
from spark_runtime.state.recording import RecordedChain
from spark_runtime.state.snapshots import encode_state
from spark_runtime.wire.parcels import Contents, Parcel, record_bytes
from tests.unit.engine.events import SECOND, STREAM, events

WITHIN = 10
LAST = {"low": "b", "high": "c", "by_s": "b", "unheard": "c"}
KEY = {"low": "k", "high": "k", "by_s": "s", "unheard": "s"}
RANK = {"low": 1, "high": 3, "by_s": 2, "unheard": -1}
HEAD = {
    "low": "SEVERITY low",
    "high": "SEVERITY high",
    "by_s": "",
    "unheard": "SEVERITY critical STATUS shadow",
}
TEXT = "\n".join(
    f"RULE {name} {HEAD[name]} FROM events PARTITION BY {KEY[name]} PATTERN a -> b "
    f"WITHIN {WITHIN} SECONDS AFTER MATCH NO SKIP "
    f"DEFINE a AS letter = 'a', b AS letter = '{last}' {rows}"
    for (name, last), rows in zip(LAST.items(), ("", "ALL ROWS PER MATCH", "", ""), strict=True)
)
RULES = compile_sources([Source("r.cep", TEXT)], {"events": STREAM})

Row = tuple[str, int, str, float, int, str]
Found = tuple[str, str, int, int]
"""Rule, key, start and end of a match, in seconds."""


def test_severities_have_the_order_of_the_language() -> None:
    ranks = {
        SEVERITIES.index(rule.severity): rule.name for rule in RULES.rule_set.rules if not rule.is_shadow
    }
    assert [ranks[rank] for rank in sorted(ranks)] == ["low", "by_s", "high"]


def first(then: Then, name: str, time: int) -> tuple[int, int]:
    """Return a number by which things are dropped, the lowest first."""
    if then is Then.SEVERITY:
        return RANK[name], time
    return 0, -time if then is Then.NEWEST else time


@dataclass
class Model:
    """The rules above, event by event: a run is (rule, key, start)."""

    open: list[tuple[str, str, int]] = field(default_factory=list)

    def micro_batch(self, rows: list[Row], until: int) -> list[Found]:
        found: list[Found] = []
        for row in sorted(rows, key=lambda row: row[1]):
            time, letter = row[1], row[2]
            for name, last in LAST.items():
                key = row[0] if KEY[name] == "k" else row[5]
                if letter == last:
                    mine = [run for run in self.open if run[:2] == (name, key) and time <= run[2] + WITHIN]
                    found += [(*run, time) for run in mine]
                    self.open = [run for run in self.open if run not in mine]
                if letter == "a":
                    self.open.append((name, key, time))
        self.open = [run for run in self.open if run[2] + WITHIN > until]
        return found


def batches(drawn: random.Random) -> list[tuple[list[Row], int]]:
    """Return micro-batches, each with the time that it reaches. No two events have one time."""
    times = sorted(drawn.sample(range(120), 90))
    rows = [
        (drawn.choice("kkkm"), time, drawn.choice("aaaabc"), 0.0, 0, drawn.choice("stu")) for time in times
    ]
    cuts = sorted(drawn.sample(range(120), drawn.randrange(2, 6)))
    return [
        ([row for row in rows if begin < row[1] <= end], end)
        for begin, end in zip([-1, *cuts], [*cuts, 120], strict=True)
    ]


def called(chain: Chain, rows: list[Row], until: int, limits: Limits, n_groups: int = 1) -> Call:
    call = Call(
        chain, gets_whole=False, by_own_events=False, limits=GroupLimits(limits, n_groups, 0, chain.rules)
    )
    if rows:
        chain.push_events(STREAM, events(*rows))
    call.advance(None, until * SECOND)
    call.keep_limits()
    return call


def counts_of(call: Call) -> Counts:
    found = Counts()
    for text in call.results().counts:
        found.add(Counts.of_json(text))
    return found


def matches_of(call: Call) -> list[Found]:
    found: dict[str, Found] = {}
    for row in [row for table in call.found.matches for row in table.to_pylist()]:
        times = row["match_start"] // SECOND, row["match_end"] // SECOND
        found[row["match_id"]] = (row["rule"], row[KEY[row["rule"]]], *times)
    return sorted(found.values())


def total(split: dict[str, int]) -> int:
    return sum(split.values())


@pytest.mark.parametrize("then", list(Then)[1:])
@pytest.mark.parametrize("seed", range(12))
def test_what_remains_and_what_is_counted_as_dropped_is_what_a_plain_model_says(
    seed: int, then: Then
) -> None:
    drawn = random.Random(f"{seed} {then}")
    chain, model = Chain(RULES.rule_set), Model()
    most_runs, most_matches = drawn.randrange(1, 30), drawn.randrange(1, 20)
    limits = Limits(Limit(most_runs, then), Limit(most_matches, then))
    n_dropped = 0
    for rows, until in batches(drawn):
        call = called(chain, rows, until, limits)
        counts = counts_of(call)
        expected = model.micro_batch(rows, until)
        n_matches = Counter(name for name, *_ in expected)
        # Between equal times of matches the place decides, so these are only counted.
        expected.sort(key=lambda match: first(then, match[0], match[3]))
        sure = expected[max(len(expected) - most_matches, 0) :]
        bound = first(then, sure[0][0], sure[0][3]) if sure else None
        reported = matches_of(call)
        assert len(reported) == len(sure)
        assert {m for m in sure if first(then, m[0], m[3]) != bound} <= set(reported) <= set(expected)
        assert {rule: n for rule, n in counts.matches.items() if n} == n_matches
        assert n_matches - Counter(match[0] for match in reported) == Counter(counts.dropped_matches)
        # Runs that began together are dropped by the names of their rules.
        model.open.sort(key=lambda run: (first(then, run[0], run[2])[0], run[2], run[0]))
        if then is Then.NEWEST:
            model.open.reverse()
        beyond, model.open = model.open[:-most_runs], model.open[-most_runs:]
        assert counts.dropped_runs == Counter(name for name, *_ in beyond)
        open_runs = {name: n for matcher in chain.matchers for name, n in matcher.open_runs.items() if n}
        assert open_runs == Counter(name for name, *_ in model.open)
        assert counts.beyond.get("open_runs", 0) == len(beyond)
        assert total(counts.dropped_keys) == len(beyond) + total(counts.dropped_matches)
        assert counts.rows + counts.shadow_rows == sum(table.num_rows for table in call.found.matches)
        n_dropped += len(beyond)
    assert n_dropped or most_runs > 12


@pytest.mark.parametrize("then", list(Then))
@pytest.mark.parametrize("seed", range(4))
def test_with_limits_that_are_not_reached_everything_is_the_same(seed: int, then: Then) -> None:
    drawn = random.Random(seed)
    plain, limited = Chain(RULES.rule_set), Chain(RULES.rule_set)
    for rows, until in batches(drawn):
        usual = called(plain, rows, until, Limits())
        other = called(limited, rows, until, Limits(Limit(1000, then), Limit(1000, then)))
        assert list(other.found.matches) == list(usual.found.matches)
        assert other.results().counts == usual.results().counts
        assert [m.snapshot() for m in limited.matchers] == [m.snapshot() for m in plain.matchers]


@pytest.mark.parametrize("seed", range(6))
def test_a_record_repeats_what_was_dropped_whatever_the_limits_are_by_then(seed: int) -> None:
    drawn = random.Random(seed)
    chain = RecordedChain(RULES.rule_set, Chain(RULES.rule_set).matchers, {}, lambda contents: {})
    before = [matcher.snapshot() for matcher in chain.matchers]
    records = []
    for rows, until in batches(drawn):
        limits = [Limit(drawn.randrange(1, 20), drawn.choice(list(Then)[1:])) for _ in range(2)]
        late = drawn.randrange(20)
        called(chain, rows, until - late, Limits(limits[0], waiting_events=limits[1]))
        records.append(b"".join(chain.record()))
    restored = [
        Matcher.restore(program, data) for program, data in zip(RULES.rule_set.programs, before, strict=True)
    ]
    again = RecordedChain(RULES.rule_set, restored, {}, lambda contents: {})
    for record in records:
        again.repeat(record)
    assert [matcher.snapshot() for matcher in again.matchers] == [m.snapshot() for m in chain.matchers]
    assert total(again.matchers[0].counters.dropped_runs) > 0


def many(n: int, letter: str = "a") -> list[Row]:
    return [(f"k{time % 7}", time, letter, 0.0, 0, "s") for time in range(n)]


def n_open(chain: Chain) -> int:
    return sum(sum(matcher.open_runs.values()) for matcher in chain.matchers)


def test_a_limit_is_divided_among_the_key_groups_and_each_has_one_at_least() -> None:
    chain = Chain(RULES.rule_set)
    called(chain, many(10), 9, Limits(Limit(33, Then.OLDEST)), 4)
    assert n_open(chain) == 8
    called(chain, [], 9, Limits(Limit(3, Then.OLDEST)), 4)
    assert n_open(chain) == 1


def test_more_open_runs_than_the_share_end_the_run_if_it_is_to_fail() -> None:
    chain = Chain(RULES.rule_set)
    called(chain, many(9), 8, Limits(Limit(72)), 2)
    with pytest.raises(StateError) as caught:
        called(chain, [("k", 9, "a", 0.0, 0, "s")], 9, Limits(Limit(72)), 2)
    assert str(caught.value) == (
        "error[E0722]: key group 0 has 40 open runs, 10 of them of rule `by_s`, and its share of "
        "`limits: open_runs` is 36\n"
        "help: raise the limit, shorten the windows of the rules, or say what is lost: then: drop_oldest"
    )


def test_more_matches_than_the_share_end_the_run_if_it_is_to_fail() -> None:
    chain = Chain(RULES.rule_set)
    limits = Limits(matches=Limit(10))
    found = called(chain, [*many(4), ("k", 5, "b", 0.0, 0, "s")], 5, limits)
    assert [match[0] for match in matches_of(found)] == ["by_s"] * 4
    with pytest.raises(StateError, match=r"E0722.* 11 matches, 11 of them of rule `by_s`.* is 10"):
        called(Chain(RULES.rule_set), [*many(11), ("k", 10, "b", 0.0, 0, "s")], 10, limits)


@pytest.mark.parametrize("then", list(Then)[1:])
def test_open_runs_stay_within_their_bytes_and_are_those_that_a_number_would_leave(then: Then) -> None:
    drawn = random.Random(then)
    chain, other, n_dropped = Chain(RULES.rule_set), Chain(RULES.rule_set), 0
    for rows, until in batches(drawn):
        counts = counts_of(called(chain, rows, until, Limits(run_mb=Limit(1, then)), 3000))
        assert chain.run_bytes <= (1 << 20) // 3000
        n_dropped += counts.beyond.get("open_runs_mb", 0)
        assert total(counts.dropped_runs) == counts.beyond.get("open_runs_mb", 0)
        called(other, rows, until, Limits(Limit(n_open(chain), then)) if n_open(chain) else Limits())
        assert other.open_runs == chain.open_runs
    assert n_dropped > 10
    assert chain.run_bytes > 0


def test_more_bytes_of_open_runs_than_the_share_end_the_run_if_it_is_to_fail() -> None:
    limits = Limits(run_mb=Limit(1))
    assert n_open(called(Chain(RULES.rule_set), many(9), 8, limits).chain) == 36
    with pytest.raises(StateError, match=r"has 36 open runs of [\d,]+ bytes, 9 .*open_runs_mb` is 1,048"):
        called(Chain(RULES.rule_set), many(9), 8, limits, 1000)


@pytest.mark.parametrize("then", list(Then)[1:])
@pytest.mark.parametrize("at_most", [1, 7, 40, 1000])
def test_waiting_events_beyond_the_limit_are_dropped_by_time_or_severity(at_most: int, then: Then) -> None:
    drawn = random.Random(at_most)
    chain = Chain(RULES.rule_set)
    rows: list[Row] = [
        (drawn.choice("km"), time, drawn.choice("abc"), 0.0, 0, "s") for time in drawn.sample(range(60), 50)
    ]
    counts = counts_of(called(chain, rows, 20, Limits(waiting_events=Limit(at_most, then))))
    # Each event waits for the rules by each of the two keys.
    waiting = [(name, row[1]) for name in ("by_s", "high") for row in rows if row[1] > 20]
    waiting.sort(key=lambda item: first(then, *item))
    beyond, kept = waiting[: max(len(waiting) - at_most, 0)], waiting[max(len(waiting) - at_most, 0) :]
    if then is Then.NEWEST:  # equal times: the last program first
        beyond, kept = ([*sorted(part)] for part in (beyond, kept))
    found = {
        min(rule.name for rule in matcher.program.rules): sorted(matcher.waiting_us().tolist())
        for matcher in chain.matchers
        if isinstance(matcher, Matcher)
    }
    assert sum(map(len, found.values())) == len(kept)
    remaining = [time_us for times_us in found.values() for time_us in times_us]
    assert sorted(remaining) == sorted(time * SECOND for _, time in kept)
    assert counts.dropped_events == ({"events": len(beyond)} if beyond else {})
    assert counts.beyond == ({"waiting_events": len(beyond)} if beyond else {})
    if beyond:
        times = [time * SECOND for _, time in beyond]
        assert counts.unseen == {"dropped events: events": (len(beyond), min(times), max(times))}
        assert total(counts.dropped_keys) == len(beyond)
    if then is Then.SEVERITY:
        assert len(found["by_s"]) == sum(name == "by_s" for name, _ in kept)
    called(chain, [], 60, Limits())
    assert all(not matcher.n_waiting for matcher in chain.matchers)


def test_more_waiting_events_than_the_share_end_the_run_if_it_is_to_fail() -> None:
    limits = Limits(waiting_events=Limit(18))
    called(Chain(RULES.rule_set), many(9), 0, limits)
    with pytest.raises(StateError, match=r"has 20 waiting events, 10 .*`limits: waiting_events` is 18"):
        called(Chain(RULES.rule_set), many(11), 0, limits)


def test_of_the_keys_only_those_that_lost_most_are_named() -> None:
    chain = Chain(RULES.rule_set)
    rows: list[Row] = [
        (f"k{key}", 1 + key % 3, "a", 0.0, 0, "s") for key in range(MOST_NAMES) for _ in range(1 + key % 30)
    ]
    counts = counts_of(called(chain, rows, 0, Limits(Limit(1, Then.OLDEST))))
    assert not counts.dropped_runs  # event time is before them
    limits = Limits(Limit(1, Then.OLDEST), Limit(1, Then.OLDEST))
    counts = counts_of(called(chain, [], 3, limits))
    assert counts.dropped_runs["low"] > 100
    assert counts.dropped_keys["low: k = k29"] == 30
    assert {name.partition(":")[0] for name in counts.dropped_keys} == {*LAST}
    assert len(counts.dropped_keys) == 2 * MOST_KEYS + 2


def test_rows_of_views_are_not_limited(tmp_path: Path) -> None:
    (tmp_path / "streams.yaml").write_text(
        "tables: {accounts: {key: [id], event_time: ts, schema: {id: string, ts: timestamp, x: double}}}"
    )
    streams = load_streams(tmp_path / "streams.yaml")
    rules = compile_sources([Source("v", "VIEW v KEY id FROM accounts SELECT x")], streams).rule_set
    chain = Chain(rules)
    limits = GroupLimits(Limits(matches=Limit(2, Then.OLDEST)), 1, 0, rules)
    call = Call(chain, gets_whole=False, by_own_events=False, limits=limits)
    rows = [{"id": f"a{at}", "ts": at * SECOND, "x": 1.0} for at in range(9)]
    chain.push_events(
        streams["accounts"], pa.Table.from_pylist(rows, event_table_schema(streams["accounts"]))
    )
    call.advance(None, 9 * SECOND)
    call.keep_limits()
    assert sum(table.num_rows for table in call.found.matches) == 9
    assert not counts_of(call).dropped_matches


def test_the_operator_keeps_the_limits_of_its_key_group_and_names_hot_keys() -> None:
    limits = Limits(Limit(4, Then.OLDEST), Limit(2, Then.NEWEST), hot_percent=20)
    operator = KeyGroups(RULES.rule_set, n_groups=2, limits=limits)
    chain = Chain(RULES.rule_set)
    chain.push_events(STREAM, events(*many(9), ("k", 9, "b", 0.0, 0, "s")))
    results = operator.results(chain, Moment(0, 9 * SECOND, None, None), [])
    counts = Counts()
    for text in results.counts:
        counts.add(Counts.of_json(text))
    assert sum(map(len, results.found.matches)) == counts.rows == 1
    assert counts.dropped_matches == {"by_s": 8}
    assert counts.open_runs == {"0": {"low": 1, "unheard": 1}}
    assert counts.dropped_runs == {"low": 8, "high": 9, "unheard": 8}
    assert counts.beyond == {"matches": 8, "open_runs": 25}
    assert counts.busy["0"]["events of events by k"] == [0, 10, ""]
    operator = KeyGroups(RULES.rule_set, n_groups=2)
    chain.push_events(STREAM, events(*[("k", 10, "a", 0.0, 0, "s")] * 9))
    results = operator.results(chain, Moment(0, 10 * SECOND, None, None), [])
    assert "beyond" not in results.counts[-1]
    assert n_open(chain) == 9 * 4 + 2


A_AND_B: list[Row] = [*(("k", 2 * at, "a", 0.0, 0, "s") for at in range(9)), ("k", 9, "b", 0.0, 0, "s")]
"""At 9 seconds each rule has had five runs. The b ends those of two rules; 4 events wait in two programs."""


LIMITS: dict[str, Callable[[Limit], Limits]] = {
    "open_runs": lambda limit: Limits(open_runs=limit),
    "matches": lambda limit: Limits(matches=limit),
    "waiting_events": lambda limit: Limits(waiting_events=limit),
}


@pytest.mark.parametrize(
    ("name", "n", "what"),
    [
        ("open_runs", 10, "open runs, 5 of them of rule `high`"),
        ("matches", 10, "matches, 5 of them of rule `by_s`"),
        ("waiting_events", 8, "waiting events, 4 of them of rule `by_s`"),
    ],
)
def test_with_corrections_a_limit_ends_the_run(name: str, n: int, what: str) -> None:
    rules = RULES.rule_set.with_corrections(Corrections(60 * SECOND))
    for at_most in (n, n - 1):
        limits = LIMITS[name](Limit(at_most))
        assert limits.by_name() == {name: Limit(at_most)}
        if at_most == n:
            found = called(Chain(rules), A_AND_B, 9, limits)
            assert Counter(match[0] for match in matches_of(found)) == {"low": 5, "by_s": 5}
            # What withdraws matches is not counted: an earlier b ends the first run of two rules.
            late = called(found.chain, [("k", 1, "b", 0.0, 0, "s")], 9, replace(limits, matches=Limit(2)))
            kinds = Counter(row["kind"] for table in late.found.matches for row in table.to_pylist())
            assert kinds == {"retract": 2, "match": 2}
        else:
            with pytest.raises(StateError, match=rf"E0722.* has {n} {what}.*`limits: {name}` is {at_most}"):
                called(Chain(rules), A_AND_B, 9, limits)


def packed(rows: list[Row]) -> list[Parcel]:
    programs = enumerate(RULES.rule_set.programs)
    prepared = ((number, prepare(program, events(*rows))) for number, program in programs)
    return [Parcel(Contents.EVENTS, number, None, record_bytes(some)) for number, some in prepared]


def test_more_state_than_the_share_ends_the_run_with_the_rules_and_keys_that_have_most() -> None:
    wide = KeyGroups(RULES.rule_set, n_groups=64, limits=Limits(state_mb=Limit(64)))
    rows = many(2501)
    _, value = wide._call_inline(None, Moment(3, None, 2500 * SECOND, None), packed(rows))
    assert len(value) < 1 << 20
    tight = replace(wide, limits=Limits(state_mb=Limit(1)), n_groups=1024)
    with pytest.raises(StateError) as caught:
        tight._call_inline(None, Moment(3, None, 2500 * SECOND, None), packed(rows))
    text = str(caught.value)
    assert re.match(
        r"error\[E0722\]: key group 3 has [\d,]+ bytes of state, and its share of `limits: state_mb` is "
        r"1,024\. In a snapshot [\d,]+ are of `low`, `high`, [\d,]+ are of `by_s`, `unheard`; "
        r"s = s has 10 of 10 open runs of `unheard`; s = s has 10 of 10 open runs of `by_s`; "
        r"k = k\d has 2 of 10 open runs of `low`\n",
        text,
    ), text
    assert text.endswith("or let `limits: open_runs` drop runs")
    sizes = [int(n.replace(",", "")) for n in re.findall(r"([\d,]+) (?:are of|bytes)", text)]
    assert sizes[0] > sizes[1] + sizes[2] > sizes[0] - 100


def test_what_corrections_retain_is_named_among_the_bytes_of_state() -> None:
    rules = RULES.rule_set.with_corrections(Corrections(60 * SECOND))
    found = called(Chain(rules), many(30), 29, Limits())
    told = heaviest(encode_state(found.chain.matchers, 1), rules)
    assert re.match(r"In a snapshot [\d,]+ are retained for corrections, [\d,]+ are ", told), told
    assert "has 10 of 10 open runs of `by_s`" in told
