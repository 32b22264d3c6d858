"""What a pipeline file may say of Kinesis and of streams of RabbitMQ; nothing here needs a server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cep.errors import InputError, RuleError
from spark_runtime.connectors.kinesis.connection import KinesisConnection
from spark_runtime.connectors.kinesis.log import KinesisLog
from spark_runtime.connectors.message_logs.options import Options
from spark_runtime.connectors.message_logs.settings import MessageSpec
from spark_runtime.connectors.rabbitmq.log import RabbitLog
from spark_runtime.pipeline.pipeline_file import load_pipeline

FILE = """
streams: {{t: {{event_time: ts, schema: {{id: bigint, ts: timestamp}}}}}}
rules: [r.cep]
source: {{stream: t, {source}}}
sinks: [{{format: console}}]
checkpoint: c
"""
RABBIT, KINESIS = "format: rabbitmq_stream, servers: a", "format: kinesis"


def source_of(folder: Path, text: str) -> MessageSpec:
    (folder / "r.cep").write_text("RULE r FROM t PARTITION BY id PATTERN a DEFINE a AS id > 0")
    (folder / "p.yaml").write_text(FILE.format(source=text))
    spec = load_pipeline(folder / "p.yaml").sources[0].spec
    assert isinstance(spec, MessageSpec)
    return spec


def problems(folder: Path, source: str) -> list[str]:
    with pytest.raises(RuleError) as caught:
        source_of(folder, source)
    return [f"{problem.code} {problem.title}: {problem.help}" for problem in caught.value.diagnostics]


def test_settings_of_kinesis_are_read(tmp_path: Path) -> None:
    spec = source_of(tmp_path, f"{KINESIS}, stream_name: [s, u], on_lost: go_on, endpoint_url: 'http://x'")
    assert spec.log == KinesisLog(KinesisConnection("", "http://x"), ("s", "u"), goes_on_without=True)
    assert (spec.place, spec.goes_on_without) == ("s,u", True)


def test_settings_of_rabbitmq_are_read_and_secrets_are_not_shown(tmp_path: Path) -> None:
    more = "stream_name: [s, u], virtual_host: v, from: {u: 5}, tombstones: dead_letter"
    spec = source_of(tmp_path, f"{RABBIT}, {more}, options: {{username: x, password: '${{P}}y'}}")
    assert isinstance(spec.log, RabbitLog)
    assert (spec.log.servers, spec.log.streams, spec.log.virtual_host) == (("a",), ("s", "u"), "v")
    assert (spec.place, spec.begin, spec.has_dead_tombstones) == ("v s,u", {"u": 5}, True)
    assert "${P}y" not in repr(spec)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (KINESIS, ["E0404 `source` has no `stream_name`: add: stream_name: ..."]),
        (
            f"{KINESIS}, stream_name: s, from: {{s: 1}}",
            ["E0402 `from` must be a text: write one word or a quoted text"],
        ),
        (
            f"{KINESIS}, stream_name: s, from: soon",
            ["E0841 `from` cannot be `soon`: write earliest, latest or a time such as 2024-05-01T12:00:00Z"],
        ),
        (
            f"{KINESIS}, stream_name: s, columns: {{headers: id}}",
            ["E0841 a message has no `headers`: write key, shard, sequence, timestamp"],
        ),
        (
            f"{KINESIS}, stream_name: s, on_lost: perhaps",
            ["E0841 `on_lost` cannot be `perhaps`: write fail or go_on"],
        ),
        (
            "format: rabbitmq_stream",
            [
                "E0404 `source` has no `stream_name`: add: stream_name: ...",
                "E0404 `source` has no `servers`: add: servers: ...",
            ],
        ),
        (
            f"{RABBIT}, stream_name: s, from: {{u: 1}}",
            ["E0841 `u` is no partition: write {s: 100}"],
        ),
        (
            f"{RABBIT}, stream_name: s, options: {{user: x}}",
            ["E0841 there is no option `user`: write username, password, tls_ca, tls_cert, tls_key"],
        ),
    ],
)
def test_what_is_wrong_is_told_with_what_to_write(tmp_path: Path, source: str, found: list[str]) -> None:
    assert problems(tmp_path, source) == found


@pytest.mark.parametrize(
    ("source", "package", "extra"),
    [
        (f"{KINESIS}, stream_name: s", "boto3", "kinesis"),
        (f"{RABBIT}, stream_name: s", "rstream", "rabbitmq"),
    ],
)
def test_a_missing_package_is_told_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, package: str, extra: str
) -> None:
    monkeypatch.setattr("cep.packages.find_spec", lambda name: None)
    (said,) = problems(tmp_path, source)
    assert said.startswith("E0683 `source` of format ")
    assert f"needs the package `{package}`, which is not installed: pip install 'spark-cep[{extra}]'" in said


def test_without_the_clients_everything_is_imported() -> None:
    code = """
import pkgutil, sys, importlib
for name in ("nats", "boto3", "botocore", "rstream"):
    sys.modules[name] = None
import spark_runtime
for found in pkgutil.walk_packages(spark_runtime.__path__, "spark_runtime."):
    importlib.import_module(found.name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_key_without_a_certificate_does_not_mean_no_tls() -> None:
    with pytest.raises(InputError, match="`tls_key` without `tls_cert`") as raised:
        Options((("tls_key", "key.pem"),)).tls()
    assert raised.value.code == "E0883"
