"""One call of the operator, without Spark: what it counts, and what it takes for late."""

from __future__ import annotations

from itertools import permutations

import pyarrow as pa
import pytest

from cep.compiler.compile import compile_sources
from cep.counts import Counts
from cep.engine.chains.chain import Chain
from cep.engine.prepare.predicates import prepare
from cep.errors import Source
from cep.formats.chunks import Chunk
from cep.formats.dead_letter import DEAD_LETTER_SCHEMA
from cep.rule_set import Corrections
from cep.schema.stream import Field, Stream, TableKind, TableSettings
from cep.schema.text_values import event_table_schema
from spark_runtime.operator.call import Call, carried_rows
from spark_runtime.sinks.delivery import ALL_AS_ROWS
from spark_runtime.wire.output import COUNTS, KIND, OUTPUT_SCHEMA, TEXT, carried_schema
from spark_runtime.wire.packer import Packer
from spark_runtime.wire.parcels import Contents, Parcel, arrival, of_batch, record_bytes
from tests.unit.engine.events import SECOND, STREAM, events

RULE = "RULE r FROM events PARTITION BY k PATTERN a -> b WITHIN 10 SECONDS DEFINE a AS x < 1, b AS x > 1"


def chain_of(corrections: Corrections | None = None) -> Chain:
    compiled = compile_sources([Source("r", RULE)], {"events": STREAM})
    return Chain(compiled.rule_set.with_corrections(corrections))


def parcel_of(chain: Chain, *seconds: int) -> Parcel:
    rows = prepare(chain.rules.programs[0], events(*(("k", second, "a", 0.0, 1) for second in seconds)))
    return Parcel(Contents.EVENTS, 0, None, record_bytes(rows))


def counts_of(call: Call) -> list[Counts]:
    rows = pa.Table.from_batches(
        list(call.results().output(ALL_AS_ROWS, call.rules, "0")), OUTPUT_SCHEMA
    ).to_pylist()
    return [Counts.of_json(row[TEXT]) for row in rows if row[KIND] == COUNTS]


def called(chain: Chain, *parcels: Parcel) -> Call:
    call = Call(chain, gets_whole=False, by_own_events=False)
    call.push_all(parcels)
    return call


def test_what_readers_counted_goes_on_as_it_is_before_the_counts_of_the_call() -> None:
    chain = chain_of()
    read = [Counts(events=2, latest={"events": (5, "a:1")}), Counts(events=3, late_of={"events": 1})]
    texts = [Parcel(Contents.COUNTS, None, counts.to_json(), None) for counts in read]
    call = called(chain, *texts, parcel_of(chain, 1))
    call.counts.waiting["0"] = 1
    assert [counts.to_json() for counts in counts_of(call)] == [
        *(counts.to_json() for counts in read),
        Counts(waiting={"0": 1}).to_json(),
    ]


@pytest.mark.parametrize(
    ("seconds", "n_late"), [((6, 7), 0), ((5, 6), 1), ((6, 5, 4), 2), ((4,), 1)], ids=str
)
def test_of_a_parcel_the_events_at_or_before_the_watermark_are_late(
    seconds: tuple[int, ...], n_late: int
) -> None:
    chain = chain_of()
    called(chain, parcel_of(chain, 1)).advance(5 * SECOND, None)
    call = called(chain, parcel_of(chain, *seconds))
    (matcher,) = chain.matchers
    assert (sum(counts.late for counts in counts_of(call)), matcher.n_waiting) == (
        n_late,
        len(seconds) - n_late,
    )
    assert (matcher.counters.events, matcher.counters.late) == (1 + len(seconds) - n_late, n_late)


def test_with_corrections_an_event_is_late_only_beyond_their_bound() -> None:
    chain = chain_of(Corrections(3 * SECOND))
    called(chain, parcel_of(chain, 1)).advance(5 * SECOND, None)
    call = called(chain, parcel_of(chain, 6), parcel_of(chain, 2, 3, 5, 7))
    assert sum(counts.late for counts in counts_of(call)) == 1
    assert [matcher.counters.events for matcher in chain.matchers] == [5]


def test_rows_of_a_rule_beside_a_view_have_a_revision_and_a_kind() -> None:
    fields = (Field("k", "string"), Field("at", "timestamp"))
    table = Stream("t", fields, "at", table=TableSettings(("k",), TableKind.CHANGELOG))
    text = f"{RULE}\nVIEW v KEY k FROM t SELECT at AS since"
    chain = Chain(compile_sources([Source("r", text)], {"events": STREAM, "t": table}).rule_set)
    of_rule = next(n for n, program in enumerate(chain.rules.programs) if not program.has_views)
    schema = chain.rules.programs[of_rule].match_schema
    values = {"match_start": 1, "match_end": 2}
    row = {name: values.get(name, "x") for name in schema.names}
    found = carried_rows(
        pa.Table.from_pylist([row], schema), carried_schema(chain.rules.match_schema), chain.rules
    )
    [carried] = found.to_pylist()
    assert (carried["revision"], carried["kind"], carried["since"]) == (0, "match", None)


def test_events_are_taken_in_the_order_of_their_arrival_however_spark_brings_them() -> None:
    table = Stream(
        "t",
        (Field("k", "string"), Field("at", "timestamp"), Field("v", "bigint")),
        "at",
        table=TableSettings(("k",), TableKind.CHANGELOG),
    )
    rules = compile_sources([Source("r", "VIEW v KEY k FROM t SELECT v")], {"t": table}).rule_set
    schema = event_table_schema(table)
    packer = Packer(rules, (0,))
    found = {}
    for value, arrived in ((2, arrival(9, 0)), (3, arrival(10, 1)), (1, arrival(0, 3))):
        rows = pa.Table.from_pylist([{"k": "x", "at": 5, "v": value}], schema)
        chunk = Chunk(rows, DEAD_LETTER_SCHEMA.empty_table())
        batches = packer.chunk(chunk, table, None, Counts(), arrived=arrived)
        found[value] = [parcel for batch in batches for parcel in of_batch(batch)]
    for order in permutations(found):
        call = Call(Chain(rules), gets_whole=False)
        call.push_all(parcel for value in order for parcel in found[value])
        call.finish()
        assert [row["v"] for each in call.found.matches for row in each.to_pylist()] == [3]
