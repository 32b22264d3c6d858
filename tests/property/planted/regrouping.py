"""Faults of state that moves to other key groups."""

from __future__ import annotations

from functools import partial

from tests.property.planted.fault import Fault

_fault = partial(Fault, file="cep/engine/matching/regrouping.py", module="tests.property.rescaled")

FAULTS = (
    _fault(
        "texts of joined parts keep their numbers",
        right="cells[holds] = codes[cells[holds]]",
        wrong="_ = codes[cells[holds]]",
    ),
    _fault(
        "nodes of joined parts keep their numbers",
        right="link[link > 0] += n_nodes[number]",
        wrong="link[link > 0] += 0",
    ),
    _fault(
        "events of joined parts keep their numbers",
        right="kept.rows(cells[holds]) + n_kept",
        wrong="kept.rows(cells[holds])",
    ),
    _fault(
        "rows of a table go to every key group",
        right="tables[meaning] = tables[meaning].take(pa.array(places.of(group)))",
        wrong="_ = places.of(group)",
    ),
    _fault(
        "events that wait stay in the first key group",
        right="of_events[events.of(group)]",
        wrong="(of_events if group == 0 else of_events[:0])",
    ),
    _fault(
        "rows of shared tables that wait go to the first key group",
        right="np.concatenate((np.flatnonzero(for_all), own_events))",
        wrong="np.concatenate((np.flatnonzero(for_all & (group == 0)), own_events))",
    ),
    _fault(
        "windows keep the entries of other keys",
        right="entries[_runs_of(slots, self.of_keys[:, 0])]",
        wrong="entries[: int(self.of_keys[slots, 0].sum())]",
    ),
)
