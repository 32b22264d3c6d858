"""The plan on the driver: events -> parcels -> the operator's output.

The workers prepare events before the only shuffle, which moves parcels. The source is read once, whatever
the number of rules and keys.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial, reduce
from itertools import count

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from cep.rule_set import RuleSet
from cep.schema.stream import Stream
from cep.schema.text_values import event_table_schema
from spark_runtime.dataflow.frame_readers import Reads, Renamed, TypedReader
from spark_runtime.dataflow.message_frames import MessageFrame
from spark_runtime.dataflow.relevant import columns_read, may_matter
from spark_runtime.dataflow.schema import of_schema, quoted, spark_schema, spark_type
from spark_runtime.operator.findings import COLUMNS, Unpacker, match_column
from spark_runtime.operator.limits import Limits
from spark_runtime.operator.operator import KeyGroups
from spark_runtime.sinks.delivery import ALL_AS_ROWS, Delivery
from spark_runtime.state.changing import ChangedRules
from spark_runtime.state.pointer import Kept
from spark_runtime.state.restored import Restored
from spark_runtime.tables.content import Content
from spark_runtime.wire.key_groups import labels
from spark_runtime.wire.output import (
    COUNTS,
    DEAD,
    KIND,
    LATE,
    MATCH,
    MATCHES_COLUMN,
    OUTPUT_SCHEMA,
    SHADOW,
    TEXT,
    carried_schema,
    is_carried_as_text,
)
from spark_runtime.wire.packer import Packer
from spark_runtime.wire.parcels import GROUP, LATEST, PARCEL_COLUMNS, PARCEL_SCHEMA

_TIME = "_time"
_FAR_FUTURE = datetime(2261, 1, 1, tzinfo=UTC)  # the last full year that pandas can hold


@dataclass(frozen=True)
class Dataflow:
    """The plan for rules that run together.

    Parameters
    ----------
    n_groups
        Number of key groups, and of shuffle partitions. It is fixed for the life of a checkpoint.
    has_watermark
        Whether the events of all streams already have a watermark. Spark does not accept a second one.
    by_own_events
        Whether the events of a key group determine its event time. Otherwise each stream has its own
        watermark, and Spark selects the one that counts, by default the earliest.
    is_batch
        Whether the input is complete: it is not a stream, and rules over rules by a different key run in
        stages.
    tables
        The contents of static tables, unless each micro-batch names them.
    kept
        The place of large state of a stream; None: in Spark's state store.
    restored
        The state with which the first micro-batch of a restored checkpoint begins.
    change
        The rules whose state is taken over in one of the micro-batches.
    limits
        Limits over all key groups.
    """

    rules: RuleSet
    n_groups: int
    delivery: Delivery = ALL_AS_ROWS
    has_watermark: bool = False
    by_own_events: bool = True
    is_batch: bool = False
    tables: Mapping[str, Content] = field(default_factory=dict)
    kept: Kept | None = None
    restored: Restored | None = None
    change: ChangedRules | None = None
    limits: Limits = field(default_factory=Limits)

    @cached_property
    def labels(self) -> tuple[int, ...]:
        """Label of each key group."""
        return labels(self.n_groups, self.n_groups)

    @property
    def operator(self) -> KeyGroups:
        """The function that runs on the executors."""
        return KeyGroups(
            rules=self.rules,
            n_groups=self.n_groups,
            delivery=self.delivery,
            by_own_events=self.by_own_events,
            tables=self.tables,
            first_group=self.labels[0],
            kept=self.kept,
            restored=self.restored,
            change=self.change,
            limits=self.limits,
        )

    @property
    def packer(self) -> Packer:
        """The function that turns rows into parcels, in the workers."""
        kinds = self.delivery.kinds | {sink.output.kind for sink in self.delivery.sinks}
        late = [LATE] if any(kind.startswith(LATE) for kind in kinds) else []
        return Packer(
            self.rules, self.labels, frozenset((*late, *(kinds & {DEAD}))), gathers=not self.is_batch
        )

    # ------------------------------------------------------------ parcels

    def prepared(
        self, events: Mapping[Stream, DataFrame | MessageFrame], *, of_all: bool = False
    ) -> DataFrame:
        """Return typed events, or messages, of streams as parcels.

        `of_all`: return dead letters and events that may be late as well.
        """
        parcels = (self._parcels(stream, frame, of_all) for stream, frame in events.items())
        return reduce(DataFrame.unionByName, parcels)

    def _parcels(self, stream: Stream, events: DataFrame | MessageFrame, of_all: bool) -> DataFrame:
        if isinstance(events, MessageFrame):
            decode = events.reader(self.packer, may_be_late=of_all and not self.is_batch)
            return self.marked(events.selected().mapInArrow(decode, spark_schema(PARCEL_SCHEMA)))
        may_be_late = of_all and not self.is_batch
        reader = TypedReader(self.packer, stream, is_checked=of_all, may_be_late=may_be_late)
        typed = event_table_schema(stream)
        if of_all or stream.table is not None:
            return self.marked(_parcels_of(events, typed, reader))
        condition = may_matter(self.rules, stream)
        if condition is not None:  # the watermark follows all events, also those that stay in the JVM
            events = self._marked(events, quoted(stream.event_time), condition)
        needed = columns_read(self.rules, stream)
        read = pa.schema([field for field in typed if field.name in needed])
        parcels = _parcels_of(events.select(*map(quoted, read.names)), read, reader)
        return self.marked(parcels) if condition is None else parcels

    def read(self, rows: DataFrame, reader: Reads) -> DataFrame:
        """Return the parcels that `reader` makes from `rows` in the workers."""
        if not self.is_batch:
            # Spark gives each file a task and starts a Python function in it. With a dozen small files in a
            # micro-batch, that takes longer than everything else. So each core gets one task with its share.
            rows = rows.coalesce(rows.sparkSession.sparkContext.defaultParallelism)
        return self.marked(_parcels_of(rows, None, reader))

    def marked(self, parcels: DataFrame) -> DataFrame:
        """Return parcels; in a stream, they have a watermark that follows their times."""
        return self._marked(parcels, F.col(LATEST), F.lit(True)).select(*PARCEL_SCHEMA.names)

    def _marked(self, frame: DataFrame, time_us: SparkColumn, is_useful: SparkColumn) -> DataFrame:
        """Return the useful rows, with a watermark that follows the times of all rows."""
        if self.is_batch:
            return frame.where(is_useful)
        marked = frame.withColumn(_TIME, F.timestamp_micros(time_us))
        if not self.has_watermark:
            marked = marked.withWatermark(_TIME, f"{self._delay_ms} milliseconds")
        # The condition reads the watermarked column. Otherwise Spark would move it below the watermark, which
        # would then not advance while only irrelevant events arrive.
        return marked.where(F.col(_TIME).isNull() | is_useful)

    @property
    def _delay_ms(self) -> int:
        return -(-self.rules.lateness_us // 1000)

    # ------------------------------------------------------------ operator

    def output(self, parcels: DataFrame) -> DataFrame:
        """Return the operator's output for parcels: rows of several kinds (`operator.OUTPUT_SCHEMA`)."""
        return self._batch_output(parcels) if self.is_batch else self._stream_output(parcels)

    def _batch_output(self, parcels: DataFrame) -> DataFrame:
        n_stages = self.rules.chains.n_stages
        if n_stages == 1:
            return self._grouped(parcels).mapInArrow(self.operator.batch, spark_schema(OUTPUT_SCHEMA))
        for stage in range(n_stages):
            is_last = stage == n_stages - 1
            run = partial(self.operator.batch_stage, packer=self.packer, stage=stage, is_last=is_last)
            schema = spark_schema(OUTPUT_SCHEMA if is_last else PARCEL_SCHEMA)
            parcels = self._grouped(parcels).mapInArrow(run, schema)
        return parcels

    def _grouped(self, parcels: DataFrame) -> DataFrame:
        """Return the parcels of a batch with each key group in one partition."""
        # Spark's 200 partitions are too many for small input. It merges small ones if no number is given.
        is_usual = parcels.sparkSession.conf.get("spark.sql.shuffle.partitions") == str(self.n_groups)
        grouped = parcels.repartition(*(() if is_usual else (self.n_groups,)), GROUP)
        return of_schema(grouped, PARCEL_SCHEMA)

    def _stream_output(self, parcels: DataFrame) -> DataFrame:
        # Spark drops late rows, and allows event-time timeouts, by the watermarked column that it finds here.
        # This column is never late, so the engine gets late rows and can report them.
        never_late = F.lit(_FAR_FUTURE).alias(_TIME, metadata={"spark.watermarkDelayMs": self._delay_ms})
        columns = [PARCEL_SCHEMA.field(name) for name in (GROUP, *PARCEL_COLUMNS)]
        schema = pa.schema([*columns, pa.field(_TIME, pa.timestamp("us"))])
        return (
            of_schema(parcels.select(GROUP, *PARCEL_COLUMNS, never_late), schema)
            .groupBy(GROUP)
            .applyInPandasWithState(
                self.operator,
                spark_schema(OUTPUT_SCHEMA),
                T.StructType([T.StructField("state", T.BinaryType())]),
                "append",
                "EventTimeTimeout",
            )
        )

    def matches(
        self, output: DataFrame, names: Collection[str] | None = None, schema: pa.Schema | None = None
    ) -> DataFrame:
        """Return the matches in the operator's output, with times as timestamps: of some rules, or of all.

        Without `names`, those of all live rules.
        """
        if names is None and self.rules.shadow:
            names = self.rules.names(shadow=False)
        schema = schema or self.rules.schema_of(shadow=False)
        columns = [_as_reported(quoted(field.name), field.type).alias(field.name) for field in schema]
        carried = spark_schema(carried_schema(schema))
        packed = output.where(F.col(KIND) == MATCH).select(MATCHES_COLUMN)
        packed = of_schema(packed, pa.schema([OUTPUT_SCHEMA.field(MATCHES_COLUMN)]))
        return packed.mapInArrow(partial(self.operator.unpack, names, schema), carried).select(*columns)

    def findings(self, output: DataFrame) -> DataFrame:
        """Return all of the operator's output: `kind`, and a column for each kind (`findings.COLUMNS`)."""
        unpacker = Unpacker(self.rules.match_schema, self.rules.shadow)
        rows = of_schema(output, OUTPUT_SCHEMA).mapInArrow(unpacker, spark_schema(unpacker.schema))
        match = [
            _as_reported(F.col(match_column(number)), field.type).alias(field.name)
            for number, field in enumerate(self.rules.match_schema)
        ]
        parts = [F.when(F.col(KIND).isin(MATCH, SHADOW), F.struct(*match)).alias(MATCH)]
        for kind, columns in COLUMNS.items():
            struct = F.struct(*(F.col(column).alias(name) for name, column in columns.items()))
            parts.append(F.when(F.col(KIND) == kind, struct).alias(kind))
        return rows.select(F.col(KIND).alias("kind"), *parts)

    def objects(self, output: DataFrame, kind: str, schema: pa.Schema) -> DataFrame:
        """Return the rows of `kind` in the operator's output whose texts are JSON objects."""
        parsed = F.from_json(TEXT, spark_schema(schema)).alias("object")
        return output.where(F.col(KIND) == kind).select(parsed).select("object.*")


