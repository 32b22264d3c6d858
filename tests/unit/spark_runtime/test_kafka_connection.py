"""What a client does while a broker of a cluster has died and another one takes over."""

from __future__ import annotations

import pytest

from cep.errors import InputError
from spark_runtime.kafka_connection import is_moving, patiently

confluent_kafka = pytest.importorskip("confluent_kafka")

DESTROYED, TRANSPORT, NO_TOPIC = -137, -195, 3


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
def test_a_step_is_taken_again_while_another_broker_takes_over(is_told: bool) -> None:
    step = Step(DESTROYED, TRANSPORT, is_told=is_told)
    assert (patiently(step), step.n) == (7, 3)


def test_another_error_is_raised_at_once_and_so_is_one_that_does_not_end() -> None:
    step = Step(NO_TOPIC, is_told=True)
    with pytest.raises(InputError):
        patiently(step)
    assert step.n == 1
    step = Step(*[DESTROYED] * 9)
    with pytest.raises(confluent_kafka.KafkaException):
        patiently(step, seconds=0.3)
    assert 1 < step.n < 9
    assert not is_moving(None)
    assert not is_moving(ValueError())
