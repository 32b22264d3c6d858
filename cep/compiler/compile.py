"""Text to programs: parse, analyze, rewrite, build, lower. `compile_sources` has a line for each stage.

Each stage returns its result and the problems that it found. Nothing is refused before a stage has finished
all rules, so an author sees all problems at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cep.arguments import parameters_of
from cep.compiler import ir
from cep.compiler.analysis.analyze import analyze
from cep.compiler.automaton.build import build
from cep.compiler.automaton.nfa import Nfa
from cep.compiler.lowering.lower import lower
from cep.compiler.rewrite import rewrite
from cep.errors import Diagnostic, RuleError, Source
from cep.language import ast
from cep.language.front_ends import read_rules
from cep.language.parameters import set_parameters
from cep.program.program import Program, RuleProgram
from cep.rule_set import RuleSet
from cep.schema.stream import Stream


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """One rule at each stage. `program` is shared with other rules of the same streams and partition key."""

    tree: ast.Rule
    typed: ir.Rule
    automaton: Nfa
    program: Program

    @property
    def name(self) -> str:
        """The name of the rule."""
        return self.typed.name

    @property
    def lowered(self) -> RuleProgram:
        """The rule's own part of `program`."""
        return next(rule for rule in self.program.rules if rule.name == self.name)


@dataclass(frozen=True, slots=True)
class Compiled:
    """Rules that can run, each with its stages, and the warnings.

    Only `rule_set` travels to where events are: it knows nothing of the other stages.
    """

    rules: tuple[CompiledRule, ...]
    rule_set: RuleSet
    warnings: tuple[Diagnostic, ...]

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs of `rule_set`."""
        return self.rule_set.programs


def compile_sources(
    sources: Sequence[Source],
    streams: Mapping[str, Stream],
    only: Sequence[str] = (),
    parameters: Mapping[str, str] | None = None,
    shadow: Collection[str] = (),
) -> Compiled:
    """Return all rules in `sources`, compiled.

    Raises RuleError with every problem of all sources, if one of them is an error.

    `only`: names of rules: these, and those whose matches they read; without names all. `parameters`: values
    of parameters, as they are written in rules, by their names (`set_parameters`). `shadow`: names of rules
    that are shadow rules, whatever their status.
    """
    trees, syntax = _parse(sources, parameters)
    trees = _only(trees, only) if only else trees
    trees = tuple(replace(tree, status=ast.SHADOW) if tree.name.text in shadow else tree for tree in trees)
    typed, meaning = analyze(trees, streams)
    warnings = _without_errors(*syntax, *meaning)
    rewritten = tuple(rewrite(rule) for rule in typed)
    built, too_large = build(rewritten)
    programs, too_much = lower(built, streams)
    _without_errors(*too_large, *too_much)

    program_of = {rule.name: program for program in programs for rule in program.rules}
    rules = (
        CompiledRule(tree, rule, automaton, program_of[rule.name])
        for tree, (rule, automaton) in zip(trees, built, strict=True)
    )
    return Compiled(tuple(rules), RuleSet(programs), warnings)


def check_sources(
    sources: Sequence[Source], streams: Mapping[str, Stream], parameters: Mapping[str, str] | None = None
) -> tuple[tuple[ir.Rule, ...], tuple[Diagnostic, ...]]:
    """Return the sound rules of all `sources`, rewritten, and every problem of all sources.

    `parameters` are as for `compile_sources`.
    """
    trees, syntax = _parse(sources, parameters)
    typed, meaning = analyze(trees, streams)
    return tuple(rewrite(rule) for rule in typed), (*syntax, *meaning)


def compile_rules(
    rules: Iterable[ir.Rule], streams: Mapping[str, Stream], *, optimize: bool = True
) -> tuple[Program, ...]:
    """Return the programs of `rules`, which `check_sources` returned; see `lower`.

    Raises RuleError with a problem for every rule that does not fit into a program.
    """
    built, too_large = build(rules)
    programs, too_much = lower(built, streams, optimize=optimize)
    _without_errors(*too_large, *too_much)
    return programs


def _parse(
    sources: Iterable[Source], parameters: Mapping[str, str] | None
) -> tuple[tuple[ast.Rule, ...], tuple[Diagnostic, ...]]:
    """Return the syntax trees of all rules in `sources`, and the problems of all of them."""
    # A text that is given twice is read once, as a file is.
    parsed = [read_rules(source) for source in dict.fromkeys(sources)]
    trees, wrong = set_parameters([tree for trees, _ in parsed for tree in trees], parameters_of(parameters))
    return trees, (*(problem for _, problems in parsed for problem in problems), *wrong)


def _only(trees: Sequence[ast.Rule], names: Iterable[str]) -> tuple[ast.Rule, ...]:
    """Return the rules with these names, and those whose matches they read, in their order."""
    by_name = {tree.name.text: tree for tree in trees}
    chosen, left = set[str](), list(names)
    while left:
        name = left.pop()
        if name in by_name and name not in chosen:
            chosen.add(name)
            left += (by_name[name].streams[number].text for number in by_name[name].matches)
    return tuple(tree for tree in trees if tree.name.text in chosen)


def _without_errors(*problems: Diagnostic) -> tuple[Diagnostic, ...]:
    """Return `problems` if all of them are warnings, else raise `RuleError`."""
    if any(problem.is_error for problem in problems):
        raise RuleError(problems)
    return problems
