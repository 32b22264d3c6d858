"""Fills gaps of the ledger: rules read the whole past again, and see what they missed.

The result is stored like the past of new rules (`prepared`). The run takes it over between two
micro-batches: the rules begin again with it, report the matches that are missing (`missing`), and the record
of their generation says which gaps are filled. It is written in one step, so each gap is filled once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import pyarrow as pa

from cep.counts import Counts, Loss, amount
from cep.engine.corrections.row_differences import may_differ
from cep.engine.event_time.watermark import END_OF_TIME_US
from cep.errors import StateError
from cep.program.changes import BEGINNING, Verdict
from cep.rule_set import RuleSet
from cep.schema.time_literals import time_for_people
from spark_runtime.event_time.done import Done
from spark_runtime.pipeline.backfill import (
    Wanted,
    alone_with,
    require_empty,
    require_known,
    require_past,
    write_prepared,
)
from spark_runtime.pipeline.checkpoint import (
    Checkpoint,
    last_done,
    read_checkpoint,
    recorded_rules,
    rules_after,
)
from spark_runtime.pipeline.corrected_gaps import (
    differences,
    first_ends_us,
    nothing_logged,
    reaches_us,
    since,
)
from spark_runtime.pipeline.course import Mark, read_course
from spark_runtime.pipeline.gaps import OF_FILES, Entry, Gap, all_gaps, stored_entries
from spark_runtime.pipeline.generations import Filled, Generation
from spark_runtime.pipeline.made import Pipeline
from spark_runtime.pipeline.missing import counted, log_of, n_beside, n_matches, of_gaps, others, unreported
from spark_runtime.pipeline.past import (
    Hold,
    Past,
    Position,
    Tell,
    Throttle,
    first_matchers,
    needed_programs,
)
from spark_runtime.pipeline.prepared import (
    FoundMatches,
    PastMatches,
    new_matches,
    no_past,
    read_prepared,
    reading,
    static,
    waiting_fill,
    write_apart,
)
from spark_runtime.pipeline.reloading import compiled
from spark_runtime.state.snapshots import evaluated_units

_MOST_RUNS = 1 << 40
"""A limit on runs that none reaches."""

_NEVER = {
    Loss.DOWN: "nothing is missing: the events that came meanwhile were read later",
    Loss.DEAD: "a record that is no event stays none: correct it, and feed it as a new event",
    Loss.LOST: "the messages were removed before they were read, and no longer exist",
    Loss.CHANGED: "the files were overwritten, so their events no longer exist",
    Loss.RULE_CHANGE: "this version of the rule no longer runs: write it out with "
    "`cep restore-rules --to`, and run it with `cep match`",
}
"""Gaps that nothing can fill, and why."""


@dataclass(frozen=True, slots=True)
class Left:
    """A gap that is not filled, for some rules, and why."""

    gap: Gap
    why: str


@dataclass
class FillResult:
    """What `cep backfill --gaps` did.

    Parameters
    ----------
    filled
        The gaps that will be filled, with the number of missing matches.
    left
        The gaps that will not.
    n_withdrawn
        With corrections, how many matches will be withdrawn.
    n_beside
        With corrections, how many other matches are missing, because matches in the gaps change them.
    n_before
        How many gaps were filled before.
    counts, micro_batch
        What was read, and up to which micro-batch.
    waits
        Whether gaps that were prepared earlier wait for the pipeline to take them; nothing was done.
    """

    filled: Sequence[Filled] = ()
    left: Sequence[Left] = ()
    n_withdrawn: int = 0
    n_beside: int = 0
    n_before: int = 0
    counts: Counts = field(default_factory=Counts)
    micro_batch: int = -1
    waits: bool = False


def fill_pipeline(
    pipeline: Pipeline, wanted: Wanted, tell: Tell = lambda n_read, n_all, reached_us: None
) -> FillResult:
    """Read the past for the gaps of a pipeline, whose checkpoint may be in use; keep it there.

    The `rules` of `wanted` are those whose gaps are filled; empty: all rules. Unless its `matches` are
    `alert`, nothing is stored: the missing matches are only counted, or written apart.

    Raises StateError: the past cannot be read (E0718), the folder is not a checkpoint (E0705) or is damaged
    (E0702), a file of the log of matches is damaged (E0720), or the folder of matches is not empty (E0716).
    """
    with alone_with(pipeline) as files:
        checkpoint, _ = read_checkpoint(files, pipeline.checkpoint)
        done = last_done(checkpoint, is_live=pipeline.is_live)
        latest = rules_after(checkpoint, done.batch).latest
        if waiting_fill(checkpoint.path, latest.batch) is not None:
            return FillResult(waits=True)
        _require_free(checkpoint, latest)
        require_past(done)
        require_empty(wanted.into)
        latest.rules.require_same_kind(has_corrections=pipeline.rules.corrections is not None)
        now = pipeline.with_rules(compiled(latest.rules, pipeline), latest.rules.texts)
        judge = _Judge(checkpoint, done, now, tuple(recorded_rules(files, checkpoint.path)), wanted.rules)
        gaps = all_gaps(files, checkpoint.path)
        filled, left = judge.judged([gap for gap in gaps if gap.filled is None])
        n_before = sum(gap.filled is not None for gap in gaps)
        found = FillResult(filled, left, n_before=n_before, micro_batch=done.batch)
        start = {
            rule
            for each in filled
            if Entry.of_list(each.entry).loss == Loss.LATE_START
            for rule in each.rules
        }
        begun_again = {rule: us for rule, us in judge.begun_again.items() if rule not in start}
        filling = _Filling(checkpoint, done, now, wanted, tell, begun_again)
        return filling.fill(found) if filled else found


def _require_free(checkpoint: Checkpoint, latest: Generation) -> None:
    """Raise StateError (E0718) if the state of rules cannot be replaced now."""
    prepared = None
    with suppress(StateError):  # what is damaged is replaced
        prepared = read_prepared(checkpoint.path)
    if prepared is not None and not prepared.filled and set(prepared.rules).difference(latest.warm):
        raise no_past(
            f"the past of `{prepared.rules[0]}` is prepared, and the pipeline has not taken it",
            "let the rules begin first, or remove it: cep backfill --discard",
        )


# ---------------------------------------------------------------- which gaps


@dataclass(frozen=True)
class _Judge:
    """Says which gaps can be filled.

    Parameters
    ----------
    pipeline
        With the rules of the last generation.
    wanted
        The rules whose gaps are filled; empty: all.
    """

    checkpoint: Checkpoint
    done: Done
    pipeline: Pipeline
    generations: Sequence[Generation]
    wanted: Sequence[str]

    def __post_init__(self) -> None:
        known = {rule.name for rule in self.pipeline.rules.rules}
        for name in self.wanted:
            if name not in known:
                raise no_past(f"there is no rule `{name}`", f"rules are: {', '.join(sorted(known))}")

    def judged(self, gaps: Sequence[Gap]) -> tuple[list[Filled], list[Left]]:
        """Return the gaps that can be filled, and those that cannot."""
        filled: list[Filled] = []
        left: list[Left] = []
        of_rules = [{name: self._of_rule(gap, name) for name in gap.rules} for gap in gaps]
        if self.pipeline.rules.corrections is not None:
            of_rules = self._together(gaps, of_rules)
        for gap, of_rule in zip(gaps, of_rules, strict=True):
            found: dict[tuple[str, int | None], list[str]] = {}
            for name in gap.rules:
                if not self.wanted or name in self.wanted:
                    found.setdefault(of_rule[name], []).append(name)
            for (why, after_us), rules in found.items():
                if why:
                    left.append(Left(replace(gap, rules=tuple(rules)), why))
                else:
                    assert gap.entry is not None
                    filled.append(Filled(tuple(gap.entry.to_list()), tuple(rules), after_us))
        return filled, left

    def _of_rule(self, gap: Gap, rule: str) -> tuple[str, int | None]:
        """Return why a gap cannot be filled for a rule, or an empty text and `Filled.after_us`."""
        assert gap.entry is not None
        if gap.loss in _NEVER:
            return _NEVER[Loss(gap.loss)], None
        if rule not in self._names:
            return "the rule no longer runs", None
        begins = self._begins(rule)
        if gap.entry.generation < begins.number:
            return "the rule has changed since, and begun again", None
        if self.pipeline.rules.corrections is not None:
            why = self._why_not_corrected(gap, begins, rule)
            if why:
                return why, None
        elif gap.loss == Loss.LATE_START and self._is_unheard(begins, rule):
            return "", None
        if rule in self.pipeline.rules.shadow:
            return "no log has the matches of a shadow rule, so nobody knows which are missing", None
        return self._by_log(gap, rule)

    def _why_not_corrected(self, gap: Gap, begins: Generation, rule: str) -> str:
        """Return why a gap cannot be filled for a rule with corrections, or an empty text."""
        unit = next(
            unit for unit in evaluated_units(self.pipeline.rules) if any(of.name == rule for of in unit.rules)
        )
        has_changed = self._has_changed(begins, rule)
        if gap.loss == Loss.DROPPED:
            return "a late event decides again which runs are dropped, and may report their matches"
        if any(joined.table.is_static for of in unit.programs for joined in of.joins.tables):
            return "the rule joins a static table, and late events correct its matches"
        if any(of.has_silent_windows for of in unit.programs):
            return "the rule has windows without events, and late events correct its matches"
        if has_changed and gap.loss == Loss.LATE_START:
            return "the rule had another form before, and late events correct its matches"
        if has_changed and (
            len(unit.programs) > 1 or any(of.windows or of.has_window_rules for of in unit.programs)
        ):
            return "the rule has changed and begun again, and its windows with it"
        return ""

    def _has_changed(self, begins: Generation, rule: str) -> bool:
        """Return whether a rule began with a generation because it changed, and knows nothing from before."""
        is_changed = any(of.rule == rule and of.verdict is Verdict.CHANGED for of in begins.changes)
        return is_changed and rule not in begins.warm

    @property
    def begun_again(self) -> dict[str, int]:
        """Rules that have changed, with the event time after which they see events."""
        found = {name: self._begins(name) for name in self._names}
        return {
            name: begins.begins_us
            for name, begins in found.items()
            if self._has_changed(begins, name) and begins.begins_us is not None
        }

    def _together(
        self, gaps: Sequence[Gap], of_rules: Sequence[Mapping[str, tuple[str, int | None]]]
    ) -> list[dict[str, tuple[str, int | None]]]:
        """Return the same for rules that depend on each other, which are filled together or not at all.

        They read each other's matches, or share windowed values.
        """
        left = {
            name: why
            for gap, of_rule in zip(gaps, of_rules, strict=True)
            for name, (why, _) in of_rule.items()
            if gap.loss not in _NEVER and (why or (self.wanted and name not in self.wanted))
        }
        seen = {name for of_rule in of_rules for name, (why, _) in of_rule.items() if not why}
        of_events = [gap for gap in gaps if gap.loss not in (*_NEVER, Loss.LATE_START)]
        blocked: dict[str, str] = {}
        for unit in evaluated_units(self.pipeline.rules):
            names = [rule.name for rule in unit.rules]
            if len(unit.programs) == 1 and not any(program.windows for program in unit.programs):
                continue
            first = next((name for name in names if name in left), None)
            if first is not None:
                why = f"the gaps of `{first}`, on which it depends, are not filled"
                blocked |= {name: why for name in names if name != first}
            has_gap = any(name in gap.rules for gap in of_events for name in names)
            later = next((name for name in names if name not in seen and name not in left), None)
            if has_gap and later is not None:
                why = f"`{later}`, with which it is evaluated, has begun since with a past that lacks it"
                blocked |= dict.fromkeys(names, why)
        return [
            {name: (why or blocked.get(name, ""), after_us) for name, (why, after_us) in of_rule.items()}
            for of_rule in of_rules
        ]

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(rule.name for rule in self.pipeline.rules.rules)

    def _begins(self, rule: str) -> Generation:
        """Return the generation with which the state of a rule began."""
        found = self.generations[0]
        for generation in self.generations:
            if any(change.rule == rule and change.verdict in BEGINNING for change in generation.changes):
                found = generation
        return found

    def _is_unheard(self, begins: Generation, rule: str) -> bool:
        """Return whether no rule of this name has reported anything before a generation."""
        is_new = any(change.rule == rule and change.verdict is Verdict.NEW for change in begins.changes)
        earlier = (item for item in self.generations if item.number < begins.number)
        return is_new and not any(rule in item.rules.versions for item in earlier)

    def _by_log(self, gap: Gap, rule: str) -> tuple[str, int | None]:
        """Return the same of a gap with matches that may have been reported."""
        if self.pipeline.log is None:
            return "nobody knows which matches are missing: the pipeline has no log of matches (`log`)", None
        begins, why = self._log_begins
        if why:
            return why, None
        times_us = [self._reached_us(max(begins))] if begins else []
        if times_us and self.pipeline.rules.corrections is not None:
            why = self._why_not_final(rule, times_us[0])
            if why:
                return why, None
        times_us += map(self._reached_us, self._promotions(rule))
        times_us += [
            item.begins_us
            for item in self.generations
            if rule in item.warm and not item.filled and item.begins_us is not None
        ]
        if self.pipeline.rules.corrections is not None:
            for until_us, why in self._corrected(rule):
                if gap.last_us is not None and gap.last_us <= until_us:
                    return why, None
                times_us.append(until_us)
        after_us = max(times_us, default=None)
        if after_us is not None and gap.last_us is not None and gap.last_us <= after_us:
            return "the log of matches begins later, so nobody knows which matches are missing", None
        return "", after_us

    def _corrected(self, rule: str) -> Iterator[tuple[int, str]]:
        """Yield event times up to which rows of a rule with corrections remain, and why."""
        if rule in self.begun_again:
            yield self.begun_again[rule], "the rule has changed since, and begun again"
        if rule in may_differ(self.pipeline.rules.programs):
            for item in self.generations:
                verdicts = {change.rule: change.verdict for change in item.changes}
                if verdicts.get(rule) is Verdict.MEASURES and item.begins_us is not None:
                    yield item.begins_us, "the measures of the rule have changed since"

    def _why_not_final(self, rule: str, begins_us: int) -> str:
        """Return why matches of a rule from before the log begins are not final, or an empty text."""
        reach_us = reaches_us(self.pipeline.rules)[rule]
        if reach_us < 0:
            return "the log of matches begins later, and without WITHIN no match from before it is final"
        final_us = begins_us + reach_us + self.pipeline.rules.counted_us
        if self.done.watermark_us is None or self.done.watermark_us < final_us:
            time = time_for_people(final_us)
            return f"matches from before the log begins can change until the watermark has passed {time}"
        return ""

    @cached_property
    def _log_begins(self) -> tuple[list[int], str]:
        """Return the micro-batch with which the log begins, or nothing if that is the first one.

        The text says why that is unknown.
        """
        log = log_of(self.pipeline)
        assert log is not None
        entries = log.entries()
        first = next(entries, None)
        rows = first if first is None or first.run else next((entry for entry in entries if entry.run), None)
        if first is None:
            return [], "the log of matches is empty, so nobody knows which matches are missing"
        batch = first.micro_batch if first.micro_batch >= 0 or rows is None else rows.micro_batch
        if batch == 0:
            return [], ""
        if rows is None or rows.run != self.checkpoint.run_id:
            return [], "the log of matches does not say when it begins"
        return [batch], ""

    def _promotions(self, rule: str) -> Iterator[int]:
        """Yield the micro-batches in which a rule became a shadow rule, or no longer was one."""
        for item in self.generations:
            for change in item.changes:
                if change.rule == rule and change.verdict is Verdict.WORDS and "its status" in change.reasons:
                    yield item.batch

    def _reached_us(self, batch: int) -> int:
        """Return an event time that the watermark had not passed before a micro-batch."""
        marks = [*read_course(self.checkpoint.path), Mark.of(self.done)]
        times_us = (mark.watermark_us for mark in marks if mark.batch >= batch - 1)
        return next((us for us in times_us if us is not None), END_OF_TIME_US)


# ---------------------------------------------------------------- reading


@dataclass(frozen=True)
class _Filling:
    """Reads the past for gaps."""

    checkpoint: Checkpoint
    done: Done
    pipeline: Pipeline
    wanted: Wanted
    tell: Tell
    begun_again: Mapping[str, int]

    def fill(self, result: FillResult) -> FillResult:
        """Read the past for the gaps in `result.filled`, and store it; return the result."""
        names = tuple(sorted({name for each in result.filled for name in each.rules}))
        needed = needed_programs(self.pipeline.rules, names)
        require_known(needed, self.done)
        entries = stored_entries(self.checkpoint.files)
        found = new_matches(self.pipeline.rules, names, PastMatches.ALERT)
        log = log_of(self.pipeline)
        offset = -1
        if log is not None:
            log.open()
            offset = -1 if log.last is None else log.last.offset
        if self.pipeline.rules.corrections is not None:
            return self._fill_corrected(result, needed, entries, found)
        past, counts = self._read(needed, entries, found, partial(of_gaps, filled=result.filled))
        _require_whole(counts, self._unseen(entries))
        filled, left = _without_gone(result.filled, counts)
        result.left = [*result.left, *left]
        tables = [of_gaps(table, filled) for table in found.rows]
        dropped = [each for each in filled if each.entry[0] == Loss.DROPPED]
        if dropped:
            limited = {name for each in dropped for name in each.rules}
            more = new_matches(self.pipeline.rules, names, PastMatches.ALERT)
            self._read(_without_limits(needed, limited), entries, more, partial(of_gaps, filled=dropped))
            tables += others(more.rows, tables)
        matches = unreported(tables, log)
        result.filled, result.counts = counted(matches, filled), counts
        missing = new_matches(self.pipeline.rules, names, PastMatches.ALERT)
        if matches is not None:
            missing.rows.append(matches)
        if self.wanted.matches is PastMatches.APART:
            write_apart(self.wanted.into, "missing", self.pipeline.rules, missing)
        elif self.wanted.matches is PastMatches.ALERT and filled:
            wanted = replace(self.wanted, rules=names, from_us=None)
            write_prepared(
                *(self.checkpoint, wanted, needed, past.snapshot(), past.position, missing),
                filled=result.filled,
                log_offset=offset,
            )
        return result

    def _fill_corrected(
        self, result: FillResult, needed: RuleSet, entries: Sequence[Entry], found: FoundMatches
    ) -> FillResult:
        """Do the same for rules with corrections; `found` is empty."""
        rules, log = self.pipeline.rules, log_of(self.pipeline)
        assert log is not None
        assert self.done.watermark_us is not None
        before = first_ends_us(rules, result.filled, self.done.watermark_us)
        past, counts = self._read(needed, entries, found, partial(since, from_us=before))
        _require_whole(counts, self._unseen(entries))
        filled, left = _without_gone(result.filled, counts)
        from_us = first_ends_us(rules, filled, self.done.watermark_us)
        names = tuple(sorted(from_us))
        data, beyond = past.snapshot(), new_matches(rules, names, PastMatches.ALERT)
        past.catch_up(beyond.put)
        until = self.checkpoint.run_id, self.done.batch
        logged = nothing_logged(rules).after(log, from_us, until)
        differ = differences(rules, list(found.rows), list(beyond.rows), from_us, logged.rows)
        result.left, result.counts = [*result.left, *left], counts
        result.filled, result.n_withdrawn = counted(differ.missing, filled), n_matches(differ.wrong)
        result.n_beside = n_beside(differ.missing, filled)
        if self.wanted.matches is PastMatches.APART:
            rows = new_matches(rules, names, PastMatches.ALERT)
            rows.rows.append(pa.concat_tables([differ.withdrawn, differ.added]))
            write_apart(self.wanted.into, "missing", rules, rows)
        elif self.wanted.matches is PastMatches.ALERT and filled:
            wanted = replace(self.wanted, rules=names, from_us=None)
            write_prepared(
                *(self.checkpoint, wanted, needed_programs(rules, names), data, past.position, found),
                logged=logged.rows,
                filled=result.filled,
                log_offset=logged.offset,
            )
        return result

    def _read(
        self,
        rules: RuleSet,
        entries: Sequence[Entry],
        found: FoundMatches,
        keep: Callable[[pa.Table], pa.Table],
    ) -> tuple[Past, Counts]:
        """Read all of the past, in which no event is late; `found` gets the matches that `keep` returns."""
        tables, until = static(self.pipeline, rules), Mark.of(self.done)
        course = read_course(self.checkpoint.path)
        position = Position.before(course, None, until, is_live=self.pipeline.is_live)
        holds = [
            Hold(entry.batch, entry.first_us)
            for entry in entries
            if entry.loss == Loss.LATE and entry.of in rules.inputs and entry.first_us is not None
        ]
        more = position, Throttle(self.wanted.rate), self.tell, holds
        begin = first_matchers(rules, None, tables, self.begun_again)
        with reading(self.checkpoint, self.pipeline, rules, tables, begin, *more) as past:
            past.read(course, until, lambda matches: found.put(keep(matches)))
        return past, past.counts

    def _unseen(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return entries without those that are filled for some rule."""
        history = recorded_rules(self.checkpoint.files, self.checkpoint.path)
        filled = [Entry.of_list(each.entry) for generation in history for each in generation.filled]
        return [entry for entry in entries if not any(map(entry.contains, filled))]


