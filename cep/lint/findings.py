"""What rules lack before they can be trusted: tests, names, bounds.

Each finding is a warning with a place in the rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from cep.compiler.compile import CompiledRule
from cep.compiler.ir import DEFAULT_MAX_RUNS
from cep.diagnostics.diagnostic import in_order
from cep.errors import Diagnostic, RuleError, Span
from cep.language import ast
from cep.language.printer import print_pattern
from cep.lint.allowed import without_allowed
from cep.profiles.never_seen import profiles_of
from cep.rule_files import TEST_ENDING, beside_rule, found_rule_files
from cep.rule_tests.reading import read_tests
from cep.rulebook import Rulebook, Streams, compile_rulebook, load_rulebooks, values_never_seen

MAX_STATES = 64
"""States of an automaton from which on it is a finding: each of a key's runs is in one of them."""


@dataclass(frozen=True, slots=True)
class Linted:
    """The findings in rule files, in the order of files and places, and how many others a comment allows."""

    files: tuple[str, ...]
    n_rules: int
    findings: tuple[Diagnostic, ...]
    n_allowed: int


@dataclass(frozen=True, slots=True)
class Tested:
    """Which rules have tests: those from which a match is expected, and those from which none is expected.

    A rule is a file and a name. `problems` are those of test files that cannot be read.
    """

    matches: frozenset[tuple[Path, str]]
    misses: frozenset[tuple[Path, str]]
    problems: tuple[Diagnostic, ...] = ()


def lint_rules(paths: Iterable[str | Path], streams: str | Path | Streams | None = None) -> Linted:
    """Return the findings in all rule files of `paths`. Rules with an error have no other findings."""
    problems: list[Diagnostic] = []
    files = found_rule_files(paths, problems)
    books = load_rulebooks(files, streams, problems)
    names: dict[str, str] = {}
    n_allowed = n_rules = 0
    of_streams = None if isinstance(streams, Mapping) else streams
    for book in books:
        tested = read_tested((Path(source.name) for source in book.sources), of_streams)
        problems += tested.problems
        found, n_of_book, allowed = lint_book(book, tested, names)
        problems += found
        n_rules += n_of_book
        n_allowed += allowed
    return Linted(tuple(map(str, files)), n_rules, tuple(in_order(problems)), n_allowed)


def lint_book(
    book: Rulebook, tested: Tested, names: dict[str, str] | None = None
) -> tuple[list[Diagnostic], int, int]:
    """Return the findings of the rules of one streams file, the number of rules, and of allowed findings.

    `names` contains the file of each earlier rule; the files of these rules are added.
    """
    try:
        compiled = compile_rulebook(book)
    except RuleError as error:
        return list(error.diagnostics), 0, 0
    profiled = profiles_of(book.streams_file, book.streams)
    findings = [*compiled.warnings, *values_never_seen(book, profiled)]
    known = {} if names is None else names
    for rule in compiled.rules:
        findings += _findings(rule, tested)
        tree, name = rule.tree, rule.name
        if name in known:
            help_text = "give one of them another name: only the name distinguishes their matches"
            label = f"also in {known[name]}"
            title = f"two rules are called `{name}`"
            findings.append(Diagnostic("W0530", title, tree.source, tree.name.span, label, help_text))
        known.setdefault(name, tree.source.name)
    by_source: dict[str, list[Diagnostic]] = defaultdict(list)
    for finding in findings:
        by_source[finding.source.name if finding.source else ""].append(finding)
    left, n_allowed = by_source.pop("", []), 0
    for source in book.sources:
        trees = [rule.tree for rule in compiled.rules if rule.tree.source.name == source.name]
        found, n_of_file = without_allowed(by_source[source.name], source, trees)
        left += found
        n_allowed += n_of_file
    return left, len(compiled.rules), n_allowed


def read_tested(rule_files: Iterable[Path], streams: str | Path | None = None) -> Tested:
    """Return what the test files in the folders of rule files expect of their rules."""
    matches, misses = set[tuple[Path, str]](), set[tuple[Path, str]]()
    problems: list[Diagnostic] = []
    folders = dict.fromkeys(file.parent for file in rule_files)
    for file in (file for folder in folders for file in sorted(folder.glob(f"*{TEST_ENDING}"))):
        try:
            tests = read_tests(file, streams)
        except RuleError as error:
            problems += error.diagnostics
            continue
        rules = [
            (Path(rule.tree.source.name).resolve(), rule.name)
            for rule in tests.compiled.rules
            if rule.name in tests.names
        ]
        for case in tests.cases:
            named = {match.values["rule"] for match in case.expected if "rule" in match.values}
            matched = {rule for rule in rules if case.expected and (not named or rule[1] in named)}
            matches |= matched
            misses |= set(rules) - matched if case.steps else set()
    return Tested(frozenset(matches), frozenset(misses), tuple(problems))


