"""Syntax trees -> typed rules in three passes: names, conditions, outputs. This also removes sugar.

Every problem of every rule is reported; a rule with an error is not returned. Warnings are about constructs
that are legal but probably not intended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from cep.compiler import ir
from cep.compiler.analysis.conditions import type_conditions
from cep.compiler.analysis.distinct import type_distincts
from cep.compiler.analysis.joins import resolve_joins, warn_of_unread
from cep.compiler.analysis.lets import with_lets
from cep.compiler.analysis.match_streams import MatchStreams
from cep.compiler.analysis.names import Names, resolve_names, resolve_skip
from cep.compiler.analysis.outputs import Outputs, match_columns, read_report, rule_of_events, type_measures
from cep.compiler.analysis.parameters import check_parameters
from cep.compiler.analysis.partitioning import Partitioning, read_partitioning
from cep.compiler.analysis.patterns.pattern_warnings import warn_of_pattern
from cep.compiler.analysis.patterns.sound_patterns import is_sound
from cep.compiler.analysis.patterns.typed_pattern import typed_pattern, typed_window
from cep.compiler.analysis.patterns.undefined_variables import warn_of_undefined
from cep.compiler.analysis.views import typed_view, view_partitioning
from cep.compiler.analysis.window_rules import typed_window_rule
from cep.compiler.pattern_shape import variable_places
from cep.diagnostics.diagnostic import in_order
from cep.diagnostics.limits import Problems, TooManyErrorsError
from cep.diagnostics.report import Reporter
from cep.errors import Diagnostic
from cep.language import ast
from cep.language.parameters import with_values
from cep.program.match_stream import MatchStream
from cep.schema.stream import Stream

_SELECTION = {
    ast.Mode.EARLIEST: ir.Selection.EARLIEST,
    ast.Mode.ALL: ir.Selection.ALL,
    ast.Mode.PREFERRED: ir.Selection.PREFERRED,
}


def analyze(
    rules: Iterable[ast.Rule], streams: Mapping[str, Stream]
) -> tuple[tuple[ir.Rule, ...], list[Diagnostic]]:
    """Return the typed rules and all problems, by file and place.

    Names must be unique among all `rules`, so pass the rules of all files at once.
    """
    written = tuple(rules)
    rules = tuple(with_values(rule) for rule in written)
    problems = Problems()
    typed: dict[int, ir.Rule] = {}
    columns = match_columns(rules)
    match_streams = MatchStreams(rules, streams)
    outputs = Outputs.of(rules, match_streams.rules_read)
    try:
        for number in match_streams.in_reading_order(rules):
            rule = rules[number]
            n_before = len(problems)
            report = Reporter(rule.source, problems)
            if rule.is_view:
                partitioning = view_partitioning(rule, streams, report)
                found = typed_view(rule, partitioning, streams, columns, report)
            else:
                places = {} if rule.windowing is not None else variable_places(rule.pattern)
                known = match_streams.known_to(rule, report)
                partitioning = read_partitioning(rule, places, known.streams, columns, report, known.reported)
                typed_rule = _typed_rule if rule.windowing is None else _typed_window_rule
                found = typed_rule(rule, partitioning, streams, columns, report, n_before)
            check_parameters(written[number], partitioning.streams, report)
            _check_unique(rule, match_streams.rules[rule.name.text], report)
            if partitioning.streams:
                outputs.check(rule, partitioning, () if found is None else found.measures, report)
            is_known = len(partitioning.streams) == len(rule.streams)
            if found is not None and is_known and not report.has_error_since(n_before):
                warn_of_unread(rule, found, report)
                typed[number] = found
                match_streams.add(found, partitioning)
    except TooManyErrorsError:
        pass  # the last diagnostic says so
    return tuple(rule for _, rule in sorted(typed.items(), key=lambda item: item[0])), in_order(problems)


def _typed_rule(
    rule: ast.Rule,
    partitioning: Partitioning,
    streams: Mapping[str, Stream],
    columns: Sequence[str],
    report: Reporter,
    n_before: int,
) -> ir.Rule | None:
    if not is_sound(rule, report):
        return None  # any report about conditions would be guesswork
    warn_of_pattern(rule, partitioning.role_of, report)
    names = with_lets(_names(rule, partitioning, streams, report), report)
    skip = resolve_skip(names, report)
    variables = type_conditions(names, report)
    distincts = type_distincts(names, report)
    measures = type_measures(names, columns, report)
    clauses = read_report(rule, report)
    if not report.has_error_since(n_before):
        warn_of_undefined(rule, report)
    selection = _SELECTION[rule.mode or ast.Mode.EARLIEST]
    return replace(
        rule_of_events(rule, partitioning),
        pattern=typed_pattern(rule.pattern, names.untils, distincts),
        window=None if rule.window is None else typed_window(rule.window),
        variables=variables,
        measures=measures,
        selection=selection,
        skip=skip or ir.Skip(_default_skip(selection)),
        report=clauses,
        subsets=tuple(ir.Subset(name, members) for name, members in names.subsets.items()),
        tables=names.tables_joined,
        matches=tuple(stream for stream in partitioning.streams if isinstance(stream, MatchStream)),
    )


def _typed_window_rule(
    rule: ast.Rule,
    partitioning: Partitioning,
    streams: Mapping[str, Stream],
    columns: Sequence[str],
    report: Reporter,
    n_before: int,
) -> ir.Rule | None:
    names = _names(rule, partitioning, streams, report)
    found = typed_window_rule(names, streams, columns, report)
    clauses = read_report(rule, report)
    if found is None or report.has_error_since(n_before):
        return None
    return replace(
        rule_of_events(rule, partitioning),
        measures=found.measures,
        report=clauses,
        tables=tuple(dict.fromkeys((*names.tables_joined, *found.windowing.tables))),
        matches=tuple(stream for stream in partitioning.streams if isinstance(stream, MatchStream)),
        windowing=found.windowing,
    )


def _names(
    rule: ast.Rule, partitioning: Partitioning, streams: Mapping[str, Stream], report: Reporter
) -> Names:
    """Return the meaning of the names in `rule`, including those of tables."""
    joins = resolve_joins(rule, partitioning, streams, report)
    tables = tuple(name for name, stream in streams.items() if stream.table is not None)
    return replace(resolve_names(rule, partitioning, report), joins=joins, tables=tables)


def _check_unique(rule: ast.Rule, first: ast.Rule, report: Reporter) -> None:
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