def _parcels_of(rows: DataFrame, schema: pa.Schema | None, reader: Reads) -> DataFrame:
    """Return the parcels that `reader` makes of rows; `schema`: their columns, else Spark is asked for them.

    Columns that are opaque in rules are strings in `schema`, but become strings only in the reader.

    PySpark reads a dot in a name as a field of a struct. Columns with such names get others on the way.
    """
    names = tuple(rows.columns if schema is None else schema.names)
    function: Reads = reader
    if any(sign in name for name in names for sign in ".`"):
        plain = [f"_{number}" for number in range(len(names))]
        rows = rows.select(*(quoted(name).alias(new) for name, new in zip(names, plain, strict=True)))
        if schema is not None:
            schema = pa.schema([field.with_name(new) for field, new in zip(schema, plain, strict=True)])
        function = Renamed(reader, names)
    rows = rows if schema is None else of_schema(rows, schema)
    return rows.mapInArrow(function, spark_schema(PARCEL_SCHEMA))


def _as_reported(column: SparkColumn, kind: pa.DataType) -> SparkColumn:
    """Return a column of the operator's output (`output.carried_type`), converted to its type in matches."""
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
    """Return a part of a list or event, converted to its type in matches."""
    return column.cast(spark_type(kind)) if is_carried_as_text(kind) else _as_reported(column, kind)


