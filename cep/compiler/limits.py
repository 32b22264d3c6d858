"""Limits of a compiled rule, and the errors that name them."""

from __future__ import annotations

from cep.compiler.nfa import MAX_SUCCESSORS
from cep.errors import Diagnostic, RuleError
from cep.program import MAX_BITS

MAX_REGISTERS = 64
"""Registers of a run: one 64-bit word says which of them are not NULL."""


def too_many_predicates(rule: str, given: int) -> RuleError:
    """Return the error for a rule with more local predicates than bits in a word."""
    return RuleError(
        [
            Diagnostic(
                "E0904",
                f"rule `{rule}` has {given} different predicates on single events; the limit is {MAX_BITS}",
                help="split the rule, or give variables that mean the same the same predicate",
            )
        ]
    )


def too_many_registers(rule: str, given: int) -> RuleError:
    """Return the error for a rule whose runs would have to remember too many values."""
    return RuleError(
        [
            Diagnostic(
                "E0905",
                f"rule `{rule}` makes every run remember {given} values; the limit is {MAX_REGISTERS}",
                help="use fewer aggregates and measures, and smaller offsets in FIRST and LAST",
            )
        ]
    )


def too_many_choices(rule: str) -> RuleError:
    """Return the error for a pattern whose optional parts can be combined in too many ways."""
    return RuleError(
        [
            Diagnostic(
                "E0908",
                f"the pattern of rule `{rule}` can go on in more than {MAX_SUCCESSORS:,} ways",
                help="use fewer optional steps in a row: n of them can be left out in n * n / 2 ways",
            )
        ]
    )
