"""What static tables hold, on the way from the driver to the key groups.

The driver reads a static table as a whole. In a batch its rows travel with the operator. In a stream each
micro-batch says which content it has, so a micro-batch that is repeated after a crash has the same.

Executors read this: it imports nothing of the compiler.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from cep.errors import StateError
from cep.program.program import Program
from cep.rule_set import RuleSet
from cep.schema.stream import Stream

if TYPE_CHECKING:
    from cep.engine.tables.tables import GivenTable

PROPERTY = "cep.tables"
"""The property of a task that says what static tables hold in its micro-batch; empty or missing: nothing."""

_MOST_KEPT = 16
"""Tables that a worker keeps, sorted as rules look them up."""

_DIGITS = 32
"""Hexadecimal digits that name a content."""


@dataclass(frozen=True, slots=True)
class Content:
    """The rows of a static table.

    Parameters
    ----------
    digest
        Tells it from any other content.
    data
        The rows as an Arrow stream, compressed.
    """

    digest: str
    data: bytes = field(repr=False)

    @classmethod
    def of(cls, rows: pa.Table) -> Content:
        """Return rows (`event_table_schema`) as content."""
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
            writer.write_table(rows.combine_chunks())
        return cls.of_bytes(sink.getvalue().to_pybytes())

    @classmethod
    def of_bytes(cls, data: bytes) -> Content:
        """Return the content that has these bytes."""
        return cls(hashlib.sha256(data).hexdigest()[:_DIGITS], data)

    def rows(self) -> pa.Table:
        """Return the rows."""
        return pa.ipc.open_stream(pa.py_buffer(self.data)).read_all()


Told = Mapping[str, tuple[str, str, str]]
"""By table: the digest, then the file that holds the content, or the content itself in base 64."""


def text_of(told: Told) -> str:
    """Return what a task is told, as text."""
    return json.dumps(told) if told else ""


def inline(content: Content) -> tuple[str, str, str]:
    """Return a content as it is told where workers reach no file of the driver's."""
    return content.digest, "", base64.b64encode(content.data).decode()


def told_to_task() -> Told:
    """Return what the running task was told."""
    from pyspark import TaskContext  # a pipeline file is checked without PySpark, too

    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(PROPERTY)
    return _parsed(text) if text else {}


@lru_cache(maxsize=2)  # each key group asks, and a content may be in it
def _parsed(text: str) -> Told:
    return {name: (item[0], item[1], item[2]) for name, item in json.loads(text).items()}


def _content(name: str, told: tuple[str, str, str]) -> Content:
    digest, file, text = told
    if not file:
        return Content(digest, base64.b64decode(text))
    try:
        return checked(name, digest, Path(file).read_bytes())
    except OSError as error:
        raise lost(name, digest) from error


def checked(name: str, digest: str, data: bytes) -> Content:
    """Return a content that was read again; raises StateError if it is not what was written (E0713)."""
    found = Content.of_bytes(data)
    if found.digest != digest:
        raise lost(name, digest)
    return found


def lost(name: str, digest: str) -> StateError:
    """Return the error of a content that a micro-batch was planned with, and that is not there any more."""
    return StateError(
        "E0713",
        f"the checkpoint does not have what table `{name}` held in the micro-batch that is repeated: "
        f"tables/{digest}.arrow is missing or damaged",
        "restore the checkpoint directory as a whole, or start with an empty one",
    )


def static_tables(programs: Iterable[Program]) -> dict[str, Stream]:
    """Return the static tables that programs join, by name."""
    joined = (item.table for program in programs for item in program.joins.tables)
    return {table.name: table for table in joined if table.is_static}


def timed_inputs(rules: RuleSet) -> dict[str, Stream]:
    """Return what rules read in the order of time, by name: streams, and tables that are not static."""
    return {name: stream for name, stream in rules.inputs.items() if not stream.is_static}


def tables_of(programs: Sequence[Program], given: Mapping[str, Content], told: Told) -> dict[str, GivenTable]:
    """Return the static tables of programs as a `Matcher` takes them. In a worker.

    Parameters
    ----------
    given
        What travelled with the operator.
    told
        What the task was told; it counts where both name a table.
    """
    return {
        name: _KEPT.table(table, told[name] if name in told else given[name])
        for name, table in static_tables(programs).items()
    }


class _KeptTables:
    """The tables of a worker, which serves many tasks: to read and to sort one is done once."""

    def __init__(self) -> None:
        self._tables: OrderedDict[tuple[Stream, str], GivenTable] = OrderedDict()

    def table(self, table: Stream, content: Content | tuple[str, str, str]) -> GivenTable:
        """Return a table that holds `content`, or what a task was told of it."""
        # Loaded here: programs without tables have no use for it.
        from cep.engine.tables.tables import GivenTable

        what = (table, content.digest if isinstance(content, Content) else content[0])
        if what not in self._tables:
            found = content if isinstance(content, Content) else _content(table.name, content)
            self._tables[what] = GivenTable(table, found.rows())
            while len(self._tables) > _MOST_KEPT:
                self._tables.popitem(last=False)
        self._tables.move_to_end(what)
        return self._tables[what]


_KEPT = _KeptTables()
