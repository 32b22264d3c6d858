"""What happened in a run, in lines for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from cep.counts import Counts, absent_name, amount, largest
from cep.diagnostics.safe_text import for_cell, in_short
from cep.schema.stream import Stream
from cep.schema.time_literals import time_for_people

MANY_LATE = 0.05
"""Share of late events from which on the summary says what to do."""

_SHOWN_NAMES = 3
"""Reasons, files and keys that a line of the summary names."""


_LOSSES: Mapping[str, str] = {
    "malformed": "dead_letter",
    "late": "late",
    "uncorrected": "late",
    **dict.fromkeys(("dropped runs", "dropped events", "unreported", "lost", "refused rows"), ""),
    **dict.fromkeys(("refused files", "gone files", "changed files", "stale tables"), ""),
}
"""Lines that say what was lost -> the output that has it; empty: none has."""


class _Row(NamedTuple):
    """A line of the summary."""

    name: str
    number: int
    text: str


def summary_lines(
    counts: Counts,
    seconds: float,
    streams: Mapping[str, Stream],
    instead: str = "",
    read: Collection[tuple[str, str]] = (),
    *,
    shadow: Collection[str] = (),
) -> list[str]:
    """Return what happened: a line for each kind of count, and more if it needs a remedy.

    `instead`: how else to run, so that no event is late. `read`: the columns that rules read
    (`RuleSet.read_columns`). `shadow`: the names of shadow rules.
    """
    lines = _lines(_rows(counts, shadow), counts, streams, instead)
    about = _absent_lines(counts.absent_columns, counts, streams, read)
    return [*lines, *about, _summary_line("seconds", f"{seconds:.2f}", "")]


def loss_lines(
    counts: Counts,
    streams: Mapping[str, Stream],
    instead: str = "",
    read: Collection[tuple[str, str]] = (),
    *,
    kept: Collection[str] = (),
    refused: str = "a dead letter says why",
) -> list[str]:
    """Return the lines of the summary that say what was lost, which `--quiet` does not hide.

    `kept`: the existing outputs among ``late`` and ``dead_letter``. `refused`: what says why a file was
    refused.
    """
    rows = (
        row
        for row in _rows(counts, refused=refused)
        if row.number and _LOSSES.get(row.name, row.name) not in kept
    )
    lines = _lines((row for row in rows if row.name in _LOSSES), counts, streams, instead)
    columns = [column for column in counts.absent_columns if column in read]
    return [*lines, *_absent_lines(columns, counts, streams, read)]


def absent_texts(
    counts: Counts, streams: Mapping[str, Stream], read: Collection[tuple[str, str]]
) -> list[str]:
    """Return the fields that rules read but no event has, and the fields that events have instead."""
    columns = [column for column in counts.absent_columns if column in read]
    return [_absent_text(column, counts, streams, read) for column in columns]


def _absent_lines(
    columns: Sequence[tuple[str, str]],
    counts: Counts,
    streams: Mapping[str, Stream],
    read: Collection[tuple[str, str]],
) -> Iterator[str]:
    """Yield a line for each column whose field no event has, first for those that rules read."""
    in_order = sorted(columns, key=lambda column: (column not in read, column))
    texts = [_absent_text(column, counts, streams, read) for column in in_order[:_SHOWN_NAMES]]
    for number, text in enumerate([*texts, *_rest(columns, "field")]):
        yield _summary_line(*(("absent fields", f"{len(columns):,}") if number == 0 else ("", "")), text)


def _absent_text(
    column: tuple[str, str],
    counts: Counts,
    streams: Mapping[str, Stream],
    read: Collection[tuple[str, str]],
) -> str:
    stream, name = column
    n, n_looked_at = counts.records[stream], counts.looked_at[stream]
    found = streams[stream].field(name)
    where = f"is in none of {amount(n, 'event')}"
    if n_looked_at < n:
        examined = amount(n_looked_at, "event that was", "events that were")
        where = f"is in none of {examined} examined, and NULL in all {n:,}"
    unread = "" if column in read else "; no rule reads it"
    field = name if found is None else found.column
    return f"field `{field}` {where}; {counts.instead[absent_name(stream, name)]}{unread}"


def _lines(rows: Iterable[_Row], counts: Counts, streams: Mapping[str, Stream], instead: str) -> list[str]:
    lines = []
    for name, count, text in rows:
        lines.append(_summary_line(name, f"{count:,}", text))
        if name == "late" and counts.late > MANY_LATE * _n_read(counts):
            lines += [_summary_line("", "", line) for line in _about_late(counts, streams, instead)]
    return lines


def _rows(
    counts: Counts, shadow: Collection[str] = (), refused: str = "a dead letter says why"
) -> Iterator[_Row]:
    yield _Row("events", counts.events, "")
    for name, n in sorted(counts.versions.items()):
        yield _Row("versions", n, f"of table {name}")
    yield _Row("malformed", counts.malformed, _listed(counts.reasons, "; ", "reason"))
    yield _Row("late", counts.late, "")
    if counts.corrected > 0:
        yield _Row("corrected", counts.corrected, "late events that were counted")
    yield _Row("duplicates", counts.duplicates, "")
    yield from _matches(counts, shadow)
    for name, by_rule in (
        ("timeouts", counts.timeouts),
        ("suppressed", counts.suppressed),
        ("retracted", counts.retracted),
    ):
        found = {rule: count for rule, count in by_rule.items() if count}
        if found:
            yield _Row(name, sum(found.values()), _by_rule(found))
    if counts.uncorrected:
        why = "late, but not too late for a correction; more was retained than `max_retained` allows"
        yield _Row("uncorrected", counts.uncorrected, why)
    yield from _dropped(counts)
    for name, files, what in (
        ("empty files", counts.empty, "passed over"),
        ("partial files", counts.partial, "passed over, because of the ends of their names"),
        ("refused files", counts.refused, refused),
        ("gone files", counts.gone, "to be read, but removed meanwhile, or links that lead nowhere"),
        ("changed files", counts.changed, "changed since they were read; what changed was not read"),
    ):
        if files:
            yield _Row(name, len(files), f"{what}: {_names(files, 'file')}")
    for name, split, what, of in (
        ("lost", counts.lost, "messages that were removed before they were read", "partition"),
        ("tombstones", counts.tombstones, "messages without a value, passed over", "partition"),
        ("refused rows", counts.refused_rows, "refused for good by a sink", "sink"),
        ("stale tables", counts.stale_tables, "changed files that cannot be used, passed over", "table"),
    ):
        if split:
            yield _Row(name, sum(split.values()), f"{what}: {_listed(split, ', ', of)}")
    if counts.state.keys() & {"warm", "cold", "snapshots"}:
        yield _Row("key groups", *_about_state(counts.state))
    if counts.state.get("evicted"):
        why = "times a key group left the memory, which was full: raise `state_memory_mb` to read fewer files"
        yield _Row("evicted", counts.state["evicted"], why)


def _dropped(counts: Counts) -> Iterator[_Row]:
    """Yield the numbers of runs and matches that limits dropped."""
    keys = _keys(counts.dropped_keys)
    of_keys = f"; most of {keys}" if keys else ""
    why = "more runs were open for one key than a rule may have"
    if counts.beyond.keys() & {"open_runs", "open_runs_mb"}:
        why = "more runs were open than `MAX RUNS` or `limits` allow"
    for name, split, text in (
        ("dropped runs", counts.dropped_runs, why),
        ("dropped events", counts.dropped_events, "too many waited for the watermark"),
        ("unreported", counts.dropped_matches, "matches beyond `limits`"),
    ):
        found = {rule: count for rule, count in split.items() if count}
        if found:
            yield _Row(name, sum(found.values()), f"{text}: {_by_rule(found)}{of_keys}")


def _matches(counts: Counts, shadow: Collection[str]) -> Iterator[_Row]:
    """Yield the numbers of matches: of live rules, and of shadow rules if there are any."""
    live = {rule: count for rule, count in counts.matches.items() if rule not in shadow}
    yield _Row("matches", sum(live.values()), _by_rule(live))
    if shadow:
        unseen = {rule: counts.matches.get(rule, 0) for rule in shadow}
        yield _Row("shadow", sum(unseen.values()), f"{_by_rule(unseen)}; they alert nobody")


def _about_state(state: Mapping[str, int]) -> tuple[int, str]:
    """Return how often state in files was used, and what was written."""
    warm, cold, n_snapshots = (state.get(name, 0) for name in ("warm", "cold", "snapshots"))
    mb = {name: f"{state.get(name, 0) / 1e6:,.1f} MB" for name in ("recorded", "written", "carried")}
    return warm + cold, (
        f"called with state in files, {warm:,} of them warm; "
        f"{amount(state.get('touched', 0), 'key')} touched; {mb['recorded']} of records and "
        f"{mb['written']} of {amount(n_snapshots, 'snapshot')} written, "
        f"{mb['carried']} carried by Spark"
    )


def _summary_line(name: str, number: str, text: str) -> str:
    return for_cell(f"{name:<14}{number:>12}  {text}".rstrip())


def _n_read(counts: Counts) -> int:
    """Return how many events and versions there were."""
    return counts.events + sum(counts.versions.values())


def _about_late(counts: Counts, streams: Mapping[str, Stream], instead: str) -> Iterator[str]:
    """Yield where many late events come from, why they are late, and what to do."""
    share = round(100 * counts.late / _n_read(counts))
    behind = ""  # of uncorrected events in a pipeline only the number is known
    if counts.latest_late:
        behind = (
            f", up to {long_duration(max(us for us, _ in counts.latest_late.values()))} behind the watermark"
        )
    yield f"{share} % of the events{behind}"
    if counts.late_in:
        yield f"in {_listed(counts.late_in, ', ', 'file')}"
    if counts.late_keys:
        yield f"of {_keys(counts.late_keys)}"
    if counts.late_in and not counts.latest_late:
        yield "the input had been declared complete; to keep them, start from a new checkpoint"
        return
    latest_us, place = max(counts.latest.values(), default=(0, ""))
    if place and len(counts.latest) == 1:  # with several partitions it may follow the slowest of them
        yield f"the watermark follows the latest event: {time_for_people(latest_us)}, {place}"
    late = [f"`{name}` (now {long_duration(streams[name].lateness_us)})" for name in counts.late_of]
    if counts.uncorrected == counts.late:
        yield "to keep them, raise `max_retained`"
        return
    yield f"to keep them, raise `lateness` of stream {', '.join(late)}{instead and f', or {instead}'}"


def _listed(counts: Mapping[str, int], separator: str, what: str, shown: Callable[[str], str] = str) -> str:
    """Return the largest of some counts by name; `shown`: how a name is written."""
    first = [f"{shown(name)} ({count:,})" for name, count in largest(counts, _SHOWN_NAMES).items()]
    return separator.join([*first, *_rest(counts, what)])


def _keys(counts: Mapping[str, int]) -> str:
    """Return the largest of some counts by key."""
    return _listed(counts, ", ", "key", in_short)


def _names(names: Iterable[str], what: str) -> str:
    shown = sorted(names)
    return ", ".join([*shown[:_SHOWN_NAMES], *_rest(shown, what)])


def _rest(names: Collection[object], what: str) -> list[str]:
    n_more = len(names) - _SHOWN_NAMES
    return [amount(n_more, f"other {what}")] if n_more > 0 else []


def long_duration(length_us: int) -> str:
    """Return a length of time in its two largest units, in words."""
    seconds, rest_us = divmod(length_us, 1_000_000)
    if seconds < 60:
        shown = f"{seconds + rest_us / 1e6:g}"
        return f"{shown} second{'' if shown == '1' else 's'}"
    units = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
    parts: list[str] = []
    for unit, length in units:
        number, seconds = divmod(seconds, length)
        if number or parts:
            parts.append(f"{number:,} {unit}{'' if number == 1 else 's'}" if number else "")
    return " ".join(filter(None, parts[:2]))


def _by_rule(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
