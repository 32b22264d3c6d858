"""What a publication was and is, compared in words; without a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cep.errors import StateError
from cep.schema.stream import Field, Stream
from spark_runtime.connectors.postgres.connection import Connection
from spark_runtime.connectors.postgres.planner import read_beginning
from spark_runtime.connectors.postgres.publication import Record, differences
from spark_runtime.connectors.postgres.reading import PostgresReading

READING = PostgresReading(
    stream=Stream("s", (Field("ts", "timestamp"),), "ts"),
    connection=Connection(()),
    tables=("public.a", "public.b"),
    slot="p",
    publication="p",
)


def table(oid: int = 10, *entries: list[Any], **more: Any) -> dict[str, Any]:
    """Return a table as a record has it."""
    known = {"columns": ["id"], "condition": None, "is_logged": True}
    return {"oid": oid, "entries": list(entries or [["table", 100 + oid, "7"]]), **known, **more}


def record(version: str = "7", oid: int = 1, a: Any = None, **settings: Any) -> Record:
    """Return a publication of two tables."""
    row = {"oid": "1", "pubname": "p", "pubowner": "10", "pubinsert": True, "pubupdate": True}
    tables = {"public.a": a or table(10), "public.b": table(11)}
    return {"oid": oid, "version": version, "settings": {**row, **settings}, "tables": tables}


BEFORE = record()

P = "publication `p`"
CASES: dict[str, tuple[Record, list[str]]] = {
    "the same": (record(), []),
    "new columns of a table whose columns are all sent": (record(a=table(columns=["id", "more"])), []),
    "gone": ({"tables": BEFORE["tables"]}, [f"there is no {P} any more"]),
    "another one": (record(oid=2, version="9"), [f"{P} was dropped and created again"]),
    "undone": (record("9"), [f"{P} was changed, and perhaps changed back (or it got another owner)"]),
    "owner": (
        record("9", pubowner="11"),
        [f"{P} was changed, and perhaps changed back (or it got another owner)"],
    ),
    "actions": (
        record("9", pubinsert=False),
        [f"`publish` of {P} is `update`, and was `insert, update`"],
    ),
    "a setting of a later server": (
        record("9", pubnew="x"),
        [f"`pubnew` of {P} is `x`, and was `None`"],
    ),
    "entry": (
        record(a=table(10, ["table", 110, "9"])),
        [f"table `public.a` was taken out of {P} and put in again, or its entry there was changed"],
    ),
    "a second entry": (
        record(a=table(10, ["schema", 120, "9"], ["table", 110, "7"])),
        [f"table `public.a` was taken out of {P} and put in again, or its entry there was changed"],
    ),
    "no entry but that of a partition": (
        record(a=table(10, ["partition", 5, "7"])),
        [f"{P} does not have table `public.a` any more"],
    ),
    "unlogged": (
        record(a=table(is_logged=False)),
        ["table `public.a` is UNLOGGED, so the log does not have its changes"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_not_as_it_was_is_said_and_nothing_else_is(name: str) -> None:
    now, said = CASES[name]
    assert list(differences(READING, json.loads(json.dumps(BEFORE)), now)) == said


def test_without_a_record_the_publication_must_have_all_tables() -> None:
    assert list(differences(READING, None, BEFORE)) == []
    less = {**BEFORE, "tables": {"public.a": table(10)}}
    assert list(differences(READING, None, less)) == ["there is no table `public.b` any more"]
    assert list(differences(READING, None, {"tables": {}})) == [f"there is no {P} any more"]


def test_the_beginning_of_an_earlier_version_has_no_publication_and_damage_is_told(tmp_path: Path) -> None:
    file = tmp_path / "s.log"
    known = {"database": "1/shop", "lsn": 5, "moment_us": 0, "files": []}
    file.write_text(json.dumps(known))
    assert read_beginning(file) == {**known, "published": None}
    file.write_text(json.dumps({**known, "published": BEFORE}))
    assert read_beginning(file)["published"] == BEFORE
    file.write_text("{")
    with pytest.raises(StateError, match="where the stream began, is damaged"):
        read_beginning(file)
