"""Messages of pgoutput -> changes of rows, without a server."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from cep.schema.stream import Field, Stream, TableKind, TableSettings
from spark_runtime.connectors.postgres.connection import Connection
from spark_runtime.connectors.postgres.pgoutput import IS_KEY, POSTGRES_EPOCH_US, Changes, Decoder
from spark_runtime.connectors.postgres.reading import PostgresReading
from spark_runtime.connectors.postgres.rows import of_changes

OID, COMMIT_LSN = 7, 1000
COLUMNS = ("id", "name", "big")
UNCHANGED = object()
Row = Sequence[str | object | None]


def row(values: Row) -> bytes:
    found = struct.pack(">h", len(values))
    for value in values:
        if value is UNCHANGED:
            found += b"u"
        elif value is None:
            found += b"n"
        else:
            data = str(value).encode()
            found += b"t" + struct.pack(">i", len(data)) + data
    return found


def relation(identity: bytes = b"d") -> bytes:
    columns = b"".join(
        bytes([IS_KEY if identity == b"f" or name == "id" else 0])
        + name.encode()
        + b"\0"
        + struct.pack(">Ii", 25, -1)
        for name in COLUMNS
    )
    return b"R" + struct.pack(">I", OID) + b"public\0cust\0" + identity + struct.pack(">h", 3) + columns


def begin(transaction: int = 17) -> bytes:
    return b"B" + struct.pack(">QqI", COMMIT_LSN, 5, transaction)


def insert(new: Row) -> bytes:
    return b"I" + struct.pack(">I", OID) + b"N" + row(new)


def update(new: Row, key: Row | None = None, old: Row | None = None) -> bytes:
    given = b"K" + row(key) if key is not None else b"O" + row(old) if old is not None else b""
    return b"U" + struct.pack(">I", OID) + given + b"N" + row(new)


def delete(key: Row) -> bytes:
    return b"D" + struct.pack(">I", OID) + b"K" + row(key)


def in_log(*messages: bytes) -> list[bytes]:
    return [struct.pack(">Q", 100 + number) + message for number, message in enumerate(messages)]


def decoder(keys: Sequence[str], before: Sequence[str] = ()) -> Decoder:
    tables = frozenset(["public.cust"])
    return Decoder(0, 1 << 62, tables, frozenset([OID]), COLUMNS, before, keys)


def seen(changes: Changes, *more: str) -> list[tuple[Any, ...]]:
    texts = {name: changes.after[name].texts(changes.data).to_pylist() for name in COLUMNS}
    olds = [changes.before[name].texts(changes.data).to_pylist() for name in more]
    kinds = [chr(kind) for kind in changes.kind]
    numbers = changes.number.tolist()
    return list(zip(kinds, numbers, changes.lsn.tolist(), *texts.values(), *olds, strict=True))


def test_an_update_of_the_key_deletes_the_old_row_and_inserts_the_new_one() -> None:
    messages = in_log(
        begin(),
        relation(),
        insert(("1", "a", "x")),
        update(("1", "b", "x")),
        update(("11", "b", "y"), key=("1", None, None)),
        delete(("2", None, None)),
        update(("12", "b", "z"), key=("11", None, None)),
    )
    changes = decoder(["id"], ["id", "name"]).decode(messages)
    assert seen(changes, "id", "name") == [
        ("I", 0, 102, "1", "a", "x", None, None),
        ("U", 1, 103, "1", "b", "x", "1", None),
        ("D", 2, 104, "1", None, None, "1", None),
        ("I", 3, 104, "11", "b", "y", None, None),
        ("D", 4, 105, "2", None, None, "2", None),
        ("D", 5, 106, "11", None, None, "11", None),
        ("I", 6, 106, "12", "b", "z", None, None),
    ]
    assert changes.before["name"].is_absent.tolist() == [False, True, False, False, False, False, False]
    assert set(changes.commit_us.tolist()) == {POSTGRES_EPOCH_US + 5}
    assert set(changes.transaction.tolist()) == {17}


def test_the_deleted_row_has_what_the_log_has_of_it() -> None:
    messages = in_log(
        begin(),
        relation(b"f"),
        update(("1", "b", "x"), old=("1", "a", "x")),
        update(("11", "b", UNCHANGED), old=("1", "b", "large")),
        update(("12", UNCHANGED, "y"), old=("11", "b", "large")),
        update(("12", "c", "y"), old=("12", "b", "y")),
    )
    changes = decoder(["id"], ["big"]).decode(messages)
    assert seen(changes, "big") == [
        ("U", 0, 102, "1", "b", "x", "x"),
        ("D", 1, 103, "1", "b", "large", "large"),
        ("I", 2, 103, "11", "b", "large", None),
        ("D", 3, 104, "11", "b", "large", "large"),
        ("I", 4, 104, "12", "b", "y", None),
        ("U", 5, 105, "12", "c", "y", "y"),
    ]


def test_portions_do_not_change_positions() -> None:
    messages = in_log(
        begin(),
        relation(),
        insert(("1", "a", "x")),
        update(("2", "a", "x"), key=("1", None, None)),
        update(("3", "a", "x"), key=("2", None, None)),
        insert(("4", "a", "x")),
        begin(18),
        update(("5", "a", "x"), key=("4", None, None)),
        insert(("6", "a", "x")),
    )
    whole = seen(decoder(["id"]).decode(messages))
    assert [change[1] for change in whole] == [0, 1, 2, 3, 4, 5, 0, 1, 2]
    for cut in range(len(messages)):
        parts = decoder(["id"])
        found = [seen(parts.decode(part)) for part in (messages[:cut], messages[cut:])]
        assert [*found[0], *found[1]] == whole
    each = decoder(["id"])
    assert [change for message in messages for change in seen(each.decode([message]))] == whole


def test_without_a_key_of_a_table_an_update_is_one_change() -> None:
    messages = in_log(begin(), relation(), update(("11", "b", "y"), key=("1", None, None)))
    changes = decoder([], ["id"]).decode(messages)
    assert seen(changes, "id") == [("U", 0, 102, "11", "b", "y", "1")]


FIELDS = (*(Field(name, "string") for name in COLUMNS), Field("op", "string"), Field("at", "timestamp"))
NAMES: Mapping[str, str] = {"op": "op", "at": "commit_time"}


@pytest.mark.parametrize(
    ("table", "keys", "ops"),
    [
        (TableSettings(("id",), TableKind.CHANGELOG, "op"), ("id",), ["d", "c"]),
        (TableSettings(("id",), TableKind.CHANGELOG, None), (), ["u"]),
        (None, (), ["u"]),
    ],
)
def test_only_a_table_whose_rows_can_be_deleted_has_the_deletion(
    tmp_path: Path, table: TableSettings | None, keys: tuple[str, ...], ops: list[str]
) -> None:
    stream = Stream("cust", FIELDS, "at", table=table)
    reading = PostgresReading(stream, Connection(()), ("public.cust",), columns=NAMES)
    assert reading.key_of_table == keys
    messages = in_log(begin(), relation(), update(("11", "b", "y"), key=("1", None, None)))
    rows = of_changes(reading, decoder(reading.key_of_table).decode(messages))
    assert rows.known["op"].to_pylist() == ops
    assert rows.texts["id"].to_pylist() == (["1", "11"] if len(ops) == 2 else ["11"])
