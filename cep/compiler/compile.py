"""Text to programs in one readable line: parse, analyze, lower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cep.compiler import ir
from cep.compiler.analyze import analyze
from cep.compiler.lower import lower
from cep.errors import Diagnostic, RuleError, Source
from cep.language.parser import parse
from cep.program import Program
from cep.schema import Stream


@dataclass(frozen=True, slots=True)
class Compiled:
    """Rules that can run: one program per stream and partition key, and the warnings met on the way."""

    rules: tuple[ir.Rule, ...]
    programs: tuple[Program, ...]
    warnings: tuple[Diagnostic, ...]


def check_sources(
    sources: Sequence[Source], streams: Mapping[str, Stream]
) -> tuple[tuple[ir.Rule, ...], tuple[Diagnostic, ...]]:
    """Return the rules of all `sources` that are right, and every problem of all of them."""
    parsed = [parse(source) for source in sources]
    syntax = [problem for _, problems in parsed for problem in problems]
    rules, meaning = analyze([rule for rules, _ in parsed for rule in rules], streams)
    return rules, (*syntax, *meaning)


def compile_sources(sources: Sequence[Source], streams: Mapping[str, Stream]) -> Compiled:
    """Return the programs of all rules in `sources`.

    Raises
    ------
    RuleError
        With every problem of all sources, when one of them is an error.
    """
    rules, problems = check_sources(sources, streams)
    if any(problem.is_error for problem in problems):
        raise RuleError(problems)
    return Compiled(rules, compile_rules(rules, streams), problems)


def compile_rules(
    rules: Sequence[ir.Rule], streams: Mapping[str, Stream], *, optimize: bool = True
) -> tuple[Program, ...]:
    """Return one program for each distinct (stream, partition key) of `rules`; see `lower`."""
    return lower(rules, streams, optimize=optimize)
