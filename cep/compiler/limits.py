"""Limits of a compiled rule, and the errors that name them."""

from __future__ import annotations

from cep.compiler import ir
from cep.compiler.automaton.nfa import MAX_SUCCESSORS
from cep.errors import Diagnostic
from cep.program.program import MAX_BITS

MAX_REGISTERS = 64
"""Registers of a run: one 64-bit word says which of them are not NULL."""


MAX_WINDOWS = 64
"""Windowed values of one rule: each keeps a window of every key in memory and in the state of a stream."""


def too_many_windows(rule: ir.Rule, given: int) -> Diagnostic:
    """Return the error for a rule with too many windowed values for a key."""
    return _error(
        "E0909",
        rule,
        f"rule `{rule.name}` has {given} different windowed values; the limit is {MAX_WINDOWS}",
        "too many windows",
        "split the rule: equal windowed values of different rules are computed once",
    )


def too_many_predicates(rule: ir.Rule, given: int) -> Diagnostic:
    """Return the error for a rule with more local predicates than bits in a word."""
    return _error(
        "E0904",
        rule,
        f"rule `{rule.name}` has {given} different predicates on single events; the limit is {MAX_BITS}",
        "too many predicates",
        "split the rule, or give variables that mean the same the same predicate",
    )


def too_many_registers(rule: ir.Rule, given: int) -> Diagnostic:
    """Return the error for a rule whose runs would have to remember too many values."""
    return _error(
        "E0905",
        rule,
        f"rule `{rule.name}` makes every run remember {given} values; the limit is {MAX_REGISTERS}",
        "too much to remember",
        "use fewer aggregates and measures, and smaller offsets in FIRST and LAST",
    )


def too_many_choices(rule: ir.Rule) -> Diagnostic:
    """Return the error for a pattern whose optional parts can be combined in too many ways."""
    return _error(
        "E0908",
        rule,
        f"the pattern of rule `{rule.name}` can go on in more than {MAX_SUCCESSORS:,} ways",
        "too many optional steps",
        "use fewer optional steps in a row: n of them can be left out in n * n / 2 ways",
        at_pattern=True,
    )


def _error(
    code: str, rule: ir.Rule, title: str, label: str, help_text: str, *, at_pattern: bool = False
) -> Diagnostic:
    origin = rule.origin
    if origin is None:  # a rule that was never text
        return Diagnostic(code, title, help=help_text)
    span = origin.pattern if at_pattern else origin.name
    return Diagnostic(code, title, origin.source, span, label, help_text)
