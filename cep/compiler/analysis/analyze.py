"""Syntax trees -> typed rules in three passes: names, conditions, outputs. Sugar goes on the way.

Every problem of every rule is reported; a rule with an error is not returned. Warnings are about what is
legal and probably not meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cep.compiler import ir
from cep.compiler.analysis.conditions import type_conditions
from cep.compiler.analysis.lets import with_lets
from cep.compiler.analysis.names import resolve_names, resolve_skip
from cep.compiler.analysis.outputs import Outputs, match_columns, read_report, type_measures
from cep.compiler.analysis.partitioning import Partitioning, read_partitioning
from cep.compiler.analysis.pattern_warnings import warn_of_pattern
from cep.compiler.analysis.sound_patterns import is_sound
from cep.compiler.analysis.typed_pattern import typed_pattern, typed_window
from cep.compiler.analysis.undefined_variables import warn_of_undefined
from cep.compiler.pattern_shape import variable_places
from cep.diagnostics.diagnostic import in_order
from cep.diagnostics.limits import Problems, TooManyErrorsError
from cep.diagnostics.report import Report
from cep.errors import Diagnostic
from cep.language import ast
from cep.schema.stream import Stream

DEFAULT_SEVERITY = "medium"

_SELECTION = {
    ast.Mode.EARLIEST: ir.Selection.EARLIEST,
    ast.Mode.ALL: ir.Selection.ALL,
    ast.Mode.PREFERRED: ir.Selection.PREFERRED,
}


def analyze(
    rules: Iterable[ast.Rule], streams: Mapping[str, Stream]
) -> tuple[tuple[ir.Rule, ...], list[Diagnostic]]:
    """Return the typed rules and all problems, by file and place.

    Names must be unique over all `rules`, so give the rules of all files at once.
    """
    rules = tuple(rules)
    problems = Problems()
    typed: list[ir.Rule] = []
    columns = match_columns(rules)
    outputs = Outputs.of(rules)
    first_of_name: dict[str, ast.Rule] = {}
    try:
        for rule in rules:
            n_before = len(problems)
            report = Report(rule.source, problems)
            places = variable_places(rule.pattern)
            partitioning = read_partitioning(rule, places, streams, columns, report)
            found = _typed_rule(rule, partitioning, columns, report, n_before)
            _check_unique(rule, first_of_name.setdefault(rule.name.text, rule), report)
            if partitioning.streams:
                outputs.check(rule, partitioning, () if found is None else found.measures, report)
            if found is not None and not report.has_error_since(n_before):
                typed.append(found)
    except TooManyErrorsError:
        pass  # the last diagnostic says so
    return tuple(typed), in_order(problems)


def _typed_rule(
    rule: ast.Rule, partitioning: Partitioning, columns: Sequence[str], report: Report, n_before: int
) -> ir.Rule | None:
    if not is_sound(rule, report):
        return None  # what is said about conditions would be guesswork
    warn_of_pattern(rule, partitioning.role_of, report)
    names = with_lets(resolve_names(rule, partitioning, report), report)
    skip = resolve_skip(names, report)
    variables = type_conditions(names, report)
    measures = type_measures(names, columns, report)
    clauses = read_report(rule, report)
    if not report.has_error_since(n_before):
        warn_of_undefined(rule, report)
    selection = _SELECTION[rule.mode or ast.Mode.EARLIEST]
    return ir.Rule(
        name=rule.name.text,
        title=rule.title.text if rule.title is not None else "",
        severity=rule.severity or DEFAULT_SEVERITY,
        tags=rule.tags,
        streams=tuple(stream.name for stream in partitioning.streams),
        key=partitioning.key,
        pattern=typed_pattern(rule.pattern, names.untils),
        window=None if rule.window is None else typed_window(rule.window),
        variables=variables,
        measures=measures,
        selection=selection,
        skip=skip or ir.Skip(_default_skip(selection)),
        report=clauses,
        origin=ir.Origin(rule.source, rule.name.span, rule.pattern.span),
        roles=partitioning.roles,
        subsets=tuple(ir.Subset(name, members) for name, members in names.subsets.items()),
    )


def _check_unique(rule: ast.Rule, first: ast.Rule, report: Report) -> None:
    if first is not rule:
        line = first.source.text.count("\n", 0, first.name.span.start) + 1
        report(
            "E0301",
            f"there are two rules `{rule.name.text}`",
            rule.name.span,
            f"the first one is in {first.source.name}:{line}",
            "give one of them another name",
        )


def _default_skip(selection: ir.Selection) -> ir.SkipKind:
    return ir.SkipKind.NO_SKIP if selection is ir.Selection.ALL else ir.SkipKind.PAST_LAST
