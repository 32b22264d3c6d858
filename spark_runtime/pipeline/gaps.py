"""The ledger of gaps: what rules did not see, and why.

    <checkpoint>/gaps.json           losses that were counted, and when the pipeline was down
    <checkpoint>/alive               when a continuous stream last ran

For each micro-batch, its losses are entered under its number, before Spark commits it. A micro-batch that is
repeated replaces its entry, so each loss counts once. Entries of micro-batches that Spark does not repeat are
merged: the ledger has at most `MOST` gaps of one kind, stream and generation of rules. What a rule did not
see before it began, or not report when it ended, is not stored, because the generations of rules contain it.
They also contain which gaps are filled (`filling`): each filling begins a generation, so no later gap is
merged with a filled one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from cep.counts import Counts, Loss, together, unseen_name
from cep.errors import StateError
from cep.program.changes import BEGINNING, Verdict
from spark_runtime.event_time.done import Done
from spark_runtime.event_time.reached import Reached
from spark_runtime.pipeline.checkpoint import GAPS, KEPT_BATCHES, recorded_rules
from spark_runtime.pipeline.generations import Generation
from spark_runtime.pipeline.made import Pipeline
from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.storage.checkpoint_files import CheckpointFiles, LocalFiles, is_remote
from spark_runtime.storage.sealed import read_sealed, write_sealed
from spark_runtime.wire.plan import Plan

MOST = 100
"""Gaps of one kind, stream and generation. Of more than that, those that are closest in time become one."""

ALIVE_SECONDS = 20.0
"""How often a continuous stream records that it runs."""

READ_SECONDS = 10.0
"""Seconds from one reading of the ledger to the next, for those who watch the pipeline."""

OF_FILES = frozenset((Loss.GONE, Loss.REFUSED))
"""Losses whose events may be of any time: the ledger has the times of those that were read with them."""

OF_CHANGES = (Loss.LATE_START, Loss.RULE_CHANGE)
"""Losses that the generations of rules contain."""

_OF_RULES = (Loss.DROPPED, Loss.DROPPED_MATCHES)

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
        The stream or table; for dropped runs and matches and changes of rules, the rule; empty: all streams.
    generation
        The number of the generation of rules that ran.
    n
        How many events, records, messages, runs or files; None: unknown.
    first_us, last_us
        The first and the last event time, microseconds since 1970; None: unknown. For `Loss.DOWN`, by the
        wall clock.
    batch
        The last micro-batch that counted a part of it.
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
        """Return the gap in a form for JSON."""
        return [self.loss, self.of, self.generation, self.n, self.first_us, self.last_us, self.batch]

    @classmethod
    def of_list(cls, found: Sequence[Any]) -> Entry:
        """Return what `to_list` wrote; raises ValueError or TypeError for anything else."""
        loss, of, generation, *numbers, batch = found
        n, first_us, last_us = (None if number is None else int(number) for number in numbers)
        return cls(str(Loss(loss)), str(of), int(generation), n, first_us, last_us, int(batch))

    def contains(self, other: Entry) -> bool:
        """Return whether another entry may have been merged into this one."""
        (first, last), (of_other, until) = (_span(each.first_us, each.last_us) for each in (self, other))
        return self.kind == other.kind and first <= of_other and until <= last

    def merged(self, other: Entry) -> Entry:
        """Return two entries of one kind as one."""
        n, first_us, last_us = together(
            (self.n or 0, self.first_us, self.last_us), (other.n or 0, other.first_us, other.last_us)
        )
        known = n if self.n is not None else None
        return replace(self, n=known, first_us=first_us, last_us=last_us, batch=max(self.batch, other.batch))


@dataclass(frozen=True, slots=True)
class Fill:
    """When a gap was filled (UTC), and how many matches were missing."""

    time: str
    matches: int


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
    filled
        When the rules saw it after all; None: they have not.
    entry
        The gap as it is in the ledger.
    """

    loss: str
    rules: tuple[str, ...]
    streams: tuple[str, ...]
    n: int | None
    first_us: int | None
    last_us: int | None
    filled: Fill | None = None
    entry: Entry | None = field(default=None, compare=False, repr=False)


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

        The file is written only by a micro-batch that has losses, or had some before.
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
            write_sealed(self._files, _ALIVE, json.dumps(now_s))

    def _write(self, merged: Sequence[Entry], recent: Mapping[int, Sequence[Entry]]) -> None:
        write_sealed(self._files, GAPS, ledger_json(merged, recent))
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
        if first_us is None and loss not in _OF_RULES:
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
    dropped = counts.dropped_runs, counts.dropped_matches
    for loss, by_rule in zip(_OF_RULES, dropped, strict=True):
        for rule, n in by_rule.items():
            if n:
                times = n, before.watermark_us, done.reached.read_until_us
                found.append(entry(loss, rule, *times))
    return tuple(found)


