"""`cep spool mqtt` against a real Mosquitto."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cep.errors import InputError
from cep.spool.intake import Room
from cep.spool.receivers.mqtt import MqttReceiver, MqttSettings
from tests.servers.kafka_broker import free_ports
from tests.servers.mosquitto_server import PASSWORD, USER, running_mosquitto
from tests.servers.spools import NOW_US, Line, batch, killed_at_each_point, running, until

_NUMBERS = count()


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    with running_mosquitto(tmp_path_factory.mktemp("mosquitto")) as found:
        yield found


def new_topic() -> str:
    return f"topic/{next(_NUMBERS)}"


def settings(port: int, topic: str, **more: Any) -> MqttSettings:
    known = MqttSettings(port=port, topics=(topic,), client_id=topic.replace("/", "-"))
    return replace(known, **more)


class Sender:
    """A client that publishes, and waits for the broker to have what it sent."""

    def __init__(self, port: int, topic: str, qos: int = 1) -> None:
        from paho.mqtt import client as paho

        self.topic, self.qos = topic, qos
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()

    def __call__(self, values: list[bytes], **properties: Any) -> None:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        given = Properties(PacketTypes.PUBLISH)
        for name, value in properties.items():
            setattr(given, name, value)
        sent = [self.client.publish(self.topic, value, self.qos, properties=given) for value in values]
        for each in sent:
            each.wait_for_publish(30)

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *error: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def receiver(found: MqttSettings, said: list[str] | None = None) -> MqttReceiver:
    return MqttReceiver(found, lambda: NOW_US, (said if said is not None else []).append)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_are_taken_with_their_topics_and_properties(
    ports: tuple[int, int], tmp_path: Path, qos: int
) -> None:
    topic = new_topic()
    found = receiver(settings(ports[0], f"{topic}/+"))
    found.check()
    with running(found, tmp_path) as intake, Sender(ports[0], f"{topic}/a", qos) as send:
        # Before the receiver is there the broker keeps no message of quality 0.
        until(lambda: found._is_subscribed)
        send([b"1"], UserProperty=("x", "y"))
        send([b"2"])
        until(lambda: intake.counts.acknowledged == 2)
    taken = batch(tmp_path)
    assert taken.values == [b"1", b"2"]
    assert taken.columns == {"topic": [f"{topic}/a"] * 2, "header.x": ["y", None]}


def test_what_comes_while_the_spool_does_not_run_is_kept_by_the_broker(
    ports: tuple[int, int], tmp_path: Path
) -> None:
    topic = new_topic()
    receiver(settings(ports[0], topic)).check()
    with Sender(ports[0], topic) as send:
        send([b"%d" % number for number in range(3000)])
    with running(receiver(settings(ports[0], topic)), tmp_path) as intake:
        until(lambda: intake.counts.acknowledged == 3000)
    assert batch(tmp_path).values == [b"%d" % number for number in range(3000)]


def test_without_room_messages_stay_with_the_broker_and_come_when_there_is_room(
    ports: tuple[int, int], tmp_path: Path
) -> None:
    topic = new_topic()
    found = settings(ports[0], topic, in_flight=4)
    receiver(found).check()
    with Sender(ports[0], topic) as send:
        send([b"%03d" % number + b"x" * 500 for number in range(40)])
    with running(receiver(found), tmp_path, Room(max_bytes=6000)) as intake:
        until(lambda: bool(intake.counts.refused))
        assert 0 < intake.counts.acknowledged < 12
    with running(receiver(found), tmp_path) as again:
        until(lambda: intake.counts.acknowledged + again.counts.acknowledged == 40)
    assert [value[:3] for value in batch(tmp_path).values] == [b"%03d" % number for number in range(40)]


def test_a_spool_that_is_killed_anywhere_loses_nothing(ports: tuple[int, int], tmp_path: Path) -> None:
    topic = new_topic()
    receiver(settings(ports[0], topic, client_id="killed")).check()
    arguments = (
        "mqtt",
        "--port",
        str(ports[0]),
        "--topic",
        topic,
        "--client-id",
        "killed",
        "--in-flight",
        "7",
    )
    with Sender(ports[0], topic) as send:
        found = killed_at_each_point(tmp_path / "s", arguments, send)
    assert len(found) == 300
    assert max(found.values()) <= 1 + 6


def test_a_connection_that_is_lost_is_made_again_and_loses_nothing(
    ports: tuple[int, int], tmp_path: Path
) -> None:
    topic, line = new_topic(), Line(ports[0])
    said: list[str] = []
    try:
        with (
            running(receiver(settings(line.port, topic, in_flight=5), said), tmp_path) as intake,
            Sender(ports[0], topic) as send,
        ):
            until(lambda: bool(line.n_accepted))
            until(lambda: _is_subscribed(send, intake))
            for part in range(3):
                send([b"%d" % number for number in range(50 * part, 50 * (part + 1))])
                line.cut()
            until(lambda: len({*batch(tmp_path).values}) == 151)
    finally:
        line.close()
    assert said


def _is_subscribed(send: Sender, intake: Any) -> bool:
    send([b"first"])
    return bool(intake.counts.written)


def test_what_is_wrong_is_told_before_anything_is_taken(ports: tuple[int, int]) -> None:
    def code(found: MqttSettings) -> tuple[str, str]:
        with pytest.raises(InputError) as raised:
            receiver(found).check()
        assert "s3cret" not in str(raised.value)
        return raised.value.code, raised.value.args[0]

    where = f"127.0.0.1:{ports[1]}"
    closed = settings(ports[1], "closed/a", client_id="c", user=USER, password="s3cret")
    assert code(closed) == ("E0956", f"{where} refuses the client `c`: Not authorized")
    opened = replace(closed, password=PASSWORD, topics=("open/a",))
    receiver(opened).check()
    found, text = code(replace(opened, topics=("open/a", "a/#/b")))
    assert (found, text) == ("E0957", "topics cannot be open/a, a/#/b: Invalid subscription filter.")
    (port,) = free_ports(1)
    found, text = code(settings(port, "a"))
    assert found == "E0955"
    assert text.startswith(f"no broker of MQTT answers at 127.0.0.1:{port}: ")
    assert "s3cret" not in repr(closed)
