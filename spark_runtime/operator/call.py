"""One call of the operator: parcels in, output out."""

from __future__ import annotations

import copy
import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.counts import Counts
from cep.engine.chains.chain import Chain
from cep.engine.event_time.watermark import is_late, late_by_us
from cep.engine.matching.counters import Counters
from cep.engine.prepare.versions import extent_rows
from cep.formats.late_events import late_schema
from cep.program.program import TIME_COLUMN, missing_column, widened
from cep.rule_set import BY_CLOCK, BY_EVENT, ENDED_BY, KIND, RETRACT, RULE_VERSION, RuleSet, of_rules
from cep.schema.text_values import event_table_schema
from spark_runtime.operator.daily import NAME, FirstOfDays
from spark_runtime.operator.delays import count_delays
from spark_runtime.operator.late import Late
from spark_runtime.operator.limits import GroupLimits, KeptMatches, note
from spark_runtime.operator.shown import NewestMatches
from spark_runtime.sinks.delivery import Delivery
from spark_runtime.tables.content import Told
from spark_runtime.wire.output import (
    COUNTS,
    MATCH,
    OUTPUT_SCHEMA,
    CallResults,
    Matches,
    carried,
    carried_schema,
)
from spark_runtime.wire.parcels import Contents, Parcel, record_bytes, table_of_bytes


class MatcherCounts:
    """The counters of the matchers of `chain`, relative to their current values."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._before = [copy.deepcopy(matcher.counters) for matcher in chain.matchers]
        self._duplicates = chain.duplicates_of()

    def added(self) -> Counts:
        """Return what was added to the counters since."""
        new_duplicates = [
            [n - n_before for n, n_before in zip(new, old, strict=True)]
            for old, new in zip(self._duplicates, self._chain.duplicates_of(), strict=True)
        ]
        counts = Counts(duplicates_of=self._chain.rules.met_by_program(new_duplicates))
        uncorrected = []
        for old, matcher in zip(self._before, self._chain.matchers, strict=True):
            new = matcher.counters
            counts.add(_by_rule(old, new))
            uncorrected.append(new.uncorrected - old.uncorrected)
        counts.uncorrected = max(uncorrected)
        counts.corrected = -max(uncorrected)  # the reader counted them, not knowing that they were too late
        return counts


def _by_rule(old: Counters, new: Counters) -> Counts:
    """Return what was added to counters of a matcher that are split by rule."""

    def added(name: str) -> dict[str, int]:
        before: dict[str, int] = getattr(old, name)
        after: dict[str, int] = getattr(new, name)
        return {rule: n - before[rule] for rule, n in after.items() if n != before[rule]}

    return Counts(
        matches=added("matches"),
        timeouts=added("timeouts"),
        suppressed=added("suppressed"),
        dropped_runs=added("dropped_runs"),
        retracted=added("retracted"),
    )


class Extents:
    """The first and last times of events that all key groups get, in one call of the operator."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[list[int], int]] = {}  # by stream: when events may start, the last time

    def take_in(self, text: str) -> None:
        """Add the text of a parcel with the contents `EXTENT`."""
        name, begins_us, latest_us = json.loads(text)
        known = self._of.get(name, ([], latest_us))
        self._of[name] = known[0] + begins_us, max(known[1], latest_us)

    def push(self, chain: Chain) -> None:
        """Pass the time range of the input, without late events, to rules with windows without events."""
        final_us = chain.watermark_us - chain.rules.counted_us
        for number, program in enumerate(chain.rules.programs):
            if program.has_silent_windows:
                for name, (begins_us, latest_us) in self._of.items():
                    first_us = min((begin_us for begin_us in begins_us if begin_us > final_us), default=None)
                    stream = chain.rules.inputs[name]
                    chain.push(number, extent_rows(program, stream, first_us, latest_us))


class Moment(NamedTuple):
    """A call of the operator, apart from its parcels.

    Parameters
    ----------
    group
        The label of the key group.
    spark_us, cap_us, clock_us
        See `Call.advance`.
    told
        The contents of static tables that the task's property names.
    now_us
        The wall clock, microseconds since 1970; None: delays of matches are not counted.
    """

    group: int
    spark_us: int | None
    cap_us: int | None
    clock_us: int | None
    told: Told = {}  # noqa: RUF012 - nobody changes it
    now_us: int | None = None