def _has_losses(counts: Counts, plan: Plan) -> bool:
    files = counts.gone or counts.refused or counts.changed
    dropped = counts.dropped_matches or any(counts.dropped_runs.values())
    return bool(counts.unseen or plan.lost or files or dropped)


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
    return read_sealed(files, GAPS, _entries_in, _damaged("is damaged")) or ((), {})


def _entries_in(text: str) -> tuple[tuple[Entry, ...], dict[int, tuple[Entry, ...]]]:
    found = json.loads(text)
    if found["format"] != _FORMAT:
        raise ValueError
    recent = {int(number): tuple(map(Entry.of_list, entries)) for number, entries in found["recent"].items()}
    return tuple(map(Entry.of_list, found["gaps"])), recent


def _damaged(fact: str) -> StateError:
    return StateError(
        "E0702",
        f"`{GAPS}` in the checkpoint, which has what rules did not see, {fact}",
        "restore the checkpoint directory as a whole, or remove this file: the gaps so far are then lost",
    )


def _alive(files: CheckpointFiles) -> float | None:
    """Return when a continuous stream last ran; None: unknown, or the file is damaged."""
    with suppress(StateError):
        return read_sealed(files, _ALIVE, lambda text: float(json.loads(text)), _damaged("is damaged"))
    return None


def all_gaps(files: CheckpointFiles, path: str) -> list[Gap]:
    """Return the gaps of the checkpoint at `path`, in the order of their times.

    Raises StateError: it is not a checkpoint (E0705), or damaged (E0702).
    """
    generations = {found.number: found for found in recorded_rules(files, path)}
    filled = [
        _Filling(Entry.of_list(each.entry), each.rules, Fill(found.cause.time, each.matches))
        for found in generations.values()
        for each in found.filled
    ]
    of_changes = (each(found) for found in generations.values() for each in (_late_starts, _holes))
    entries = chain(stored_entries(files), *of_changes)
    gaps = (_gap(entry, _rules_of(entry, generations)) for entry in entries)
    found = [part for gap in gaps for part in _parts(gap, filled)]
    return sorted(found, key=lambda gap: (_span(gap.first_us, gap.last_us), gap.loss, gap.streams, gap.rules))


def _rules_of(entry: Entry, generations: Mapping[int, Generation]) -> StoredRules:
    if entry.generation not in generations:
        raise _damaged(f"names rules that are not in the checkpoint: generation {entry.generation}")
    return generations[entry.generation].rules


def stored_entries(files: CheckpointFiles, until: int | None = None) -> list[Entry]:
    """Return the entries of the ledger, up to a micro-batch. Raises StateError: it is damaged (E0702)."""
    merged, recent = _stored(files)
    of_batches = (entries for batch, entries in recent.items() if until is None or batch <= until)
    return compacted([*merged, *chain.from_iterable(of_batches)])


def ledger_json(merged: Sequence[Entry], recent: Mapping[int, Sequence[Entry]] = MappingProxyType({})) -> str:
    """Return a ledger as the text of its file."""
    found = {
        "format": _FORMAT,
        "gaps": [entry.to_list() for entry in merged],
        "recent": {number: [entry.to_list() for entry in entries] for number, entries in recent.items()},
    }
    return json.dumps(found)


def before_all(text: str) -> str:
    """Convert the ledger of a savepoint to that of a checkpoint that has computed nothing yet."""
    found = json.loads(text)
    return ledger_json([replace(Entry.of_list(entry), batch=-1) for entry in found["gaps"]])


