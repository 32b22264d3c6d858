"""The matches that a gap kept from being reported, and how a run reports them when it fills the gap.

A match of the whole past belongs to a gap if its time overlaps the gap. It is missing if the log of matches
does not contain it. The run reads the log between two micro-batches, when all key groups have reported what
is due. So a match that is reported while `cep backfill --gaps` is reading is not reported twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64, Mask
from cep.counts import amount
from spark_runtime.event_time.done import Done
from spark_runtime.pipeline.checkpoint import Checkpoint
from spark_runtime.pipeline.corrected_gaps import Logged, differences, first_ends_us, since
from spark_runtime.pipeline.gaps import OF_FILES, Entry
from spark_runtime.pipeline.generations import Filled
from spark_runtime.pipeline.made import Pipeline
from spark_runtime.pipeline.prepared import (
    LOGGED,
    FoundMatches,
    PastMatches,
    Prepared,
    Taken,
    brought_up,
    new_matches,
    no_past,
    read_prepared,
    stored_rows,
    write_taken,
)
from spark_runtime.sinks.match_log import MatchLog
from spark_runtime.state.warming import WarmRules

_ID = "match_id"
_MISSING = ("missing match is", "missing matches are")


def log_of(pipeline: Pipeline) -> MatchLog | None:
    """Return the log of matches of a pipeline; None: it has none."""
    return None if pipeline.log is None else MatchLog(pipeline.log.path)


def of_gaps(matches: pa.Table, filled: Sequence[Filled]) -> pa.Table:
    """Return the matches that belong to some gap."""
    belongs = np.zeros(matches.num_rows, np.bool_)
    for each in filled:
        belongs |= _belongs(matches, each)
    return matches.filter(pa.array(belongs))


def _belongs(matches: pa.Table, filled: Filled) -> Mask:
    """Return which matches belong to a gap."""
    entry = Entry.of_list(filled.entry)
    rules = matches.column("rule").cast(pa.string())
    is_of = pc.is_in(rules, value_set=pa.array(filled.rules, pa.string()))
    found: Mask = is_of.to_numpy(zero_copy_only=False)
    end = _times_us(matches, "match_end")
    if filled.after_us is not None:
        found = found & (end > filled.after_us)
    if entry.loss in OF_FILES:
        return found
    if entry.first_us is not None:
        found = found & (end >= entry.first_us)
    if entry.last_us is not None:
        found = found & (_times_us(matches, "match_start") <= entry.last_us)
    return found


def _times_us(matches: pa.Table, name: str) -> I64:
    times: I64 = matches.column(name).cast(pa.int64()).to_numpy()
    return times


def unreported(tables: Iterable[pa.Table], log: MatchLog | None, after: int = -1) -> pa.Table | None:
    """Return the rows of the matches that no entry of a log after an offset contains; None: there are none.

    Raises StateError: a file of the log is damaged (E0720).
    """
    parts = [table for table in tables if table.num_rows]
    if not parts:
        return None
    found = pa.concat_tables(parts)
    left = set(found.column(_ID).to_pylist())
    if log is not None:
        for entry in log.entries():
            for name in entry.files if entry.offset > after else ():
                left.difference_update(log.table(entry, name, [_ID]).column(_ID).to_pylist())
    return _of_ids(found, left) if left else None


def others(tables: Iterable[pa.Table], known: Iterable[pa.Table]) -> list[pa.Table]:
    """Return the rows of the matches that are not in `known`."""
    ids = {match_id for table in known for match_id in table.column(_ID).to_pylist()}
    return [_of_ids(table, set(table.column(_ID).to_pylist()) - ids) for table in tables]


def _of_ids(matches: pa.Table, ids: set[str]) -> pa.Table:
    column = matches.column(_ID)
    return matches.filter(pc.is_in(column, value_set=pa.array(sorted(ids), column.type)))


def n_matches(matches: pa.Table) -> int:
    """Return the number of matches, some of which have several rows."""
    return int(pc.count_distinct(matches.column(_ID)).as_py())


def n_beside(matches: pa.Table, filled: Sequence[Filled]) -> int:
    """Return how many matches overlap no gap: another match that changed leads to them."""
    return n_matches(matches) - n_matches(of_gaps(matches, filled))


def counted(matches: pa.Table | None, filled: Iterable[Filled]) -> tuple[Filled, ...]:
    """Return gaps with how many of the matches belong to each."""
    if matches is None:
        return tuple(replace(each, matches=0) for each in filled)
    return tuple(replace(each, matches=n_matches(of_gaps(matches, [each]))) for each in filled)


def take_up_fill(
    checkpoint: Checkpoint, done: Done, pipeline: Pipeline, say: Callable[[str], None]
) -> tuple[WarmRules | None, tuple[Filled, ...]]:
    """Return the past with which rules begin again after micro-batch `done`, and the gaps that it fills.

    Raises as `prepared.take_up`, and StateError: nothing is prepared any longer (E0718), or a file of the log
    of matches is damaged (E0720).
    """
    prepared = read_prepared(checkpoint.path)
    if prepared is None or not prepared.filled:
        raise no_past("what was prepared to fill gaps is gone", "run `cep backfill --gaps` again")
    found = new_matches(pipeline.rules, prepared.rules, PastMatches.ALERT)
    if pipeline.rules.corrections is not None:
        return _take_up_corrected(checkpoint, done, pipeline, prepared, found, say)
    keep = partial(of_gaps, filled=prepared.filled)
    taken = brought_up(checkpoint, done, pipeline, prepared, prepared.rules, found, keep)
    matches = unreported(found.rows, log_of(pipeline), prepared.log_offset)
    warm = write_taken(checkpoint, done, prepared, taken, matches)
    n_missing = 0 if matches is None else n_matches(matches)
    _say_filled(say, done, f"{amount(n_missing, *_MISSING)} reported", taken)
    return warm, counted(matches, prepared.filled)


def _take_up_corrected(
    checkpoint: Checkpoint,
    done: Done,
    pipeline: Pipeline,
    prepared: Prepared,
    found: FoundMatches,
    say: Callable[[str], None],
) -> tuple[WarmRules | None, tuple[Filled, ...]]:
    """Return the same as `take_up_fill` for rules with corrections; `found` is empty."""
    log, rules = log_of(pipeline), pipeline.rules
    assert done.watermark_us is not None
    from_us = first_ends_us(rules, prepared.filled, done.watermark_us)
    if log is None:
        raise no_past("the pipeline has no log of matches (`log`) any more", "name the same folder again")
    beyond = new_matches(rules, prepared.rules, PastMatches.ALERT)
    keep = partial(since, from_us=from_us)
    taken = brought_up(checkpoint, done, pipeline, prepared, prepared.rules, found, keep, beyond)
    known = Logged(stored_rows(checkpoint.path, LOGGED, found.rows.schema), prepared.log_offset)
    logged = known.after(log, from_us)
    differ = differences(rules, list(found.rows), list(beyond.rows), from_us, logged.rows)
    rows = pa.concat_tables([differ.withdrawn, differ.added])
    warm = write_taken(checkpoint, done, prepared, taken, rows if rows.num_rows else None, differ.written)
    beside = n_beside(differ.missing, prepared.filled)
    what = f"{amount(n_matches(differ.missing) - beside, *_MISSING)} reported, "
    what += f"{beside:,} more beside the gaps, " if beside else ""
    what += f"{n_matches(differ.wrong):,} withdrawn"
    _say_filled(say, done, what, taken)
    return warm, counted(differ.missing, prepared.filled)


def _say_filled(say: Callable[[str], None], done: Done, what: str, taken: Taken) -> None:
    say(f"gaps are filled from micro-batch {done.batch + 1:,} on: {what}, {taken.since}")
