"""What happened in a run: counts that add up, wherever they were counted, and are sent as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

MOST_NAMES = 100
"""Files and keys that a count is split by: of more than that the largest are kept."""

Split = dict[str, int]
"""A count by name: by stream, by rule, by file ..."""

Deadlines = dict[str, int | None]
"""By key group the first event time at which it has something to do; None: nothing waits in it."""

OpenRuns = dict[str, dict[str, int]]
"""By key group the number of open runs of each rule that has any."""

OpenSteps = dict[str, dict[str, dict[str, int]]]
"""By key group, and by rule, the number of open runs that wait for something, such as ``cashout``."""

Busy = dict[str, list[Any]]
"""By what a key has most of: how many it has, how many all keys have, and the key, or an empty text."""

Highest = dict[str, tuple[int, str]]
"""By stream a largest number of microseconds, and the place in the input where it was seen."""

Unseen = tuple[int, int | None, int | None]
"""How many events or records no rule saw, and the first and last event time of these; None: unknown."""


class Loss(StrEnum):
    """Why rules did not see events."""

    LATE = "late"
    DEAD = "dead letters"
    LOST = "lost"
    GONE = "gone files"
    REFUSED = "refused files"
    CHANGED = "changed files"
    DROPPED = "dropped runs"
    DROPPED_MATCHES = "dropped matches"
    DROPPED_EVENTS = "dropped events"
    DOWN = "down"
    LATE_START = "late start"
    RULE_CHANGE = "rule change"


@dataclass(slots=True, repr=False)
class Counts:
    """What happened to the input. Every line or row is an event or malformed; empty lines are neither.

    Parameters
    ----------
    events
        Events that were read, including late ones.
    events_of
        These events by stream.
    versions
        Versions of rows by table, including late ones. They are not events.
    reasons
        Malformed lines and rows by reason, without the wrong value.
    late_of
        Late events by stream; likewise `late_in` by file and `late_keys` by key, limited to the largest
        `MOST_NAMES` of them.
    duplicates_of
        Repeated deliveries by stream and program (`RuleSet.met_by_program`). Rules with different keys
        receive the same ones, in different places.
    matches, timeouts, suppressed, dropped_runs
        By rule. With corrections, those of all events counted so far: a correction may remove some.
    retracted
        Matches that a correction withdrew, by rule.
    dropped_matches
        Matches that a limit of the pipeline dropped, by rule. They are among `matches`.
    dropped_events
        Waiting events that a limit of the pipeline dropped, by stream.
    dropped_keys
        Runs, matches and events that limits of the pipeline dropped, by rule and key (``r: card = c7``): of
        the keys that lost most in a call, and limited to the largest `MOST_NAMES`. Events have the first rule
        of those that read them by one key.
    beyond
        By limit of the pipeline (``open_runs``) how much was dropped.
    unseen
        By reason and stream (`unseen_name`) what no rule saw: late, dead letters, lost.
    corrected
        Late events that were counted, because they came in time for a correction. They are not among `late`.
    uncorrected
        Late events that corrections would have counted without their limit; they are also in `late`.
    empty, partial, refused, gone, changed
        Files by name: empty; not complete, as the end of the name says; quarantined; planned to be read but
        deleted since; changed since they were read.
    lost, tombstones
        Messages by partition of a topic: removed before they were read; without a value.
    refused_rows
        Rows by sink that a server refused permanently.
    stale_tables
        By static table how often its changed file could not be used.
    state
        What was done with the state of key groups, by name (`spark_runtime.state.files.Stored`).
    delays
        Matches by rule and delay (`delay_name`): from the end of a match to the call of a worker that
        found it. `delay_us` has the sum of these delays by rule, in microseconds.
    open_runs
        By key group, the open runs of each rule after its last call.
    open_steps
        The same open runs by what they wait for, if the run has a live page.
    busy
        By key group its busiest keys in the last call (`spark_runtime.operator.busy_keys`).
    newest
        By key group its newest matches as JSON, if the run has a live page and its last call found any.
    rows, shadow_rows
        The number of rows of the matches: of those of live rules, and of those of shadow rules.
    waiting
        By key group, events that wait for the watermark; a later number replaces an earlier one.
    deadlines
        By key group the first event time at which it has something to do, if rules record what released a
        match; a later one replaces an earlier one.
    waiting_bytes
        The bytes of these events in memory, in the same way.
    latest
        By stream the latest event time.
    partitions
        By source partition the latest event time, if a source has several.
    latest_late
        By stream the greatest lateness of an event.
    records
        By stream the number of its records, before any was refused.
    absent
        By stream and column (`absent_name`) the number of examined records that lack its field.
    looked_at
        By stream the number of examined records.
    instead
        By stream and column what the records have instead; the first text counts.
    clocks
        By source partition what is known about the clocks of its devices; a later text replaces an earlier
        one.
    """

    events: int = 0
    corrected: int = 0
    uncorrected: int = 0
    rows: int = field(default=0, compare=False)
    shadow_rows: int = field(default=0, compare=False)
    events_of: Split = field(default_factory=dict, compare=False)
    versions: Split = field(default_factory=dict)
    reasons: Split = field(default_factory=dict)
    late_of: Split = field(default_factory=dict)
    duplicates_of: Split = field(default_factory=dict)
    late_in: Split = field(default_factory=dict, compare=False)
    late_keys: Split = field(default_factory=dict, compare=False)
    matches: Split = field(default_factory=dict)
    timeouts: Split = field(default_factory=dict)
    suppressed: Split = field(default_factory=dict)
    dropped_runs: Split = field(default_factory=dict)
    dropped_matches: Split = field(default_factory=dict)
    dropped_events: Split = field(default_factory=dict)
    dropped_keys: Split = field(default_factory=dict, compare=False)
    beyond: Split = field(default_factory=dict)
    retracted: Split = field(default_factory=dict)
    unseen: dict[str, Unseen] = field(default_factory=dict, compare=False)
    empty: Split = field(default_factory=dict)
    partial: Split = field(default_factory=dict)
    refused: Split = field(default_factory=dict)
    gone: Split = field(default_factory=dict)
    changed: Split = field(default_factory=dict)
    lost: Split = field(default_factory=dict)
    tombstones: Split = field(default_factory=dict)
    refused_rows: Split = field(default_factory=dict)
    stale_tables: Split = field(default_factory=dict)
    state: Split = field(default_factory=dict, compare=False)
    delays: Split = field(default_factory=dict, compare=False)
    delay_us: Split = field(default_factory=dict, compare=False)
    open_runs: OpenRuns = field(default_factory=dict, compare=False)
    open_steps: OpenSteps = field(default_factory=dict, compare=False)
    busy: dict[str, Busy] = field(default_factory=dict, compare=False)
    newest: dict[str, str] = field(default_factory=dict, compare=False)
    waiting: Split = field(default_factory=dict, compare=False)
    deadlines: Deadlines = field(default_factory=dict, compare=False)
    waiting_bytes: Split = field(default_factory=dict, compare=False)
    latest: Highest = field(default_factory=dict, compare=False)
    partitions: Highest = field(default_factory=dict, compare=False)
    latest_late: Highest = field(default_factory=dict, compare=False)
    clocks: dict[str, str] = field(default_factory=dict, compare=False)
    records: Split = field(default_factory=dict, compare=False)
    absent: Split = field(default_factory=dict, compare=False)
    looked_at: Split = field(default_factory=dict, compare=False)
    instead: dict[str, str] = field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        return f"Counts({', '.join(f'{name}={value!r}' for name, value in values.items() if value)})"

    @property
    def open_runs_of(self) -> Split:
        """Open runs by rule, of all key groups called so far."""
        found: Split = {}
        for of_group in list(self.open_runs.values()):  # a copy: another thread may add to it
            for rule, n in of_group.items():
                found[rule] = found.get(rule, 0) + n
        return found

    @property
    def malformed(self) -> int:
        """Lines and rows that are not events."""
        return sum(self.reasons.values())

    @property
    def late(self) -> int:
        """Late events of all streams."""
        return sum(self.late_of.values())

    @property
    def duplicates(self) -> int:
        """Repeated deliveries of all streams: for each the largest number that a program received."""
        most: Split = {}
        for name, n in self.duplicates_of.items():
            stream = name.partition(": ")[0]
            most[stream] = max(most.get(stream, 0), n)
        return sum(most.values())

    @property
    def read(self) -> int:
        """Lines and rows."""
        return self.events + sum(self.versions.values()) + self.malformed

    @property
    def passed_over(self) -> int:
        """Files that were not read, or that changed since."""
        return len(self.refused) + len(self.gone) + len(self.changed)

    @property
    def absent_columns(self) -> list[tuple[str, str]]:
        """Streams and columns whose field no examined record has."""
        found = (tuple(name.split(_OF, 1)) for name, n in self.absent.items() if n == self._n_of(name))
        return sorted((stream, column) for stream, column in found)

    def _n_of(self, absent: str) -> int:
        return self.records.get(absent.split(_OF, 1)[0], 0)

    def add(self, other: Counts) -> None:
        """Add what `other` counted."""
        self.events += other.events
        self.corrected += other.corrected
        self.uncorrected += other.uncorrected
        self.rows += other.rows
        self.shadow_rows += other.shadow_rows
        self.open_runs |= other.open_runs
        self.open_steps |= other.open_steps
        self.busy |= other.busy
        self.newest |= other.newest
        self.waiting |= other.waiting
        self.clocks |= other.clocks
        self.instead = other.instead | self.instead
        self.deadlines |= other.deadlines
        self.waiting_bytes |= other.waiting_bytes
        for name in _SPLITS:
            mine: Split = getattr(self, name)
            for key, n in getattr(other, name).items():
                mine[key] = mine.get(key, 0) + n
            if name in _BOUNDED and len(mine) > 2 * MOST_NAMES:
                setattr(self, name, largest(mine))
        for name, found in other.unseen.items():
            self.unseen[name] = together(self.unseen.get(name, (0, None, None)), found)
        for name in _HIGHEST:
            highest: Highest = getattr(self, name)
            for key, (us, place) in getattr(other, name).items():
                highest[key] = max(highest.get(key, (us, place)), (us, place))

    def add_input(self, read: Iterable[Counts], runs: Iterable[Counts]) -> None:
        """Add what was lost of inputs that several `runs` share: each input once, as it was `read`.

        Of the runs that a rule dropped, the run of the rules that dropped most counts.
        """
        for counts in read:
            self.add(counts)
        for counts in runs:
            for rule, n in counts.dropped_runs.items():
                self.dropped_runs[rule] = max(self.dropped_runs.get(rule, 0), n)

    def to_json(self) -> str:
        """Return the counts that are not zero as JSON."""
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        return json.dumps({name: value for name, value in values.items() if value}, separators=(",", ":"))

    @classmethod
    def of_json(cls, text: str) -> Counts:
        """Return the counts that `to_json` wrote."""
        found = json.loads(text)
        for name in _HIGHEST:
            if name in found:
                found[name] = highest_of_json(found[name])
        if "unseen" in found:
            found["unseen"] = {name: tuple(parts) for name, parts in found["unseen"].items()}
        return cls(**found)


_OF = ": "


def absent_name(stream: str, column: str) -> str:
    """Return the name of a column in `Counts.absent`."""
    return f"{stream}{_OF}{column}"


def unseen_name(loss: Loss, stream: str) -> str:
    """Return the name of a loss in `Counts.unseen`."""
    return f"{loss}{_OF}{stream}"


def together(one: Unseen, other: Unseen) -> Unseen:
    """Return two losses as one."""
    first_us = min((us for us in (one[1], other[1]) if us is not None), default=None)
    last_us = max((us for us in (one[2], other[2]) if us is not None), default=None)
    return one[0] + other[0], first_us, last_us


_SPLITS = (
    *("reasons", "late_of", "duplicates_of", "late_in", "late_keys"),
    *("matches", "timeouts", "suppressed", "retracted", "versions"),
    *("dropped_runs", "dropped_matches", "dropped_events", "dropped_keys", "beyond"),
    *("empty", "partial", "refused", "gone", "changed", "lost", "tombstones", "refused_rows"),
    *("stale_tables", "state", "records", "absent", "looked_at", "events_of", "delays", "delay_us"),
)
_BOUNDED = frozenset(("late_in", "late_keys", "dropped_keys"))
_HIGHEST = ("latest", "partitions", "latest_late")


DELAYS_S = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 21_600.0, 86_400.0)
"""Upper bounds of the delays of matches that are counted together, in seconds; the last have none."""


def delay_name(rule: str, number: int) -> str:
    """Return the name in `Counts.delays` of the matches of a rule whose delay has bound `number`."""
    return f"{rule}{_OF}{number}"


def highest_of_json(found: Mapping[str, Sequence[Any]]) -> Highest:
    """Return what was written as JSON."""
    return {name: (int(us), str(place)) for name, (us, place) in found.items()}


def largest(split: Mapping[str, int], most: int = MOST_NAMES) -> Split:
    """Return the `most` largest counts, the largest first."""
    return dict(sorted(split.items(), key=lambda item: (-item[1], item[0]))[:most])


def reason_counts(reasons: Iterable[str], prefixes: Sequence[str] = ()) -> Split:
    """Return how many dead letters have each reason, without the value that differs from line to line.

    A value follows one of `prefixes`, which may contain a colon, or else the first colon.
    """
    counts: Split = {}
    for reason in reasons:
        name = next((known for known in prefixes if reason.startswith(f"{known}: ")), "")
        name = name or reason.partition(": ")[0]
        counts[name] = counts.get(name, 0) + 1
    return counts


def amount(n: int, one: str, many: str = "") -> str:
    """Return a number with its noun: ``1 match``, ``2,000 matches``. `many`: `one` with an s unless given."""
    return f"{n:,} {one if n == 1 else many or f'{one}s'}"
