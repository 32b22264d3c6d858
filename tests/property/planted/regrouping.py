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
)