def _findings(rule: CompiledRule, tested: Tested) -> Iterator[Diagnostic]:
    """Yield what one rule lacks."""
    tree = rule.tree
    for code, title, span, label, help_text in (
        *_of_head(tree),
        *_of_keys(tree),
        *_of_tests(tree, tested),
        *_of_cost(rule),
    ):
        yield Diagnostic(code, title, tree.source, span, label, help_text)


_Finding = tuple[str, str, Span, str, str]
"""Code, title, place, label and help."""


def _of_head(tree: ast.Rule) -> Iterator[_Finding]:
    name, span = tree.name.text, tree.name.span
    if tree.title is None:
        help_text = "write TITLE 'what it finds, in one line' after the name"
        yield "W0538", f"rule `{name}` has no TITLE", span, "nothing says what an alert means", help_text
    if tree.severity is None:
        help_text = "write SEVERITY high, or low, medium, critical, info"
        yield "W0539", f"rule `{name}` has no SEVERITY", span, "it is medium without a decision", help_text
    if not tree.measures:
        help_text = "write what an analyst needs: MEASURES COUNT(a.*) AS n, b.amount AS loss"
        yield "W0535", f"rule `{name}` has no MEASURES", span, "a match has its key and its times", help_text


def _of_keys(tree: ast.Rule) -> Iterator[_Finding]:
    """Yield what a key that falls silent keeps forever."""
    if isinstance(tree.window, ast.EventWindow):
        label, help_text = "a key that falls silent keeps its runs", "write a time: WITHIN 10 MINUTES"
        yield "W0531", "a window of events never ends without events", tree.window.span, label, help_text
    seen = set[str]()
    parts = (tree.lets, tree.definitions, tree.where, tree.having, tree.measures)
    for over in (over for part in parts for over in _overs(part)):
        if (over.kind is ast.OverKind.ALL or over.count is not None) and over.kind.value not in seen:
            seen.add(over.kind.value)
            title = "each key keeps the values of this window for ever"
            help_text = "write a time: OVER LAST 30 DAYS; or allow it, if the keys are few"
            yield "W0531", title, over.span, "a key that falls silent is not forgotten", help_text


def _overs(node: Any) -> Iterator[ast.Over]:
    """Yield the windows of a syntax tree."""
    if isinstance(node, ast.Over):
        yield node
    elif isinstance(node, tuple):
        for part in node:
            yield from _overs(part)
    elif is_dataclass(node):
        for one in fields(node):
            yield from _overs(getattr(node, one.name))


def _of_tests(tree: ast.Rule, tested: Tested) -> Iterator[_Finding]:
    file, name, span = Path(tree.source.name), tree.name.text, tree.name.span
    rule = (file.resolve(), name)
    if tree.is_view:
        return
    if rule not in tested.matches | tested.misses:
        help_text = f"write cases to {beside_rule(file)}; `cep test --record` makes one of a match"
        yield "W0532", f"rule `{name}` has no tests", span, "nothing says when it must match", help_text
        return
    if rule not in tested.matches:
        help_text = "add a case whose `expect` is a list of matches"
        yield "W0533", f"no test expects a match of `{name}`", span, "it may never match", help_text
    if rule not in tested.misses:
        help_text = "add a case that just fails to match, with `expect: none`"
        yield "W0534", f"no test expects none of `{name}`", span, "it may match too much", help_text


def _of_cost(rule: CompiledRule) -> Iterator[_Finding]:
    """Yield what costs much in a rule, according to what the rule compiles to."""
    tree, n_states = rule.tree, len(rule.automaton.states)
    if n_states > MAX_STATES:
        title = f"the automaton has {n_states:,} states"
        help_text = f"`cep explain` shows them; up to {MAX_STATES} are usual: count with a window instead"
        yield "W0536", title, tree.pattern.span, "each repetition is a state", help_text
    if tree.report.limit is not None:
        return
    for loop in _multiplying(tree):
        title = f"`{print_pattern(loop)}` may open many runs"
        label = f"each event doubles them, up to {DEFAULT_MAX_RUNS:,} of a key"
        help_text = "write bounds, such as {3,10}; or a limit: MAX RUNS 100 PER KEY"
        yield "W0537", title, loop.quantifier_span, label, help_text


def _multiplying(tree: ast.Rule) -> Sequence[ast.Repetition]:
    """Return the loops without an upper bound, of which each event may be taken or left out."""
    loops = [
        node for node in ast.walk(tree.pattern) if isinstance(node, ast.Repetition) and node.most is None
    ]
    is_all = tree.mode is ast.Mode.ALL
    return [
        loop
        for loop in loops
        if loop.joint is ast.Joint.ANY or (is_all and loop.joint is not ast.Joint.STRICT)
    ]
