"""What `cep why` prints: text for people, and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from cep.diagnostics.diagnostic import Lines, Source, Span, excerpt
from cep.diagnostics.safe_text import for_terminal
from cep.local.replay import in_line, time_text, word
from cep.schema.stream import Stream
from cep.why.reasons import ELSEWHERE, Attempt, Event, Failed, Found, Period, Step, Why, WhyRows
from cep.why.summary import Funnel

_TIMES = frozenset(("time_us", "start_us", "end_us", "since_us", "until_us"))
_MOST_STEPS = 12
"""Events of a run that are shown; of a longer one the first and the last."""


def as_text(why: Why | WhyRows, source: Source | None, streams: Sequence[Stream]) -> str:
    """Return the answer as text.

    Parameters
    ----------
    source
        The text of the rule, for carets; None: it has none.
    streams
        The streams of the rule: their tie breakers name the events.
    """
    shown = _Shown(source, {stream.name: stream.tie_break for stream in streams})
    return for_terminal("\n".join(shown.lines(why) if isinstance(why, Why) else shown.rows(why)))


def as_data(value: Any, source: Source | None) -> Any:
    """Return the answer, or a part of it, as values that JSON can express. Times are ISO 8601 in UTC."""
    if isinstance(value, Span):
        if source is None:
            return None
        line, column = Lines(source.text).place(value.start)
        return {"file": source.name, "line": line, "column": column}
    if is_dataclass(value):
        found: dict[str, Any] = {}
        for field in fields(value):
            item = getattr(value, field.name)
            is_time = field.name in _TIMES
            name = field.name.removesuffix("_us") if is_time else field.name
            found[name] = time_text(item) if is_time and item is not None else as_data(item, source)
        return found
    if isinstance(value, tuple):
        return [as_data(item, source) for item in value]
    return value


class _Shown:
    def __init__(self, source: Source | None, ties: dict[str, tuple[str, ...]]) -> None:
        self.source = source
        self.ties = ties

    def lines(self, why: Why) -> Iterator[str]:
        key = in_line(why.key)
        n_matches = sum(match.removed_by is None and not match.is_timeout for match in why.matches)
        others = _count(why.n_attempts, "other attempt" if n_matches else "attempt")
        counts = f"{_count(n_matches, 'match')}, {others} in {_count(why.n_events, 'event')}"
        yield f"{why.rule}, {key or 'all events'}: {counts}"
        for match in why.matches:
            yield ""
            yield from self._match(match)
        for number, attempt in enumerate(why.attempts, 1):
            yield ""
            yield from self._attempt(number, attempt)

    def rows(self, why: WhyRows) -> Iterator[str]:
        key = in_line(why.key)
        if why.kind == "window":
            n, others = _count(len(why.reported), "match"), _count(why.n_others, "other window")
            yield f"{why.rule}, {key or 'all events'}: {n}, {others} in {_count(why.n_events, 'event')}"
        else:
            n, others = _count(len(why.reported), "row"), _count(why.n_others, "time")
            yield f"{why.rule}, {key}: {n} over time, {others} without one"
        for period in sorted((*why.reported, *why.others), key=lambda one: (one.start_us, one.end_us or 0)):
            yield ""
            yield from self._period(period, why.kind)
        yield from ([""] if why.refused else [])
        for place, refusal in enumerate(why.refused):
            label = "left out" if place == 0 else ""
            yield f"{label:<11}{self._event(refusal.event)} [{refusal.reason}] {refusal.says}"
            if place == 0:
                yield from self._carets(refusal.failed)
        if why.n_refused > len(why.refused):
            yield f"{'':<11}and {why.n_refused - len(why.refused):,} more"

    def _period(self, period: Period, kind: str) -> Iterator[str]:
        is_reported = period.match_id is not None and period.removed_by is None
        name = "match" if kind == "window" else "row"
        yield f"{name} {period.match_id}" if is_reported else f"no {name}"
        until = "on" if period.end_us is None else f"to {time_text(period.end_us)}"
        yield f"  {kind if kind == 'window' else 'valid':<9}{time_text(period.start_us)} {until}"
        for number, event in enumerate(period.events[-_MOST_STEPS:]):
            yield f"  {'counted' if number == 0 else '':<9}{self._event(event)}"
        if len(period.events) > _MOST_STEPS:
            yield f"  {'':<9}and {len(period.events) - _MOST_STEPS:,} before them"
        has = in_line(period.values)
        if has:
            yield f"  {'has':<9}{has}"
        for number, failed in enumerate(period.failed):
            yield f"  {'refused' if number == 0 else '':<9}[{failed.reason}] {failed.says}"
        yield from self._carets(period.failed)
        if period.removed_by is not None:
            yield f"  {'removed':<9}[{period.removed_by.reason}] {period.removed_by.says}"

    def _match(self, match: Found) -> Iterator[str]:
        name = "timeout" if match.is_timeout else "match"
        removed = match.removed_by
        yield f"{name} {match.match_id}" if removed is None else f"no {name} {match.match_id}"
        yield from self._steps(match.steps)
        if removed is not None:
            yield f"  {'removed':<9}[{removed.reason}] {removed.says}"

    def _attempt(self, number: int, attempt: Attempt) -> Iterator[str]:
        missing = f"at least {_count(attempt.missing, 'event')} missing" if attempt.missing else "complete"
        yield f"attempt {number}: {_count(len(attempt.steps), 'event')} taken, {missing}"
        yield from self._steps(attempt.steps)
        if attempt.waits_for:
            until = f" until {time_text(attempt.until_us)}" if attempt.until_us is not None else ""
            yield f"  {'waited':<9}for {' or '.join(attempt.waits_for)}{until}"
        ending = attempt.ending
        by = "" if ending.reason == "skipped" else self._because(ending.event)
        yield f"  {'ended':<9}[{ending.reason}] {ending.says}{by}"
        for place, refusal in enumerate(attempt.refusals):
            event = f"{self._event(refusal.event)} as {refusal.variable}:"
            yield f"  {'refused':<9}{event} [{refusal.reason}] {refusal.says}{self._because(refusal.because)}"
            for failed in refusal.failed[1:]:
                yield f"  {'':<9}{'and':>{len(event)}} [{failed.reason}] {failed.says}"
            if place == 0:
                yield from self._carets(refusal.failed)
        rest = attempt.n_refused - sum(refusal.reason not in ELSEWHERE for refusal in attempt.refusals)
        if rest > 0:
            yield f"  {'':<9}and {rest:,} more"

    def _carets(self, parts: Sequence[Failed]) -> Iterator[str]:
        for failed in parts:
            if self.source is not None and failed.span is not None:
                label = failed.reason if len(parts) > 1 or failed.part < 0 else "is not TRUE"
                yield from ("    " + line for line in excerpt(self.source, failed.span, label))

    def _steps(self, steps: Sequence[Step]) -> Iterator[str]:
        half = _MOST_STEPS // 2
        for number, step in enumerate(steps):
            if len(steps) > _MOST_STEPS and number == half:
                yield f"  ... {len(steps) - _MOST_STEPS:,} more"
            if len(steps) <= _MOST_STEPS or number < half or number >= len(steps) - half:
                took = "took" if number == 0 else ""
                yield f"  {took:<9}{self._event(step.event)} as {step.variable}"

    def _because(self, event: Event | None) -> str:
        return "" if event is None else f": {self._event(event)}"

    def _event(self, event: Event) -> str:
        names = self.ties.get(event.stream) or next(iter(self.ties.values()), ())
        shown = [word(event.values[name]) for name in names if event.values.get(name) is not None]
        stream = [event.stream] if event.stream else []
        return " ".join([*stream, time_text(event.time_us), *shown])


def _count(n: int, what: str) -> str:
    plural = what + ("es" if what.endswith("match") else "s")
    return f"{n:,} {what if n == 1 else plural}"


def funnel_text(funnel: Funnel) -> str:
    """Return the counts of a rule as text."""
    lines = [
        f"{funnel.rule}: {_count(funnel.n_events, 'event')} of {_count(funnel.n_keys, 'key')}, "
        f"{_count(funnel.n_began, 'first event')} of runs, {_count(funnel.n_matches, 'match')}"
    ]
    for step in funnel.steps:
        lines += ["", f"{step.variable}  {_count(step.n_events, 'event')}"]
        width = max((len(part.text) for part in step.parts), default=0)
        for part in step.parts:
            passed = "reads the run" if part.n_true is None else f"{part.n_true:,} pass"
            alone = f"; refused {part.n_alone:,} alone" if part.n_alone else ""
            lines.append(f"  {part.text:<{width}}  {passed}{alone}")
        waited = "" if step.n_waited == step.n_candidates else f", for {step.n_waited:,} of them a run waited"
        lines.append(f"  {_count(step.n_candidates, 'candidate')}{waited}; {step.n_taken:,} taken")
        lines.append(f"  reached by runs of {_count(step.n_reached, 'first event')}")
    most = funnel.costs_most
    if most is not None:
        variable, part = most
        lines += [
            "",
            f"costs most: `{part.text}` of {variable} refused {_count(part.n_alone, 'event')} alone",
        ]
    if funnel.n_examined < funnel.n_wanted:
        rest = f"{funnel.n_examined:,} of {funnel.n_wanted:,} events that were near"
        lines += ["", f"only the first {rest} were compared with runs"]
    return "\n".join(lines)
