"""The sources of pipelines, by the `format` that a pipeline file gives. A source is added here with one line.

On the driver only.
"""

from __future__ import annotations

from cep.formats.registry import FORMATS
from cep.registry import Registry
from spark_runtime.sources.folders.files import FilesType
from spark_runtime.sources.spec import SourceType

SOURCES: Registry[SourceType] = Registry(
    "source",
    "cep.sources",
    {
        "rate": "spark_runtime.sources.rate:RATE",
        "kafka": "spark_runtime.sources.kafka.settings:KAFKA",
        "kinesis": "spark_runtime.sources.kinesis.settings:KINESIS",
        "rabbitmq_stream": "spark_runtime.sources.rabbitmq.settings:RABBITMQ_STREAM",
        "nats": "spark_runtime.sources.nats.settings:NATS",
    },
    (("settings", "spec"),),
)
"""Other packages register theirs in the group ``cep.sources`` (docs/pipeline.md, "Plug-ins")."""


def source_type(name: str) -> SourceType:
    """Return the source of this name. The name of a format of events stands for files of the format.

    Raises
    ------
    InputError, SetupError
        See `Registry.get`.
    """
    if name in FORMATS.built_in or (name not in SOURCES.built_in and name not in SOURCES.plugged_in):
        FORMATS.get(name)
        return FilesType(name)
    return SOURCES.get(name)


def source_names() -> tuple[str, ...]:
    """Return all that `format` may be."""
    return (*FORMATS.built_in, *SOURCES.built_in, *FORMATS.plugged_in, *SOURCES.plugged_in)
