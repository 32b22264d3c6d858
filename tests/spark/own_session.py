"""What `test_own_session` runs in a process of its own: `detect` in a session with Spark's own settings.

Arguments: a folder, OTHER_PYTHON, WRAPPER.

OTHER_PYTHON has none of our packages, WRAPPER has another version of them. The answers are printed as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from cep.errors import CepError
from spark_runtime import detect
from tests.spark.events import (
    EVENTS_RULE,
    ROOM_RULE,
    RULES,
    STRICT_RULE,
    comparable,
    compiled,
    drain,
    far_future_event,
    local_matches,
    random_events,
    spark_rows,
    stream_of_files,
    write_files,
)

SETTINGS = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.streaming.stateStore.providerClass",
    "spark.sql.execution.arrow.maxRecordsPerBatch",
    "spark.sql.streaming.multipleWatermarkPolicy",
)

PROGRAMS = compiled(RULES, ROOM_RULE, EVENTS_RULE, STRICT_RULE)


def worker(spark: SparkSession) -> str:
    """Return the Python that a function of the user's own runs in."""

    def executable(_: int) -> str:
        import sys

        return sys.executable

    return str(spark.range(1).select(F.udf(executable, StringType(), useArrow=False)("id")).head()[0])  # type: ignore[index]


def error_of(call: Callable[[], DataFrame]) -> str:
    try:
        call()
    except CepError as error:
        return str(error)
    return "no error"


def answers(folder: Path, other_python: str, wrapper: str) -> dict[str, Any]:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.sql.ansi.enabled", "false")
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    found: dict[str, Any] = {"settings": [spark.conf.get(name) for name in SETTINGS]}
    events = [*random_events(11, 1500), far_future_event()]
    frame = write_files(spark, folder / "events", events, 3)
    expected = local_matches(PROGRAMS, events)
    found["n"] = len(expected)
    found["batch"] = comparable(spark_rows(detect(frame, PROGRAMS))) == expected
    stream = stream_of_files(spark, folder / "events")
    found["stream"] = comparable(drain(detect(stream, PROGRAMS), "own", folder / "checkpoint")) == expected
    found["own function"] = worker(spark)
    found["named by the context"] = spark.sparkContext.pythonExec
    for name, python in (("other", other_python), ("missing", "/no/such/python"), ("version", wrapper)):
        os.environ["PYSPARK_PYTHON"] = python
        found[name] = error_of(lambda: detect(frame, PROGRAMS))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    found["named after the start"] = error_of(lambda: detect(frame, PROGRAMS))
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(answers(Path(sys.argv[1]), sys.argv[2], sys.argv[3])))
