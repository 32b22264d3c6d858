"""The state of a corrector whose rules see the events that they missed.

    data = filled(unit, stored, pasts, rules, written, corrections)

The past was read again up to the event time before which nothing is corrected any longer. From there on, the
corrector evaluates its events again with that past. So its rows are those of rules that have always seen
everything, and a later correction compares with them. Nothing is reported here: the caller, which has read
the past, writes how these rows differ from the reported ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.engine.corrections.changed_rules import with_past
from cep.engine.corrections.corrector import Corrector, as_withdrawn, fingerprint_of, warmed_unit
from cep.engine.corrections.evaluated import Evaluated
from cep.engine.corrections.regrouping import latest_withdrawn, retained_from
from cep.engine.corrections.retained import Retained, RetainedTable, Segment, Warm
from cep.engine.state.codec import decode
from cep.errors import StateError
from cep.rule_set import REVISION, Corrections


class Written(NamedTuple):
    """What is written when gaps are filled.

    Parameters
    ----------
    reached_us
        The event time that the stream has reached.
    matches
        Matches with their last revision: of one that is withdrawn, that of the withdrawal; of one that is
        valid, the revision before. Columns: `rule`, `match_id`, `match_start`, `match_end`, `revision`.
    """

    reached_us: int
    matches: pa.Table


def filled(
    unit: Evaluated,
    stored: bytes,
    pasts: Mapping[bytes, bytes],
    rules: Collection[str],
    written: Written,
    corrections: Corrections,
) -> bytes:
    """Return the snapshot of a corrector of `unit` in which some rules know a past.

    Parameters
    ----------
    pasts
        For the fingerprint of each program: the snapshot of a matcher that has read the past, in which later
        events wait.
    rules
        The rules that begin again with it.

    Raises StateError: the past does not end where the state does (E0718), or as `Corrector.restore` does.
    """
    before = Retained.decode(stored, fingerprint_of(unit))
    _require_reached(unit, before, written.reached_us)
    front = unit.restored(
        unit.together(
            [
                bytes(pasts.get(program.fingerprint, fresh))
                for program, fresh in zip(unit.programs, _fresh(unit), strict=True)
            ]
        )
    )
    start_us = max(front.watermark_us, before.segments[0].start_us)
    if start_us > front.watermark_us:
        front.advance(start_us)  # what it finds is final
    known = {
        number: decode(part)
        for number, (program, part) in enumerate(
            zip(unit.programs, unit.snapshots(front.snapshot()), strict=True)
        )
        if program.fingerprint in pasts
    }
    kept = retained_from(unit, before.segments, start_us)
    waiting = pa.concat_tables([kept.events, before.waiting.table()])
    waiting, states = with_past(unit, waiting, known, start_us)
    save = warmed_unit(unit, kept.save, Warm(tuple(sorted(rules)), states))
    before.withdrawn = RetainedTable.of(
        latest_withdrawn(
            [
                before.withdrawn.table(),
                _of_others(unit, kept.rows, rules),
                _of_unit(unit, written.matches),
            ]
        )
    )
    before.front, before.waiting = save, RetainedTable.of(waiting)
    before.segments = [Segment(start_us, save)]
    corrector = Corrector.restore(unit, before.encode(fingerprint_of(unit)), corrections)
    corrector.advance(written.reached_us)
    return corrector.snapshot()


def _fresh(unit: Evaluated) -> list[bytes]:
    return [bytes(part) for part in unit.snapshots(unit.matcher().snapshot())]


def _require_reached(unit: Evaluated, before: Retained, reached_us: int) -> None:
    """Raise StateError (E0718) unless a corrector has reached an event time; one without events may."""
    front = unit.restored(bytes(before.front))
    has_begun = front.n_keys > 0 or front.n_waiting > 0 or before.waiting.n_rows > 0
    if front.watermark_us > reached_us or (has_begun and front.watermark_us != reached_us):
        raise StateError(
            "E0718",
            "the past that was read to fill gaps does not end where the state does",
            "run `cep backfill --gaps` again",
        )


def _of_unit(unit: Evaluated, matches: pa.Table) -> pa.Table:
    """Return the written matches of the rules of a unit, as withdrawn ones."""
    names = pa.array([rule.name for rule in unit.rules], pa.string())
    own = matches.filter(pc.is_in(matches.column("rule"), value_set=names))
    return as_withdrawn(unit, own, np.asarray(own.column(REVISION)))


def _of_others(unit: Evaluated, rows: pa.Table, rules: Collection[str]) -> pa.Table:
    """Return the revised matches of other rules, with the revision before: they are found again."""
    names = pa.array(sorted(rules), pa.string())
    own = rows.filter(pc.invert(pc.is_in(rows.column("rule"), value_set=names)))
    own = own.filter(pc.greater(own.column(REVISION), 0))
    return as_withdrawn(unit, own, np.asarray(own.column(REVISION)) - 1)
