"""The spans of a time line from rows of matches, as `cep match` and the sinks write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from cep.explain.timeline import Mark, Span
from cep.local.replay import time_of, time_text, word
from cep.schema.time_literals import time_for_people

_OF_EVENT = ("event_number", "event_variable", "event")


def is_match(row: Any) -> bool:
    """Return whether a row of a file belongs to a match: rule and id are texts, and its times are times."""
    return (
        isinstance(row, Mapping)
        and all(isinstance(row.get(name), str) for name in ("rule", "match_id"))
        and all(_us(row.get(name)) is not None for name in ("match_start", "match_end"))
    )


def key_of_row(row: Mapping[str, Any]) -> str:
    """Return the values of the key of a match: its columns between `rule` and `match_id`."""
    names = list(row)
    columns = names[names.index("rule") + 1 : names.index("match_id")]
    return ",".join(_text(row[name]) for name in columns if row[name] is not None)


def _text(value: Any) -> str:
    return time_text(time_of(value.isoformat())) if isinstance(value, datetime) else word(value)


def spans_of_rows(rows: Sequence[Mapping[str, Any]]) -> Iterator[Span]:
    """Yield a span for each match, from rows of matches (`is_match`)."""
    rows_of: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        rows_of.setdefault(row["match_id"], []).append(row)
    for match_id, of_match in rows_of.items():
        first = of_match[0]
        start_us, end_us = _us(first["match_start"]), _us(first["match_end"])
        assert start_us is not None
        assert end_us is not None
        left_out = _OF_EVENT if _has_event(first) else ()
        measures = list(first)[list(first).index("match_end") + 1 :]
        shown = {name: first[name] for name in measures if name not in left_out}
        words = ", ".join(f"{name} {word(value)}" for name, value in shown.items() if value is not None)
        lane = ", ".join(part for part in (first["rule"], key_of_row(first)) if part)
        yield Span(lane, start_us, end_us, words or match_id, tuple(_marks(of_match)))


def _has_event(row: Mapping[str, Any]) -> bool:
    """Return whether a row has an event of its match: a measure may have the name of one of its columns."""
    kinds = (int, str, Mapping)
    return all(isinstance(row.get(name), kind) for name, kind in zip(_OF_EVENT, kinds, strict=True))


def _marks(rows: Sequence[Mapping[str, Any]]) -> Iterator[Mark]:
    """Yield the events of a match that has a row for each.

    A column with the start of the match is their time; of another stream's events, one with the end.
    """
    rows = sorted(filter(_has_event, rows), key=lambda row: row["event_number"])
    if not rows:
        return
    ends = ((rows[0], "match_start"), (rows[-1], "match_end"))
    times = [
        name
        for row, end in ends
        for name, value in row["event"].items()
        if type(value) is type(row[end]) and _us(value) == _us(row[end])
    ]
    for row in rows:
        event = row["event"]
        of_time = ((name, _us(event.get(name))) for name in times)
        time, time_us = next((pair for pair in of_time if pair[1] is not None), ("", None))
        if time_us is not None:
            about = ", ".join(f"{name} {word(value)}" for name, value in event.items() if name != time)
            yield Mark(time_us, row["event_variable"], about)


def _us(time: Any) -> int | None:
    """Return a time in microseconds since 1970; None: it is not a time, or is not in the years 1 to 9999."""
    if not isinstance(time, str | datetime):
        return None
    try:
        found = time_of(time if isinstance(time, str) else time.isoformat())
    except ValueError:
        return None
    return found if time_for_people(found) else None
