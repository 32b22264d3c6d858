"""`cep spool rabbitmq` against a real RabbitMQ."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cep.errors import InputError
from cep.spool.intake import Room
from cep.spool.receivers.rabbitmq import RabbitReceiver, RabbitSettings
from tests.servers.kafka_broker import free_ports
from tests.servers.rabbitmq_server import Rabbit, running_rabbit
from tests.servers.spools import NOW_US, Line, batch, killed_at_each_point, running, until

KINDS = pytest.mark.parametrize("kind", ["classic", "quorum"])


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rabbit]:
    with running_rabbit(tmp_path_factory.mktemp("rabbitmq")) as found:
        yield found


def send(rabbit: Rabbit, queue: str, values: list[bytes], **properties: Any) -> None:
    import pika

    connection = rabbit.connection()
    channel = connection.channel()
    channel.confirm_delivery()
    for value in values:
        channel.basic_publish("", queue, value, pika.BasicProperties(delivery_mode=2, **properties))
    connection.close()


def refusal(found: RabbitReceiver, folder: Path) -> InputError:
    """Return the error with which a receiver ends by itself."""
    ended = threading.Event()
    with pytest.raises(InputError) as raised, running(found, folder, ended=ended):
        assert ended.wait(30)
    return raised.value


def receiver(rabbit: Rabbit, queue: str, **settings: Any) -> RabbitReceiver:
    return RabbitReceiver(replace(RabbitSettings(port=rabbit.port, queue=queue), **settings), lambda: NOW_US)


@KINDS
def test_messages_are_taken_with_what_is_known_of_them_and_leave_the_queue(
    rabbit: Rabbit, tmp_path: Path, kind: str
) -> None:
    queue = rabbit.queue(kind)
    send(rabbit, queue, [b"a"], message_id="m1", correlation_id="c1", headers={"x": 1, "y": "t"})
    send(rabbit, queue, [b"b"])
    found = receiver(rabbit, queue)
    found.check()
    with running(found, tmp_path) as intake:
        until(lambda: intake.counts.acknowledged == 2)
    assert rabbit.n_ready(queue) == 0
    taken = batch(tmp_path)
    assert taken.values == [b"a", b"b"]
    assert taken.columns == {
        "topic": [queue, queue],
        "id": ["m1", None],
        "key": ["c1", None],
        "header.x": ["1", None],
        "header.y": ["t", None],
    }


@KINDS
def test_without_room_messages_stay_in_the_queue_and_come_when_there_is_room(
    rabbit: Rabbit, tmp_path: Path, kind: str
) -> None:
    queue = rabbit.queue(kind)
    send(rabbit, queue, [b"%03d" % number + b"x" * 500 for number in range(40)])
    with running(receiver(rabbit, queue, prefetch=4), tmp_path, Room(max_bytes=6000)) as intake:
        until(lambda: bool(intake.counts.refused))
    n_taken = intake.counts.acknowledged  # what was on disk when the first one was refused comes to it
    assert 0 < n_taken < 12
    until(lambda: rabbit.n_ready(queue) == 40 - n_taken)
    with running(receiver(rabbit, queue, prefetch=4), tmp_path) as intake:
        until(lambda: intake.counts.acknowledged == 40 - n_taken)
    assert [value[:3] for value in batch(tmp_path).values] == [b"%03d" % number for number in range(40)]


def test_two_spools_share_a_queue(rabbit: Rabbit, tmp_path: Path) -> None:
    queue = rabbit.queue()
    with (
        running(receiver(rabbit, queue, prefetch=1), tmp_path / "a") as one,
        running(receiver(rabbit, queue, prefetch=1), tmp_path / "b") as two,
    ):
        n_sent = 0
        while min(one.counts.written, two.counts.written) <= 10:  # one may be connected before the other
            send(rabbit, queue, [b"%d" % number for number in range(n_sent, n_sent + 20)])
            n_sent += 20
            until(lambda n=n_sent: one.counts.acknowledged + two.counts.acknowledged == n)
    both = [*batch(tmp_path / "a").values, *batch(tmp_path / "b").values]
    assert sorted(map(int, both)) == list(range(n_sent))


@pytest.mark.deep(but="classic")
@KINDS
def test_a_spool_that_is_killed_anywhere_loses_nothing(rabbit: Rabbit, tmp_path: Path, kind: str) -> None:
    queue = rabbit.queue(kind)
    arguments = ("rabbitmq", "--port", str(rabbit.port), "--queue", queue, "--prefetch", "7")
    found = killed_at_each_point(tmp_path / "s", arguments, lambda values: send(rabbit, queue, values))
    assert len(found) == 300
    assert max(found.values()) <= 1 + 6  # a kill lets it come once more at most
    assert rabbit.n_ready(queue) == 0


def test_a_connection_that_is_lost_is_made_again_and_loses_nothing(rabbit: Rabbit, tmp_path: Path) -> None:
    queue, line = rabbit.queue(), Line(rabbit.port)
    said: list[str] = []
    found = receiver(rabbit, queue, prefetch=10)
    found = RabbitReceiver(replace(found.settings, port=line.port), lambda: NOW_US, said.append)
    try:
        with running(found, tmp_path) as intake:
            for part in range(4):
                send(rabbit, queue, [b"%d" % number for number in range(50 * part, 50 * (part + 1))])
                until(lambda part=part: intake.counts.acknowledged > 50 * part)
                line.cut()
            until(lambda: len({*batch(tmp_path).values}) == 200)
            until(lambda: rabbit.n_ready(queue) == 0)
    finally:
        line.close()
    assert said
    assert all(text.startswith(f"the connection to 127.0.0.1:{line.port} is lost: ") for text in said)


def test_what_is_wrong_is_told_before_anything_is_taken(rabbit: Rabbit) -> None:
    def code(**settings: Any) -> tuple[str, str]:
        with pytest.raises(InputError) as raised:
            receiver(rabbit, "none", **settings).check()
        assert "s3cret" not in str(raised.value)
        return raised.value.code, raised.value.args[0]

    assert code() == ("E0956", f"there is no queue `none` at 127.0.0.1:{rabbit.port}")
    assert code(password="s3cret") == ("E0956", f"127.0.0.1:{rabbit.port} refuses the user `guest`")
    assert code(virtual_host="no") == (
        "E0956",
        f"127.0.0.1:{rabbit.port} has no virtual host `no` for `guest`",
    )
    (port,) = free_ports(1)
    found, text = code(port=port)
    assert found == "E0955"
    assert text.startswith(f"no RabbitMQ answers at 127.0.0.1:{port}: ")
    assert "s3cret" not in repr(RabbitSettings(password="s3cret"))


def test_a_queue_that_is_removed_ends_the_spool(rabbit: Rabbit, tmp_path: Path) -> None:
    queue = rabbit.queue()
    ended = threading.Event()
    send(rabbit, queue, [b"a"])

    def remove() -> None:
        with running(receiver(rabbit, queue), tmp_path, ended=ended) as intake:
            until(lambda: intake.counts.acknowledged == 1)
            connection = rabbit.connection()
            connection.channel().queue_delete(queue)
            connection.close()
            assert ended.wait(30)

    with pytest.raises(InputError, match=f"there is no queue `{queue}`"):
        remove()


def test_a_stream_is_refused_because_what_arrives_while_no_spool_runs_would_be_lost(
    rabbit: Rabbit, tmp_path: Path
) -> None:
    stream = rabbit.queue("stream")
    send(rabbit, stream, [b"a"])
    error = refusal(receiver(rabbit, stream), tmp_path)
    assert (error.code, "is a stream" in str(error), "`rabbitmq_stream`" in str(error)) == (
        "E0956",
        True,
        True,
    )


def test_a_queue_that_another_consumer_has_for_itself_is_refused(rabbit: Rabbit, tmp_path: Path) -> None:
    queue, connection = rabbit.queue(), rabbit.connection()
    connection.channel().basic_consume(queue, lambda *_: None, exclusive=True)
    error = refusal(receiver(rabbit, queue), tmp_path)
    assert (error.code, "in exclusive use" in str(error)) == ("E0956", True)
    connection.close()


def test_headers_of_all_types_are_texts(rabbit: Rabbit, tmp_path: Path) -> None:
    queue = rabbit.queue("classic")
    time = datetime(2024, 5, 1, 10, tzinfo=UTC)
    send(rabbit, queue, [b"a"], headers={"d": [{"n": 1, "t": time}], "b": True, "t": time})
    with running(receiver(rabbit, queue), tmp_path) as intake:
        until(lambda: intake.counts.acknowledged == 1)
    found = {name: texts[0] for name, texts in batch(tmp_path).columns.items()}
    assert found == {
        "topic": queue,
        "header.d": '[{"n": 1, "t": "2024-05-01T10:00:00.000000Z"}]',
        "header.b": "true",
        "header.t": "2024-05-01T10:00:00.000000Z",
    }
