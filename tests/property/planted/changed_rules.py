"""Faults of state that continues with other rules."""

from __future__ import annotations

from functools import partial

from tests.property.planted.fault import Fault

_fault = partial(Fault, only="changed rules")

FAULTS = (
    _fault(
        "registers stay in the places of the old rule",
        file="cep/engine/matching/changed_rules.py",
        right="then.rows[:, first + place]",
        wrong="then.rows[:, first + min(number, then.rows.shape[1] - first - 1)]",
    ),
    _fault(
        "rules see the events from before they began",
        file="cep/engine/matching/matcher.py",
        right="rows = rows[events[at.TIME_US, rows] > self.begins_us]",
        wrong="pass",
    ),
    _fault(
        "windows contain the events from before they began",
        file="cep/engine/windows/rings.py",
        right="if batch is not None and self.begins_us > START_OF_TIME_US:",
        wrong="if False:",
    ),
)
