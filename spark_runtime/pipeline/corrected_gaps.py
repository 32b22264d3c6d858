"""Gaps of rules with corrections: the reported rows are changed to those of rules that have seen everything.

The log of matches contains the last revision of each match. A match that rules find now but that is not valid
in the log is added. One that is valid in the log but that rules do not find is withdrawn. So each row is
written once, and the net result of all rows is that of a batch over all events. Key groups get a state that
contains these rows (`cep.engine.corrections.filled_gaps`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64, Mask
from cep.engine.corrections.row_differences import changed_ids, may_differ
from cep.engine.event_time.watermark import START_OF_TIME_US
from cep.program.program import MATCH, missing_column, widened
from cep.rule_set import ENDED_BY, KIND, RETRACT, REVISION, RULE_VERSION, RuleSet
from spark_runtime.pipeline.gaps import OF_FILES, Entry
from spark_runtime.pipeline.generations import Filled
from spark_runtime.sinks.match_log import MatchLog
from spark_runtime.state.snapshots import evaluated_units
from spark_runtime.wire.output import carried, carried_schema

_ID = "match_id"
_NOT_COMPARED = (REVISION, KIND, RULE_VERSION, ENDED_BY)
_NUMBERS = frozenset((pa.int64(), pa.float64()))


def reaches_us(rules: RuleSet) -> dict[str, int]:
    """Return by rule how long after its start a match may be reported (`Evaluated`); -1: no bound."""
    return {
        rule.name: reach_us
        for unit in evaluated_units(rules)
        for rule, reach_us in zip(unit.rules, unit.reported_within_us, strict=True)
    }


def first_ends_us(rules: RuleSet, filled: Iterable[Filled], reached_us: int) -> dict[str, int]:
    """Return, by rule, the least end of a match that gaps, or later corrections, may change.

    `reached_us`: the event time that the stream has reached.
    """
    final_us = reached_us - rules.counted_us
    reach_us, found = reaches_us(rules), dict[str, int]()
    for each in filled:
        entry = Entry.of_list(each.entry)
        for name in each.rules:
            from_us = START_OF_TIME_US
            if entry.first_us is not None and entry.loss not in OF_FILES and reach_us[name] >= 0:
                from_us = min(entry.first_us, final_us) - reach_us[name]
            if each.after_us is not None:
                from_us = max(from_us, each.after_us + 1)
            found[name] = min(found.get(name, from_us), from_us)
    return found


def since(matches: pa.Table, from_us: Mapping[str, int]) -> pa.Table:
    """Return the matches of some rules that end at or after a time of each rule."""
    return matches.filter(pa.array(_is_since(matches, from_us)))


def _is_since(matches: pa.Table, from_us: Mapping[str, int]) -> Mask:
    names = pa.array(list(from_us), pa.string())
    of_rule = pc.index_in(matches.column("rule").cast(pa.string()), value_set=names)
    numbers = np.asarray(pc.fill_null(of_rule, -1))
    first_us = np.array([*from_us.values(), START_OF_TIME_US], np.int64)[numbers]
    end_us = np.asarray(matches.column("match_end").cast(pa.int64()))
    found: Mask = (numbers >= 0) & (end_us >= first_us)
    return found


@dataclass(frozen=True)
class Differences:
    """How the valid matches of a log differ from those that rules find.

    Parameters
    ----------
    logged
        The rows of the log with the last revision of each match, as carried matches.
    found
        What rules find; `beyond` contains what they find after the time before which nothing is corrected.
    from_us
        By rule, the least end of the matches that are compared.
    """

    rules: RuleSet
    logged: pa.Table
    found: pa.Table
    beyond: pa.Table
    from_us: Mapping[str, int]

    @property
    def added(self) -> pa.Table:
        """The rows that add matches."""
        at = self._of_found[self._is_added[self._of_found]]
        rows = self.found.filter(pa.array(self._is_added[self._of_found]))
        return _revised(rows, self._last[at] + self._is_withdrawn[at] + 1, MATCH)

    @property
    def withdrawn(self) -> pa.Table:
        """The rows that withdraw matches."""
        at = self._of_logged[self._is_withdrawn[self._of_logged]]
        rows = self.logged.filter(pa.array(self._is_withdrawn[self._of_logged]))
        return _revised(rows, self._last[at] + 1, RETRACT)

    @property
    def missing(self) -> pa.Table:
        """The added rows whose match was not valid."""
        return _others(self.added, self.withdrawn)

    @property
    def wrong(self) -> pa.Table:
        """The withdrawn rows whose match is not added again."""
        return _others(self.withdrawn, self.added)

    @property
    def written(self) -> pa.Table:
        """The matches whose revision key groups must know (`filled_gaps.Written`)."""
        n_more = self._is_withdrawn.astype(np.int64) + self._is_added
        revision = self._last + n_more
        is_valid = self._is_added | (self._stood & ~self._is_withdrawn)
        of_beyond = self._numbers(self.beyond)
        parts = [(self.wrong, revision[self._numbers(self.wrong)])]
        is_revised = is_valid[of_beyond] & (revision[of_beyond] > 0)
        parts.append((self.beyond.filter(pa.array(is_revised)), revision[of_beyond][is_revised] - 1))
        names = ("rule", _ID, "match_start", "match_end")
        return pa.concat_tables(
            rows.select(names).append_column(REVISION, pa.array(revision)) for rows, revision in parts
        )

    # ------------------------------------------------------------ by match

    @cached_property
    def _ids(self) -> pa.Array:
        both = [*self.logged.column(_ID).chunks, *self.found.column(_ID).chunks]
        return pa.chunked_array(both, pa.string()).unique()

    def _numbers(self, rows: pa.Table) -> I64:
        numbers: I64 = np.asarray(pc.index_in(rows.column(_ID), value_set=self._ids)).astype(np.int64)
        return numbers

    @cached_property
    def _of_logged(self) -> I64:
        return self._numbers(self.logged)

    @cached_property
    def _of_found(self) -> I64:
        return self._numbers(self.found)

    @cached_property
    def _last(self) -> I64:
        """The last revision; -1: none."""
        last = np.full(len(self._ids), -1, np.int64)
        last[self._of_logged] = np.asarray(self.logged.column(REVISION))
        return last

    @cached_property
    def _stood(self) -> Mask:
        """Whether the match is valid in the log."""
        stood = np.zeros(len(self._ids), np.bool_)
        stood[self._of_logged] = np.asarray(pc.equal(self.logged.column(KIND), MATCH))
        return stood

    @cached_property
    def _is_compared(self) -> Mask:
        compared = np.zeros(len(self._ids), np.bool_)
        for rows, of in ((self.logged, self._of_logged), (self.found, self._of_found)):
            compared[of] |= _is_since(rows, self.from_us)
        compared[self._numbers(self.beyond)] = True  # later corrections compare with them
        return compared

    @cached_property
    def _holds(self) -> Mask:
        """Whether the match is valid in the log and found, with the same values."""
        n = len(self._ids)
        stands = self._stood[self._of_logged]
        old, of_old = self.logged.filter(pa.array(stands)), self._of_logged[stands]
        n_old, n_new = (np.bincount(of, minlength=n) for of in (of_old, self._of_found))
        holds: Mask = (n_old == n_new) & (n_new > 0)
        names = pa.array(may_differ(self.rules.programs), pa.string())
        then, now = (np.asarray(pc.is_in(of.column("rule"), names)) for of in (old, self.found))
        same = [name for name in self.found.column_names if name not in _NOT_COMPARED]
        rows = old.filter(pa.array(then)), self.found.select(same).filter(pa.array(now))
        return holds & ~changed_ids(*rows, of_old[then], self._of_found[now], n)

    @cached_property
    def _is_withdrawn(self) -> Mask:
        return self._stood & ~self._holds & self._is_compared

    @cached_property
    def _is_added(self) -> Mask:
        found = np.bincount(self._of_found, minlength=len(self._ids)) > 0
        return found & ~self._holds & self._is_compared


def _others(rows: pa.Table, known: pa.Table) -> pa.Table:
    """Return the rows of matches that are not in `known`."""
    return rows.filter(pc.invert(pc.is_in(rows.column(_ID), known.column(_ID).combine_chunks())))


def _revised(rows: pa.Table, revision: I64, kind: str) -> pa.Table:
    """Return rows with a revision and a kind."""
    columns = {REVISION: pa.array(revision), KIND: pa.repeat(pa.scalar(kind), rows.num_rows)}
    for name, column in columns.items():
        item = rows.schema.field(name)
        rows = rows.set_column(rows.schema.get_field_index(name), item, column.cast(item.type))
    return rows


def differences(
    rules: RuleSet,
    found: Sequence[pa.Table],
    beyond: Sequence[pa.Table],
    from_us: Mapping[str, int],
    logged: pa.Table,
) -> Differences:
    """Return how the valid matches of a log differ from those that rules find (`Differences`)."""
    empty = carried_schema(rules.match_schema).empty_table()
    after = pa.concat_tables([empty, *beyond])
    return Differences(rules, logged, pa.concat_tables([empty, *found, after]), after, from_us)


class Logged(NamedTuple):
    """The rows of some rules in a log.

    `rows`: those with the last revision of each match, as carried matches. `offset`: the last entry that was
    read; later the log may have removed it.
    """

    rows: pa.Table
    offset: int = -1

    def after(
        self, log: MatchLog, from_us: Mapping[str, int], until: tuple[str, int] | None = None
    ) -> Logged:
        """Return the same with the later entries of a log, for matches that end at or after `from_us`.

        For the run in `until`, only the entries up to its micro-batch count. Raises StateError: a file of the
        log is damaged (E0720).
        """
        offset, parts = self.offset, [self.rows]
        for entry in log.entries():
            is_later = until is not None and entry.run == until[0] and entry.micro_batch > until[1]
            if entry.offset <= self.offset or is_later:
                continue
            offset = entry.offset
            tables = (since(log.table(entry, name), from_us) for name in entry.files)
            parts += [_as_carried(table, self.rows.schema) for table in tables]
        found = pa.concat_tables(parts)
        of = found.column(_ID).combine_chunks().dictionary_encode()
        numbers, revision = np.asarray(of.indices), np.asarray(found.column(REVISION))
        last = np.full(len(of.dictionary), -1, np.int64)
        np.maximum.at(last, numbers, revision)
        return Logged(found.filter(pa.array(revision == last[numbers])), offset)


def nothing_logged(rules: RuleSet) -> Logged:
    """Return the contents for a log that was not read."""
    return Logged(carried_schema(rules.match_schema).empty_table())


def _as_carried(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows of the log as carried matches; what rules of then did not have is NULL."""
    columns = []
    for item in schema:
        column = carried(rows.column(item.name)) if item.name in rows.column_names else None
        if column is not None and (column.type == item.type or {column.type, item.type} <= _NUMBERS):
            columns.append(widened(column, item.type))
        else:
            columns.append(missing_column(item, rows.num_rows))
    return pa.Table.from_arrays(columns, schema=schema)
