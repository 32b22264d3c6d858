"""The settings of a source of format `kinesis`. Only for the driver; reading them does not need boto3."""

from __future__ import annotations

from dataclasses import dataclass

from cep.settings import declared
from cep.settings.declared import Declared
from cep.settings.settings import Settings
from spark_runtime.connectors.kinesis.connection import KinesisConnection
from spark_runtime.connectors.kinesis.log import METADATA, KinesisLog
from spark_runtime.connectors.message_logs.settings import MessageSettings, MessageSpec
from spark_runtime.sources.spec import SourceType


@dataclass(frozen=True, slots=True)
class _Settings(MessageSettings):
    streams: tuple[str, ...] = declared.names(name="stream_name")
    region: str = declared.text("")
    endpoint_url: str = declared.text("")

    def spec(self, settings: Settings) -> MessageSpec:
        connection = KinesisConnection(self.region, self.endpoint_url)
        log = KinesisLog(connection, self.streams, goes_on_without=self.goes_on_without)
        return self.message_spec(settings, ",".join(self.streams), log, METADATA, None)


KINESIS: SourceType = Declared(_Settings, _Settings.spec, package="boto3", extra="kinesis")
