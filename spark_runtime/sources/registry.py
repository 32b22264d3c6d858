"""The sources of pipelines, by their `format` in a pipeline file. A new source needs one line here.

Only for the driver.
"""

from __future__ import annotations

from collections.abc import Callable

from cep.formats.registry import FORMATS
from cep.registry import Registry
from spark_runtime.sources.spec import SourceType

SOURCES: Registry[SourceType] = Registry(
    "source",
    "cep.sources",
    {
        "rate": "spark_runtime.connectors.rate.source:RATE",
        "kafka": "spark_runtime.connectors.kafka.source_settings:KAFKA",
        "kinesis": "spark_runtime.connectors.kinesis.settings:KINESIS",
        "rabbitmq_stream": "spark_runtime.connectors.rabbitmq.source_settings:RABBITMQ_STREAM",
        "postgres": "spark_runtime.connectors.postgres.source_settings:POSTGRES",
        "nats": "spark_runtime.connectors.nats.settings:NATS",
        "spool": "spark_runtime.connectors.spool.settings:SPOOL",
    },
    (("settings", "spec"),),
)
"""Other packages register theirs in the group ``cep.sources`` (docs/reference/pipeline.md, "Plug-ins")."""

_FILES: Registry[Callable[[str], SourceType]] = Registry(
    "source",
    "cep.sources",
    {"files": "spark_runtime.connectors.files.source_settings:files_type"},
    (("__call__",),),
)


def source_type(name: str) -> SourceType:
    """Return the source with this name. The name of a format of events means files in that format.

    Raises InputError or SetupError, see `Registry.get`.
    """
    if name in FORMATS.built_in or (name not in SOURCES.built_in and name not in SOURCES.plugged_in):
        FORMATS.get(name)
        return _FILES.get("files")(name)
    return SOURCES.get(name)


def source_names() -> tuple[str, ...]:
    """Return all valid values of `format`."""
    return (*FORMATS.built_in, *SOURCES.built_in, *FORMATS.plugged_in, *SOURCES.plugged_in)
