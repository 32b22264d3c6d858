"""Makes Python workers load the engine before the first events arrive.

A worker takes seconds to import its modules and to load the compiled kernels. It can do so while the driver
plans; otherwise the first micro-batch waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from cep.program.program import Program
from spark_runtime.wire.loaded import freeze_loaded

_started: set[str] = set()  # applications


def start_warming(spark: SparkSession, programs: Sequence[Program]) -> threading.Thread:
    """Start loading what programs need in a worker for each core; return the thread that waits for them."""

    def warm() -> None:
        with suppress(Exception):  # what fails here fails again in the run, and is reported there
            n = spark.sparkContext.defaultParallelism
            frame = spark.range(0, n, 1, n).mapInArrow(partial(_load, programs), "id bigint")
            frame.write.format("noop").mode("overwrite").save()

    application = str(spark.sparkContext.applicationId)
    # A daemon thread: Ctrl-C does not wait for it.
    thread = threading.Thread(target=(lambda: None) if application in _started else warm, daemon=True)
    _started.add(application)
    thread.start()
    return thread


def _load(programs: Sequence[Program], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pandas  # noqa: F401

    from cep.engine.warm import missing

    missing(programs)  # loads the compiled kernels
    freeze_loaded()
    yield from batches
