"""Static tables that are DataFrames, whose rows are collected once."""

from __future__ import annotations

from pyspark.sql import DataFrame

from cep.errors import InputError
from cep.schema.stream import Stream
from cep.schema.text_values import event_table_schema
from spark_runtime.compat.driver import to_arrow
from spark_runtime.dataflow.frame_readers import with_texts
from spark_runtime.dataflow.message_frames import MessageFrame
from spark_runtime.dataflow.schema import typed_events
from spark_runtime.tables.content import Content
from spark_runtime.tables.rows import require_few, require_keys, unusable


def frame_content(frame: DataFrame | MessageFrame, table: Stream) -> Content:
    """Return the current rows of `frame` as the content of a static table.

    Raises InputError: the frame is a stream or messages (E0826), has too many rows (E0619) or rows without a
    key (E0712), or its columns are not those of the table.
    """
    if isinstance(frame, MessageFrame) or frame.isStreaming:
        raise InputError(
            "E0826",
            f"table `{table.name}` is static, and its DataFrame is a stream",
            "read it with read; or declare the table with an `event_time`, and leave `static` out",
        )
    assert table.table is not None
    typed = typed_events(frame, table)
    most = table.table.max_rows
    found = to_arrow(typed if most is None else typed.limit(most + 1))
    require_few(table, found.num_rows)
    rows, reasons = with_texts(found, table)
    for row, reason in reasons.items():
        raise unusable(table, "its DataFrame", f"row {row + 1:,}: {reason}")
    rows = rows.cast(event_table_schema(table))
    require_keys(table, rows, "its DataFrame")
    return Content.of(rows)
