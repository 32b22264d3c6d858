"""``python -m tests.bench.kafka``: messages of Kafka to alerts in Kafka, as `cep run` does it.

2 million events of about 159 bytes JSON in a topic of four partitions, micro-batches of 500,000, one rule of
the fraud scenario's kind; the same events as Avro and as Protocol Buffers. The broker runs on the same two
cores; its processor time is counted apart. Beside each: the messages read and not decoded ("no-op"). The
throughput is that of a whole run, with its start and its end; beside it that of its full micro-batches.

The broker is that of the tests (``make servers``).
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import click
import fastavro

from cep.counts import Counts
from spark_runtime.connectors.kafka.connection import Connection
from spark_runtime.connectors.kafka.log import KafkaLog
from spark_runtime.connectors.message_logs.log import MessageRange
from tests.bench.figures import Figure, Target, report
from tests.bench.processes import cpu_seconds_of
from tests.servers.kafka_broker import JARS, Broker, running_broker

N_EVENTS = 2_000_000
N_PARTITIONS = 4
N_KEYS = 20_000
PER_BATCH = 500_000
START_US = 1_714_521_600_000_000
MOST_US = Target(2.5, at_most=True)
LEAST = {"json": Target(400e3), "avro": Target(150e3), "protobuf": Target(150e3)}

STREAMS = """
streams:
  payments:
    event_time: ts
    tie_break: [tx_id]
    lateness: 10 seconds
    schema: {tx_id: string, card_id: string, ts: timestamp, amount: double, merchant: string, country: string,
             approved: boolean, attempt: int}
"""
RULE = """
RULE card_testing FROM payments PARTITION BY card_id PATTERN probe->{3,} -> cashout WITHIN 10 MINUTES
DEFINE probe AS amount < 5 AND approved, cashout AS amount > 500 AND amount > 20 * AVG(probe.amount)
MEASURES COUNT(probe.*) AS probes, SUM(probe.amount) AS probed, cashout.amount AS loss
"""
SCHEMA = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "tx_id", "type": "string"},
        {"name": "card_id", "type": "string"},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "amount", "type": "double"},
        {"name": "merchant", "type": ["null", "string"]},
        {"name": "country", "type": {"type": "enum", "name": "Country", "symbols": ["DE", "FR", "NL"]}},
        {"name": "approved", "type": "boolean"},
        {"name": "attempt", "type": "int"},
    ],
}


def payment(number: int) -> dict[str, Any]:
    """Return an event. One card in a thousand is tested: small amounts, then a large one."""
    card = number * 7919 % N_KEYS
    round_of_card = number // N_KEYS
    is_tested = card % 1000 == 0
    amount = 20.0 + number % 997 / 8
    if is_tested:
        amount = 900.0 if round_of_card % 10 == 9 else 1.25
    return {
        "tx_id": f"t{number:09}",
        "card_id": f"c{card:06}",
        "ts": START_US // 1000 + number,
        "amount": amount,
        "merchant": f"merchant-{number % 5000:05}",
        "country": ("DE", "FR", "NL")[number % 3],
        "approved": True,
        "attempt": number % 4,
    }


def as_json(event: dict[str, Any]) -> bytes:
    """Return an event as 159 bytes or so."""
    seconds, ms = divmod(event["ts"] - START_US // 1000, 1000)
    at = f"2024-05-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{ms:03}Z"
    return json.dumps(event | {"ts": at}, separators=(",", ":")).encode()


def avro_writer() -> Callable[[dict[str, Any]], bytes]:
    """Return what writes an event as Avro."""
    schema = fastavro.parse_schema(SCHEMA)

    def write(event: dict[str, Any]) -> bytes:
        content = io.BytesIO()
        fastavro.schemaless_writer(content, schema, event)
        return content.getvalue()

    return write


def protobuf_writer(folder: Path) -> Callable[[dict[str, Any]], bytes]:
    """Return what writes an event as Protocol Buffers; its descriptor is in the folder."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="payment.proto", package="bench", syntax="proto3")
    made = file.message_type.add(name="Payment")
    types = {"ts": kind.TYPE_INT64, "amount": kind.TYPE_DOUBLE, "approved": kind.TYPE_BOOL}
    types["attempt"] = kind.TYPE_INT32
    for number, field in enumerate(SCHEMA["fields"], 1):
        name = field["name"]  # type: ignore[index]
        made.field.add(
            name=name, number=number, label=kind.LABEL_OPTIONAL, type=types.get(name, kind.TYPE_STRING)
        )
    files = descriptor_pb2.FileDescriptorSet(file=[file])
    (folder / "payment.desc").write_bytes(files.SerializeToString())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    payment_type = message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.Payment"))
    return lambda event: payment_type(**event).SerializeToString()


def fill(broker: Broker, write: Callable[[dict[str, Any]], bytes], n: int) -> tuple[str, int]:
    """Send the events into a topic; return it, and the bytes of a value."""
    from confluent_kafka import Producer

    topic = broker.topic("payments", N_PARTITIONS)
    settings = {"bootstrap.servers": broker.address, "linger.ms": 50, "batch.size": 1 << 20}
    producer = Producer({**settings, "queue.buffering.max.messages": 1_000_000})
    n_bytes = 0
    for number in range(n):
        value = write(payment(number))
        n_bytes += len(value)
        # A card is in one partition, as with its id as the key.
        producer.produce(topic, value, partition=number * 7919 % N_KEYS % N_PARTITIONS)
        if number % 20_000 == 0:
            producer.poll(0)
            while len(producer) > 500_000:
                producer.poll(0.05)
    assert producer.flush(120) == 0
    return topic, n_bytes // n


