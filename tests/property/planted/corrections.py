"""Faults of corrections."""

from __future__ import annotations

from functools import partial

from tests.property.planted.fault import Fault

_CORRECTIONS, _DIFFERENCES = (
    "cep/engine/corrections/corrector.py",
    "cep/engine/corrections/row_differences.py",
)

_CHANGED = "cep/engine/corrections/changed_rules.py"

_fault = partial(Fault, module="tests.property.corrections")

FAULTS = (
    _fault(
        "rows that were reported with other measures are compared with rows that have the new ones",
        _CORRECTIONS,
        "if any(segment.has_other_measures for segment in again):",
        "if False:",
        only="changes",
    ),
    _fault(
        "windows that ended under another HAVING are corrected",
        _CORRECTIONS,
        "return rows.filter(pa.array(~is_final))",
        "return rows",
        only="changes",
    ),
    _fault(
        "matches of a rule that has changed are withdrawn",
        _CHANGED,
        "if self.verdicts[name] in KEPT and",
        "if",
        only="changes",
    ),
    _fault(
        "new window rules report windows that had ended",
        "cep/engine/matching/changed_rules.py",
        "reached_us if now.has_window_rules else begins_us",
        "START_OF_TIME_US if now.has_window_rules else begins_us",
        only="changes",
    ),
    _fault(
        "matches that keep their id are not corrected",
        _CORRECTIONS,
        "holds &= ~changed_ids(",
        "_ = ~changed_ids(",
    ),
    _fault(
        "windowed values in measures are not corrected",
        _DIFFERENCES,
        "if program.windows",
        "if False",
    ),
    _fault(
        "columns of tables in measures are not corrected",
        _DIFFERENCES,
        "or program.joins.columns",
        "or False",
        only="late",
    ),
    _fault(
        "measures of rules over rules are not corrected",
        _DIFFERENCES,
        "or any(isinstance(stream, MatchStream) for stream in program.streams)",
        "or False",
        only="late",
    ),
    _fault(
        "only matches with one row are compared",
        _DIFFERENCES,
        "as_many = n_old == n_new",
        "as_many = (n_old == 1) & (n_new == 1)",
        only="late",
    ),
    _fault(
        "NULL and a value are the same",
        _DIFFERENCES,
        "same: Mask = known == known_now",
        "same: Mask = known | True",
        only="late",
    ),
    _fault(
        "a match that was withdrawn comes back with the same revision",
        _CORRECTIONS,
        "last[~holds & (n_old > 0)] += 1",
        "last[~holds & (n_old > 0)] += 0",
    ),
    _fault(
        "late events are forgotten once they are evaluated",
        _CORRECTIONS,
        "retained = [RetainedTable.of(events)] if events.num_rows else []",
        "retained = segment.events",
    ),
    _fault(
        "rows that were added are not known at the next late event",
        _CORRECTIONS,
        "segment.rows.append(RetainedTable.of(stands))",
        "segment.rows.append(RetainedTable.of(stands.filter(pa.array(~new))))",
    ),
)
