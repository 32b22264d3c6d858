"""What a pipeline file may say of sinks, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cep.errors import RuleError
from spark_runtime.connectors.delta.settings import DeltaSpec
from spark_runtime.connectors.postgres.sink_settings import PostgresSpec
from spark_runtime.connectors.rabbitmq.sink_settings import RabbitSpec
from spark_runtime.connectors.webhook.settings import WebhookSpec
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.sinks.registry import SinkSpec

STREAMS = "streams: {s: {event_time: ts, schema: {id: bigint, ts: timestamp}}}"
RULE = "RULE r FROM s PARTITION BY id PATTERN a DEFINE a AS id > 0"
HEAD = "rules: [r.cep]\nsource: {stream: s, format: json, path: in}\ncheckpoint: c\nsinks:\n  - "


def spec_of(folder: Path, sink: str) -> SinkSpec:
    (folder / "streams.yaml").write_text(STREAMS)
    (folder / "r.cep").write_text(RULE)
    (folder / "p.yaml").write_text(f"{HEAD}{sink}\n")
    (spec,) = load_pipeline(folder / "p.yaml").sinks
    return spec


def problems(folder: Path, sink: str) -> list[str]:
    with pytest.raises(RuleError) as caught:
        spec_of(folder, sink)
    return [f"{found.code} {found.title}" for found in caught.value.diagnostics]


def test_settings_are_read(tmp_path: Path) -> None:
    webhook = spec_of(
        tmp_path,
        '{format: webhook, url: "https://h/${X}", headers: {A: "${T}"}, batch: 5, retry_for: 1 hour}',
    )
    assert isinstance(webhook, WebhookSpec)
    assert (webhook.endpoint.url, webhook.endpoint.headers) == ("https://h/${X}", (("A", "${T}"),))
    assert (webhook.together, webhook.parallel, webhook.retry_s) == (5, 4, 3600.0)
    assert webhook.endpoint.is_verified
    postgres = spec_of(tmp_path, "{format: postgres, host: h, database: d, table: a.b, mode: upsert}")
    assert isinstance(postgres, PostgresSpec)
    assert (postgres.schema, postgres.table, postgres.is_current) == ("a", "b", True)
    delta = spec_of(tmp_path, "{format: delta, path: out, partition_by: rule, options: {A: 1}}")
    assert delta == DeltaSpec(str(tmp_path / "out"), ("rule",), (("A", "1"),))
    rabbit = spec_of(tmp_path, "{format: rabbitmq, host: h, tls: true, exchange: e, routing_key: k}")
    assert isinstance(rabbit, RabbitSpec)
    assert (rabbit.address.port, rabbit.exchange, rabbit.routing_key) == (5671, "e", "k")
    rabbit = spec_of(tmp_path, "{format: rabbitmq, host: h, queue: q, password: '${P}'}")
    assert isinstance(rabbit, RabbitSpec)
    assert (rabbit.address.port, rabbit.exchange, rabbit.routing_key) == (5672, "", "q")
    assert rabbit.address.password == "${P}"


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        ("{format: webhook}", ["E0404 a sink has no `url`"]),
        ("{format: webhook, url: h:80}", ["E0402 `url` is no address of a web server"]),
        ('{format: webhook, url: "http://h:no/"}', ["E0402 `url` is no address of a web server"]),
        ('{format: webhook, url: "http://h/a b"}', ["E0402 `url` has a character that no URL can have"]),
        ('{format: webhook, url: "http://h/\\t${X}"}', ["E0402 `url` has a character that no URL can have"]),
        ('{format: webhook, url: "http://h/#${X}"}', ["E0402 `url` has a character that no URL can have"]),
        ('{format: webhook, url: "http://h/ä"}', ["E0402 `url` has a character that no URL can have"]),
        (
            "{format: rabbitmq, host: h, queue: q, ca_file: ca.pem}",
            ["E0843 `ca_file` without `tls`"],
        ),
        (
            '{format: webhook, url: "http://h/", headers: {a b: x}}',
            ["E0402 `a b` is not the name of a header"],
        ),
        (
            '{format: webhook, url: "http://h/", headers: {A: ä☃}}',
            ["E0402 the header `A` has a character that no header can have"],
        ),
        (
            '{format: webhook, url: "http://me:pw@h/"}',
            ["E0843 a host of `url` with a user, a password or a variable"],
        ),
        (
            '{format: webhook, url: "http://h/", headers: {Content-Type: x}}',
            ["E0843 `Content-Type` is not for `headers`"],
        ),
        ('{format: webhook, url: "http://h/", parallel: 100}', ["E0402 `parallel` is at most 64"]),
        (
            '{format: webhook, url: "http://h/", refused: "s3://b/x"}',
            ["E0843 `refused` is a folder of this machine"],
        ),
        ("{format: rabbitmq, host: h}", ["E0404 a sink has neither `queue` nor `exchange`"]),
        (
            "{format: rabbitmq, host: h, queue: q, exchange: e}",
            ["E0843 `queue` and `exchange` together"],
        ),
        ("{format: postgres, host: h, database: d}", ["E0404 a sink has no `table`"]),
        ("{format: postgres, host: h, database: d, table: .b}", ["E0402 `.b` names no table"]),
        (
            "{format: postgres, host: h, database: d, table: t, mode: replace}",
            ["E0841 `mode` cannot be `replace`"],
        ),
        ("{format: delta}", ["E0404 a sink has no `path`"]),
        ("{format: delta, path: out, mode: x}", ["E0843 a sink of format delta has no `mode`"]),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, sink: str, expected: list[str]) -> None:
    assert problems(tmp_path, sink) == expected
