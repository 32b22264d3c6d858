"""The contents of static tables, on their way from the driver to the key groups.

The driver reads a static table as a whole. In a batch, its rows travel with the operator. In a stream, each
micro-batch names the content that it uses. So a micro-batch that is repeated after a crash uses the same
content. State in files also names contents, because reading this state repeats micro-batches.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from cep.errors import StateError
from cep.program.program import Program
from cep.rule_set import RuleSet
from cep.schema.stream import Stream
from cep.write_errors import writing

if TYPE_CHECKING:
    from cep.engine.tables.tables import GivenTable

PROPERTY = "cep.tables"
"""The task property that names the contents of static tables in its micro-batch; empty or missing: none."""

_MOST_KEPT = 16
"""How many tables a worker keeps, sorted for the lookups of rules."""

_DIGITS = 32
"""How many hexadecimal digits name a content."""


@dataclass(frozen=True)
class Content:
    """The rows of a static table.

    `digest`: identifies the content. `data`: the rows as an Arrow stream, compressed.
    """

    digest: str
    data: bytes = field(repr=False)

    @classmethod
    def of(cls, rows: pa.Table) -> Content:
        """Return the content that consists of some rows (`event_table_schema`)."""
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
            writer.write_table(rows.combine_chunks())
        return cls.of_bytes(sink.getvalue().to_pybytes())

    @classmethod
    def of_bytes(cls, data: bytes) -> Content:
        """Return the content that consists of these bytes."""
        return cls(hashlib.sha256(data).hexdigest()[:_DIGITS], data)

    @cached_property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.rows().num_rows)

    def rows(self) -> pa.Table:
        """Return the rows."""
        return pa.ipc.open_stream(pa.py_buffer(self.data)).read_all()


Told = Mapping[str, Sequence[str]]
"""By table: the digest, then the file that contains the content, or the content itself in base 64."""


def text_of(told: Told) -> str:
    """Return the value of the task property, as a string."""
    return json.dumps(told) if told else ""


def inline(content: Content) -> tuple[str, str, str]:
    """Return content in the form for workers that cannot read the driver's files."""
    return content.digest, "", base64.b64encode(content.data).decode()


def told_to_task() -> Told:
    """Return the contents that the property of the running task names."""
    from pyspark import TaskContext  # a pipeline file can be checked without PySpark

    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(PROPERTY)
    return _parsed(text) if text else {}


@lru_cache(maxsize=2)  # each key group calls this, and the text may contain a whole content
def _parsed(text: str) -> Told:
    return {name: (item[0], item[1], item[2]) for name, item in json.loads(text).items()}


def _content(name: str, told: Sequence[str]) -> Content:
    digest, file, text = told
    if not file:
        return Content(digest, base64.b64decode(text))
    try:
        return checked(name, digest, Path(file).read_bytes())
    except OSError as error:
        raise lost(name, digest) from error


def checked(name: str, digest: str, data: bytes) -> Content:
    """Return content that was read again; raise StateError (E0713) if it is not what was written."""
    found = Content.of_bytes(data)
    if found.digest != digest:
        raise lost(name, digest)
    return found


def lost(name: str, digest: str) -> StateError:
    """Return the error for content that the plan of a micro-batch names, and that no longer exists."""
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
    """Return the inputs that rules read in order of time, by name: all but static tables."""
    return {name: stream for name, stream in rules.inputs.items() if not stream.is_static}


def tables_of(programs: Sequence[Program], given: Mapping[str, Content], told: Told) -> dict[str, GivenTable]:
    """Return the static tables of programs in the form that `Matcher` takes. Runs in a worker.

    `given`: the contents that travelled with the operator. `told`: those that the task's property names,
    which take precedence.
    """
    return {
        name: _KEPT.table(table, told[name] if name in told else given[name])
        for name, table in static_tables(programs).items()
    }


def used(programs: Sequence[Program], given: Mapping[str, Content], told: Told) -> dict[str, str]:
    """Return the digests of what `tables_of` returns, by table."""
    return {name: told[name][0] if name in told else given[name].digest for name in static_tables(programs)}


def tables_in(folder: str, programs: Sequence[Program], digests: Mapping[str, str]) -> dict[str, GivenTable]:
    """Return static tables whose contents are files in a folder.

    Raises StateError: one is missing or damaged (E0713).
    """
    return tables_of(
        programs, {}, {name: (digest, f"{folder}/{digest}.arrow", "") for name, digest in digests.items()}
    )


def store(folder: str, contents: Iterable[Content]) -> None:
    """Write contents to a folder, for `tables_in`. Several workers may do so at the same time."""
    for content in contents:
        place = Path(folder) / f"{content.digest}.arrow"
        if not place.exists():
            with writing(place):
                place.parent.mkdir(parents=True, exist_ok=True)
                unfinished = place.with_name(f".{place.name}-{uuid.uuid4().hex}.tmp")
                unfinished.write_bytes(content.data)
                unfinished.replace(place)


class _KeptTables:
    """The tables of a worker, which serves many tasks but reads and sorts each table only once."""

    def __init__(self) -> None:
        self._tables: OrderedDict[tuple[Stream, str], GivenTable] = OrderedDict()

    def table(self, table: Stream, content: Content | Sequence[str]) -> GivenTable:
        """Return a table with `content`, which may be given as in the task's property."""
        # Imported here, because programs without tables do not need it.
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
