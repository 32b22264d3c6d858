"""Passwords (PLAIN, SCRAM) and TLS of Kafka: who gets in, and what a pipeline says of what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cep.errors import InputError
from spark_runtime.connectors.kafka.connection import Connection
from spark_runtime.connectors.kafka.log import KafkaLog
from spark_runtime.connectors.kafka.sink_settings import TopicSpec
from spark_runtime.connectors.message_logs.reading import MessageReading
from spark_runtime.connectors.message_logs.source import MessageSource
from spark_runtime.sinks.protocol import MicroBatch
from spark_runtime.wire.output import DEAD
from tests.kills.ticks import write_rules
from tests.servers.certificates import Authority, made_authority
from tests.servers.kafka_broker import PASSWORD, USER, Broker
from tests.servers.messages import STREAM, seen, values
from tests.spark.test_sink_contract import CONTEXT, OUTPUTS, write

SECRET = "CEP_TEST_PASSWORD"
MOST_SECONDS = 60


def options(authority: Path | None, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
    """Return the options of a user with a password; with an authority also those of TLS."""
    found = {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": f"${{{SECRET}}}"}
    if authority is None:
        return {**found, "security.protocol": "SASL_PLAINTEXT"}
    return {**found, "security.protocol": "SASL_SSL", "ssl.ca.location": str(authority)}


def source(address: str, topic: str, given: dict[str, str]) -> MessageReading:
    connection = Connection(address, tuple(sorted(given.items())))
    return MessageReading(STREAM, KafkaLog(connection, (topic,)))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("has_tls", [False, True])
def test_who_has_the_password_gets_in(
    broker: Broker, authority: Authority, monkeypatch: pytest.MonkeyPatch, mechanism: str, has_tls: bool
) -> None:
    topic = broker.topic("access")
    broker.allow("access")
    broker.send(topic, values(1, 2))
    monkeypatch.setenv(SECRET, PASSWORD)
    address = broker.tls_address if has_tls else broker.sasl_address
    reading = source(address, topic, options(authority.certificate if has_tls else None, mechanism))
    MessageSource(reading).check()
    assert seen(reading).ids == [1, 2]


def refusal(reading: MessageReading) -> str:
    """Return what a source says that cannot be read; it waits ten seconds, and not for minutes."""
    began = time.monotonic()
    with pytest.raises(InputError) as caught:
        MessageSource(reading).check()
    assert time.monotonic() - began < MOST_SECONDS
    return f"{caught.value.code} {caught.value.args[0]}; {caught.value.help}"


def test_a_wrong_password_and_a_certificate_that_nobody_trusts_are_told_in_a_sentence(
    broker: Broker, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic("access")
    broker.allow("access")
    monkeypatch.setenv(SECRET, "a-wrong-password")
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        said = refusal(source(broker.tls_address, topic, options(authority.certificate, mechanism)))
        assert said.startswith(f"E0852 `{broker.tls_address}` refuses access to topic `{topic}`: ")
        assert "sasl" in said
        assert "a-wrong-password" not in said
    monkeypatch.setenv(SECRET, PASSWORD)
    other = made_authority(tmp_path, "other").certificate
    said = refusal(source(broker.tls_address, topic, options(other)))
    assert said.startswith(f"E0852 the certificate of `{broker.tls_address}` is not trusted: ")
    assert "ssl.ca.location" in said
    monkeypatch.delenv(SECRET)
    assert refusal(source(broker.tls_address, topic, options(other))).startswith("E0853 ")


def test_a_sink_writes_over_tls_with_a_password(
    broker: Broker, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic("access")
    broker.allow("access")
    broker.allow_transactions()
    monkeypatch.setenv(SECRET, PASSWORD)
    connection = Connection(broker.tls_address, tuple(options(authority.certificate).items()))
    sink, batch = TopicSpec(connection, topic, "").open(OUTPUTS[DEAD], CONTEXT), MicroBatch("access", 0)
    sink.check()
    sink.begin(batch)
    write(None, sink, DEAD, batch, [1, 2])
    sink.commit(batch)
    sink.close()
    assert [json.loads(message.value())["position"] for message in broker.messages(topic)] == [1, 2]


def test_doctor_tells_a_wrong_password_and_a_certificate_that_nobody_trusts(
    broker: Broker, authority: Authority, tmp_path: Path
) -> None:
    topic, output = broker.topic("access"), broker.topic("output")
    write_rules(tmp_path)
    other = made_authority(tmp_path, "other").certificate
    text = "rules: [rules.cep]\nsource: {{stream: ticks, {0}}}\nsinks: [{{{1}}}]\nmode: batch\n"
    ends = (
        f"format: kafka, brokers: '{broker.tls_address}', topic: {name}, options: {json.dumps(given)}"
        for name, given in ((topic, options(authority.certificate)), (output, options(other)))
    )
    file = tmp_path / "pipeline.yaml"
    file.write_text(text.format(*ends))
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "cep", "doctor", str(file)],
        env={**os.environ, SECRET: "a-wrong-password", "COLUMNS": "500"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert f"`{broker.tls_address}` refuses access to topic `{topic}`" in said
    assert f"the certificate of `{broker.tls_address}` is not trusted" in said
    assert "a-wrong-password" not in said
    assert "E0848" not in said, time.monotonic() - began
