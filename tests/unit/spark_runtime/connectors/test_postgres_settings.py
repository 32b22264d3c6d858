"""What a pipeline file may say of PostgreSQL; nothing here needs a server or psycopg."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cep.errors import InputError, RuleError
from spark_runtime.connectors.postgres.connection import Connection
from spark_runtime.connectors.postgres.source import PostgresSource
from spark_runtime.connectors.postgres.source_settings import PostgresSpec
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.sources.spec import SourceContext

TEXT = """\
rules: [r.cep]
source: {{stream: t, format: postgres, {source}}}
sinks: [{{format: json, path: out}}]
checkpoint: state
"""
WHERE = "host: db, database: shop"


def written(folder: Path, source: str) -> Path:
    (folder / "streams.yaml").write_text(
        "streams: {t: {event_time: ts, schema: {id: bigint, ts: timestamp, op: string}}}"
    )
    (folder / "r.cep").write_text("RULE r FROM t PARTITION BY id PATTERN a DEFINE a AS id > 0")
    file = folder / "p.yaml"
    file.write_text(TEXT.format(source=source))
    return file


def spec_of(folder: Path, source: str) -> PostgresSpec:
    [source_] = load_pipeline(written(folder, source)).sources
    assert isinstance(source_.spec, PostgresSpec)
    return source_.spec


def problems_of(folder: Path, source: str) -> list[str]:
    with pytest.raises(RuleError) as caught:
        load_pipeline(written(folder, source))
    return [f"{d.code} {d.title}" for d in caught.value.diagnostics]


def test_few_settings_are_needed(tmp_path: Path) -> None:
    found = spec_of(tmp_path, f"{WHERE}, tables: orders, slot: cep_orders")
    assert found.connection == Connection((("dbname", "shop"), ("host", "db")))
    assert found == PostgresSpec(
        host="db",
        database="shop",
        tables=("public.orders",),
        slot="cep_orders",
        publication="",
        begin="copy",
        creates=True,
        columns={},
        max_events=None,
        max_bytes=None,
        nulls_unchanged=False,
    )
    assert found.place == "public.orders by cep_orders"


@pytest.mark.parametrize(("more", "expected"), [("", "s"), (", publication: p", "p")])
def test_a_publication_has_the_name_of_the_slot_if_none_is_given(
    tmp_path: Path, more: str, expected: str
) -> None:
    found = spec_of(tmp_path, f"{WHERE}, tables: a, slot: s{more}")
    [stream] = load_pipeline(tmp_path / "p.yaml").rules.streams.values()
    source = found.open(SourceContext(stream, (), is_stream=True))
    assert isinstance(source, PostgresSource)
    assert (source.reading.slot, source.reading.publication) == ("s", expected)


def test_all_settings_are_read(tmp_path: Path) -> None:
    found = spec_of(
        tmp_path,
        "dsn: 'postgresql://me:${WORD}@db:5433/shop', options: {sslmode: require}, tables: [eu.orders, a], "
        "slot: s, publication: p, from: now, create: false, columns: {op: op, commit_time: ts}, "
        "max_events_per_trigger: 10, max_bytes_per_trigger: 20, on_unchanged: 'null'",
    )
    assert dict(found.connection.parameters) == {
        "dbname": "shop",
        "host": "db",
        "password": "${WORD}",
        "port": "5433",
        "sslmode": "require",
        "user": "me",
    }
    assert repr(found.connection) == "Connection('db:5433/shop')"
    assert (found.tables, found.publication, found.begin, found.creates) == (
        ("eu.orders", "public.a"),
        "p",
        "now",
        False,
    )
    assert (found.max_events, found.max_bytes, found.nulls_unchanged) == (10, 20, True)
    assert found.columns == {"op": "op", "ts": "commit_time"}


@pytest.mark.parametrize(
    ("source", "problems"),
    [
        (
            "tables: a",
            [
                "E0404 `source` has neither `host` nor `dsn`",
                "E0404 `source` has neither `database` nor `dsn`",
            ],
        ),
        (WHERE, ["E0404 `source` has no `tables`"]),
        (f"{WHERE}, tables: a, slot: No-Name", ["E0402 `No-Name` cannot be the name of a slot"]),
        (f"{WHERE}, tables: a, from: then", ["E0841 `from` cannot be `then`"]),
        (f"{WHERE}, tables: a, create: false", ["E0843 `from: copy` and `create: false` together"]),
        (f"{WHERE}, tables: a, columns: {{key: op}}", ["E0841 a change has no `key`"]),
        (
            f"{WHERE}, tables: a, columns: {{op: op, table: op}}",
            ["E0843 column `op` occurs twice"],
        ),
        (
            f"{WHERE}, tables: a, options: {{replication: database}}",
            ["E0843 `replication` is not for `options`"],
        ),
        ("dsn: 'host=db', user: me, tables: a", ["E0843 `dsn` and `user` together"]),
        ("dsn: 'host=db secret', tables: a", ["E0402 `dsn` is not a connection string of libpq"]),
        (
            f"{WHERE}, tables: a, max_bytes_per_trigger: 0",
            ["E0402 `max_bytes_per_trigger` must be at least 1"],
        ),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, source: str, problems: list[str]) -> None:
    assert problems_of(tmp_path, source) == problems


def test_columns_must_be_declared_and_a_stream_needs_a_slot(tmp_path: Path) -> None:
    for more, message in (
        ("slot: s, columns: {op: what}", "stream `t` has no column `what`"),
        ("slot: s, columns: {commit_time: op}", "column `op` is string"),
        ("from: now", "the source of stream `t` has no `slot`"),
    ):
        found = spec_of(tmp_path, f"{WHERE}, tables: a, {more}")
        [stream] = load_pipeline(tmp_path / "p.yaml").rules.streams.values()
        with pytest.raises(InputError, match=message):
            found.open(SourceContext(stream, (), is_stream=True))


def test_a_missing_package_is_told_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cep.packages.find_spec", lambda name: None)
    assert problems_of(tmp_path, f"{WHERE}, tables: a, slot: s") == [
        "E0683 `source` of format postgres needs the package `psycopg`, which is not installed"
    ]


def test_without_psycopg_everything_is_imported(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["psycopg"] = None
import spark_runtime.connectors.postgres.source_settings
import spark_runtime.connectors.postgres.source
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ))


def test_passwords_and_variables_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Connection((("host", "db"), ("password", "x${WORD}"), ("user", "me")))
    monkeypatch.setenv("WORD", "hidden")
    assert connection.shown("FATAL: no xhidden,\n not hidden") == "FATAL: no ***, not ***"
    assert "hidden" not in repr(connection)
    assert "WORD" not in repr(connection)
