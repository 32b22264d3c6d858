"""What the driver needs but older versions of PySpark lack. Each function names the version that makes it
unnecessary.
"""

# No `from __future__ import annotations` here: `pandas_udf` reads the annotations of a function as types.

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa


def pyspark_version() -> tuple[int, int]:
    """Return the major and minor version of PySpark; raise ImportError if it is not installed."""
    import pyspark

    major, minor = re.findall(r"\d+", pyspark.__version__)[:2]
    return int(major), int(minor)


def to_arrow(frame: Any) -> pa.Table:
    """Return the rows of a DataFrame as an Arrow table. Unnecessary from 4.0 on: `toArrow`."""
    if hasattr(type(frame), "toArrow"):
        return frame.toArrow()
    from pyspark.sql.pandas.types import to_arrow_schema

    batches = frame._collect_as_arrow()
    schema = batches[0].schema if batches else to_arrow_schema(frame.schema)
    return pa.Table.from_batches(batches, schema)


def is_stopped(spark: Any) -> bool:
    """Return whether a session was stopped. No version makes this unnecessary: without Spark Connect, a
    session does not say so.
    """
    if hasattr(type(spark), "is_stopped"):
        return bool(spark.is_stopped)
    return spark.sparkContext._jsc is None


def condition_of(error: Any) -> str:
    """Return the error condition of a PySpark exception, or "". Unnecessary from 4.0 on: `getCondition`."""
    return (error.getCondition() if hasattr(error, "getCondition") else error.getErrorClass()) or ""


def bigints(function: Callable[[pa.Array], pa.Array], kind: pa.DataType) -> Callable[[Any], Any]:
    """Return `function` as a function of Spark columns that runs in the workers. Unnecessary from 4.1 on:
    `arrow_udf`.

    `function` takes strings, or timestamps without a zone (`kind`), and returns BIGINT. Before 4.1, both are
    passed as strings, because pandas has one value for NULL and NaN, and lacks timestamps of some years.
    """
    try:
        from pyspark.sql.pandas.functions import arrow_udf
    except ImportError:
        return _bigints_of_texts(function, kind)
    return arrow_udf(function, "bigint")  # type: ignore[call-overload, no-any-return]


def _bigints_of_texts(function: Callable[[pa.Array], pa.Array], kind: pa.DataType) -> Callable[[Any], Any]:
    import pandas as pd
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.pandas.functions import pandas_udf

    def of_texts(texts: pd.Series) -> pd.Series:
        values = pa.array(texts, pa.string(), from_pandas=True).cast(kind)
        found: pd.Series = function(values).to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
        return found

    called = pandas_udf(of_texts, "bigint")  # type: ignore[call-overload]

    def of_column(column: Any) -> Any:
        # Spark writes years after 9999 with a sign. They are not valid times, as in `times_of_timestamps`.
        text = column.cast("string")
        return called(text if pa.types.is_string(kind) else F.when(text.rlike("^[0-9]{4}-"), text))

    return of_column


def streaming_nodes(plan: str) -> frozenset[str]:
    """Return the names of the streaming nodes in the text of a plan. Unnecessary from 4.0 on: a tilde marks
    them.

    Before, a node is streaming if a relation below it is. The text has a line for each node, indented below
    the one that reads it.
    """
    if pyspark_version() >= (4, 0):
        return frozenset(re.findall(r"^[ :+-]*~(\w+)", plan, re.MULTILINE))
    found, path = set[str](), list[tuple[int, str]]()
    for line in plan.splitlines():
        if (node := re.match(r"([ :+-]*)(\w+)", line)) is None:
            continue
        depth, name = len(node[1]), node[2]
        path = [*(above for above in path if above[0] < depth), (depth, name)]
        if name.startswith("Streaming"):
            found.update(above for _, above in path)
    return frozenset(found)


def checkpoint_file_manager() -> str:
    """Return the class that writes files of checkpoints with plain renames. Before 4.1, it is in another
    package.
    """
    package = "org.apache.spark.sql.execution.streaming"
    inner = ".checkpointing" if pyspark_version() >= (4, 1) else ""
    return f"{package}{inner}.FileSystemBasedCheckpointFileManager"


def forget_state(jvm: Any) -> None:
    """Make Java drop the state of all streams. Unnecessary from 4.3 on: `stop`.

    Before 4.3, `stop` holds a lock while it waits, for five minutes, for a thread that may be waiting for
    this lock.
    """
    state = "org.apache.spark.sql.execution.streaming.state.StateStore"
    # In one step: for each part of a dotted name Java would search all its archives.
    stores = getattr(jvm, state)
    version = pyspark_version()
    if version >= (4, 3):
        stores.stop()
        return
    singleton = getattr(jvm, "org.apache.spark.util.Utils").classForName(f"{state}$", True, False)
    module = singleton.getField("MODULE$").get(None)
    if version >= (4, 1):
        module.unloadAll()
        return
    field = singleton.getDeclaredField("loadedProviders")
    field.setAccessible(True)
    loaded = field.get(module).keySet().toSeq()
    for number in range(loaded.size()):
        stores.unload(loaded.apply(number))
