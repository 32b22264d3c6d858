"""The settings of a source of format `kinesis`. On the driver only; boto3 is not needed to read them."""

from __future__ import annotations

from dataclasses import replace

from cep.settings.settings import Settings
from spark_runtime.connectors.kinesis.connection import KinesisConnection
from spark_runtime.connectors.kinesis.log import METADATA, KinesisLog
from spark_runtime.connectors.message_logs.settings import (
    SHARED,
    MessageSpec,
    message_spec,
    names_of,
)
from spark_runtime.sources.spec import SourceType


class _KinesisType:
    """See `SourceType`."""

    settings = ("stream_name", "region", "endpoint_url", *SHARED)

    def spec(self, settings: Settings) -> MessageSpec | None:
        """Return the spec, or None if a problem was noted."""
        before = len(settings.document.diagnostics)
        settings.require_package("boto3", "kinesis")
        streams = names_of(settings, "stream_name")
        region, endpoint = (
            (settings.text(name) or "") if name in settings else "" for name in ("region", "endpoint_url")
        )
        log = KinesisLog(KinesisConnection(region, endpoint), streams)
        spec = message_spec(settings, ",".join(streams), log, METADATA, None)
        if len(settings.document.diagnostics) > before:
            return None
        return replace(spec, log=replace(log, goes_on_without=spec.goes_on_without))


KINESIS: SourceType = _KinesisType()
