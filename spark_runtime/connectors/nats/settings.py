"""The settings of a source of format `nats`. Only for the driver; reading them does not need nats-py."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from cep.settings import declared
from cep.settings.declared import Declared
from cep.settings.settings import Settings
from spark_runtime.connectors.message_logs.options import Options
from spark_runtime.connectors.message_logs.settings import (
    MessageSettings,
    MessageSpec,
    PositionNames,
    options_of,
)
from spark_runtime.connectors.nats.log import METADATA, NatsLog, overlap
from spark_runtime.sources.spec import SourceType

_OPTIONS = ("user", "password", "token", "credentials", "tls_ca", "tls_cert", "tls_key")


@dataclass(frozen=True, slots=True)
class _Settings(MessageSettings):
    streams: tuple[str, ...] = declared.names(name="stream_name")
    subjects: tuple[str, ...] = declared.names((), name="subject")
    servers: tuple[str, ...] = declared.names()
    options: Options = declared.own(options_of(_OPTIONS), Options(), hidden=True)

    def spec(self, settings: Settings) -> MessageSpec:
        _require_apart(settings, self.subjects)
        return self.message_spec(
            settings,
            ",".join(self.streams) + (f" {','.join(self.subjects)}" if self.subjects else ""),
            NatsLog(self.servers, self.streams, self.subjects, self.options),
            METADATA,
            _position_names(self.streams, self.subjects),
        )


def _position_names(streams: tuple[str, ...], subjects: tuple[str, ...]) -> PositionNames:
    """Return how `from` names partitions: the stream, or the stream and the subject."""
    origins = {f"{stream}[{subject}]" for stream in streams for subject in subjects} or set(streams)
    example = f"{{{min(origins, default='ORDERS')}: 100}}"
    return PositionNames(
        f"sequence numbers: {example}",
        lambda name: name if name in origins else None,
        ("not known", f"write {example}"),
    )


def _require_apart(settings: Settings, subjects: tuple[str, ...]) -> None:
    """Report an overlap of two subjects, because a message of both would be read twice."""
    for one, other in combinations(subjects, 2):
        if overlap(one.split("."), other.split(".")):
            settings.problem(
                "E0843",
                f"a message may be of subject `{one}` and of `{other}`, and would be read twice",
                "subject",
                "these overlap",
                "write subjects that have no message in common",
            )


NATS: SourceType = Declared(_Settings, _Settings.spec, package="nats", extra="nats")
