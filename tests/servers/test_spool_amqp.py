"""`cep spool amqp` against a real ActiveMQ Artemis."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cep.errors import InputError
from cep.spool.intake import Room
from cep.spool.receivers.amqp import AmqpReceiver, AmqpSettings
from tests.servers.artemis_server import N_ADDRESSES, PASSWORD, USER, Sender, running_artemis, sent
from tests.servers.kafka_broker import free_ports
from tests.servers.spools import NOW_US, Line, batch, killed_at_each_point, running, until

_NUMBERS = count()


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running_artemis(tmp_path_factory.mktemp("artemis")) as found:
        yield found


def new(kind: str) -> str:
    number = next(_NUMBERS)
    assert number < N_ADDRESSES
    return f"{kind}-{number}"


def settings(port: int, address: str, **more: Any) -> AmqpSettings:
    return replace(AmqpSettings(port=port, address=address, user=USER, password=PASSWORD), **more)


def receiver(found: AmqpSettings, said: list[str] | None = None) -> AmqpReceiver:
    return AmqpReceiver(found, lambda: NOW_US, (said if said is not None else []).append)


def test_messages_are_taken_with_what_is_known_of_them_and_leave_the_queue(port: int, tmp_path: Path) -> None:
    queue, name = new("queue"), uuid.UUID(int=7)
    sent(port, queue, [b"a"], id="m1", group_id="g", properties={"x": 1, "y": "t"})
    sent(port, queue, [b"b"], id=name)
    sent(port, queue, ["text", {"a": [1, None]}])
    found = receiver(settings(port, queue))
    found.check()
    with running(found, tmp_path / "a") as intake:
        until(lambda: intake.counts.acknowledged == 4)
    taken = batch(tmp_path / "a")
    assert taken.values == [b"a", b"b", b"text", b'{"a": [1, null]}']
    assert taken.columns["id"] == ["m1", str(name), None, None]
    assert taken.columns["key"] == ["g", None, None, None]
    assert (taken.columns["header.x"], taken.columns["header.y"]) == (
        ["1", None, None, None],
        ["t", None, None, None],
    )
    with running(found, tmp_path / "b") as intake:
        sent(port, queue, [b"last"])
        until(lambda: intake.counts.acknowledged == 1)
    assert batch(tmp_path / "b").values == [b"last"]


def test_without_room_messages_stay_in_the_queue_and_come_when_there_is_room(
    port: int, tmp_path: Path
) -> None:
    queue = new("queue")
    sent(port, queue, [b"%03d" % number + b"x" * 500 for number in range(40)])
    with running(receiver(settings(port, queue, credit=4)), tmp_path, Room(max_bytes=6000)) as intake:
        until(lambda: bool(intake.counts.refused))
        assert 0 < intake.counts.acknowledged < 12
    with running(receiver(settings(port, queue, credit=4)), tmp_path) as again:
        until(lambda: intake.counts.acknowledged + again.counts.acknowledged == 40)
    assert [value[:3] for value in batch(tmp_path).values] == [b"%03d" % number for number in range(40)]


def test_two_spools_share_a_queue(port: int, tmp_path: Path) -> None:
    queue = new("queue")
    with (
        running(receiver(settings(port, queue, credit=1)), tmp_path / "a") as one,
        running(receiver(settings(port, queue, credit=1)), tmp_path / "b") as two,
    ):
        n_sent = 0
        while min(one.counts.written, two.counts.written) <= 10:  # one may be connected before the other
            sent(port, queue, [b"%d" % number for number in range(n_sent, n_sent + 20)])
            n_sent += 20
            until(lambda n=n_sent: one.counts.acknowledged + two.counts.acknowledged == n)
    both = [*batch(tmp_path / "a").values, *batch(tmp_path / "b").values]
    assert sorted(map(int, both)) == list(range(n_sent))


def test_each_subscription_of_a_topic_has_a_copy_also_of_what_came_while_nobody_took_it(
    port: int, tmp_path: Path
) -> None:
    topic = new("topic")
    both = [settings(port, topic, subscription="s", container_id=name) for name in ("a", "b")]
    for each in both:
        receiver(each).check()
    sent(port, topic, [b"%d" % number for number in range(20)])
    for each in both:
        with running(receiver(each), tmp_path / each.container_id) as intake:
            until(lambda intake=intake: intake.counts.acknowledged == 20)
    sent(port, topic, [b"20"])
    for each in both:
        with running(receiver(each), tmp_path / each.container_id) as intake:
            until(lambda intake=intake: intake.counts.acknowledged == 1)
        assert batch(tmp_path / each.container_id).values == [b"%d" % number for number in range(21)]


@pytest.mark.deep
def test_a_spool_that_is_killed_anywhere_loses_nothing(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = new("queue")
    monkeypatch.setenv("CEP_AMQP_PASSWORD", PASSWORD)
    arguments = ("amqp", "--port", str(port), "--address", queue, "--credit", "7", "--user", USER)
    password = ("--password-env", "CEP_AMQP_PASSWORD")
    with closing(Sender(port, queue)) as send:
        found = killed_at_each_point(tmp_path / "s", (*arguments, *password), send)
    assert len(found) == 300
    assert max(found.values()) <= 1 + 6


def test_a_connection_that_is_lost_is_made_again_and_loses_nothing(port: int, tmp_path: Path) -> None:
    queue, line = new("queue"), Line(port)
    said: list[str] = []
    try:
        with running(receiver(settings(line.port, queue, credit=5), said), tmp_path) as intake:
            for part in range(3):
                sent(port, queue, [b"%d" % number for number in range(50 * part, 50 * (part + 1))])
                until(lambda part=part: intake.counts.acknowledged > 50 * part)
                line.cut()
            until(lambda: len({*batch(tmp_path).values}) == 150)
    finally:
        line.close()
    assert said
    assert all(text.startswith(f"no server of AMQP 1.0 answers at 127.0.0.1:{line.port}: ") for text in said)


def test_what_is_wrong_is_told_before_anything_is_taken(port: int) -> None:
    def code(found: AmqpSettings) -> tuple[str, str]:
        with pytest.raises(InputError) as raised:
            receiver(found).check()
        assert "s3cret" not in str(raised.value)
        return raised.value.code, raised.value.args[0]

    found, text = code(settings(port, "none"))
    assert (found, text.partition(": ")[0]) == ("E0956", f"there is no address `none` at 127.0.0.1:{port}")
    found, text = code(settings(port, "queue-0", password="s3cret"))
    assert (found, text.partition(": ")[0]) == ("E0956", f"127.0.0.1:{port} refuses `{USER}`")
    (free,) = free_ports(1)
    found, text = code(settings(free, "queue-0"))
    assert (found, text.partition(": ")[0]) == ("E0955", f"no server of AMQP 1.0 answers at 127.0.0.1:{free}")
    assert "s3cret" not in repr(settings(port, "a", password="s3cret"))
