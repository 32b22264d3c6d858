"""What `cep why` answers, as data, and the closed list of reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cep.diagnostics.diagnostic import Span


class Reason(StrEnum):
    """Why an event was refused, or an attempt ended. docs/guides/why.md explains each with an example."""

    VALUE = "value"  # a value differs
    NULL = "null"  # a value is NULL
    TYPE = "type"  # two texts are the same number, written differently
    CASE = "case"  # two texts differ in case or in blanks
    ROW = "row"  # no row of a table was valid
    WINDOWED = "windowed"  # a windowed value, as it was at that time
    ORDER = "order"  # the event came before the step that it should follow
    KEY = "key"  # the event has another key
    LATE = "late"  # the event came after the deadline
    EARLY = "early"  # the event came before the shortest gap
    WINDOW = "window"  # a limit ended the attempt
    STRICT = "strict"  # another event came directly after
    BRANCH = "branch"  # the event begins another branch of the pattern, so it is not ignored
    EXCLUDED = "excluded"  # WITHOUT, UNTIL or a possessive loop keeps the event out
    ANCHOR = "anchor"  # ^, and the event is not the first of its key
    ABSENCE = "absence"  # an event came that must not come
    SKIPPED = "skipped"  # a reported match skipped the attempt, or was preferred to it
    SUPPRESSED = "suppressed"  # a match came too soon after another one
    LIMIT = "limit"  # MAX RUNS
    OPEN = "open"  # the input ended


OF_CONDITION = frozenset((Reason.VALUE, Reason.NULL, Reason.TYPE, Reason.CASE, Reason.ROW, Reason.WINDOWED))
"""Reasons of a part of a condition."""

ELSEWHERE = frozenset((Reason.ORDER, Reason.KEY, Reason.LATE))
"""Reasons of an event that has what was missing, but came when or where no run waited for it."""

OF_REFUSAL = (
    OF_CONDITION | ELSEWHERE | {Reason.EARLY, Reason.ABSENCE, Reason.EXCLUDED, Reason.ANCHOR, Reason.SKIPPED}
)
"""Reasons for which an event is refused."""

OF_ENDING = frozenset((
    Reason.OPEN, Reason.WINDOW, Reason.STRICT, Reason.ABSENCE, Reason.EXCLUDED, Reason.BRANCH,
    Reason.LIMIT, Reason.SKIPPED, Reason.SUPPRESSED,
))  # fmt: skip
"""Reasons for which an attempt ended, or a match was removed."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event: its place among the events of its key (-1: of another key), its time, its other columns.

    `stream` is empty if the rule reads only one.
    """

    place: int
    time_us: int
    values: Mapping[str, Any]
    stream: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """An event that a run took as a variable."""

    variable: str
    event: Event


@dataclass(frozen=True, slots=True)
class Failed:
    """A part of the condition of a variable that was not TRUE.

    Parameters
    ----------
    part
        Its number among the parts of the condition.
    text
        As it is written in the rule.
    values
        What it read, by the text of each value.
    by
        The left side less the right side of a comparison of numbers, or of times in microseconds; None: it is
        another condition.
    says
        The reason in words.
    span
        Its place in the text of the rule.
    """

    reason: Reason
    part: int
    text: str
    values: Mapping[str, Any]
    by: float | int | None
    says: str
    span: Span | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """An event that an attempt waited for as a variable and did not take.

    `failed` are the parts of the condition that were not TRUE. It is empty if the event was refused although
    the condition holds; `reason` and `says` say why, `by_us` by how much time, and `because` is the earlier
    event for which a run may not start.
    """

    event: Event
    variable: str
    reason: Reason
    says: str
    failed: tuple[Failed, ...] = ()
    by_us: int | None = None
    because: Event | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """What ended an attempt.

    `by_us`: by how much the next event missed the deadline. `event`: what ended it. `match_id`: of the match
    that suppressed it.
    """

    reason: Reason
    says: str
    by_us: int | None = None
    event: Event | None = None
    variable: str | None = None
    match_id: str | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """A run, or several that took the same events, without a match.

    Parameters
    ----------
    steps
        The events taken; none: no run began.
    missing
        The least number of events that were missing.
    waits_for
        What it waited for: variables, or the end of a time.
    since_us, until_us
        From when, and the event time of its deadline; None: it had none.
    ending
        What ended it.
    refusals
        The nearest events that were refused, nearest first.
    n_refused
        Of how many.
    """

    steps: tuple[Step, ...]
    missing: int
    waits_for: tuple[str, ...]
    since_us: int
    until_us: int | None
    ending: Ending
    refusals: tuple[Refusal, ...]
    n_refused: int


@dataclass(frozen=True, slots=True)
class Found:
    """A match: the events that it took, and when. It may not be reported: `removed_by` says why."""

    match_id: str
    start_us: int
    end_us: int
    steps: tuple[Step, ...]
    is_timeout: bool = False
    removed_by: Ending | None = None


@dataclass(frozen=True, slots=True)
class Period:
    """A window of a window rule, or the time during which a row of a view or a table did not change.

    Parameters
    ----------
    start_us, end_us
        From when and until before when; None: it is not over.
    values
        The measures of the window, or the columns of the row.
    match_id
        Of what was reported; None: the window or the row was not reported, and `failed` or `removed_by` says
        why.
    failed
        The parts of HAVING or WHERE that were not TRUE, and the tables without a row.
    events
        The events that count, of a window.
    """

    start_us: int
    end_us: int | None
    values: Mapping[str, Any]
    match_id: str | None = None
    failed: tuple[Failed, ...] = ()
    removed_by: Ending | None = None
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class RowsOfTable:
    """The rows of a table that a row of a view was made of, over time."""

    table: str
    rows: tuple[Period, ...]


@dataclass(frozen=True, slots=True)
class WhyRows:
    """The answer for a window rule or a view.

    Parameters
    ----------
    kind
        `window` or `row`.
    reported
        The windows or rows that were reported, in order.
    others
        Of those that were not reported, the nearest, in order.
    n_others
        Of how many.
    refused
        The nearest events that did not count in any window, because of WHERE.
    n_refused
        Of how many.
    tables
        The rows of tables that a view joins.
    """

    rule: str
    key: Mapping[str, Any]
    kind: str
    n_events: int
    reported: tuple[Period, ...]
    others: tuple[Period, ...]
    n_others: int
    refused: tuple[Refusal, ...] = ()
    n_refused: int = 0
    tables: tuple[RowsOfTable, ...] = ()

    def _repr_html_(self) -> str:
        """Return the answer for a notebook: a time line and a table."""
        from cep.why.picture import html_of_rows

        return html_of_rows(self)


@dataclass(frozen=True, slots=True)
class Why:
    """The answer for one rule and key; `n_events` is the number of events of the key."""

    rule: str
    key: Mapping[str, Any]
    n_events: int
    matches: tuple[Found, ...]
    attempts: tuple[Attempt, ...]
    n_attempts: int

    def _repr_html_(self) -> str:
        """Return the answer for a notebook: a time line and a table."""
        from cep.why.picture import html

        return html(self)
