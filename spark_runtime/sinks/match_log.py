"""The log of matches: those of a stream by micro-batch, and the rules that found them.

    <log>/batch=<run>-<number>/     the rows of a micro-batch, as the sink `parquet` writes them
    <log>/_entries/<offset>.json    an entry: the rows of a micro-batch, or that the rules change
    <log>/_rules/<version>.json     the texts of rules (`stored_rules`)
    <log>/_begin.json               the first offset that is kept

Readers of the Parquet files ignore names that begin with an underscore.

Offsets count entries without a gap. So a missing file is noticed and reported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa

from cep.errors import StateError
from spark_runtime.sinks.protocol import MicroBatch
from spark_runtime.storage.checkpoint_files import LocalFiles

ENTRIES, RULES, BEGIN = "_entries", "_rules", "_begin.json"

_FORMAT = 1
_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the log.

    Parameters
    ----------
    time_us
        When it was written, microseconds since 1970.
    rules
        The version of the rules from this entry on.
    bytes_before
        Bytes of the rows of all entries before it, including removed ones.
    run, micro_batch, plan
        The `MicroBatch` of the rows; an entry without a run means that the rules change here. The
        micro-batch of such an entry is -1 in the logs of earlier versions.
    files
        By name, the number of rows and of bytes of each file, and the CRC-32 of its bytes.
    """

    offset: int
    time_us: int
    rules: str
    bytes_before: int = 0
    run: str = ""
    micro_batch: int = -1
    plan: str = ""
    files: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def batch(self) -> MicroBatch:
        """The micro-batch of the rows."""
        return MicroBatch(self.run, self.micro_batch, self.plan)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(n_rows for n_rows, *_ in self.files.values())

    @property
    def bytes_after(self) -> int:
        """Bytes of the rows of all entries up to this one."""
        return self.bytes_before + sum(n_bytes for _, n_bytes, _ in self.files.values())