def drop_unusable(events: DataFrame, stream: Stream) -> DataFrame:
    """Return typed events of `stream` without those whose time is NULL or out of its bounds."""
    time = quoted(stream.event_time)
    return events.where((time >= stream.min_valid_us) & (time < stream.max_valid_us))


_numbers = count(1)


_OF_STATE = {"state_bytes": "carried", "keys_touched": "touched"}
_OF_FILES = {
    "state_recorded": "recorded",
    "state_written": "written",
    "snapshots_written": "snapshots",
    "groups_warm": "warm",
    "groups_cold": "cold",
    "groups_evicted": "evicted",
}
"""Names in the progress of a query -> names in `Counts.state`."""


def observed(output: DataFrame, *, is_limited: bool = False, has_files: bool = False) -> DataFrame:
    """Return the operator's output; the progress of its query says how many events were late.

    The number is in `observedMetrics`, as `late_events` of `detect_1`, `detect_2` and so on, because a query
    may have several and Spark accepts each name only once. There, `state_bytes` is the length of the state
    that Spark carried, and `keys_touched` the number of keys with events. With limits, `beyond_limits` is how
    much they dropped. With files of state, there are also the bytes of records and of snapshots that were
    written, the number of snapshots, and how many key groups were called warm, were called cold, and left
    the memory.
    """
    splits = {"late_events": "late_of"} | ({"beyond_limits": "beyond"} if is_limited else {})
    of_splits = [_sum_of(split).alias(name) for name, split in splits.items()]
    of_state = [
        F.coalesce(
            F.sum(F.when(F.col(KIND) == COUNTS, F.get_json_object(TEXT, f"$.state.{key}").cast("bigint"))),
            F.lit(0),
        ).alias(name)
        for name, key in (_OF_STATE | (_OF_FILES if has_files else {})).items()
    ]
    return output.observe(f"detect_{next(_numbers)}", *of_splits, *of_state)


def _sum_of(split: str) -> SparkColumn:
    """Return the sum of a split count (`cep.counts.Split`) over the rows of counts."""
    found = F.from_json(F.get_json_object(TEXT, f"$.{split}"), "map<string, bigint>")
    total = F.aggregate(F.map_values(found), F.lit(0).cast("bigint"), lambda total, n: total + n)
    return F.coalesce(F.sum(F.when(F.col(KIND) == COUNTS, total)), F.lit(0))
