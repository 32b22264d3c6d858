"""The client of a registry of schemas, against a real server; and the setting `value`."""

from __future__ import annotations

import json
import pickle
import socket
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from cep.errors import InputError, RuleError
from cep.formats.ahead import AheadGuard
from cep.formats.payloads.registry import payload_format
from cep.formats.text.messages import MessageReader, Messages
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.sources.schema_registry import SchemaRegistry, is_address
from tests.unit.formats.test_avro import MICROS, TIME, framed, record, stream, written
from tests.unit.spark_runtime.sources.registry_server import Registry, running_registry

SCHEMA = record(("ts", MICROS), ("id", "long"))


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running_registry() as running:
        yield running


def refused(client: SchemaRegistry) -> tuple[str, str]:
    with pytest.raises(InputError) as caught:
        client.schema(1)
    return caught.value.code, str(caught.value.args[0]).replace(client.url, "URL")


def test_a_schema_is_asked_for_once_in_each_worker(registry: Registry) -> None:
    registry.schemas[7], registry.serialized[7] = "text", "bytes"
    client = SchemaRegistry(registry.url)
    client.check()
    copy = pickle.loads(pickle.dumps(client))
    assert [item.schema(7) for item in (client, client, copy)] == ["text"] * 3
    assert client.schema(7, "serialized") == "bytes"
    assert [client.schema(8) for _ in range(3)] == [None] * 3
    paths = ["1", "7", "7?format=serialized", "8"]
    assert registry.asked == [f"/api/schemas/ids/{path}" for path in paths]


def test_a_number_that_gets_known_is_found_later(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    client = SchemaRegistry(registry.url)
    assert client.schema(9) is None
    registry.schemas[9] = "text"
    assert client.schema(9) is None
    now += 31
    assert client.schema(9) == "text"


def test_an_answer_that_passes_is_asked_for_again(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_runtime.sources.schema_registry._PAUSE_SECONDS", 0.0)
    registry.schemas[1] = "text"
    registry.failures += [503, 500]
    assert SchemaRegistry(registry.url).schema(1) == "text"
    registry.failures += [503] * 3
    assert refused(SchemaRegistry(registry.url, "other")) == (
        "E0894",
        "the registry `URL` fails: HTTP status 503 for /schemas/ids/1",
    )


def test_name_and_password_come_from_the_environment_and_are_never_shown(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.schemas[1], registry.access = "text", "me:the-right-password"
    client = SchemaRegistry(registry.url, "me", "${CEP_TEST_REGISTRY}")
    monkeypatch.delenv("CEP_TEST_REGISTRY", raising=False)
    assert refused(client) == (
        "E0853",
        "`password` needs the variable `CEP_TEST_REGISTRY`, which the environment does not have",
    )
    monkeypatch.setenv("CEP_TEST_REGISTRY", "the-wrong-password")
    code, said = refused(client)
    assert (code, said) == ("E0893", "the registry `URL` refuses access: HTTP status 401")
    monkeypatch.setenv("CEP_TEST_REGISTRY", "the-right-password")
    assert client.schema(1) == "text"
    assert refused(SchemaRegistry(registry.url, "nobody"))[0] == "E0893"
    assert repr(client) == f"SchemaRegistry(url='{registry.url}')"
    assert "the-right-password" not in pickle.dumps(client).decode(errors="replace")


def test_who_does_not_answer_or_is_no_registry_is_told(registry: Registry) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    code, said = refused(SchemaRegistry(f"http://127.0.0.1:{port}"))
    assert code == "E0892"
    assert said.startswith("no registry of schemas answers at `URL`: ")
    registry.schemas[1] = 5  # type: ignore[assignment]
    assert refused(SchemaRegistry(registry.url))[0] == "E0894"
    assert not is_address("registry:8081")
    assert not is_address("http://me:secret@registry:8081")
    assert not is_address("http://[")
    assert is_address("https://registry:8081/path")


def test_messages_are_read_by_the_schemas_of_a_registry(registry: Registry) -> None:
    registry.schemas[3] = json.dumps(SCHEMA)
    values = framed(3, written(SCHEMA, [{"ts": TIME, "id": at} for at in range(5)])) + framed(4, [b"x"])
    reader = MessageReader(
        stream(ts="timestamp", id="bigint"), payload_format("avro", {}, SchemaRegistry(registry.url))
    )
    for _ in range(3):
        chunk = reader.chunk(Messages("t[0]", values, np.arange(6), {}), AheadGuard(1 << 60))
        assert chunk.events.column("id").to_pylist() == list(range(5))
        assert chunk.dead_letters.column("reason").to_pylist() == ["schema 4 is not in the registry"]
    assert registry.asked == ["/api/schemas/ids/3", "/api/schemas/ids/4"]


def loaded(folder: Path, value: str) -> list[str]:
    """Return the problems of a pipeline file whose source has a `value`."""
    (folder / "streams.yaml").write_text(
        "streams: {s: {event_time: ts, schema: {ts: timestamp, id: bigint}}}"
    )
    (folder / "r.cep").write_text("RULE r FROM s PARTITION BY id PATTERN a DEFINE a AS id > 0")
    (folder / "s.avsc").write_text(json.dumps(SCHEMA))
    (folder / "p.yaml").write_text(
        f'rules: [r.cep]\nsource: {{stream: s, format: kafka, brokers: "b:1", topic: t, value: {value}}}\n'
        "sinks: [{format: console}]\ncheckpoint: c\n"
    )
    try:
        load_pipeline(folder / "p.yaml")
    except RuleError as error:
        return [f"{item.code} {item.title}" for item in error.diagnostics]
    return []


@pytest.mark.skipif(find_spec("confluent_kafka") is None, reason="librdkafka is missing")
@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ("csv", []),
        ("{format: json}", []),
        ("{format: avro, schema: s.avsc}", []),
        ('{format: avro, registry: "http://r:1", user: me, password: "${X}", schema: s.avsc}', []),
        ("avro", ["E0890 nothing says the schema of Avro messages"]),
        ("{schema: s.avsc}", ["E0404 `value` has no `format`"]),
        (
            "{format: avro, schema: no.avsc}",
            ["E0890 the schema `no.avsc` cannot be read: "],
        ),
        ("{format: avro, schema: r.cep}", ["E0890 the schema `r.cep` cannot be used: "]),
        ("{format: json, schema: s.avsc}", ["E0828 values of the format json have no setting `schema`"]),
        ("{format: avro, schema: s.avsc, user: me}", ["E0843 `user` without `registry`"]),
        ('{format: avro, registry: "r:1"}', ["E0841 `registry` is no address"]),
        ("{format: avro, schema: s.avsc, framing: maybe}", ["E0841 `framing` cannot be `maybe`"]),
        ("protobuf", ["E0890 nothing says the type of Protobuf messages"]),
        ("xml", ["E0841 `value` cannot be `xml`"]),
    ],
)
def test_the_setting_value_is_a_format_or_a_format_with_settings(
    tmp_path: Path, value: str, problems: list[str]
) -> None:
    found = [text.replace(f"{tmp_path}/", "") for text in loaded(tmp_path, value)]
    assert [text[: len(problem)] for text, problem in zip(found, problems, strict=True)] == problems
