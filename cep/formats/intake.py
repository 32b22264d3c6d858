"""Counts of the input: events, dead letters, late events, and the progress of event time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.counts import MOST_NAMES, Counts, Loss, Split, absent_name, largest, reason_counts, unseen_name
from cep.formats.chunks import Chunk
from cep.formats.dead_letter import not_of_type
from cep.formats.late_events import LATE_COLUMN
from cep.formats.text.absent_fields import N_LOOKED_AT
from cep.rule_set import Corrections
from cep.schema.stream import Stream


def count_chunk(chunk: Chunk, stream: Stream) -> Counts:
    """Return what a chunk of events of `stream` adds to the counts, except for late events."""
    n = chunk.events.num_rows
    counts = count_fields(chunk, stream)
    if stream.table is not None:
        counts.versions[stream.name] = n
    else:
        counts.events, counts.events_of = n, {stream.name: n} if n else {}
    if chunk.is_empty:
        counts.empty[chunk.source] = 1
    if chunk.is_partial:
        counts.partial[chunk.source] = 1
    if chunk.is_refused:
        counts.refused[chunk.source] = 1
    else:
        reasons = chunk.dead_letters.column("reason").to_pylist()
        forms = dict.fromkeys((stream.csv.number_form, "")) if reasons else ()
        prefixes = [not_of_type(field, form) for form in forms for field in stream.fields]
        counts.reasons = reason_counts(reasons, prefixes)
        if reasons:  # those of the events around them: most have no event time of their own
            first_us, last_us = _time_span(chunk.events, stream)
            counts.unseen[unseen_name(Loss.DEAD, stream.name)] = len(reasons), first_us, last_us
    if chunk.events.num_rows and not stream.is_static:
        latest_us = pc.max(chunk.events.column(stream.event_time)).as_py()
        counts.latest[partition_name(stream, chunk.partition)] = (latest_us, chunk.place)
    return counts


def count_fields(chunk: Chunk, stream: Stream) -> Counts:
    """Return how many records of `stream` a chunk has, and which fields they lack."""
    counts = Counts()
    if chunk.n_records:
        counts.records[stream.name] = chunk.n_records
    if chunk.absent:
        counts.looked_at[stream.name] = min(chunk.n_records, N_LOOKED_AT)
        names = {absent_name(stream.name, name): text for name, text in chunk.absent.items()}
        counts.absent, counts.instead = dict.fromkeys(names, chunk.n_records), names
    return counts


def counted(
    chunks: Mapping[str, Iterable[Chunk]], streams: Mapping[str, Stream], counts: dict[str, Counts]
) -> dict[str, Iterator[Chunk]]:
    """Return `chunks`. What is read of each stream is counted in `counts`, by the name of the stream."""

    def of(name: str) -> Iterator[Chunk]:
        for chunk in chunks[name]:
            counts.setdefault(name, Counts()).add(count_chunk(chunk, streams[name]))
            yield chunk

    return {name: of(name) for name in chunks}


def partition_name(stream: Stream, partition: str) -> str:
    """Return the name of a partition of a stream; a stream with one partition has its own name."""
    return f"{stream.name}[{partition}]" if partition else stream.name


def count_late(late: pa.Table, stream: Stream, keys: Sequence[tuple[str, ...]], source: str = "") -> Counts:
    """Return what late events (`cep.formats.late_events.late_schema`) add to the counts.

    They are split by the first of `keys`, the columns by which rules partition them, and by `source`, the
    file that they were read from.
    """
    counts = Counts()
    n = late.num_rows
    if n == 0:
        return counts
    counts.late_of[stream.name] = n
    counts.unseen[unseen_name(Loss.LATE, stream.name)] = n, *_time_span(late, stream)
    if source:
        counts.late_in[source] = n
    if keys:
        counts.late_keys = _by_key(late, keys[0])
    seconds = pc.max(late.column(LATE_COLUMN)).as_py()
    if seconds is not None:
        counts.latest_late[stream.name] = (round(seconds * 1e6), source)
    return counts


def count_lost(lost: Split, stream: Stream) -> Counts:
    """Return what messages of `stream` that were removed unread add to the counts; `lost`: by partition."""
    if not lost:
        return Counts()
    return Counts(unseen={unseen_name(Loss.LOST, stream.name): (sum(lost.values()), None, None)})


def _time_span(events: pa.Table, stream: Stream) -> tuple[int | None, int | None]:
    """Return the first and the last event time of events; None: there are none."""
    if not events.num_rows or stream.is_static:
        return None, None
    times_us = pc.min_max(pc.cast(events.column(stream.event_time), pa.int64())).as_py()
    return times_us["min"], times_us["max"]


def count_uncorrected(late: pa.Table, corrections: Corrections | None) -> int:
    """Return how many late events (`late_schema`) corrections lost only because of their limit."""
    if corrections is None:
        return 0
    seconds = np.asarray(late.column(LATE_COLUMN))
    return int((np.rint(seconds * 1e6) < corrections.within_us).sum())


def _by_key(late: pa.Table, key: tuple[str, ...]) -> Split:
    texts = [pc.coalesce(pc.cast(late.column(name), pa.string()), pa.scalar("NULL")) for name in key]
    labels = pc.binary_join_element_wise(*texts, pa.scalar(", ")) if len(texts) > 1 else texts[0]
    found = pc.value_counts(labels)
    names, numbers = found.field("values").to_pylist(), found.field("counts").to_pylist()
    what = ", ".join(key)
    return largest({f"{what} = {name}": n for name, n in zip(names, numbers, strict=True)}, MOST_NAMES)
