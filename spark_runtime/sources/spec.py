"""What a source is in a pipeline file: its settings, and what it has to know of the pipeline.

On the driver only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cep.schema.stream import Stream
from cep.settings.settings import Settings
from spark_runtime.sources.protocol import Source, SparkSource


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What a source has to know of the pipeline that it is opened for.

    Parameters
    ----------
    stream
        The stream of its events.
    keys
        Keys of the rules: an event with a NULL in each of them is a dead letter.
    is_stream
        Whether the pipeline runs as a stream; else it reads all that is there.
    is_live
        Whether the stream waits for what comes.
    by_time
        Whether input of earlier events is read first. Else it is read as it came.
    log
        A file in the checkpoint that is this source's own; empty in a batch, and if the checkpoint is on a
        file system that Python does not reach.
    has_begun
        Whether the stream goes on from a micro-batch that is done: what was read of the source may be gone.
    """

    stream: Stream
    keys: tuple[tuple[str, ...], ...]
    is_stream: bool
    is_live: bool = False
    by_time: bool = True
    log: str = ""
    has_begun: bool = False


class SourceSpec(Protocol):
    """The settings of a source, sound; a frozen record."""

    @property
    def place(self) -> str:
        """Where the events are. A checkpoint belongs to one place (E0710); empty if there is no other."""
        ...

    def open(self, context: SourceContext) -> Source | SparkSource:
        """Return the source. Raises InputError; touches no input yet (`Source.check`)."""
        ...


class SourceType(Protocol):
    """What is registered: makes a spec of the settings in a pipeline file."""

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of its settings, besides `stream` and `format`."""
        ...

    def spec(self, settings: Settings) -> SourceSpec | None:
        """Return the spec, or None if a problem was noted in `settings`."""
        ...
