"""The plan on the driver: events -> prepared rows -> key groups -> the operator's output.

Predicates, filter and projection run in the JVM before the only shuffle; the source is read once whatever the
number of rules and keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, reduce

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from cep.local import only_stream, streams_of
from cep.program import COUNTED_COLUMN, TIME_COLUMN, Program, bits_column
from cep.schema import Stream
from spark_runtime.key_groups import group_label, labels
from spark_runtime.layout import (
    DEAD_LETTER,
    GROUP,
    HEARTBEAT,
    KNOWN_BITS,
    PROGRAM,
    REFUSED,
    TEXT,
    Layout,
    known_column,
    slot_column,
)
from spark_runtime.operator import KIND, MATCH, KeyGroups, is_carried_as_text, output_schema
from spark_runtime.placement import placements
from spark_runtime.predicates import predicate_bits
from spark_runtime.schema import SPARK_TYPES, quoted

_TIME = "_time"
_FAR_FUTURE = datetime(2261, 1, 1, tzinfo=UTC)  # the last full year that pandas can hold


@dataclass(frozen=True)
class Dataflow:
    """The plan for programs that run together.

    Parameters
    ----------
    programs
        One for each set of streams and partition key.
    match_schema
        Columns of the matches of all of them.
    n_groups
        Number of key groups, and of shuffle partitions. Fixed for the life of a checkpoint.
    """

    programs: tuple[Program, ...]
    match_schema: pa.Schema
    n_groups: int

    @cached_property
    def layout(self) -> Layout:
        """Columns of the rows."""
        return Layout(self.programs)

    @cached_property
    def labels(self) -> tuple[int, ...]:
        """Label of each key group."""
        return labels(self.n_groups, self.n_groups)

    @property
    def operator(self) -> KeyGroups:
        """The function that runs on the executors."""
        return KeyGroups(self.layout, self.match_schema, self.lateness_us, self.n_groups)

    @property
    def lateness_us(self) -> int:
        """How far the watermark stays behind the latest event of any stream."""
        return max(stream.lateness_us for stream in streams_of(self.programs).values())

    # ------------------------------------------------------------ rows

    def rows(self, events: DataFrame, stream: Stream | None = None) -> DataFrame:
        """Return typed events of `stream` (by default the only one) as rows (`Layout.row_schema`).

        An event has a row for every program and partition that it is of use to; one of no use to any rule is
        a heartbeat.

        `events` may have the columns `REFUSED` and `TEXT`: rows where the first is not 0 are dead letters.
        """
        is_checked = REFUSED in events.columns
        refused = F.col(REFUSED) if is_checked else F.lit(0)
        text = F.col(TEXT) if is_checked else F.lit(None).cast("string")
        stream = stream or only_stream(self.programs)
        candidates = [
            row
            for number, program in enumerate(self.programs)
            if stream in program.streams
            for row in self._rows(number, stream, refused, text)
        ]
        if len(candidates) == 1:
            return events.select(*candidates[0])
        structs = F.array(*(F.struct(*row) for row in candidates))
        useful = F.filter(structs, lambda row: row[PROGRAM] >= 0)
        first = F.slice(structs, 1, 1)  # a heartbeat or a dead letter
        return events.select(
            F.explode(F.when(F.size(useful) > 0, useful).otherwise(first)).alias("row")
        ).select("row.*")

    def _rows(
        self, number: int, stream: Stream, refused: SparkColumn, text: SparkColumn
    ) -> list[list[SparkColumn]]:
        """Return the columns of a typed event's rows for one program, a row for each role of the stream."""
        program = self.programs[number]
        rows = []
        useful: list[SparkColumn] = []
        for placement in placements(program, stream):
            is_useful = placement.is_placed
            words = [predicate_bits(predicates) for predicates in placement.predicates]
            if not program.needs_every_event:
                is_useful = is_useful & reduce(
                    lambda a, b: a | b, [word != 0 for word in words], F.lit(False)
                )
            code = F.when(refused != 0, DEAD_LETTER).when(is_useful, number).otherwise(HEARTBEAT)
            is_counted = ~reduce(lambda a, b: a | b, useful, F.lit(False))
            useful.append(is_useful)
            names = {slot: name for name, slot in self.layout.slots_of[number].items()}
            # The time of a malformed event must not drag the watermark along.
            time = F.when(refused == 0, quoted(stream.event_time))
            row = [code.cast("int").alias(PROGRAM), time.alias(TIME_COLUMN)]
            for word in range(self.layout.n_words):
                bits = words[word] if word < len(words) else F.lit(0).cast("bigint")
                row.append(bits.alias(bits_column(word)))
            for slot, kind in enumerate(self.layout.slot_types):
                name = names.get(slot)
                value = F.lit(None)
                if name is not None:
                    value = is_counted if name == COUNTED_COLUMN else placement.value(name)
                row.append(value.cast(SPARK_TYPES[kind]).alias(slot_column(slot)))
            rows.append([*row, text.alias(TEXT)])
        return rows

    def grouped(self, rows: DataFrame) -> DataFrame:
        """Return rows with the label of their key group."""
        label = F.when(F.col(PROGRAM) < 0, group_label([F.col(TEXT)], self.labels))
        for number, program in enumerate(self.programs):
            slots = self.layout.slots_of[number]
            key = [F.col(slot_column(slots[name])) for name in program.key_columns]
            label = label.when(F.col(PROGRAM) == number, group_label(key, self.labels))
        return rows.withColumn(GROUP, label)

    @property
    def grouped_schema(self) -> T.StructType:
        """Columns of grouped rows."""
        return spark_schema(self.layout.row_schema).add(GROUP, T.IntegerType())

    # ------------------------------------------------------------ operator

    def output(self, rows: DataFrame) -> DataFrame:
        """Return what the operator makes of grouped rows: `operator.output_schema`, several kinds of rows."""
        return self._stream_output(rows) if rows.isStreaming else self._batch_output(rows)

    def _batch_output(self, rows: DataFrame) -> DataFrame:
        useful = rows.where(F.col(PROGRAM) != HEARTBEAT)
        groups = useful.repartition(self.n_groups, GROUP).select(*self.layout.row_schema.names)
        return groups.mapInArrow(self.operator.batch, spark_schema(output_schema(self.match_schema)))

    def _stream_output(self, rows: DataFrame) -> DataFrame:
        delay_ms = -(-self.lateness_us // 1000)
        timed = rows.withColumn(_TIME, F.timestamp_micros(TIME_COLUMN))
        marked = timed.withWatermark(_TIME, f"{delay_ms} milliseconds")
        # Heartbeats are for the watermark. The condition reads the watermarked column, else Spark would
        # move it below the watermark, which would then stand still while only irrelevant events come.
        useful = marked.where(F.col(_TIME).isNull() | (F.col(PROGRAM) != HEARTBEAT))
        # Spark drops late rows and allows event-time timeouts by the watermarked column that it finds here.
        # This one is never late, so that the engine sees late rows and can report them.
        never_late = F.lit(_FAR_FUTURE).alias(_TIME, metadata={"spark.watermarkDelayMs": delay_ms})
        packed = useful.select(F.col(GROUP), *self._packed(), never_late)
        return packed.groupBy(GROUP).applyInPandasWithState(
            self.operator,
            spark_schema(output_schema(self.match_schema)),
            T.StructType([T.StructField("state", T.BinaryType())]),
            "append",
            "EventTimeTimeout",
        )

    def _packed(self) -> list[SparkColumn]:
        """Return the columns of `Layout.packed_names`: no NULL but in strings."""
        columns = [F.col(PROGRAM)]
        for field in self.layout.row_schema:
            if field.name == PROGRAM:
                continue
            column = F.col(field.name)
            if not pa.types.is_string(field.type):
                column = F.coalesce(column.cast(SPARK_TYPES[_number_type(field.type)]), F.lit(0))
            columns.append(column.alias(field.name))
        for word in range(self.layout.n_known_words):
            known = F.lit(0).cast("bigint")
            for slot in range(word * KNOWN_BITS, min((word + 1) * KNOWN_BITS, len(self.layout.slot_types))):
                bit = F.lit(1 << (slot - word * KNOWN_BITS)).cast("bigint")
                is_known = F.col(slot_column(slot)).isNotNull()
                known = known.bitwiseOR(F.when(is_known, bit).otherwise(F.lit(0).cast("bigint")))
            columns.append(known.alias(known_column(word)))
        return columns

    def matches(self, output: DataFrame) -> DataFrame:
        """Return the matches in the operator's output, with times as timestamps."""
        columns = [
            _as_reported(quoted(field.name), field.type).alias(field.name) for field in self.match_schema
        ]
        return output.where(F.col(KIND) == MATCH).select(*columns)


def _number_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which a value that is not a string passes through pandas."""
    return pa.int64() if pa.types.is_boolean(kind) or pa.types.is_int32(kind) else kind


def spark_schema(schema: pa.Schema) -> T.StructType:
    """Return an Arrow schema of `SPARK_TYPES` as Spark's."""
    return T.StructType([T.StructField(field.name, _spark_type(field.type)) for field in schema])


def _spark_type(kind: pa.DataType) -> T.DataType:
    if pa.types.is_list(kind):
        return T.ArrayType(_spark_type(kind.value_type))
    if pa.types.is_struct(kind):
        return T.StructType([T.StructField(field.name, _spark_type(field.type)) for field in kind])
    if pa.types.is_decimal(kind):
        return T.DecimalType(kind.precision, kind.scale)
    if pa.types.is_date(kind):
        return T.DateType()
    if pa.types.is_timestamp(kind):
        return T.TimestampType()
    narrow = {pa.int8(): T.ByteType(), pa.int16(): T.ShortType(), pa.float32(): T.FloatType()}
    return {**SPARK_TYPES, **narrow}.get(kind, T.IntegerType())


def _as_reported(column: SparkColumn, kind: pa.DataType) -> SparkColumn:
    """Return a column of the operator's output (`operator.carried_type`) in the type that matches have."""
    if pa.types.is_timestamp(kind):
        return F.timestamp_micros(column)
    if pa.types.is_date(kind):
        return F.date_from_unix_date(column)
    if pa.types.is_list(kind):
        if not is_carried_as_text(kind.value_type):
            return column
        return F.transform(column, lambda item: _from_inside(item, kind.value_type))
    if pa.types.is_struct(kind):
        fields = [_from_inside(column.getField(field.name), field.type).alias(field.name) for field in kind]
        return F.when(column.isNotNull(), F.struct(*fields))
    return column


def _from_inside(column: SparkColumn, kind: pa.DataType) -> SparkColumn:
    """Return part of a list or an event in the type that matches have."""
    return column.cast(_spark_type(kind)) if is_carried_as_text(kind) else _as_reported(column, kind)


def drop_unusable(events: DataFrame, stream: Stream) -> DataFrame:
    """Return typed events of `stream` without those whose time is NULL or out of its bounds."""
    time = quoted(stream.event_time)
    return events.where((time >= stream.min_valid_us) & (time < stream.max_valid_us))
