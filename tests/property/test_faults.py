"""The faults that `python -m tests.property.faults` plants are still faults of this code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.property.planted import FAULTS, Fault

_ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_place_of_a_fault_is_there_once(fault: Fault) -> None:
    assert (_ROOT / fault.file).read_text().count(fault.right) == 1
    assert fault.right != fault.wrong