@dataclass(slots=True)
class Results:
    """The results of a call of the operator.

    `found`: matches, late events and dead letters. `counts`: `cep.counts.Counts` as JSON: of the readers,
    unchanged, then of the call. `deadline_us`: the first time at which the key group has something to do
    without events, or None.
    """

    found: CallResults
    counts: list[str]
    deadline_us: int | None

    def add_past(self, matches: pa.Table, rules: RuleSet) -> None:
        """Add matches of the past, in the schema of carried matches."""
        of_rule = np.asarray(matches.column("rule")).astype(str)
        is_gone = np.zeros(matches.num_rows, np.bool_)
        if rules.corrections is not None:
            is_gone = np.asarray(pc.equal(matches.column(KIND), RETRACT))
        self.found.matches.append(matches)
        found, gone = (Counter(of_rule[of].tolist()) for of in (~is_gone, is_gone))
        n_shadow = sum(n for name, n in (found + gone).items() if name in rules.shadow)
        n_rows = matches.num_rows - n_shadow
        counted = Counts(rows=n_rows, shadow_rows=n_shadow, matches=dict(found), retracted=dict(gone))
        self.counts.append(counted.to_json())

    def output(self, delivery: Delivery, rules: RuleSet, file: str) -> Iterator[pa.RecordBatch]:
        """Deliver the results, in files named after `file`; yield the rest, and the counts."""
        delivery.deliver(self.found, file)
        texts = [(COUNTS, counts) for counts in self.counts]
        texts += [row for row in self.found.texts(rules.inputs) if row[0] in delivery.kinds]
        if texts:  # as one batch: each costs Spark a quarter of a millisecond
            yield _output([kind for kind, _ in texts], [text for _, text in texts], [None] * len(texts))
        if MATCH in delivery.kinds:
            for table in self.found.matches:
                yield _output([MATCH], [None], [record_bytes(table)])
        self.found.matches.close()


class Call:
    """One call of the operator.

    Parameters
    ----------
    gets_whole
        Whether late events are an output, so that they also come whole.
    by_own_events
        Whether the latest event determines the event time.
    is_first
        Whether this key group counts the input that all key groups get.
    now_us
        The wall clock, from which delays of matches are counted; None: they are not.
    newest
        Keeps the newest matches.
    limits
        The limits of a pipeline; None: there are none.
    """

    def __init__(
        self,
        chain: Chain,
        *,
        gets_whole: bool,
        by_own_events: bool = True,
        is_first: bool = True,
        now_us: int | None = None,
        newest: NewestMatches | None = None,
        limits: GroupLimits | None = None,
    ) -> None:
        self.chain = chain
        self.newest = newest
        self.rules = chain.rules
        self.counts = Counts()
        self.found = CallResults(Matches(carried_schema(self.rules.match_schema)))
        self._by_own_events = by_own_events
        self._now_us = now_us
        self._of_matchers = MatcherCounts(chain)
        self._late = Late(self.rules, gets_whole=gets_whole, is_first=is_first)
        self._extents = Extents()
        self._read: list[str] = []  # counts of readers, passed on unchanged
        self._latest_us: int | None = None
        self._is_end = False
        self._limits = limits
        self._limiters: dict[str, KeptMatches | FirstOfDays] = {}  # by their limits, in their order
        if limits is not None and (limit := limits.limits.matches) is not None:
            self._limiters["matches"] = KeptMatches(limits, limit)
        if limits is not None and (limit := limits.limits.alerts_per_day) is not None:
            self._limiters[NAME] = FirstOfDays(limit, self.rules)

    def push_all(self, parcels: Iterable[Parcel]) -> None:
        """Push parcels, events in the order in which they arrived (`parcels.arrival`)."""
        waiting = deque(in_order(parcels))
        while waiting:
            self.push(waiting.popleft())  # those of a batch are many: each is released when it is pushed

    def push(self, parcel: Parcel) -> None:
        """Push one parcel."""
        match parcel.contents:
            case Contents.EVENTS:
                assert parcel.program is not None
                self._push_events(parcel.program, _data(parcel))
            case Contents.COUNTS:
                self._read.append(_text(parcel))
            case Contents.DEAD_LETTER:
                self.found.dead.append(_text(parcel))
            case Contents.LATE_EVENTS:
                schema = late_schema(self.rules.inputs[_text(parcel)])
                late = table_of_bytes(_data(parcel), schema)
                self.found.late.setdefault(_text(parcel), []).append(late)
            case Contents.MAY_BE_LATE:
                stream = self.rules.inputs[_text(parcel)]
                events = table_of_bytes(_data(parcel), event_table_schema(stream))
                self._late.judge(stream, events, self.chain.watermark_us)
            case Contents.EXTENT:
                self._extents.take_in(_text(parcel))
            case Contents.END_OF_INPUT:
                self._is_end = True
            case Contents.NOTHING | Contents.OUTPUT:
                pass

    def _push_events(self, number: int, data: bytes | pa.Buffer) -> None:
        events = table_of_bytes(data, self.rules.programs[number].event_schema)
        times_us = pc.min_max(events.column(TIME_COLUMN)).as_py()
        first_us, latest_us = times_us["min"], times_us["max"]
        self._latest_us = latest_us if self._latest_us is None else max(self._latest_us, latest_us)
        # The readers of a pipeline have already dropped late events, so nearly every parcel has none, and
        # its events need not be checked one by one.
        if is_late(late_by_us(np.array([first_us]), self.chain.watermark_us)).any():
            late = self.chain.push(number, events)
            if late.num_rows:
                self._late.note(number, late, self.chain.watermark_us)
        else:
            self.chain.take_in(number, events, data)

    def advance(
        self, spark_watermark_us: int | None, cap_us: int | None, clock_us: int | None = None
    ) -> None:
        """Advance the event time of the key group.

        It advances to Spark's watermark or as far as the group's own events allow. If `cap_us` is given, it
        advances to that instead: some source partition lags, so the latest event determines nothing. With
        `clock_us`, events advance it to `cap_us`, and the wall clock from there to `clock_us`. Spark's
        watermark is then ignored, because the clock may already have moved it.
        """
        if self._is_end:
            self.finish()
            return
        self._extents.push(self.chain)
        if clock_us is not None:
            assert cap_us is not None
            put_of_clock = partial(self._put_matches, ended_by=BY_CLOCK)
            self.chain.advance(cap_us, self._put_matches, put_beyond=put_of_clock)
            self.chain.advance(clock_us, put_of_clock)
            return
        reached = [] if spark_watermark_us is None else [spark_watermark_us]
        if cap_us is not None:
            reached.append(cap_us)
        elif self._latest_us is not None and self._by_own_events:
            reached.append(self._latest_us - self.rules.lateness_us)
        if reached:
            self.chain.advance(max(reached), self._put_matches)

    def finish(self) -> None:
        """End the input: it is complete."""
        self._extents.push(self.chain)
        self.chain.finish(self._put_matches)

    def _put_matches(self, matches: pa.Table, ended_by: str = BY_EVENT) -> None:
        n = matches.num_rows
        if n == 0:
            return
        if self._now_us is not None:
            count_delays(matches, self._now_us, self.counts)
        if self.newest is not None:
            self.newest.add(matches)
        schema = self.found.matches.schema
        told = ended_by if self.rules.tells_end else ""
        self._put_rows(carried_rows(matches, schema, self.rules, told))

    def _put_rows(self, found: pa.Table) -> None:
        """Pass matches (`carried_schema`) to the next limit that they have not passed, or report them."""
        for limiter in self._limiters.values():
            limiter.add(found)
            return
        self._report(found)

    def _report(self, found: pa.Table) -> None:
        """Add matches (`carried_schema`) to what is found."""
        schema, n = found.schema, found.num_rows
        n_shadow = of_rules(found, self.rules.shadow, schema).num_rows if self.rules.shadow else 0
        self.counts.shadow_rows += n_shadow
        self.counts.rows += n - n_shadow
        self.found.matches.append(found)

    def keep_limits(self) -> None:
        """Drop what exceeds the limits of the pipeline, after event time has advanced.

        Raises StateError (E0722): a limit is exceeded, and the pipeline should fail.
        """
        for name in [*self._limiters]:
            limiter = self._limiters.pop(name)
            for table in limiter.tables():
                self._put_rows(table)
            note(name, limiter.dropped, self.counts)
        if self._limits is not None:
            self._limits.shed(self.chain, self.counts)

    def results(self, deadline_us: int | None = None) -> Results:
        """Return the results, after all parcels were pushed and event time has advanced.

        The deadline is that of the key group; a batch, whose windows are all closed, has none.
        """
        for name, tables in self._late.whole.items():
            self.found.late.setdefault(name, []).extend(tables)
        self.counts.add(self._late.counts())
        self.counts.add(self._of_matchers.added())
        text = self.counts.to_json()
        counts = [*self._read, *([] if text == "{}" else [text])]
        return Results(self.found, counts, deadline_us)


