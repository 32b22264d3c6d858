"""The faults that `python -m tests.property.faults` plants."""

from tests.property.planted import changed_rules, context, corrections, readers, regrouping, rules, state
from tests.property.planted.fault import Fault

__all__ = ["FAULTS", "Fault"]

FAULTS = (
    *rules.FAULTS,
    *context.FAULTS,
    *corrections.FAULTS,
    *readers.FAULTS,
    *regrouping.FAULTS,
    *changed_rules.FAULTS,
    *state.FAULTS,
)
