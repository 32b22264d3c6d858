"""A time line as SVG: matches and attempts of each key, with the events that they took as steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cep.explain import svg
from cep.schema.time_literals import print_duration, time_for_people

MOST_SPANS = 500
"""Spans that are drawn; of the others only the number is written."""

_WIDTH = 960.0
_LEFT, _RIGHT = 24.0, 24.0
_ROW = 54.0
_LETTER = 6.4

_SECOND_US = 1_000_000
_TICKS_US = [
    *(step * 10**power for power in range(6) for step in (1, 2, 5)),
    *(step * _SECOND_US for step in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)),
    *(step * 3_600 * _SECOND_US for step in (2, 3, 6, 12, 24, 48, 7 * 24, 28 * 24, 91 * 24, 364 * 24)),
]
_MOST_TICKS = 8

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Mark:
    """An event at a time, with the name of its step, and what is shown about it."""

    time_us: int
    name: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """A match of one key, or an attempt that did not become a match.

    Parameters
    ----------
    lane
        The rule and the key. Spans of one lane are drawn together.
    start_us, end_us
        The first and the last time, in microseconds since 1970.
    words
        The text that is shown with it.
    marks
        The events that were taken.
    is_match
        False: it is drawn in grey.
    until_us
        The end of its window, which is drawn as a band; None: it is unknown.
    is_period
        Whether its ends are times, not events.
    """

    lane: str
    start_us: int
    end_us: int
    words: str
    marks: tuple[Mark, ...] = ()
    is_match: bool = True
    until_us: int | None = None
    is_period: bool = False


def timeline(spans: Sequence[Span], title: str) -> str:
    """Return a time line as an SVG document. Lanes are in the order of their first spans."""
    shown = spans[:MOST_SPANS]
    first_us = min((span.start_us for span in shown), default=0)
    last_us = max((max(span.end_us, span.until_us or 0) for span in shown), default=0)
    scale = _Scale(first_us, max(last_us, first_us + 1))
    lanes: dict[str, list[Span]] = {}
    for span in shown:
        lanes.setdefault(span.lane, []).append(span)
    body, y = [svg.label(_LEFT, 24, title, "title")], 84.0
    for lane, members in lanes.items():
        body.append(svg.label(_LEFT, y, lane, "title"))
        y += 20
        for span in members:
            body += _drawn(span, scale, y)
            y += _ROW
        y += 16
    if shown:
        body[1:1] = scale.drawn(y - 16)
    left_out = len(spans) - len(shown)
    if left_out:
        body.append(svg.label(_LEFT, y, f"and {left_out:,} more", "soft"))
    return svg.document(_WIDTH, y + 16, title, body)


class _Scale:
    """Where a time is, from left to right."""

    def __init__(self, first_us: int, last_us: int) -> None:
        self.first_us = first_us
        self.per_us = (_WIDTH - _LEFT - _RIGHT) / (last_us - first_us)
        self.last_us = last_us

    def x(self, at_us: int) -> float:
        return _LEFT + (at_us - self.first_us) * self.per_us

    def drawn(self, bottom: float) -> Iterator[str]:
        """Yield the ticks: at round times, with the date where it changes."""
        length = self.last_us - self.first_us
        step_us = next((step for step in _TICKS_US if length // step <= _MOST_TICKS), length)
        day, free = None, 0.0
        for at_us in range(-(-self.first_us // step_us) * step_us, self.last_us + 1, step_us):
            x, time = self.x(at_us), _EPOCH + timedelta(microseconds=at_us)
            yield svg.path(f"M{x:.1f} 62V{bottom:.1f}", "line dashed")
            anchor = "start" if x < _LEFT + 40 else "end" if x > _WIDTH - _RIGHT - 40 else "middle"
            yield svg.label(x, 56, _clock(time, step_us), "soft", anchor)
            if time.date() != day and x >= free:
                day, free = time.date(), x + 80
                yield svg.label(x, 42, day.isoformat(), "soft", anchor)


def _drawn(span: Span, scale: _Scale, top: float) -> Iterator[str]:
    """Yield the elements of a span: the band of its window, its bar, its events, its words."""
    start, end, y = scale.x(span.start_us), scale.x(span.end_us), top + 14
    if span.until_us is not None:
        width = max(scale.x(span.until_us) - start, 1.0)
        yield f'<rect x="{start:.1f}" y="{top + 4:.1f}" width="{width:.1f}" height="20" class="band"/>'
    length = print_duration(span.end_us - span.start_us).lower()
    about = f"{span.words}; {_text(span.start_us)} to {_text(span.end_us)}, {length}"
    bar = "bar" if span.is_match else "near-bar"
    line = svg.path(f"M{start:.1f} {y:.1f}H{max(end, start + 1):.1f}", bar)
    yield f"<g><title>{svg.escape(about)}</title>{line}</g>"
    free = 0.0
    is_known = span.marks or span.is_period
    ends = () if is_known else (Mark(span.start_us, ""), Mark(span.end_us, ""))  # its events are not known
    for mark in span.marks or ends:
        x = scale.x(mark.time_us)
        words = svg.escape(f"{mark.name} {_text(mark.time_us)} {mark.about}".rstrip())
        kind = "match" if span.is_match else "near"
        yield f'<g><title>{words}</title><circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" class="{kind}"/></g>'
        if x >= free:  # names that would cover each other are left to the titles
            yield svg.label(min(x, _WIDTH - _RIGHT - _LETTER * len(mark.name)), top, mark.name, "soft")
            free = x + _LETTER * (len(mark.name) + 1)
    at, anchor = (start, "start") if start < _WIDTH / 2 else (max(end, start), "end")
    most = int((_WIDTH - _RIGHT - at if anchor == "start" else at - _LEFT) / _LETTER)
    words = span.words if len(span.words) <= most else span.words[: most - 1] + "\u2026"
    yield svg.label(at, top + 36, words, "soft", anchor)


def _clock(time: datetime, step_us: int) -> str:
    if step_us >= 24 * 3_600 * _SECOND_US:
        return ""
    if step_us >= 60 * _SECOND_US:
        return f"{time:%H:%M}"
    return f"{time:%H:%M:%S}" if step_us >= _SECOND_US else f"{time:%H:%M:%S.%f}".rstrip("0")


def _text(at_us: int) -> str:
    return time_for_people(at_us) or str(at_us)
