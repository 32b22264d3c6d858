"""An answer of `cep why` as a time line, and as a table for notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cep.explain.timeline import Mark, Span, timeline
from cep.local.replay import in_line
from cep.schema.html_table import html_table

if TYPE_CHECKING:
    from cep.why.reasons import Period, Step, Why, WhyRows


def title_of(told: Why | WhyRows) -> str:
    """Return the rule and the key."""
    return f"{told.rule}, {in_line(told.key) or 'all events'}"


def picture(told: Why) -> str:
    """Return the matches and attempts of an answer as an SVG document."""
    return _timeline(spans_of(told), told)


def picture_of_rows(told: WhyRows) -> str:
    """Return the windows of an answer, or its rows, as an SVG document."""
    return _timeline(spans_of_rows(told), told)


def _timeline(spans: Iterator[Span], told: Why | WhyRows) -> str:
    return timeline(sorted(spans, key=lambda span: span.start_us), title_of(told))


def html_of_rows(told: WhyRows) -> str:
    """Return the time line, and below it what became of each window or row."""
    listed = sorted((*told.reported, *told.others), key=lambda one: one.start_us)
    rows = [
        ("reported" if _is_reported(one) else "", _values(one), _became(one) or "reported") for one in listed
    ]
    counts = f"{len(told.reported):,} {told.kind}s, {told.n_others:,} others"
    return picture_of_rows(told) + html_table(counts, ("", "values", "what became of it"), rows)


def html(told: Why) -> str:
    """Return the time line, and below it what became of each match and attempt."""
    matches = [
        (
            "timeout" if match.is_timeout else "match",
            _steps(match.steps),
            "reported" if match.removed_by is None else match.removed_by.says,
        )
        for match in told.matches
    ]
    attempts = [
        ("attempt", _steps(attempt.steps), attempt.ending.says) for attempt in told.attempts if attempt.steps
    ]
    heading = f"{told.n_events:,} events, {len(told.matches):,} matches, {told.n_attempts:,} attempts"
    return picture(told) + html_table(heading, ("", "events", "what became of it"), [*matches, *attempts])


def _steps(steps: tuple[Step, ...]) -> str:
    return ", ".join(step.variable for step in steps)


def spans_of(told: Why) -> Iterator[Span]:
    """Yield what a time line shows of an answer."""
    for match in told.matches:
        kind = "timeout" if match.is_timeout else "match"
        removed = match.removed_by
        words = f"{kind} {match.match_id}" if removed is None else f"no {kind}: {removed.says}"
        marks = tuple(_mark(step) for step in match.steps)
        is_match = removed is None and not match.is_timeout
        yield Span("matches and attempts", match.start_us, match.end_us, words, marks, is_match)
    for attempt in told.attempts:
        if attempt.steps:
            marks = tuple(_mark(step) for step in attempt.steps)
            start_us, end_us = marks[0].time_us, marks[-1].time_us
            words = f"attempt: {attempt.ending.says}"
            yield Span("matches and attempts", start_us, end_us, words, marks, False, attempt.until_us)


def spans_of_rows(told: WhyRows) -> Iterator[Span]:
    """Yield what a time line shows: windows as bands with their events, or rows and those of their tables."""
    periods = sorted((*told.reported, *told.others), key=lambda one: (one.start_us, one.end_us or 0))
    last_us = max(_times_of(told), default=0)
    lane = "windows" if told.kind == "window" else told.rule
    for one in periods:
        marks = tuple(Mark(event.time_us, "", in_line(event.values)) for event in one.events)
        end_us = last_us if one.end_us is None else one.end_us
        words = "; ".join(part for part in (_values(one), _became(one)) if part)
        yield Span(lane, one.start_us, end_us, words, marks, _is_reported(one), end_us, is_period=True)
    for table in told.tables:
        for row in table.rows:
            end_us = last_us if row.end_us is None else row.end_us
            yield Span(table.table, row.start_us, end_us, _values(row), (), True, None, is_period=True)


def _times_of(told: WhyRows) -> Iterator[int]:
    rows = (row for table in told.tables for row in table.rows)
    for one in (*told.reported, *told.others, *rows):
        yield one.start_us if one.end_us is None else one.end_us


def _is_reported(period: Period) -> bool:
    return period.match_id is not None and period.removed_by is None


def _values(period: Period) -> str:
    return in_line({name: value for name, value in period.values.items() if value is not None})


def _became(period: Period) -> str:
    """Return why a window or a row was not reported; empty: it was."""
    if period.removed_by is not None:
        return period.removed_by.says
    return ", ".join(failed.says for failed in period.failed)


def _mark(step: Step) -> Mark:
    return Mark(step.event.time_us, step.variable, in_line(step.event.values))
