"""The static tables of a pipeline: files that the driver reads as a whole, and again when they change.

The plan of a micro-batch names the contents that it uses. The contents are stored in the checkpoint:

    <checkpoint>/tables/<digest>.arrow
    <checkpoint>/tables.json            in which micro-batches they were valid

They are needed as long as a micro-batch may be repeated: by Spark after a crash, and by key groups that read
their state from files.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from cep.counts import Counts
from cep.errors import CepError, InputError
from cep.formats.files import find_files, read_events
from cep.schema.stream import Stream
from cep.schema.text_values import event_table_schema
from spark_runtime.storage.checkpoint_files import CheckpointFiles, damaged
from spark_runtime.storage.sealed import read_sealed, write_sealed
from spark_runtime.tables.content import Content, Told, checked, inline, lost
from spark_runtime.tables.rows import require_few, require_keys, unusable

FOLDER = "tables"

_VALID = "tables.json"

_LOOKS = 16
"""If files of state need old contents, these files are listed again after this many micro-batches."""

_SETTLED_S = 1.0
"""A file that changed more recently may still be changing: it is read at a later micro-batch."""

_Signature = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class StaticFile:
    """The file, folder or pattern from which a static table is read."""

    table: Stream
    path: str
    file_format: str

    def signature(self) -> _Signature:
        """Return the names, times and sizes of the files; empty if they cannot be read."""
        try:
            files, _ = find_files(self.path, self.file_format)
            stats = [(file, Path(file).stat()) for file in files]
        except (InputError, OSError):
            return ()
        return tuple((file, stat.st_mtime_ns, stat.st_size) for file, stat in stats)

    def read(self) -> Content:
        """Return the current content of the files.

        Raises InputError: the files are missing or cannot be read, or a row does not fit the table (E0712),
        or there are too many rows (E0619).
        """
        parts: list[pa.Table] = [event_table_schema(self.table).empty_table()]
        n_rows = 0
        for chunk in read_events(self.path, self.table, self.file_format):
            for letter in chunk.dead_letters.slice(0, 1).to_pylist():
                raise unusable(self.table, f"{letter['source']}:{letter['position']}", letter["reason"])
            parts.append(chunk.events.cast(event_table_schema(self.table)))
            n_rows += chunk.events.num_rows
            require_few(self.table, n_rows)
        rows = pa.concat_tables(parts)
        require_keys(self.table, rows, self.path)
        return Content.of(rows)


class _Span(NamedTuple):
    """Contents that are valid from micro-batch `first` on, up to the next span."""

    first: int
    digests: tuple[str, ...]


@dataclass
class StaticTables:
    """The static tables of a run.

    - `files`: the checkpoint of a stream; None in a batch.
    - `folder`: where workers find the contents as files; empty if the contents travel in the task's property.
    - `clock`: the wall clock, in seconds since 1970.
    - `written`: returns the micro-batches in which files of state were written that still exist. Raises
      OSError: a folder cannot be read.
    """

    sources: Mapping[str, StaticFile]
    files: CheckpointFiles | None = None
    folder: str = ""
    clock: Callable[[], float] = time.time
    written: Callable[[], set[int]] = set
    now: dict[str, Content] = field(default_factory=dict)
    problems: dict[str, CepError] = field(default_factory=dict)
    n_refused: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._seen: dict[str, _Signature] = {}
        self._changed: dict[str, tuple[_Signature, float]] = {}  # changed, not read again; first seen when
        self._spans: list[_Span] | None = None  # the oldest first; None: not read yet
        self._next_look = 0  # the first micro-batch in which contents may be deleted
        self._has_looked = False

    def load(self) -> None:
        """Read all tables; raise InputError if one cannot be used."""
        for name, source in self.sources.items():
            self._seen[name] = source.signature()
            self.now[name] = source.read()
            self._write(self.now[name])

    def look(self) -> dict[str, str]:
        """Return the digest of each table's content in the next micro-batch.

        A file that has changed is read again. If it cannot be used, or is still being written, the content
        read before remains valid.
        """
        for name, source in self.sources.items():
            found = source.signature()
            if found == self._seen.get(name):
                continue
            if found and not self._is_settled(name, found):
                continue
            self._read_again(name, source, found)
        return {name: content.digest for name, content in self.now.items()}

    def _is_settled(self, name: str, found: _Signature) -> bool:
        """Return whether changed files have been stable for long enough.

        Their times show it, or two observations do: the clock of another machine may be ahead of ours.
        """
        now_s = self.clock()
        before, since_s = self._changed.get(name, ((), 0.0))
        if before != found:
            self._changed[name] = found, now_s
            since_s = now_s
        changed_s = max(changed for _, changed, _ in found) / 1e9
        return max(now_s - changed_s, now_s - since_s) >= _SETTLED_S

    def _read_again(self, name: str, source: StaticFile, found: _Signature) -> None:
        try:
            content = source.read()
            if source.signature() != found:  # it changed while it was read
                return
        except CepError as error:
            self.problems[name] = error
            self.n_refused[name] = self.n_refused.get(name, 0) + 1
        else:
            self.problems.pop(name, None)
            self.now[name] = content
            self._write(content)
        self._seen[name] = found

    def told(self, digests: Mapping[str, str]) -> Told:
        """Return the task property that gives a micro-batch its contents.

        Raises StateError: the plan of a repeated micro-batch names content that no longer exists (E0713).
        """
        told = {}
        for name, digest in digests.items():
            content = self.now.get(name)
            if content is None or content.digest != digest:
                data = None if self.files is None else self.files.read_bytes(f"{FOLDER}/{digest}.arrow")
                if data is None:
                    raise lost(name, digest)
                content = Content(digest, checked(name, digest, data).data)
            file = f"{self.folder}/{FOLDER}/{digest}.arrow"
            told[name] = (digest, file, "") if self.folder else inline(content)
        return told

    def keep(self, batch: int, digests: Mapping[str, str], most: int) -> None:
        """Record the contents that a micro-batch uses, before it runs; delete those no longer needed.

        Contents are needed if one of the last `most` micro-batches, the next one or a file of state uses
        them.

        Raises StateError: the record is damaged (E0702).
        """
        if self.files is None or not self.sources:
            return
        spans = self._noted(self.files, batch, tuple(sorted(digests.values())))
        oldest = batch - most + 1
        ends = [*(span.first for span in spans[1:]), batch + 1]
        is_past = ends[0] <= oldest
        # What is not noted is of plans of an earlier version, or a killed run did not delete it.
        if spans[0].first > oldest or batch < self._next_look or not (is_past or not self._has_looked):
            return
        try:
            written = self.written() if is_past else set()
        except OSError:  # what cannot be listed may be needed
            return
        needed = [
            span
            for span, end in zip(spans, ends, strict=True)
            if end > oldest or any(span.first <= number < end for number in written)
        ]
        self._has_looked = True
        if len(needed) < len(spans):
            self._note(self.files, needed)
        if len(needed) > 1 and needed[1].first <= oldest:  # files of state need some
            self._next_look = batch + _LOOKS
        self._delete(self.files, needed)

    def _noted(self, files: CheckpointFiles, batch: int, digests: tuple[str, ...]) -> list[_Span]:
        """Return the spans, including that of micro-batch `batch`, which is the last one."""
        if self._spans is None:
            self._spans = _spans_in(files)
        # Of a run that was killed before it had written its plan.
        spans = [span for span in self._spans if span.first < batch]
        if not spans or spans[-1].digests != digests:
            spans.append(_Span(batch, digests))
        if spans != self._spans:
            self._note(files, spans)
        return spans

    def _note(self, files: CheckpointFiles, spans: list[_Span]) -> None:
        write_sealed(files, _VALID, json.dumps(spans))
        self._spans = spans

    def _delete(self, files: CheckpointFiles, needed: Sequence[_Span]) -> None:
        """Delete all contents but those of some spans, and those of the next micro-batch."""
        digests = {content.digest for content in self.now.values()}
        digests.update(*(span.digests for span in needed))
        for name in files.names(FOLDER):
            if not name.startswith(".") and name.removesuffix(".arrow") not in digests:
                files.remove(f"{FOLDER}/{name}")

    def status(self) -> Iterator[str]:
        """Yield a message for each table whose files cannot be used."""
        for name, error in self.problems.items():
            yield f"table {name}: {error.args[0]}; what was read before still counts"

    def counts(self) -> Counts:
        """Return the number of rows of each table, and how often it could not be read again."""
        versions = {name: content.n_rows for name, content in dict(self.now).items()}
        return Counts(versions=versions, stale_tables=dict(self.n_refused))

    def _write(self, content: Content) -> None:
        name = f"{FOLDER}/{content.digest}.arrow"
        if self.files is not None and f"{content.digest}.arrow" not in self.files.names(FOLDER):
            self.files.write_bytes(name, content.data)


def _spans_in(files: CheckpointFiles) -> list[_Span]:
    """Return what `StaticTables.keep` noted; an empty list: nothing, as earlier versions."""

    def parsed(text: str) -> list[_Span]:
        return [_Span(int(first), tuple(map(str, digests))) for first, digests in json.loads(text)]

    error = damaged(_VALID, "which names the contents of static tables, is damaged")
    return read_sealed(files, _VALID, parsed, error) or []
