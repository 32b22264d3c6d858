"""Spark's generator of rows as a source, for trying out a pipeline. Only for the driver."""

from __future__ import annotations

from dataclasses import dataclass

from cep.formats.files import Reading
from cep.settings import declared
from cep.settings.declared import Declared
from spark_runtime.sources.protocol import SparkSource
from spark_runtime.sources.spec import SourceContext, SourceType


@dataclass(frozen=True, slots=True)
class Rate:
    """A number of rows per second, with the columns `timestamp` and `value`."""

    rows_per_second: int = declared.integer(1, at_least=1)

    place = ""

    def open(self, context: SourceContext) -> SparkSource:
        """Return the source."""
        from spark_runtime.dataflow.by_spark import RateSource

        return RateSource(context.stream, Reading(context.keys, in_worker=True), self.rows_per_second)


RATE: SourceType = Declared(Rate)
