"""Local runs: complete input, input as a stream, several keys, counts."""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from cep.compiler.compile import compile_sources
from cep.counts import Counts
from cep.engine.chains.chain import Chain
from cep.engine.corrections.corrector import Corrector
from cep.engine.event_time.watermark import START_OF_TIME_US
from cep.errors import InputError, Source
from cep.formats.chunks import Chunk
from cep.formats.dead_letter import DEAD_LETTER_SCHEMA
from cep.local.match_file import Result, match_chunks, match_file
from cep.output.summary import summary_lines
from cep.rule_set import Corrections, RuleSet
from cep.schema.stream import Field, Stream
from cep.schema.text_values import event_table_schema

FIELDS = (
    Field("id", "bigint"),
    Field("card", "string"),
    Field("shop", "bigint"),
    Field("ts", "timestamp"),
    Field("amount", "double"),
)
STREAM = Stream("payments", FIELDS, "ts", ("id",), lateness_us=10_000_000, deduplicate=True)
RULES = """
RULE by_card FROM payments PARTITION BY card PATTERN a -> b WITHIN 1 MINUTE
DEFINE a AS amount < 5, b AS amount > 50 MEASURES b.amount AS loss, a.id AS first_id

RULE by_shop FROM payments PARTITION BY shop PATTERN c WITHIN 1 MINUTE
DEFINE c AS amount > 50 MEASURES c.id AS loss, c.card AS seen
"""


def programs(text: str = RULES, streams: dict[str, Stream] | None = None) -> RuleSet:
    return compile_sources([Source("test.cep", text)], streams or {"payments": STREAM}).rule_set


def run(tmp_path: Path, *events: tuple[int, float, int], text: str = RULES, **options: Any) -> Result:
    """Run over events of one card given as (id, amount, second)."""
    lines = [
        json.dumps(
            {
                "id": number,
                "card": "c",
                "shop": 7,
                "ts": f"2024-05-01T10:{at // 60:02}:{at % 60:02}",
                "amount": amount,
            }
        )
        for number, amount, at in events
    ]
    (tmp_path / "in.json").write_text("\n".join(lines))
    return match_file(programs(text), tmp_path / "in.json", **options)


def short(result: Result) -> list[tuple[str, str, str]]:
    return [
        (row["rule"], f"{row['match_start']:%M:%S}", f"{row['match_end']:%M:%S}")
        for row in result.matches.to_pylist()
    ]


def test_matches_of_rules_with_different_keys_are_one_ordered_table(tmp_path: Path) -> None:
    result = run(tmp_path, (1, 1.0, 0), (2, 99.0, 30))
    assert result.matches.schema == programs().match_schema
    assert result.matches.column_names == [
        "rule", "card", "shop", "match_id", "match_start", "match_end", "loss", "first_id", "seen"
    ]  # fmt: skip
    rows = [
        {k: v for k, v in row.items() if not k.startswith("match_")} for row in result.matches.to_pylist()
    ]
    assert rows == [
        {"rule": "by_card", "card": "c", "shop": None, "loss": 99.0, "first_id": 1, "seen": None},
        {"rule": "by_shop", "card": None, "shop": 7, "loss": 2.0, "first_id": None, "seen": "c"},
    ]
    assert result.counts.matches == {"by_card": 1, "by_shop": 1}


def test_complete_input_may_be_in_any_order(tmp_path: Path) -> None:
    result = run(tmp_path, (2, 99.0, 50), (1, 1.0, 0))
    assert short(result) == [("by_card", "00:00", "00:50"), ("by_shop", "00:50", "00:50")]
    assert result.counts.late == 0


def test_as_a_stream_an_event_behind_the_lateness_is_late(tmp_path: Path) -> None:
    # The lateness is 10 seconds: after 50 an event of 41 is in time, one of 40 is not.
    result = run(tmp_path, (2, 99.0, 50), (1, 1.0, 40), (3, 1.0, 41), (4, 99.0, 42), as_stream=True)
    assert short(result) == [
        ("by_card", "00:41", "00:42"),
        ("by_shop", "00:42", "00:42"),
        ("by_shop", "00:50", "00:50"),
    ]
    assert result.counts.late == 1
    (late,) = result.late.values()
    assert [(row["id"], row["_late_seconds"]) for row in late.to_pylist()] == [(1, 0.0)]
    assert result.counts.latest_late == {"payments": (0, "")}
    assert result.counts.late_keys == {"card = c": 1}


