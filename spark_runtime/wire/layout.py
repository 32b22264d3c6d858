"""The programs whose events parcels contain (`spark_runtime.wire.parcels`).

Executors import this module: it imports nothing of the compiler.
"""

from __future__ import annotations

from dataclasses import dataclass

from cep.program.program import Program
from cep.rule_set import RuleSet


@dataclass(frozen=True)
class Layout:
    """The rules. A parcel names a program by its index in `programs`."""

    rules: RuleSet

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs of `rules`."""
        return self.rules.programs
