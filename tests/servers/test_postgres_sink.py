"""Tables of PostgreSQL as a sink: what is in them, whatever has crashed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from cep.errors import InputError
from cep.rule_set import Corrections
from spark_runtime.connectors.postgres.connection import Connection
from spark_runtime.connectors.postgres.sink import PostgresSink, csv_parts
from spark_runtime.connectors.postgres.sink_settings import PostgresSpec
from spark_runtime.connectors.postgres.statements import Target, type_of
from spark_runtime.sinks.protocol import Collected, Guarantee, Mark, MicroBatch, Output, Rows, TableSink
from spark_runtime.wire.output import DEAD, LATE, MATCH
from tests.servers.gate import gate_to
from tests.servers.postgres_server import PASSWORD, USER, PostgresServer
from tests.spark.test_sink_contract import CONTEXT, OUTPUTS, RULES, tell_what_they_have, write

KINDS = pytest.mark.parametrize("kind", [MATCH, LATE, DEAD])


OPENED: list[TableSink] = []


@pytest.fixture(autouse=True)
def _no_connection_stays() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    return postgres.database()


def connection(postgres: PostgresServer, database: str, **more: str) -> Connection:
    parameters = {"host": "127.0.0.1", "port": str(postgres.port), "dbname": database, "user": "postgres"}
    return Connection(tuple(sorted((parameters | more).items())))


def opened(
    postgres: PostgresServer, database: str, output: Output, table: str = "found", *, is_current: bool = False
) -> TableSink:
    spec = PostgresSpec(connection(postgres, database), "", table, is_current)
    sink = spec.open(output, CONTEXT)
    sink.check()
    OPENED.append(sink)
    return sink


def there(postgres: PostgresServer, database: str, kind: str, table: str = "found") -> list[int]:
    name = "position" if kind == DEAD else "id"
    table += "_s" * (kind == LATE)
    return [number for (number,) in postgres.run(database, f"SELECT {name} FROM {table} ORDER BY 1")]


@KINDS
def test_what_was_committed_is_there(postgres: PostgresServer, database: str, kind: str) -> None:
    sink = opened(postgres, database, OUTPUTS[kind])
    assert isinstance(sink, TableSink)
    assert sink.guarantee is Guarantee.EXACTLY_ONCE
    for number, ids in enumerate(([1, 2, 3], [], [4])):
        batch = MicroBatch("run", number)
        sink.begin(batch)
        write(None, sink, kind, batch, ids)
        sink.commit(batch)
    sink.close()
    assert there(postgres, database, kind) == [1, 2, 3, 4]


@KINDS
@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("is_committed", [False, True])
def test_a_micro_batch_that_comes_again_after_a_crash_is_there_once(
    postgres: PostgresServer,
    database: str,
    kind: str,
    is_written: bool,
    is_committed: bool,
) -> None:
    sink, batch = opened(postgres, database, OUTPUTS[kind]), MicroBatch("run", 1)
    sink.begin(batch)
    if is_written:
        write(None, sink, kind, batch, [1, 2, 3])
    if is_committed:
        sink.commit(batch)
    sink.close()  # as the end of its process does
    again = opened(postgres, database, OUTPUTS[kind])
    for number, ids in ((1, [3, 2, 1]), (2, [4])):
        again.begin(MicroBatch("run", number))
        write(None, again, kind, MicroBatch("run", number), ids)
        again.commit(MicroBatch("run", number))
    assert there(postgres, database, kind) == [1, 2, 3, 4]


def test_a_micro_batch_that_is_begun_again_in_one_process_is_there_once(
    postgres: PostgresServer, database: str
) -> None:
    sink = opened(postgres, database, OUTPUTS[DEAD])
    for _ in range(2):
        sink.begin(MicroBatch("run", 0))
        write(None, sink, DEAD, MicroBatch("run", 0), [1, 2])
    sink.commit(MicroBatch("run", 0))
    assert there(postgres, database, DEAD) == [1, 2]


def test_a_run_that_was_taken_for_dead_writes_nothing_twice(postgres: PostgresServer, database: str) -> None:
    zombie, sink = (opened(postgres, database, OUTPUTS[DEAD]) for _ in range(2))
    for writer in (sink, zombie):
        writer.begin(MicroBatch("run", 0))
        write(None, writer, DEAD, MicroBatch("run", 0), [1])
        writer.commit(MicroBatch("run", 0))
    assert there(postgres, database, DEAD) == [1]


@KINDS
def test_what_it_has_of_a_stream_is_told(postgres: PostgresServer, database: str, kind: str) -> None:
    tell_what_they_have(None, lambda: opened(postgres, database, OUTPUTS[kind]), kind)


LEDGER_OF_BEFORE = (
    "CREATE TABLE cep_ledger (run text NOT NULL, output text NOT NULL, batch bigint NOT NULL, "
    "written timestamp with time zone NOT NULL DEFAULT now(), PRIMARY KEY (run, output))"
)


def test_a_ledger_of_an_earlier_version_gets_its_column_of_plans(
    postgres: PostgresServer, database: str
) -> None:
    postgres.run(database, LEDGER_OF_BEFORE)
    tell_what_they_have(None, lambda: opened(postgres, database, OUTPUTS[DEAD]), DEAD)


def test_a_ledger_of_another_user_notes_numbers_alone(postgres: PostgresServer, database: str) -> None:
    output, batch = OUTPUTS[DEAD], MicroBatch("run", 2, "a1")
    table = opened(postgres, database, output)
    postgres.run(
        database,
        "DROP TABLE cep_ledger",
        LEDGER_OF_BEFORE,
        f"GRANT ALL ON cep_ledger, found TO {USER}",
    )
    target = Target("", "found", output, False)
    limited = PostgresSink(output, connection(postgres, database, user=USER, password=PASSWORD), target)
    OPENED.append(limited)
    for ids in ([1], [1]):
        limited.check()
        limited.begin(batch)
        write(None, limited, DEAD, batch, ids)
        limited.commit(batch)
    assert limited.last("run") == Mark("table `found`", 2)
    assert there(postgres, database, DEAD) == [1]
    table.check()  # the owner adds the column
    assert table.last("run") == Mark("table `found`", 2)


def test_streams_and_outputs_do_not_meet_in_one_ledger(postgres: PostgresServer, database: str) -> None:
    for run, kind, ids in (("a", LATE, [1]), ("b", LATE, [2]), ("a", MATCH, [3])):
        sink = opened(postgres, database, OUTPUTS[kind], "found")
        sink.begin(MicroBatch(run, 0))
        write(None, sink, kind, MicroBatch(run, 0), ids)
        sink.commit(MicroBatch(run, 0))
    assert there(postgres, database, LATE) == [1, 2]
    assert there(postgres, database, MATCH) == [3]
    # A stream has one row in the ledger, however long it runs.
    assert postgres.run(database, "SELECT count(*), max(batch) FROM cep_ledger") == [(3, 0)]


@pytest.mark.parametrize("is_current", [False, True])
def test_a_batch_that_is_run_again_adds_no_match_twice(
    postgres: PostgresServer, database: str, is_current: bool
) -> None:
    for _ in range(2):
        sink = opened(postgres, database, OUTPUTS[MATCH], is_current=is_current)
        sink.begin(MicroBatch(None, 0))
        write(None, sink, MATCH, MicroBatch(None, 0), [1, 2])
        sink.commit(MicroBatch(None, 0))
    assert there(postgres, database, MATCH) == [1, 2]


def test_late_events_of_several_streams_have_tables_of_their_own(
    postgres: PostgresServer, database: str
) -> None:
    opened(postgres, database, OUTPUTS[LATE])
    assert postgres.run(database, "SELECT count(*) FROM found_s") == [(0,)]


# ---------------------------------------------------------------- corrections

CORRECTED = Output(MATCH, RULES.with_corrections(Corrections(1)).match_schema)


def rows_of(output: Output, rows: list[tuple[int, int, str]]) -> Collected:
    """Return rows (number of the match, revision, kind)."""
    objects = [
        {"rule": "r", "k": "k", "match_id": f"m{i}", "match_start": i, "match_end": i, "id": i}
        | {"revision": revision, "kind": kind}
        for i, revision, kind in rows
    ]
    table = pa.Table.from_pylist(objects, output.schema)
    return Collected(len(rows), Rows(output, [table]), lambda texts: table)


def put(sink: TableSink, *batches: list[tuple[int, int, str]]) -> None:
    for number, rows in enumerate(batches):
        sink.begin(MicroBatch("run", number))
        sink.write_rows(MicroBatch("run", number), rows_of(sink.output, rows))
        sink.commit(MicroBatch("run", number))
    sink.close()


BATCHES = (
    [(1, 0, "match"), (2, 0, "match"), (3, 0, "match"), (3, 1, "retract")],
    [(1, 1, "retract"), (4, 0, "match")],
    [(2, 1, "retract"), (2, 2, "match"), (1, 2, "match"), (4, 1, "retract")],
)


def test_rows_that_are_withdrawn_are_appended(postgres: PostgresServer, database: str) -> None:
    put(opened(postgres, database, CORRECTED), *BATCHES)
    found = postgres.run(database, "SELECT id, revision, kind FROM found")
    assert sorted(found) == sorted(row for batch in BATCHES for row in batch)


def test_a_table_that_is_kept_current_has_the_rows_that_stand(
    postgres: PostgresServer, database: str
) -> None:
    put(opened(postgres, database, CORRECTED, is_current=True), *BATCHES)
    assert sorted(postgres.run(database, "SELECT id, revision FROM found")) == [(1, 2), (2, 2)]


def test_a_column_of_yours_stays_when_a_match_comes_again(postgres: PostgresServer, database: str) -> None:
    put(opened(postgres, database, OUTPUTS[MATCH], is_current=True))
    postgres.run(database, "ALTER TABLE found ADD COLUMN seen_by text")
    sink = opened(postgres, database, OUTPUTS[MATCH], is_current=True)
    from tests.spark.test_sink_contract import collected

    for run in ("a", "b"):
        sink.begin(MicroBatch(run, 0))
        sink.write_rows(MicroBatch(run, 0), collected(MATCH, [1]))
        sink.commit(MicroBatch(run, 0))
        postgres.run(database, "UPDATE found SET seen_by = coalesce(seen_by, '') || 'x'")
    assert postgres.run(database, "SELECT id, seen_by FROM found") == [(1, "xx")]


# ---------------------------------------------------------------- values

ALL_TYPES = pa.table(
    {
        "text": pa.array(['a "b", c\n\\.', "", None, "\x00é"]),
        "flag": pa.array([True, False, None, True]),
        "number": pa.array([2**63 - 1, -(2**63), None, 0]),
        "small": pa.array([1, -1, None, 0], pa.int8()),
        "double": pa.array([0.1, float("nan"), None, float("-inf")]),
        "money": pa.array(["1.50", "-0.01", None, "0"]).cast(pa.decimal128(10, 2)),
        "time": pa.array([1, -1, None, 10**15], pa.timestamp("us", "UTC")),
        "day": pa.array([0, 19_000, None, -1], pa.int32()).cast(pa.date32()),
        "bytes": pa.array([b"\x00\xff", b"", None, b"x"]),
        "list": pa.array([[1.5, None], [], None, [2.0]]),
        "event": pa.array([{"a": 'x"', "b": 1}, {"a": None, "b": 2}, None, {"a": "\\\x00", "b": None}]),
    }
)


def test_values_of_each_type_arrive_as_they_are(postgres: PostgresServer, database: str) -> None:
    import psycopg

    columns = ", ".join(f'"{item.name}" {type_of(item.type)}' for item in ALL_TYPES.schema)
    with psycopg.connect(postgres.dsn(database)) as client, client.cursor() as cursor:
        cursor.execute(
            f"SET timezone = 'UTC'; SET datestyle = 'ISO'; CREATE TABLE found (n serial, {columns})"
        )
        names = ", ".join(f'"{name}"' for name in ALL_TYPES.column_names)
        with cursor.copy(f"COPY found ({names}) FROM STDIN (FORMAT csv)") as copy:
            for part in csv_parts(ALL_TYPES):
                copy.write(part)
        found = cursor.execute(f"SELECT {names} FROM found ORDER BY n").fetchall()
    expected = ALL_TYPES.to_pylist()
    expected[3]["text"] = "�é"
    expected[1]["event"] = {"b": 2}
    expected[3]["event"] = {"a": "\\�"}
    for row, wanted in zip(found, expected, strict=True):  # as texts: NaN is not equal to itself
        found_and_wanted = (
            [value.astimezone(UTC) if isinstance(value, datetime) else value for value in values]
            for values in (row, wanted.values())
        )
        assert len(set(map(repr, found_and_wanted))) == 1


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("table", "is_current", "message"),
    [
        ("(k text)", False, "table `found` has no column `rule`"),
        (
            "(rule text, k bigint, match_id text, match_start timestamptz, match_end timestamptz, id bigint)",
            False,
            "column `k` of table `found` is of type bigint, its values are of type text",
        ),
        (
            "(rule text, k text, match_id text, match_start timestamptz, match_end timestamptz, id bigint)",
            True,
            'table `found` has no unique index on "match_id"',
        ),
        (
            "(rule text, k text, match_id text, match_start timestamp, match_end timestamptz, id bigint)",
            True,
            "column `match_start` of table `found` is of type timestamp without time zone, "
            "its values are of type timestamp with time zone",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_told_before_the_run(
    postgres: PostgresServer, database: str, table: str, is_current: bool, message: str
) -> None:
    postgres.run(database, f"CREATE TABLE found {table}")
    with pytest.raises(InputError) as caught:
        opened(postgres, database, OUTPUTS[MATCH], is_current=is_current)
    assert (caught.value.code, caught.value.args[0]) == ("E0870", message)


def test_a_schema_that_does_not_exist_is_told_before_the_run(postgres: PostgresServer, database: str) -> None:
    given = connection(postgres, database)
    with pytest.raises(InputError) as caught:
        PostgresSpec(given, "nosch", "t").open(OUTPUTS[MATCH], CONTEXT).check()
    assert (caught.value.code, caught.value.args[0]) == (
        "E0870",
        f"database `{given.address}` has no schema `nosch`",
    )
    assert 'CREATE SCHEMA "nosch"; or name another table' in str(caught.value)
    nowhere = connection(postgres, database, options="-c search_path=nosch")
    with pytest.raises(InputError) as caught:
        PostgresSpec(nowhere, "", "t").open(OUTPUTS[MATCH], CONTEXT).check()
    assert (caught.value.code, caught.value.args[0]) == (
        "E0870",
        f"no schema of the search path exists in `{given.address}`",
    )


def test_wider_columns_and_a_table_without_an_index_do(postgres: PostgresServer, database: str) -> None:
    postgres.run(
        database,
        "CREATE TABLE found (id numeric, note text DEFAULT 'n' NOT NULL, rule varchar(40), k text, "
        "match_id text, match_start timestamptz, match_end timestamptz)",
    )
    sink = opened(postgres, database, OUTPUTS[MATCH])
    sink.begin(MicroBatch("run", 0))
    write(None, sink, MATCH, MicroBatch("run", 0), [1])
    sink.commit(MicroBatch("run", 0))
    assert postgres.run(database, "SELECT id, note FROM found") == [(1, "n")]


def test_a_column_of_yours_that_must_have_a_value_is_told_before_the_run(
    postgres: PostgresServer, database: str
) -> None:
    opened(postgres, database, OUTPUTS[MATCH]).close()
    postgres.run(database, "ALTER TABLE found ADD COLUMN owner text NOT NULL")
    with pytest.raises(InputError) as caught:
        opened(postgres, database, OUTPUTS[MATCH])
    assert (caught.value.code, caught.value.args[0]) == (
        "E0870",
        "table `found` has a column `owner` that must have a value, and gets none",
    )


def test_who_may_not_write_is_told_before_the_run(
    postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CEP_TEST_PASSWORD", PASSWORD)
    opened(postgres, database, OUTPUTS[MATCH]).close()
    postgres.run(database, f"GRANT SELECT ON found, cep_ledger TO {USER}")

    def said(password: str, name: str = database) -> str:
        asked = connection(postgres, name, user=USER, password=password)
        with pytest.raises(InputError) as caught:
            PostgresSpec(asked, "", "found").open(OUTPUTS[MATCH], CONTEXT).check()
        assert PASSWORD not in str(caught.value) + repr(asked)
        return caught.value.code

    assert said("wrong") == "E0861"
    assert said("${CEP_TEST_PASSWORD}") == "E0861"
    assert said("${CEP_TEST_NOTHING}") == "E0853"
    assert said("${CEP_TEST_PASSWORD}", "nowhere") == "E0860"
    postgres.run(
        database, f"GRANT INSERT ON found TO {USER}", f"GRANT INSERT, UPDATE ON cep_ledger TO {USER}"
    )
    asked = connection(postgres, database, user=USER, password="${CEP_TEST_PASSWORD}")
    PostgresSpec(asked, "", "found").open(OUTPUTS[MATCH], CONTEXT).check()


def test_late_events_cannot_be_kept_current(postgres: PostgresServer, database: str) -> None:
    with pytest.raises(InputError, match="E0843"):
        opened(postgres, database, OUTPUTS[LATE], is_current=True)


def test_a_locked_table_is_told_and_no_server_is(postgres: PostgresServer, database: str) -> None:
    import psycopg

    opened(postgres, database, OUTPUTS[MATCH]).close()
    with psycopg.connect(postgres.dsn(database)) as client:
        client.execute("LOCK TABLE found")
        with pytest.raises(InputError) as caught:
            opened(postgres, database, OUTPUTS[MATCH])
    assert caught.value.code == "E0871"
    with gate_to(postgres.port) as gate:
        gate.shut()
        nobody = replace(postgres, port=gate.port)
        with pytest.raises(InputError) as caught:
            opened(nobody, database, OUTPUTS[MATCH])
    assert caught.value.code == "E0860"


def test_a_server_that_is_started_anew_between_two_micro_batches_is_written(
    postgres: PostgresServer, database: str
) -> None:
    with gate_to(postgres.port) as gate:
        sink = opened(replace(postgres, port=gate.port), database, OUTPUTS[DEAD])
        sink.begin(MicroBatch("run", 0))
        write(None, sink, DEAD, MicroBatch("run", 0), [1])
        sink.commit(MicroBatch("run", 0))
        gate.shut()
        with pytest.raises(InputError, match="E0860"):
            sink.begin(MicroBatch("run", 1))
        gate.open()
        sink.begin(MicroBatch("run", 1))
        write(None, sink, DEAD, MicroBatch("run", 1), [2])
        gate.shut()
        with pytest.raises(InputError, match="E0860"):
            sink.commit(MicroBatch("run", 1))
    assert there(postgres, database, DEAD) == [1]