def test_as_a_stream_in_order_gives_what_complete_input_gives(tmp_path: Path) -> None:
    events = [(number, float(number * 37 % 100), number * 7 % 3000) for number in range(200)]
    events.sort(key=lambda event: event[2] // 10)
    complete = run(tmp_path, *events)
    stream = run(tmp_path, *events, as_stream=True)
    assert stream.counts.late == 0
    assert stream.matches.equals(complete.matches)
    assert len(complete.matches) > 20


def test_absence_at_the_end_of_the_input_is_a_match(tmp_path: Path) -> None:
    text = """RULE silent FROM payments PARTITION BY card PATTERN a -> !b WITHIN 1 MINUTE
    DEFINE a AS amount < 5, b AS amount > 50"""
    for as_stream in (False, True):
        result = run(tmp_path, (1, 1.0, 0), text=text, as_stream=as_stream)
        assert short(result) == [("silent", "00:00", "01:00")]


def test_a_copy_is_counted_once_however_many_keys_there_are(tmp_path: Path) -> None:
    result = run(tmp_path, (1, 99.0, 0), (1, 99.0, 0), (2, 99.0, 0))
    assert result.counts.duplicates == 1
    assert result.counts.events == 3
    assert result.counts.matches == {"by_card": 0, "by_shop": 2}


def test_malformed_lines_are_counted_and_kept(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('bad\n{"ts":"2024-05-01"}\n{"ts":null}\n')
    result = match_file(programs(), tmp_path / "in.json")
    assert result.counts.malformed == 3
    assert result.counts.events == 0
    assert [(row["position"], row["reason"]) for row in result.dead_letters.to_pylist()] == [
        (1, "not a JSON object"),
        (2, "key is NULL: `card`, `shop`"),
        (3, "event time `ts` is NULL"),
    ]


def test_one_input_cannot_hold_the_events_of_two_streams(tmp_path: Path) -> None:
    streams = {"payments": STREAM, "refunds": Stream("refunds", FIELDS, "ts")}
    text = RULES + "RULE other FROM refunds PARTITION BY card PATTERN a DEFINE a AS amount > 1"
    with pytest.raises(InputError, match="the rules read 2 streams, the input has the events of one"):
        match_file(programs(text, streams), tmp_path / "in.json")


BY_CARD = RULES[: RULES.index("RULE by_shop")]


def chunks(*parts: list[tuple[int, float, int]]) -> list[Chunk]:
    """Return events of one card, given as (id, amount, second), as pieces of a file."""
    return [
        Chunk(
            pa.Table.from_pylist(
                [
                    {"id": number, "card": "c", "shop": 7, "ts": at * 1_000_000, "amount": amount}
                    for number, amount, at in part
                ],
                schema=event_table_schema(STREAM),
            ),
            DEAD_LETTER_SCHEMA.empty_table(),
        )
        for part in parts
    ]


def test_a_late_event_corrects_what_was_reported_as_a_stream() -> None:
    parts = ([(1, 1.0, 10), (2, 60.0, 20), (3, 10.0, 60)], [(4, 60.0, 15), (5, 60.0, 1)])
    plain = match_chunks(programs(BY_CARD), chunks(*parts), as_stream=True)
    assert short(plain) == [("by_card", "00:10", "00:20")]
    assert plain.counts.late == 2
    corrected = programs(BY_CARD).with_corrections(Corrections(49_000_000))  # the watermark is 50 seconds
    result = match_chunks(corrected, chunks(*parts), as_stream=True)
    rows = [(row["kind"], row["revision"], f"{row['match_end']:%S}") for row in result.matches.to_pylist()]
    assert rows == [("match", 0, "20"), ("retract", 1, "20"), ("match", 0, "15")]
    assert result.late[STREAM].column("id").to_pylist() == [5]
    assert result.late[STREAM].column("_late_seconds").to_pylist() == [49.0]
    counts = result.counts
    assert (counts.matches, counts.retracted, counts.uncorrected) == ({"by_card": 1}, {"by_card": 1}, 0)
    assert counts.corrected == 1
    assert [" ".join(line.split()) for line in summary_lines(counts, 0.0, {"payments": STREAM})][2:6] == [
        *("late 1", "20 % of the events, up to 49 seconds behind the watermark", "of card = c (1)"),
        "to keep them, raise `lateness` of stream `payments` (now 10 seconds)",
    ]
    batch = match_chunks(corrected, chunks(*parts))
    rows = [(row["kind"], row["revision"], f"{row['match_end']:%S}") for row in batch.matches.to_pylist()]
    assert rows == [("match", 0, "15")]


@pytest.mark.parametrize("n", [1, 2])
def test_the_event_that_the_watermark_follows_is_named_if_there_is_one_partition(n: int) -> None:
    latest = {f"payments[{number}]": (1_714_557_600_000_000, "in.json:2") for number in range(n)}
    counts = Counts(events=10, late_of={"payments": 1}, latest=latest)
    lines = summary_lines(counts, 0.0, {"payments": STREAM})
    follows = "the watermark follows the latest event: 2024-05-01T10:00:00Z, in.json:2"
    assert any(follows in line for line in lines) == (n == 1)


def test_what_was_let_go_because_of_the_limit_is_late_and_counted() -> None:
    many = [(10 + second, 1.0, second) for second in range(100, 200)]
    parts = ([(1, 1.0, 10), *many], [(2, 60.0, 15), (3, 60.0, 5)])
    rules = programs(BY_CARD).with_corrections(Corrections(180_000_000, 20))
    result = match_chunks(rules, chunks(*parts), as_stream=True)
    assert result.late[STREAM].column("id").to_pylist() == [2, 3]
    assert (result.counts.late, result.counts.uncorrected) == (2, 1)
    assert summary_lines(result.counts, 0.0, {})[-2] == (
        "uncorrected              1  late, but not too late for a correction; more was retained than "
        "`max_retained` allows"
    )


def test_the_summary_says_what_to_do_where_all_late_events_are_uncorrected() -> None:
    counts = Counts(events=100, uncorrected=20, late_of={"payments": 20})
    lines = summary_lines(counts, 0.0, {"payments": STREAM})
    at = next(number for number, line in enumerate(lines) if line.startswith("late"))
    assert [" ".join(line.split()) for line in lines[at : at + 3]] == [
        *("late 20", "20 % of the events", "to keep them, raise `max_retained`"),
    ]


def test_the_summary_says_what_to_do_where_events_came_after_the_end_of_the_input() -> None:
    counts = Counts(events=2, late_of={"payments": 2}, late_in={"in/b.json": 2})
    lines = [" ".join(line.split()) for line in summary_lines(counts, 0.0, {"payments": STREAM})]
    assert lines[lines.index("late 2") :][1:4] == [
        *("100 % of the events", "in in/b.json (2)"),
        "the input had been declared complete; to keep them, start from a new checkpoint",
    ]


def test_corrections_within_no_time_are_refused() -> None:
    with pytest.raises(InputError) as error:
        programs().with_corrections(Corrections(0))
    assert str(error.value) == (
        "error[E0647]: corrections within no time\nhelp: write a duration above 0: correct within 1 hour"
    )


TWO = """
RULE by_card FROM payments PARTITION BY card PATTERN a -> b WITHIN 1 MINUTE
LET lately = SUM(amount) OVER LAST 30 SECONDS
DEFINE a AS amount < 50, b AS amount > 50 MEASURES b.lately AS lately, a.id AS first_id
AFTER MATCH SKIP PAST LAST EVENT

RULE refunded FROM payments, refunds PARTITION BY card PATTERN p -> r WITHIN 1 MINUTE
DEFINE p ON payments AS amount > 20, r ON refunds AS amount > 0 MEASURES r.id AS first_id
"""


def test_corrections_come_as_a_stream_gives_them_that_takes_events_one_by_one() -> None:
    streams = {"payments": STREAM, "refunds": Stream("refunds", FIELDS, "ts", ("id",), 10_000_000)}
    rules = programs(TWO, streams).with_corrections(Corrections(40_000_000))
    random = Random(5)
    arrivals: list[tuple[str, dict[str, Any]]] = []
    for number in range(300):
        behind = random.choice([0, 0, 0, 0, 3, 8, 20, 45, 60])
        row = {"id": number, "card": random.choice("cd"), "shop": 7, "ts": (number - behind) * 1_000_000}
        arrivals.append((random.choice(list(streams)), row | {"amount": random.randrange(900) / 8}))
    parts = {
        name: [
            Chunk(
                pa.Table.from_pylist(rows[at : at + 40], schema=event_table_schema(stream)),
                DEAD_LETTER_SCHEMA.empty_table(),
            )
            for rows in [[row for of, row in arrivals if of == name]]
            for at in range(0, len(rows), 40)
        ]
        for name, stream in streams.items()
    }
    result = match_chunks(rules, parts, as_stream=True)

    chain, newest_us, corrected = Chain(rules), START_OF_TIME_US, 0
    expected: list[pa.Table] = []
    late: list[int] = []
    # Of each input comes next what its event time has reached least (`arrive`).
    reached = {name: accumulate([row["ts"] for of, row in arrivals if of == name], max) for name in streams}
    order = sorted((next(reached[of]), list(streams).index(of), at) for at, (of, _) in enumerate(arrivals))
    for _, _, at in order:
        name, event = arrivals[at]
        is_late = event["ts"] <= newest_us - 10_000_000
        final_us = max(matcher.final_us for matcher in chain.matchers if isinstance(matcher, Corrector))
        if is_late and event["ts"] <= final_us:
            late.append(event["id"])
        else:
            corrected += is_late
            chain.push_events(streams[name], pa.Table.from_pylist([event], event_table_schema(streams[name])))
        newest_us = max(newest_us, event["ts"])
        chain.advance(newest_us - 10_000_000, expected.append, in_parts=False)
    chain.finish(expected.append, in_parts=False)

    def shown(table: pa.Table) -> list[str]:
        names = ("rule", "match_id", "revision", "kind", "lately", "first_id")
        return [repr([row[name] for name in names]) for row in table.to_pylist()]

    def of_each(rows: list[str]) -> list[str]:
        """Rows of the two programs come in turns, which the size of a step decides."""
        return [row for name in ("by_card", "refunded") for row in rows if row.startswith(f"['{name}'")]

    assert of_each(shown(result.matches)) == of_each(shown(rules.together(expected)))
    assert (
        sum(result.counts.retracted.values()) == sum("'retract'" in row for row in shown(result.matches)) > 30
    )
    assert (result.counts.corrected, result.counts.late) == (corrected, len(late))
    assert min(corrected, len(late)) > 20
    ids = [number for table in result.late.values() for number in table.column("id").to_pylist()]
    assert sorted(ids) == sorted(late)