def read_only(broker: Broker, topic: str) -> float:
    """Return the processor seconds of reading all messages, without a look at a value."""
    log = KafkaLog(Connection(broker.address), (topic,))
    client = log.open()
    begun = time.process_time()
    try:
        for place, end in client.ends(client.places()).items():
            for portion in client.read(MessageRange(*place, 0, end), ()):
                assert len(portion.values)
    finally:
        client.close()
    return time.process_time() - begun


_RUN = """
import json, sys, time
from io import StringIO
from rich.console import Console
from spark_runtime.pipeline.pipeline import run_pipeline
from tests.bench.processes import cpu_seconds
from tests.bench.kafka import summary_of
warm, file = sys.argv[1:]
from spark_runtime import session
spark = session(is_short=True)  # as `cep run` has it, for what is there and ends
quiet = dict(console=Console(file=StringIO()), quiet=True)
run_pipeline(warm, **quiet)
cpu, begun = cpu_seconds(), time.perf_counter()
summary = run_pipeline(file, **quiet)
print(json.dumps(summary_of(summary, time.perf_counter() - begun, cpu_seconds() - cpu)))
"""


def summary_of(summary: Any, seconds: float, cpu: float) -> dict[str, float]:
    """Return what a run says of itself."""
    counts: Counts = summary.counts
    return {
        "events": counts.events,
        "matches": sum(counts.matches.values()),
        "late": counts.late,
        "malformed": counts.malformed,
        "seconds": seconds,
        "batch_seconds": median(summary.batch_seconds[: max(counts.events // PER_BATCH, 1)]),
        "cpu": cpu,
    }


def run(broker: Broker, folder: Path, topic: str, value: str) -> dict[str, float]:
    """Run a pipeline over the topic, and one over the same before, which starts everything."""
    files = []
    for name in ("warm", "measured"):
        alerts = broker.topic(f"alerts-{name}")
        place = folder / f"{topic}-{name}"
        place.mkdir()
        (place / "streams.yaml").write_text(
            STREAMS.replace("ts: timestamp", "ts: {type: timestamp, unit: milliseconds}")
            if "protobuf" in value
            else STREAMS
        )
        (place / "rule.cep").write_text(RULE)
        (place / "pipeline.yaml").write_text(
            f"rules: [rule.cep]\n"
            f"source: {{stream: payments, format: kafka, brokers: '{broker.address}', topic: {topic},"
            f" value: {value}, max_events_per_trigger: {PER_BATCH}}}\n"
            f"sinks: [{{format: kafka, brokers: '{broker.address}', topic: {alerts}}}]\n"
            "checkpoint: checkpoint\nat_end: finish\n"
        )
        files.append(str(place / "pipeline.yaml"))
    done = subprocess.run([sys.executable, "-c", _RUN, *files], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measured(broker: Broker, folder: Path, n: int, values: tuple[str, ...]) -> Iterator[Figure]:
    """Yield the figures of each format."""
    (folder / "payment.avsc").write_text(json.dumps(SCHEMA))
    writers: dict[str, tuple[str, Callable[[], Any]]] = {
        "json": ("json", lambda: as_json),
        "avro": (f"{{format: avro, schema: {folder}/payment.avsc}}", avro_writer),
        "protobuf": (
            f"{{format: protobuf, descriptor: {folder}/payment.desc}}",
            lambda: protobuf_writer(folder),
        ),
    }
    for name in values:
        value, make = writers[name]
        topic, n_bytes = fill(broker, make(), n)
        noop_us = read_only(broker, topic) / n * 1e6
        before = cpu_seconds_of(broker.pid)
        found = run(broker, folder, topic, value)
        of_broker = cpu_seconds_of(broker.pid) - before
        assert (found["events"], found["late"], found["malformed"]) == (n, 0, 0), found
        print(f"{name}: {n_bytes} bytes, {found}; broker {of_broker:.1f} s for two runs", flush=True)
        case = f"{name}, {n_bytes} bytes"
        target = MOST_US if name == "json" else None
        us = found["cpu"] / n * 1e6
        yield Figure("processor, without the broker", case, us, "us/event", noop_us, target)
        yield Figure("processor of the broker", case, of_broker / 2 / n * 1e6, "us/event")
        yield Figure("throughput", case, n / found["seconds"], "events/s", target=LEAST[name])
        full = min(n, PER_BATCH) / found["batch_seconds"]
        yield Figure("throughput in full micro-batches", case, full, "events/s")


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="a tenth of the events")
@click.option("--value", "values", type=click.Choice(tuple(LEAST)), multiple=True, help="not all formats")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/bench/kafka.json"))
def main(quick: bool, values: tuple[str, ...], out: Path) -> None:
    """Measure and report."""
    if not JARS.is_dir():
        print("the Kafka broker is missing; get it with: make servers")
        return
    n = N_EVENTS // 10 if quick else N_EVENTS
    folder = Path(tempfile.mkdtemp(prefix="cep-bench-"))
    try:
        with running_broker(folder) as broker:
            figures = list(measured(broker, folder, n, values or tuple(LEAST)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report("kafka", figures, {"events": n, "quick": quick}, out)


if __name__ == "__main__":
    main()
