"""An answer of `cep why` as a time line, and as a table for notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cep.explain.timeline import Mark, Span, timeline
from cep.schema.html_table import html_table

if TYPE_CHECKING:
    from cep.why.reasons import Step, Why


def title_of(told: Why) -> str:
    """Return the rule and the key."""
    shown = ", ".join(f"{name} {value}" for name, value in told.key.items())
    return f"{told.rule}, {shown or 'all events'}"


def picture(told: Why) -> str:
    """Return the matches and attempts of an answer as an SVG document."""
    return timeline(sorted(spans_of(told), key=lambda span: span.start_us), title_of(told))


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


def _mark(step: Step) -> Mark:
    about = ", ".join(f"{name} {value}" for name, value in step.event.values.items())
    return Mark(step.event.time_us, step.variable, about)
