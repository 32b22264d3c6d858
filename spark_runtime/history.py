"""Rules over history on Spark, with `detect`: what `cep backtest --spark` runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from cep.backtest.history import Backtest, Scope, in_scope
from cep.backtest.sampling import BETWEEN
from cep.counts import Counts
from cep.errors import InputError
from cep.formats.registry import format_of_name
from cep.rule_set import RuleSet
from cep.schema.stream import Field, Stream
from spark_runtime import detect
from spark_runtime.compat.driver import to_arrow
from spark_runtime.dataflow.schema import typed_value
from spark_runtime.sessions.local_session import session

_OPTIONS: Mapping[str, Mapping[str, str]] = {"csv": {"header": "true"}}
"""Format -> options of its reader."""

_OF_TEXT = ("csv", "json")
"""Formats whose files do not say the types of columns."""

_QUANTILES = 1000
"""Quantiles in place of the values of a column."""


class SparkHistory:
    """The inputs as DataFrames of the running session, or of one that is started.

    `paths`: by stream: a file or folder, or the name of a table in Spark's catalog. `file_format`: the format
    of the files; None: by their names.
    """

    def __init__(self, rules: RuleSet, paths: str | Mapping[str, str], file_format: str | None) -> None:
        named = paths if isinstance(paths, Mapping) else {rules.only_stream().name: paths}
        rules.require_streams(named)
        spark = session(is_short=True)
        self.frames = {
            name: _frame(spark, path, file_format, rules.inputs[name]) for name, path in named.items()
        }

    def backtest(self, rules: RuleSet, scope: Scope) -> Backtest:
        """Return the alerts of `rules`, as `cep.backtest.history.backtest` does.

        Malformed rows are left out, and not counted.
        """
        frames = {
            name: self.frames[name] if stream.table is not None else self._scoped(stream, scope)
            for name, stream in rules.inputs.items()
        }
        matches = rules.in_order(
            [_typed(to_arrow(detect(frames, rules.without_shadow())), rules.match_schema)]
        )
        n_events, first_us, last_us = self._extent(rules, scope)
        from_us = scope.from_us if scope.from_us is not None else first_us
        to_us = scope.to_us if scope.to_us is not None else last_us
        return Backtest(
            rules=rules,
            matches=in_scope(rules, matches, scope),
            counts=Counts(),
            n_events=n_events,
            from_us=from_us,
            to_us=to_us,
            share=scope.share,
        )

    def quantiles(self, stream: Stream, field: Field) -> list[float]:
        """Return quantiles of a column of numbers; their ranks are accurate to a thousandth."""
        value = _typed_column(self.frames[stream.name], stream, field.name).cast("double")
        values = self.frames[stream.name].select(value.alias("value")).dropna()
        ranks = [number / _QUANTILES for number in range(_QUANTILES + 1)]
        return values.approxQuantile("value", ranks, 1 / _QUANTILES)

    def _scoped(self, stream: Stream, scope: Scope) -> DataFrame:
        """Return the events of a stream that are read."""
        frame = self.frames[stream.name]
        if scope.sample is not None:
            parts = [_typed_column(frame, stream, name) for name in scope.sample.of_streams[stream.name]]
            frame = frame.filter(_in_sample(parts, scope.sample.share))
        if scope.margin_us is None:
            return frame
        margin_us = scope.margin_us
        time = _typed_column(frame, stream, stream.event_time)
        if scope.from_us is not None:
            frame = frame.filter(time >= F.lit(scope.from_us - margin_us))
        return frame if scope.to_us is None else frame.filter(time < F.lit(scope.to_us + margin_us))

    def _extent(self, rules: RuleSet, scope: Scope) -> tuple[int, int, int]:
        """Return the number of events in the range, and the times of the first and the last.

        Of views alone, which read no events, those of the versions of their tables.
        """
        rows = []
        for stream in (rules.streams or rules.inputs).values():
            time = _typed_column(self.frames[stream.name], stream, stream.event_time)
            whole = self.frames[stream.name] if stream.table is not None else self._scoped(stream, scope)
            frame = whole.select(time.alias("us"))
            if scope.from_us is not None:
                frame = frame.filter(F.col("us") >= F.lit(scope.from_us))
            if scope.to_us is not None:
                frame = frame.filter(F.col("us") < F.lit(scope.to_us))
            rows.append(frame.agg(F.count("us"), F.min("us"), F.max("us")).collect()[0])
        known = [row for row in rows if row[0]]
        first_us = min((row[1] for row in known), default=0)
        last_us = max((row[2] for row in known), default=0)
        return sum(row[0] for row in rows), first_us, last_us


def _frame(spark: SparkSession, path: str, file_format: str | None, stream: Stream) -> DataFrame:
    """Return the rows of files, or of a table of the catalog."""
    found = file_format or format_of_name(path) or _format_inside(Path(path))
    if found is not None:
        reader = spark.read.format(found).options(**_OPTIONS.get(found, {}))
        frame = reader.load(path)
        return reader.schema(_declared(frame, stream)).load(path) if found in _OF_TEXT else frame
    if not Path(path).exists() and "/" not in path and spark.catalog.tableExists(path):
        return spark.table(path)
    raise InputError(
        "E0608",
        f"the format of `{path}` cannot be told",
        "write --input-format json, csv or parquet",
    )


def _declared(frame: DataFrame, stream: Stream) -> str:
    """Return the columns of a text as DDL: a column that has its declared form has the declared type."""
    plain = {
        field.column: field.ddl for field in stream.fields if not (field.unit or field.format or field.zone)
    }
    names = {name: name.replace("`", "``") for name in frame.columns}
    return ", ".join(f"`{names[name]}` {plain.get(name, kind)}" for name, kind in frame.dtypes)


def _format_inside(folder: Path) -> str | None:
    """Return the format of the first file of a folder that has one."""
    files = sorted(folder.rglob("*")) if folder.is_dir() else []
    return next((found for file in files if (found := format_of_name(file.name)) is not None), None)


def _in_sample(parts: list[Column], share: float) -> Column:
    """Return whether a row is in the sample: the same as `Sample.has`."""
    text = F.concat(*_separated([part.cast("string") for part in parts]))
    number = F.conv(F.substring(F.sha2(text, 256), 1, 8), 16, 10).cast("bigint")
    return number < F.lit(share * 2**32)


def _separated(parts: list[Column]) -> list[Column]:
    return [parts[0], *(one for part in parts[1:] for one in (F.lit(BETWEEN), part))]


def _typed_column(frame: DataFrame, stream: Stream, name: str) -> Column:
    """Return a declared column with the type of rules; times are microseconds since 1970."""
    return typed_value(frame.schema, stream, next(field for field in stream.fields if field.name == name))


def _typed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table of Spark with the types of a local run."""
    return table.select(schema.names).cast(schema)
