"""The cases of a test file, as data: events as they arrive, and the expected matches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cep.compiler.compile import Compiled
from cep.errors import Source, Span


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event arrives: a row of the events of its stream, and its time in microseconds.

    `is_late`: the watermark has passed it, so it is not counted.
    """

    stream: str
    row: int
    time_us: int
    is_late: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Advance:
    """Event time reaches `time_us` without an event."""

    time_us: int


Step = Arrival | Advance


@dataclass(frozen=True, slots=True)
class Expected:
    """A match that is expected: the values of some of its columns. A time is in microseconds."""

    values: Mapping[str, Any]
    span: Span


@dataclass(frozen=True, slots=True)
class Case:
    """Events and the expected matches.

    - `steps`: what happens, in the order in which it arrives. If the last one is an `Advance`, the case ends
      at its time. Otherwise the input is complete, and every window closes.
    - `events`: the typed events of each stream (`event_table_schema`), to which the steps refer.
    - `tables`: the rows of tables that exist from the beginning.
    """

    name: str
    span: Span
    steps: tuple[Step, ...]
    events: Mapping[str, pa.Table]
    tables: Mapping[str, pa.Table]
    expected: tuple[Expected, ...]

    @property
    def ends_early(self) -> bool:
        """Whether the case ends before its input is complete."""
        return bool(self.steps) and isinstance(self.steps[-1], Advance)


@dataclass(frozen=True, slots=True)
class RuleTests:
    """A test file: its rules, compiled, and its cases.

    `names`: the rules whose matches are compared. `files`: the files that were read: the test file, its rules
    and their streams.
    """

    source: Source
    compiled: Compiled
    names: tuple[str, ...]
    cases: tuple[Case, ...]
    files: tuple[str, ...]