@dataclass(slots=True)
class MatchLog:
    """A log in a folder on a disk of this machine. One run appends; others may read meanwhile.

    `last` is the newest entry, after `open`.
    """

    path: str
    last: Entry | None = None
    _first: Entry | None = None  # the oldest, once it was needed

    @property
    def _files(self) -> LocalFiles:
        return LocalFiles(self.path)

    # ------------------------------------------------------------ reading

    def first_offset(self) -> int:
        """Return the first offset that is kept. StateError (E0720): the file with this offset is damaged."""
        text = self._files.read(BEGIN)
        try:
            return 0 if text is None else int(json.loads(text)["first"])
        except (ValueError, TypeError, KeyError) as error:
            raise damaged(f"{self.path}/{BEGIN}", "is damaged") from error

    def _offsets(self) -> list[int]:
        names = (name.removesuffix(".json") for name in self._files.names(ENTRIES))
        return sorted(int(name) for name in names if name.isdigit())

    def entries(self) -> Iterator[Entry]:
        """Yield the entries in their order. StateError (E0720): one is missing or damaged."""
        first, offsets = self.first_offset(), self._offsets()
        if offsets:
            yield from map(self.entry, range(first, offsets[-1] + 1))

    def entry(self, offset: int) -> Entry:
        """Return the entry of an offset. StateError (E0720): it is missing or damaged."""
        place, text = f"{self.path}/{_name(offset)}", self._files.read(_name(offset))
        if text is None:
            raise damaged(place, "is missing")
        try:
            found = json.loads(text)
            if found.pop("format") == _FORMAT and found["offset"] == offset:
                return Entry(**found)
        except (ValueError, TypeError, KeyError, AttributeError):
            pass
        raise damaged(place, "is damaged, or of a later version")

    def file(self, entry: Entry, name: str) -> Path:
        """Return the place of a file of rows."""
        return Path(self.path) / f"batch={entry.batch.name}" / name

    def require_files(self, entry: Entry) -> None:
        """Raise StateError (E0720) unless all files of an entry exist with their sizes."""
        for name, (_, n_bytes, _) in entry.files.items():
            file = self.file(entry, name)
            if not file.is_file():
                raise damaged(str(file), "is missing")
            if file.stat().st_size != n_bytes:
                raise damaged(str(file), f"has {file.stat().st_size:,} bytes instead of {n_bytes:,}")

    def table(self, entry: Entry, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of a file, or some of their columns. StateError (E0720): it is damaged."""
        return self._opened(entry, name).read(columns)

    def schema(self, entry: Entry) -> pa.Schema:
        """Return the columns of the rows of an entry. StateError (E0720): its first file is damaged."""
        return self._opened(entry, next(iter(entry.files))).schema_arrow

    def _opened(self, entry: Entry, name: str) -> Any:
        """Return a file of rows as `pyarrow.parquet.ParquetFile`."""
        import pyarrow.parquet as pq

        file = self.file(entry, name)
        try:
            data = file.read_bytes()
        except OSError as error:
            raise damaged(str(file), "is missing") from error
        if crc32(data) != entry.files[name][2]:
            raise damaged(str(file), "is damaged")
        return pq.ParquetFile(pa.BufferReader(data))

    # ------------------------------------------------------------ writing

    def open(self) -> None:
        """Find the newest entry."""
        offsets, self._first = self._offsets(), None
        self.last = self.entry(offsets[-1]) if offsets else None

    def append_rules(self, batch: MicroBatch, version: str, text: str, time_us: int) -> None:
        """Record that the rules change at a micro-batch, unless the newest entry already says so."""
        if self.last is None or self.last.rules != version:
            self._files.write(f"{RULES}/{version}.json", text)
            self._append(version, time_us, micro_batch=batch.number)

    def append_rows(self, batch: MicroBatch, version: str, time_us: int) -> None:
        """Add the rows of a micro-batch, whose files are complete, if there are any.

        A repeated micro-batch has the same rows: it keeps its offset and its time.
        """
        assert batch.run is not None
        last = self.last
        if last is not None and (last.run, last.micro_batch) == (batch.run, batch.number):
            self._write(_with_files(self, last, batch.plan))
            return
        self._append(version, time_us, run=batch.run, micro_batch=batch.number, plan=batch.plan)

    def _append(self, version: str, time_us: int, **rows: Any) -> None:
        last = self.last
        offset, before = (0, 0) if last is None else (last.offset + 1, last.bytes_after)
        entry = Entry(offset, time_us, version, before, **rows)
        if entry.run:
            entry = _with_files(self, entry, entry.plan)
            if not entry.n_rows:
                return
        self._write(entry)

    def _write(self, entry: Entry) -> None:
        said = json.dumps({"format": _FORMAT, **asdict(entry)})
        self._files.write(_name(entry.offset), said)
        self.last = entry

    def retain(self, since_us: int | None, max_bytes: int | None) -> None:
        """Remove the oldest entries: those written before `since_us`, and those beyond `max_bytes`.

        The newest entry remains. The new beginning is recorded before anything is removed, so that a crash in
        between leaves no gap.
        """
        assert self.last is not None
        if self._first is None:
            self._first = self.entry(self.first_offset())
            self._remove([offset for offset in self._offsets() if offset < self._first.offset])
        oldest, gone = self._first, list[int]()
        while oldest.offset < self.last.offset and (
            (since_us is not None and oldest.time_us < since_us)
            or (max_bytes is not None and self.last.bytes_after - oldest.bytes_before > max_bytes)
        ):
            gone.append(oldest.offset)
            oldest = self.entry(oldest.offset + 1)
        self._first = oldest
        if gone:
            self._files.write(BEGIN, json.dumps({"first": oldest.offset}))
            self._remove(gone)

    def cut(self, run: str, after: int) -> None:
        """Remove what was written after a micro-batch of a run, by that run and by those that followed."""
        entries = list(self.entries())
        of_run = [at for at, entry in enumerate(entries) if entry.run == run]
        kept = [at for at in of_run if entries[at].micro_batch <= after]
        if of_run:
            end = kept[-1] + 1 if kept else of_run[0]
            for entry in reversed(entries[end:]):  # a crash in between leaves no hole
                self._files.remove(_name(entry.offset))
        self.open()

    def _remove(self, offsets: Sequence[int]) -> None:
        for offset in offsets:
            entry = self.entry(offset)
            if entry.run:
                self._files.remove(f"batch={entry.batch.name}")
            self._files.remove(_name(offset))


def _with_files(log: MatchLog, entry: Entry, plan: str) -> Entry:
    """Return an entry of rows with the plan and the files that are in their place now."""
    import pyarrow.parquet as pq

    folder = log.file(entry, "")
    files = {
        file.name: (pq.read_metadata(file).num_rows, file.stat().st_size, crc32(file.read_bytes()))
        for file in sorted(folder.glob("part-*"))
    }
    return replace(entry, plan=plan, files=files)


def _name(offset: int) -> str:
    return f"{ENTRIES}/{offset:0{_DIGITS}}.json"


def damaged(place: str, fact: str) -> StateError:
    """Return the error for a file of a log."""
    return StateError(
        "E0720",
        f"`{place}` of the log of matches {fact}",
        "restore the file; or replay from a later offset; or name another folder as `log`",
    )
