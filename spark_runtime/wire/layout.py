"""What parcels are for (`spark_runtime.wire.parcels`): a program by its index, or one of the codes here.

Executors read this: it imports nothing of the compiler.
"""

from __future__ import annotations

from dataclasses import dataclass

from cep.program.program import Program
from cep.rule_set import RuleSet

PROGRAM = "_program"
"""Column: index of the program that a parcel is for, or one of the seven below."""

DEAD_LETTER = -1
END_OF_INPUT = -2
COUNTED = -4
LATE_EVENTS = -5
MAY_BE_LATE = -6
FOUND = -7
EXTENT = -8

TEXT = "_text"
"""Column: a dead letter, counts or an extent as JSON, the stream of late events; NULL in events."""


@dataclass(frozen=True)
class Layout:
    """The rules whose programs parcels are for."""

    rules: RuleSet

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs of `rules`."""
        return self.rules.programs
