"""The settings of a source of format `nats`. On the driver only; nats-py is not needed to read them."""

from __future__ import annotations

from itertools import combinations

import yaml

from cep.settings.settings import Settings
from spark_runtime.connectors.message_logs.settings import (
    SHARED,
    MessageSpec,
    PositionNames,
    message_spec,
    names_of,
    options_of,
)
from spark_runtime.connectors.nats.log import METADATA, NatsLog, overlap
from spark_runtime.sources.spec import SourceType

_OPTIONS = ("user", "password", "token", "credentials", "tls_ca", "tls_cert", "tls_key")


class _NatsType:
    """See `SourceType`."""

    settings = ("servers", "stream_name", "subject", *SHARED, "options")

    def spec(self, settings: Settings) -> MessageSpec | None:
        """Return the spec, or None if a problem was noted."""
        before = len(settings.document.diagnostics)
        settings.require_package("nats", "nats")
        streams = names_of(settings, "stream_name")
        subjects = names_of(settings, "subject") if "subject" in settings else ()
        _require_apart(settings, subjects)
        options = options_of(settings, _OPTIONS)
        spec = message_spec(
            settings,
            ",".join(streams) + (f" {','.join(subjects)}" if subjects else ""),
            NatsLog(names_of(settings, "servers"), streams, subjects, options),
            METADATA,
            _position_names(streams, subjects),
        )
        return spec if len(settings.document.diagnostics) == before else None


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
    """Note a problem if a message may be of two subjects: it would be read twice."""
    for one, other in combinations(subjects, 2):
        if overlap(one.split("."), other.split(".")):
            node = settings.found["subject"]
            assert isinstance(node, yaml.Node)
            settings.document.problem(
                "E0843",
                f"a message may be of subject `{one}` and of `{other}`, and would be read twice",
                node,
                "these overlap",
                "write subjects that have no message in common",
            )


NATS: SourceType = _NatsType()
