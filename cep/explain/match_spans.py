"""The spans of a time line from rows of matches, as `cep match` and the sinks write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cep.explain.timeline import Mark, Span
from cep.local.replay import time_of

_OF_EVENT = ("event_number", "event_variable", "event")


def key_of_row(row: Mapping[str, Any]) -> str:
    """Return the values of the key of a match: its columns between `rule` and `match_id`."""
    names = list(row)
    columns = names[names.index("rule") + 1 : names.index("match_id")]
    return ",".join(str(row[name]) for name in columns if row[name] is not None)


def spans_of_rows(rows: Sequence[Mapping[str, Any]]) -> Iterator[Span]:
    """Yield a span for each match. Raises InputError: a time cannot be read."""
    rows_of: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        rows_of.setdefault(row["match_id"], []).append(row)
    for match_id, of_match in rows_of.items():
        first = of_match[0]
        measures = list(first)[list(first).index("match_end") + 1 :]
        shown = {name: first[name] for name in measures if name not in _OF_EVENT}
        words = ", ".join(f"{name} {value}" for name, value in shown.items() if value is not None)
        lane = ", ".join(part for part in (first["rule"], key_of_row(first)) if part)
        times = (_us(first["match_start"]), _us(first["match_end"]))
        yield Span(lane, *times, words or match_id, tuple(_marks(of_match)))


def _marks(rows: Sequence[Mapping[str, Any]]) -> Iterator[Mark]:
    """Yield the events of a match that has a row for each: the column with the start is their time."""
    if rows[0].get("event") is None:
        return
    for row in sorted(rows, key=lambda row: row["event_number"]):
        event, start = row["event"], rows[0]["match_start"]
        times = [name for name, value in rows[0]["event"].items() if _is_same_time(value, start)]
        if times:
            about = ", ".join(f"{name} {value}" for name, value in event.items() if name not in times)
            yield Mark(_us(event[times[0]]), row["event_variable"], about)


def _is_same_time(value: Any, start: Any) -> bool:
    try:
        return type(value) is type(start) and _us(value) == _us(start)
    except ValueError:
        return False


def _us(time: Any) -> int:
    return time_of(time if isinstance(time, str) else time.isoformat())
