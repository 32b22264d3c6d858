"""The ledger of gaps: what rules did not see, and why.

    <checkpoint>/gaps.json           losses that were counted, and when the pipeline was down
    <checkpoint>/alive               when a continuous stream last ran

Each micro-batch enters what its counts say, under its number, before Spark commits it. A micro-batch that is
repeated replaces its entry, so each loss counts once. Entries of micro-batches that Spark does not repeat are
merged: the ledger has at most `MOST` gaps of one kind, stream and generation of rules. What a rule did not
see before it began is not stored, because the generations of rules say it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any

from cep.counts import Counts, Loss, together, unseen_name
from cep.errors import StateError
from cep.program.changes import BEGINNING
from spark_runtime.event_time.done import Done
from spark_runtime.event_time.reached import Reached
from spark_runtime.pipeline.checkpoint import GAPS, KEPT_BATCHES, recorded_rules
from spark_runtime.pipeline.generations import Generation
from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.storage.checkpoint_files import CheckpointFiles
from spark_runtime.wire.plan import Plan

MOST = 100
"""Gaps of one kind, stream and generation. Of more than that, those that are closest in time become one."""

ALIVE_SECONDS = 20.0
"""How often a continuous stream records that it runs."""

_ALIVE = "alive"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """A gap as it is stored.

    Parameters
    ----------
    loss
        A `Loss`.
    of
        The stream or table; of dropped runs the rule; empty: all streams.
    generation
        The number of the generation of rules that ran.
    n
        How many events, records, messages, runs or files; None: unknown.
    first_us, last_us
        The first and the last event time, microseconds since 1970; None: unknown. Of `Loss.DOWN` by the wall
        clock.
    batch
        The last micro-batch that counted some of it.
    """

    loss: str
    of: str
    generation: int
    n: int | None
    first_us: int | None
    last_us: int | None
    batch: int

    @property
    def kind(self) -> tuple[int, str, str]:
        """Entries of one kind may be merged."""
        return self.generation, self.loss, self.of

    def to_list(self) -> list[Any]:
        """Return a form for JSON."""
        return [self.loss, self.of, self.generation, self.n, self.first_us, self.last_us, self.batch]

    @classmethod
    def of_list(cls, found: Sequence[Any]) -> Entry:
        """Return what `to_list` wrote; raises ValueError or TypeError for anything else."""
        loss, of, generation, n, first_us, last_us, batch = found
        return cls(str(Loss(loss)), str(of), int(generation), n, first_us, last_us, int(batch))

    def merged(self, other: Entry) -> Entry:
        """Return two entries of one kind as one."""
        n, first_us, last_us = together(
            (self.n or 0, self.first_us, self.last_us), (other.n or 0, other.first_us, other.last_us)
        )
        known = n if self.n is not None else None
        return replace(self, n=known, first_us=first_us, last_us=last_us, batch=max(self.batch, other.batch))


@dataclass(frozen=True, slots=True)
class Gap:
    """What some rules did not see.

    Parameters
    ----------
    loss
        Why: a `Loss`.
    rules
        Their names.
    streams
        The streams and tables whose events they did not see.
    n, first_us, last_us
        See `Entry`.
    """

    loss: str
    rules: tuple[str, ...]
    streams: tuple[str, ...]
    n: int | None
    first_us: int | None
    last_us: int | None


# ---------------------------------------------------------------- writing


class Ledger:
    """The ledger of a running stream.

    Parameters
    ----------
    files
        The checkpoint.
    """

    def __init__(self, files: CheckpointFiles) -> None:
        self._files = files
        self._merged, self._recent = _stored(files)
        self._alive_s = float("-inf")

    def record(self, batch: int, found: Sequence[Entry]) -> None:
        """Record what was counted in micro-batch `batch`, which may be repeated.

        Only a micro-batch with losses, or one that had some before, writes the file.
        """
        recent = {number: entries for number, entries in self._recent.items() if number < batch}
        if not found and len(recent) == len(self._recent):
            return
        final = [number for number in recent if number <= batch - KEPT_BATCHES]
        merged = compacted([*self._merged, *chain.from_iterable(map(recent.pop, final))])
        if found:
            recent[batch] = tuple(found)
        self._write(merged, recent)

    def began(self, now_s: float, allowed_s: float, generation: int, batch: int) -> Entry | None:
        """Record that a continuous stream runs again; return since when it was down if that is a gap.

        Parameters
        ----------
        now_s
            The wall clock, seconds since 1970.
        allowed_s
            How long it may have been down without a gap.
        batch
            The last micro-batch before.
        """
        last_s = _alive(self._files)
        down = None
        if last_s is not None and now_s - last_s > allowed_s:
            times_us = int(last_s * 1e6), int(now_s * 1e6)
            down = Entry(Loss.DOWN, "", generation, None, *times_us, batch)
            # A run that is killed before it is alive finds the same beginning again.
            self._write(compacted([*self._merged, down]), self._recent)
        self.alive(now_s)
        return down

    def alive(self, now_s: float) -> None:
        """Record that the stream runs; often called, it writes every `ALIVE_SECONDS`."""
        if now_s - self._alive_s < ALIVE_SECONDS:
            return
        self._alive_s = now_s
        with suppress(Exception):  # storage that is gone for a moment ends no run
            self._files.write(_ALIVE, json.dumps(now_s))

    def _write(self, merged: Sequence[Entry], recent: Mapping[int, Sequence[Entry]]) -> None:
        found = {
            "format": _FORMAT,
            "gaps": [entry.to_list() for entry in merged],
            "recent": {number: [entry.to_list() for entry in entries] for number, entries in recent.items()},
        }
        self._files.write(GAPS, json.dumps(found))
        self._merged, self._recent = tuple(merged), {n: tuple(entries) for n, entries in recent.items()}


def losses_of(counts: Counts, plan: Plan, before: Reached, done: Done, generation: int) -> tuple[Entry, ...]:
    """Return what the rules did not see in the micro-batch after which `done` is reached.

    Parameters
    ----------
    counts
        Those of the micro-batch.
    before
        The event time reached before.
    """

    def entry(loss: Loss, of: str, n: int, first_us: int | None, last_us: int | None) -> Entry:
        if first_us is None and loss is not Loss.DROPPED:
            first_us, last_us = _latest_us(of, before), _latest_us(of, done.reached)
        return Entry(loss, of, generation, n, first_us, last_us, done.batch)

    if not _has_losses(counts, plan):
        return ()
    unseen = dict(counts.unseen)
    for stream, n in plan.lost.items():
        name = unseen_name(Loss.LOST, stream)
        unseen[name] = together(unseen.get(name, (0, None, None)), (n, None, None))
    found = []
    for name, times in sorted(unseen.items()):
        loss, _, stream = name.partition(": ")
        found.append(entry(Loss(loss), stream, *times))
    streams = {part[0]: stream for share in plan.shares for stream, part in share}
    for loss, files in (
        (Loss.GONE, counts.gone),
        (Loss.REFUSED, counts.refused),
        (Loss.CHANGED, counts.changed),
    ):
        of_streams = [streams.get(file, "") for file in files]
        found += [
            entry(loss, stream, of_streams.count(stream), None, None) for stream in sorted(set(of_streams))
        ]
    for rule, n in counts.dropped_runs.items():
        if n:
            times = n, before.watermark_us, done.reached.read_until_us
            found.append(entry(Loss.DROPPED, rule, *times))
    return tuple(found)


def _has_losses(counts: Counts, plan: Plan) -> bool:
    files = counts.gone or counts.refused or counts.changed
    return bool(counts.unseen or plan.lost or files or any(counts.dropped_runs.values()))


def _latest_us(stream: str, reached: Reached) -> int | None:
    """Return the latest event time of a stream; None: it has had no events."""
    parts = (us for name, (us, _) in reached.latest.items() if name.partition("[")[0] == stream)
    return max(parts, default=None)


def compacted(entries: Iterable[Entry]) -> list[Entry]:
    """Return entries with those merged that overlap, and at most `MOST` of a kind.

    The sum of the numbers of a kind remains the same.
    """
    by_kind: dict[tuple[int, str, str], list[Entry]] = {}
    for entry in entries:
        by_kind.setdefault(entry.kind, []).append(entry)
    return [entry for kind in sorted(by_kind) for entry in _fewer(by_kind[kind])]


def _fewer(entries: Sequence[Entry]) -> list[Entry]:
    """Return entries of one kind, merged; those of unknown times become one, the first."""
    found: list[Entry] = []
    for entry in sorted(entries, key=lambda entry: _span(entry.first_us, entry.last_us)):
        if found and _distance_us(found[-1], entry) <= 0:
            found[-1] = found[-1].merged(entry)
        else:
            found.append(entry)
    while len(found) > MOST:
        distances = [_distance_us(one, other) for one, other in pairwise(found)]
        at = distances.index(min(distances))
        found[at : at + 2] = [found[at].merged(found[at + 1])]
    return found


_UNKNOWN_US = -(1 << 63)


def _span(first_us: int | None, last_us: int | None) -> tuple[int, int]:
    """Return two times as numbers; one that is unknown is like the other one."""
    known = [us for us in (first_us, last_us) if us is not None]
    return (known[0], known[-1]) if known else (_UNKNOWN_US, _UNKNOWN_US)


def _distance_us(one: Entry, other: Entry) -> int:
    return _span(other.first_us, other.last_us)[0] - _span(one.first_us, one.last_us)[1]


# ---------------------------------------------------------------- reading


def _stored(files: CheckpointFiles) -> tuple[tuple[Entry, ...], dict[int, tuple[Entry, ...]]]:
    """Return the merged entries of a ledger, and those of the last micro-batches.

    Raises StateError: it is damaged (E0702).
    """
    text = files.read(GAPS)
    if text is None:
        return (), {}
    try:
        found = json.loads(text)
        if found["format"] != _FORMAT:
            raise ValueError
        recent = {
            int(number): tuple(map(Entry.of_list, entries)) for number, entries in found["recent"].items()
        }
        return tuple(map(Entry.of_list, found["gaps"])), recent
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateError(
            "E0702",
            f"`{GAPS}` in the checkpoint, which has what rules did not see, is damaged",
            "restore the checkpoint directory as a whole, or remove this file: the gaps so far are then lost",
        ) from error


def _alive(files: CheckpointFiles) -> float | None:
    try:
        return float(json.loads(files.read(_ALIVE) or ""))
    except (ValueError, TypeError):
        return None


def all_gaps(files: CheckpointFiles, path: str) -> list[Gap]:
    """Return the gaps of the checkpoint at `path`, in the order of their times.

    Raises StateError: it is no checkpoint (E0705), or damaged (E0702).
    """
    generations = {found.number: found for found in recorded_rules(files, path)}
    merged, recent = _stored(files)
    entries = compacted([*merged, *chain.from_iterable(recent.values())])
    found = [_gap(entry, generations[entry.generation].rules) for entry in entries]
    found += chain.from_iterable(map(_late_starts, generations.values()))
    return sorted(found, key=lambda gap: (_span(gap.first_us, gap.last_us), gap.loss, gap.streams, gap.rules))


def _gap(entry: Entry, rules: StoredRules) -> Gap:
    reads = streams_of_rules(rules)
    times = entry.n, entry.first_us, entry.last_us
    if entry.loss == Loss.DROPPED:
        return Gap(entry.loss, (entry.of,), tuple(sorted(reads.get(entry.of, ()))), *times)
    streams = (entry.of,) if entry.of else tuple(sorted(rules.streams))
    names = tuple(name for name, of_rule in reads.items() if not of_rule.isdisjoint(streams))
    return Gap(entry.loss, names, streams, *times)


def _late_starts(generation: Generation) -> Iterator[Gap]:
    """Yield for each rule that began with a generation that it saw nothing before, or before a past."""
    if generation.begins_us is None:
        return
    reads = streams_of_rules(generation.rules)
    for change in generation.changes:
        if change.verdict in BEGINNING:
            until_us: int | None = generation.begins_us
            if change.rule in generation.warm:
                until_us = None if generation.from_us is None else generation.from_us - 1
            if until_us is not None:
                streams = tuple(sorted(reads.get(change.rule, ())))
                yield Gap(Loss.LATE_START, (change.rule,), streams, None, None, until_us)


def streams_of_rules(rules: StoredRules) -> dict[str, frozenset[str]]:
    """Return by rule the streams and tables that it reads, also through rules whose matches it reads."""
    direct = {
        rule.name: {
            *(order.stream for order in program.shared.orders),
            *(stream for stream, _ in program.shared.roles),
            *(table.name for table in rule.tables),
        }
        for program in rules.programs
        for rule in program.rules
    }

    def inputs(name: str) -> frozenset[str]:
        if name in rules.streams or name not in direct:
            return frozenset((name,)) & rules.streams.keys()
        return frozenset().union(*(inputs(each) for each in direct[name] if each != name))

    return {name: inputs(name) for name in direct}


def names_of_rules(files: CheckpointFiles, path: str) -> list[str]:
    """Return the names of all rules that ran on the checkpoint at `path`."""
    found = recorded_rules(files, path)
    return sorted({name for generation in found for name in streams_of_rules(generation.rules)})
