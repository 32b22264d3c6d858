"""A profile as text."""

from __future__ import annotations

from collections.abc import Iterator

from cep.diagnostics.safe_text import for_cell, for_terminal, in_short
from cep.profiles.profile import MAX_VALUES, ColumnProfile, Profile, number_text
from cep.schema.time_literals import print_duration, time_for_people

_MOST_SHOWN = 5
"""Values of a column that are shown."""


def profile_text(profile: Profile) -> str:
    """Return a profile as lines."""
    return for_terminal("\n".join(_lines(profile)))


def _lines(profile: Profile) -> Iterator[str]:
    malformed = f", {profile.n_malformed:,} malformed" if profile.n_malformed else ""
    yield f"{for_cell(profile.stream)}: {profile.n_events:,} events{malformed}"
    if profile.first_us is not None and profile.last_us is not None:
        yield f"  time   {_time(profile.first_us)} to {_time(profile.last_us)}"
        if profile.gap_from_us is not None:
            yield f"  gap    {_length(profile.gap_us)} without an event from {_time(profile.gap_from_us)}"
        most = f", by {_length(profile.most_late_us)} at most" if profile.n_disordered else ""
        yield f"  order  {profile.n_disordered:,} of them come after a later event{most}"
    names = max((len(for_cell(name)) for name in profile.columns), default=0)
    types = max((len(column.type) for column in profile.columns.values()), default=0)
    for name, column in profile.columns.items():
        yield f"  {for_cell(name):<{names}}  {column.type:<{types}}  {_column(column, profile.n_events)}"


def _column(column: ColumnProfile, n_events: int) -> str:
    if column.n_null == n_events:
        return "NULL in all events"
    found = []
    if column.least is not None and column.greatest is not None:
        ends = (column.least, column.greatest)
        found.append(" to ".join(_time(int(end)) if column.is_time else number_text(end) for end in ends))
    elif column.counts is not None:
        shown = [f"{in_short(value)} {n:,}" for value, n in list(column.counts.items())[:_MOST_SHOWN]]
        found.append(", ".join(shown))
    if column.counts is not None:
        n = len(column.counts)
        found.append(f"{n:,} {'value' if n == 1 else 'values'}")
    elif column.is_counted:
        found.append(f"more than {MAX_VALUES:,} values")
    elif not column.is_time:
        found.append("not counted")
    # A column of NaN alone has no range: its counts say it.
    found += [f"NaN {column.n_nan:,}"] if column.n_nan and column.least is not None else []
    found += [f"NULL {column.n_null:,}"] if column.n_null else []
    return "; ".join(found)


def _time(us: int) -> str:
    return time_for_people(us) or f"{us} microseconds"


def _length(us: int) -> str:
    """Return a duration, to the second if it is a minute or more, to the millisecond if it is a second."""
    unit_us = 1_000_000 if us >= 60_000_000 else 1_000 if us >= 1_000_000 else 1
    return print_duration(us // unit_us * unit_us).lower()