class _Filling(NamedTuple):
    """An entry that was filled for some rules."""

    entry: Entry
    rules: tuple[str, ...]
    fill: Fill


def _parts(gap: Gap, filled: Sequence[_Filling]) -> Iterator[Gap]:
    """Yield a gap in parts: what is filled, for the rules for which it is, and the rest."""
    assert gap.entry is not None
    if not gap.rules:  # no rule reads the stream any more
        yield gap
    mine = [filling for filling in filled if gap.entry.contains(filling.entry)]

    def of_rule(name: str) -> tuple[int, ...]:
        return tuple(number for number, filling in enumerate(mine) if name in filling.rules)

    for numbers, names in groupby(sorted(gap.rules, key=of_rule), of_rule):
        these, rest = frozenset(names), gap.n
        rules = tuple(name for name in gap.rules if name in these)
        for entry, _, fill in (mine[number] for number in numbers):
            times = entry.n, entry.first_us, entry.last_us
            yield Gap(gap.loss, rules, gap.streams, *times, filled=fill, entry=entry)
            rest = None if rest is None or entry.n is None else rest - entry.n
        if not numbers or rest:
            yield replace(gap, rules=rules, n=rest)


def _gap(entry: Entry, rules: StoredRules) -> Gap:
    reads = streams_of_rules(rules)
    times = entry.n, entry.first_us, entry.last_us
    if entry.loss in (*_OF_RULES, *OF_CHANGES):
        return Gap(entry.loss, (entry.of,), tuple(sorted(reads.get(entry.of, ()))), *times, entry=entry)
    streams = (entry.of,) if entry.of else tuple(sorted(rules.streams))
    names = tuple(name for name, of_rule in reads.items() if not of_rule.isdisjoint(streams))
    return Gap(entry.loss, names, streams, *times, entry=entry)


def _late_starts(generation: Generation) -> Iterator[Entry]:
    """Yield for each rule that began with a generation that it saw nothing before, or before a past."""
    if generation.begins_us is None:
        return
    for change in generation.changes:
        if change.verdict in BEGINNING:
            until_us: int | None = generation.begins_us
            if change.rule in generation.warm:
                until_us = None if generation.from_us is None else generation.from_us - 1
            if until_us is not None:
                times = None, None, until_us
                yield Entry(Loss.LATE_START, change.rule, generation.number, *times, generation.batch - 1)


def _holes(generation: Generation) -> Iterator[Entry]:
    """Yield for each rule that ended, or began again, the time of matches that no version reports."""
    if generation.hole_us is None:
        return
    after_us, until_us = generation.hole_us
    for change in generation.ended:
        number = generation.number - (change.verdict is Verdict.GONE)  # of the rules that contain it
        times = None, after_us + 1, until_us
        yield Entry(Loss.RULE_CHANGE, change.rule, number, *times, generation.batch - 1)


def streams_of_rules(rules: StoredRules) -> dict[str, frozenset[str]]:
    """Return, by rule, the streams and tables that it reads, directly or through other rules."""
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


@dataclass
class KnownGaps:
    """The gaps in the checkpoint of a pipeline, which is read at most every `READ_SECONDS`."""

    pipeline: Pipeline
    _read_s: float = float("-inf")
    _known: Sequence[Gap] = ()

    def now(self) -> Sequence[Gap]:
        """Return the gaps; none if the checkpoint is not on this machine, or damaged."""
        checkpoint = self.pipeline.checkpoint
        if time.monotonic() - self._read_s < READ_SECONDS:
            return self._known
        if self.pipeline.is_stream and not is_remote(checkpoint):
            with suppress(StateError):  # `cep gaps` says what is wrong with it
                self._known = all_gaps(LocalFiles(checkpoint), checkpoint)
                self._read_s = time.monotonic()
        return self._known


def names_of_rules(files: CheckpointFiles, path: str) -> list[str]:
    """Return the names of all rules that ran on the checkpoint at `path`."""
    found = recorded_rules(files, path)
    return sorted({name for generation in found for name in streams_of_rules(generation.rules)})
