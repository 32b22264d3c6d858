"""What a client does while a broker has died and another one takes over, and what its errors mean."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cep.errors import InputError
from spark_runtime.connectors.kafka.connection import Client, Connection, Noted, is_moving, patiently
from spark_runtime.connectors.kafka.fetch import first_messages, first_offsets
from spark_runtime.connectors.kafka.taking import ObjectTaker
from spark_runtime.connectors.message_logs.log import MessageRange, Place

confluent_kafka = pytest.importorskip("confluent_kafka")

DESTROYED, ENDING, TRANSPORT, NO_TOPIC = -137, -197, -195, 3
FATAL, FENCED, FENCED_EPOCH, UNKNOWN_EPOCH = -150, -144, 74, 75


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses between steps, which take no time: only they move the clock."""
    found: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(found), sleep=found.append)
    for module in ("connection", "fetch"):
        monkeypatch.setattr(f"spark_runtime.connectors.kafka.{module}.time", clock)
    return found


def error_of(code: int) -> Exception:
    found: Exception = confluent_kafka.KafkaException(confluent_kafka.KafkaError(code))
    return found


class Step:
    """Fails with some errors, then gives a number."""

    def __init__(self, *codes: int, is_told: bool = False) -> None:
        self.codes, self.is_told, self.n = list(codes), is_told, 0

    def __call__(self) -> int:
        self.n += 1
        if not self.codes:
            return 7
        error = error_of(self.codes.pop(0))
        if self.is_told:
            raise InputError("E0856", "Kafka failed") from error
        raise error


@pytest.mark.parametrize("is_told", [False, True])
def test_a_step_is_taken_again_while_another_broker_takes_over(is_told: bool, pauses: list[float]) -> None:
    step = Step(DESTROYED, TRANSPORT, is_told=is_told)
    assert (patiently(step), step.n) == (7, 3)
    assert len(pauses) == 2
    assert min(pauses) > 0.1  # a broker that takes over is not asked all the time


def test_another_error_is_raised_at_once_and_so_is_one_that_does_not_end(pauses: list[float]) -> None:
    step = Step(NO_TOPIC, is_told=True)
    with pytest.raises(InputError):
        patiently(step)
    assert (step.n, pauses) == (1, [])
    step = Step(*[DESTROYED] * 99)
    with pytest.raises(confluent_kafka.KafkaException):
        patiently(step, seconds=3)
    assert 1 < step.n < 99
    assert 3 <= sum(pauses) < 4
    assert not is_moving(None)
    assert not is_moving(ValueError())


# ---------------------------------------------------------------- what errors mean


class Answers:
    """A client of librdkafka that fails with some errors; see `Client.client`."""

    def __init__(self, *codes: int, fatal: Exception | None = None) -> None:
        self.codes, self.fatal = list(codes), fatal

    def offsets_for_times(self, asked: list[Any], timeout: float) -> list[Any]:
        if self.codes:
            raise error_of(self.codes.pop(0))
        for one in asked:
            one.offset = 5
        return asked

    def list_topics(self, *_: object, **__: object) -> None: ...

    def poll(self, seconds: float) -> None:
        if self.fatal is not None:
            raise self.fatal


def client_of(answers: Answers) -> Client:
    """Return a client that answers so."""
    return Client(lambda settings: answers, Connection("nobody:1"), {})


def test_a_leader_that_was_frozen_and_has_another_epoch_is_asked_again(pauses: list[float]) -> None:
    assert first_offsets(client_of(Answers(FENCED_EPOCH, UNKNOWN_EPOCH)), {("t", 0): -1}) == {("t", 0): 5}
    assert len(pauses) == 2


def test_a_consumer_learns_of_a_topic_once_before_it_fetches() -> None:
    done = []

    class Told(Answers):
        def list_topics(self, topic: Any, **_: object) -> None:  # type: ignore[override]
            done.append(topic)
            raise error_of(TRANSPORT)  # the fetch reports it

        def assign(self, places: list[Any]) -> None:
            done.append(f"fetch {places[0].topic}")

    taker = ObjectTaker(client_of(Told()))
    for topic in ("t", "t", "u"):
        taker.begin(MessageRange(topic, 0, 5, 9))
    assert done == ["t", "fetch t", "fetch t", "u", "fetch u"]


def test_a_consumer_of_many_topics_waits_once_for_a_broker_that_does_not_answer() -> None:
    asked = []

    class Gone(Answers):
        def list_topics(self, topic: Any, **_: object) -> None:  # type: ignore[override]
            asked.append(topic)
            raise error_of(TRANSPORT)

        def assign(self, places: list[Any]) -> None: ...

        def unassign(self) -> None: ...

    ranges: dict[Place, tuple[int, int]] = {(topic, 0): (0, 1) for topic in "tuv"}
    assert first_messages(client_of(Gone()), ranges, 1, 0.0) == dict.fromkeys(ranges)
    assert len(asked) == 1


@pytest.mark.parametrize("code", [DESTROYED, ENDING, TRANSPORT])
def test_a_connection_that_is_gone_is_a_broker_that_does_not_answer(code: int) -> None:
    assert client_of(Answers()).error(error_of(code), "topic `t`").code == "E0850"


def test_a_fatal_error_is_named_by_its_reason_which_librdkafka_says_once() -> None:
    fatal = confluent_kafka.KafkaException(confluent_kafka.KafkaError(FENCED, "fenced", fatal=True))
    answers = Answers(fatal=fatal)
    client = client_of(answers)
    assert client.error(error_of(FATAL), "topic `t`").code == "E0855"
    answers.fatal = None
    assert client.error(error_of(FATAL), "topic `t`").code == "E0855"
    assert client_of(Answers()).error(error_of(FATAL), "topic `t`").code == "E0856"
    client = client_of(Answers())
    assert client.error(fatal, "topic `t`").code == "E0855"
    assert client.error(error_of(FATAL), "topic `t`").code == "E0855"


def test_no_client_writes_lines_of_librdkafka_unless_debug_asks_for_them() -> None:
    noted = Noted()
    assert Connection("nobody:1").config({}, noted)["log.queue"] is True
    assert Connection("nobody:1", (("debug", "broker"),)).config({}, noted)["log.queue"] is False