def carried_rows(matches: pa.Table, schema: pa.Schema, rules: RuleSet, ended_by: str = "") -> pa.Table:
    """Return matches of a program as rows of all rules; `ended_by`: what released them, if rows say so."""
    n = matches.num_rows
    columns = {field.name: carried(matches.column(field.name)) for field in matches.schema}
    if ended_by:
        columns[ENDED_BY] = pa.chunked_array([pa.repeat(pa.scalar(ended_by), n)])
    if rules.tells_version:
        columns[RULE_VERSION] = rules.versions_in(matches.column("rule"))
    arrays = [
        widened(columns[field.name], field.type) if field.name in columns else missing_column(field, n)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def in_order(parcels: Iterable[Parcel]) -> list[Parcel]:
    """Return parcels in the order in which a call pushes them: events as they arrived."""
    return sorted(parcels, key=_arrived)


def _arrived(parcel: Parcel) -> str:
    return parcel.text or "" if parcel.contents is Contents.EVENTS else ""


def _text(parcel: Parcel) -> str:
    assert parcel.text is not None
    return parcel.text


def _data(parcel: Parcel) -> bytes | pa.Buffer:
    assert parcel.data is not None
    return parcel.data


def _output(*columns: Sequence[Any]) -> pa.RecordBatch:
    arrays = [pa.array(values, field.type) for values, field in zip(columns, OUTPUT_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=OUTPUT_SCHEMA)
