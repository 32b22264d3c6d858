"""A setting that Spark refuses is an error with the setting and Spark's reason, not one of this package."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import IllegalArgumentException, PySparkRuntimeError
from pyspark.sql import SparkSession

from cep.errors import SetupError
from spark_runtime.sessions import local_session
from spark_runtime.sessions.local_session import session

PARTITIONS, TEXT = (
    "spark.sql.shuffle.partitions",
    "The value '0' in the config \"{}\" is invalid. {} is positive",
)
REFUSED = f"[INVALID_CONF_VALUE.REQUIREMENT] {TEXT.format(PARTITIONS, PARTITIONS)} SQLSTATE: 22022"


class _Refusing:
    """A session whose settings Java refuses."""

    def __init__(self) -> None:
        self.conf = self

    def isModifiable(self, key: str) -> bool:
        return key == PARTITIONS

    def set(self, key: str, value: str) -> NoReturn:
        raise IllegalArgumentException(f"{REFUSED}\n\nJVM stacktrace:\norg.apache.spark.A: {REFUSED}\n\tat x")


def refusal(settings: dict[str, str]) -> tuple[str, str]:
    with pytest.raises(SetupError) as caught:
        session(settings)
    assert caught.value.code == "E0803"
    return caught.value.args[0], caught.value.help


def test_a_value_that_spark_refuses_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda cls: _Refusing()))
    monkeypatch.setattr(local_session, "_folders", [])
    fact, advice = refusal({"spark.hadoop.a": "b", PARTITIONS: "0"})
    assert fact == f"Spark could not start with `{PARTITIONS}`: {TEXT.format(PARTITIONS, PARTITIONS)}"
    assert advice == "give it another value"


def failing(monkeypatch: pytest.MonkeyPatch, folder: Path, error: Exception, log: str = "") -> None:
    """Let the start of Java fail."""

    def fails(*_: object, **__: object) -> NoReturn:
        raise error

    opened: Any = type("Opened", (), {"log": folder / "java.log"})
    opened.log.write_text(log)
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda cls: None))
    monkeypatch.setattr(local_session, "_folders", [opened])
    monkeypatch.setattr(local_session, "_start", fails)


def test_a_context_that_does_not_start_names_what_was_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = ": org.apache.spark.SparkException: Asked for 0 threads\n\tat x"
    failing(monkeypatch, tmp_path, Py4JError(f"An error occurred while calling None.x.\n{text}"), "ERROR x\n")
    fact, advice = refusal({"spark.master": "local[0]", "spark.hadoop.a": "b", "spark.x": "y"})
    assert fact == "Spark could not start with `spark.master` and `spark.x`: Asked for 0 threads"
    assert advice == f"give it another value; Java's messages are in {tmp_path}/java.log"
    assert refusal({})[0] == "Spark could not start: Asked for 0 threads"


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("WARNING: Using x\nInvalid heap size: lots\nError: no Java\n", "Invalid heap size: lots"),
        ('Exception in thread "main" org.apache.spark.SparkException: no master\n\tat x\n', "no master"),
        ("", "no message"),
    ],
)
def test_a_java_that_has_ended_is_told_by_its_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: str, said: str
) -> None:
    error = PySparkRuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port.")
    failing(monkeypatch, tmp_path, error, log)
    assert refusal({"spark.x": "lots"})[0] == f"Spark could not start with `spark.x`: {said}"


def test_memory_is_set_for_executors_unless_the_user_has_chosen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=1")
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    settings = local_session.start_settings(tmp_path, is_short=True)
    assert settings["spark.executorEnv.GLIBC_TUNABLES"] == "glibc.malloc.check=1"
    assert settings["spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL"] == "system"