def _without_limits(rules: RuleSet, names: set[str]) -> RuleSet:
    """Return rules of which those in `names` drop no run."""
    return replace(
        rules,
        programs=tuple(
            replace(
                program,
                rules=tuple(
                    replace(rule, max_runs=_MOST_RUNS) if rule.name in names else rule
                    for rule in program.rules
                ),
            )
            for program in rules.programs
        ),
    )


def _require_whole(counts: Counts, entries: Sequence[Entry]) -> None:
    """Raise StateError (E0718) if the rules would not see something that they saw then.

    `entries`: what no rule has seen.
    """

    def n_then(*losses: Loss) -> int:
        return sum(entry.n or 0 for entry in entries if entry.loss in losses)

    for what, now, then in (
        ("file", counts.passed_over, n_then(Loss.GONE, Loss.REFUSED, Loss.CHANGED)),
        ("message", sum(counts.lost.values()), n_then(Loss.LOST)),
    ):
        if now > then:
            raise no_past(
                f"{amount(now - then, f'{what} that was', f'{what}s that were')} read then can no longer be "
                f"read, so rules that begin again would forget {'it' if now - then == 1 else 'them'}",
                "bring them back; or let new rules begin with what is left: `cep backfill --from`",
            )


def _without_gone(filled: Sequence[Filled], counts: Counts) -> tuple[list[Filled], list[Left]]:
    """Return the gaps that are filled, and those whose files still cannot be read."""
    gone = {Loss.GONE: counts.gone, Loss.REFUSED: counts.refused}
    found, left = [], []
    for each in filled:
        entry = Entry.of_list(each.entry)
        if entry.loss in OF_FILES and gone[Loss(entry.loss)]:
            gap = Gap(entry.loss, each.rules, (entry.of,), entry.n, entry.first_us, entry.last_us)
            left.append(Left(gap, "the files can still not be read"))
        else:
            found.append(each)
    return found, left
