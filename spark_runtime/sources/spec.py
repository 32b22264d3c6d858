"""A source in a pipeline file: its settings, and what it must know about the pipeline.

Only for the driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from cep.schema.stream import Stream
from cep.settings.settings import Settings
from spark_runtime.sources.protocol import Source, SparkSource


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What a source must know about the pipeline for which it is opened.

    - `keys`: keys of the rules: an event with a NULL in each of them is a dead letter.
    - `is_stream`: whether the pipeline runs as a stream; a batch reads all available input.
    - `is_live`: whether the stream waits for new input.
    - `by_time`: whether input with earlier events is read first. Otherwise, it is read in the order of
      arrival.
    - `log`: this source's own file in the checkpoint; empty in a batch, or if Python cannot access the file
      system of the checkpoint.
    - `has_begun`: whether the stream continues after a completed micro-batch: input that was read may be
      gone.
    """

    stream: Stream
    keys: tuple[tuple[str, ...], ...]
    is_stream: bool
    is_live: bool = False
    by_time: bool = True
    log: str = ""
    has_begun: bool = False


class SourceSpec(Protocol):
    """The checked settings of a source; a frozen record."""

    @property
    def place(self) -> str:
        """The place of the events; empty if only one exists. A checkpoint belongs to one place (E0710)."""

    def open(self, context: SourceContext) -> Source | SparkSource:
        """Return the source, without reading input (`Source.check`). Raises InputError."""


@runtime_checkable
class BoundSource(Protocol):
    """A kind of source whose position cannot be used by another checkpoint."""

    @property
    def bound_by(self) -> str:
        """What only one checkpoint can use."""


class SourceType(Protocol):
    """A registered kind of source: turns the settings in a pipeline file into a spec."""

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of its settings, except `stream` and `format`."""

    def spec(self, settings: Settings) -> SourceSpec | None:
        """Return the spec, or None if a problem was reported in `settings`."""
