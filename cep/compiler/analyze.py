"""Syntax trees -> typed rules: names, types and bounds are checked, sugar goes.

Every problem of every rule is reported; a rule with an error is not returned. Warnings are about what is
legal and probably not meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from cep.compiler import ir
from cep.compiler.absences import hold_in_loops
from cep.compiler.checker import Scope, too_long
from cep.compiler.expression_size import MAX_EXPRESSION, written_out
from cep.compiler.inference import Inference
from cep.compiler.partitioning import Partitioning, read_partitioning
from cep.compiler.pattern_shape import (
    can_be_empty,
    count_positions,
    event_order,
    first_variables,
    opening_absences,
    taken_variables,
    variable_names,
    variable_places,
    walk_pattern,
)
from cep.compiler.pattern_warnings import warn_of_pattern
from cep.compiler.time_limits import check_times, has_limits
from cep.compiler.typed_pattern import typed_pattern, typed_window
from cep.errors import Diagnostic, Span
from cep.expression import Aggregate, Expression, Type, is_local
from cep.language import ast
from cep.language.diagnostics import did_you_mean, in_order
from cep.language.limits import Problems, TooManyErrorsError
from cep.language.time_literals import MAX_DURATION_US
from cep.program import EVENT_COLUMNS, OUTCOME
from cep.schema import Stream

MAX_VARIABLES = 200
"""Different variables of a pattern."""

MAX_POSITIONS = 1_000
"""Positions of a pattern once its bounded loops are unrolled."""

MAX_MAX_RUNS = 1_000_000
"""Largest number in MAX RUNS."""

DEFAULT_SEVERITY = "medium"

MATCH_COLUMNS = ("rule", "match_id", "match_start", "match_end")
"""Columns every match has besides its key."""

_SELECTION = {
    ast.Mode.EARLIEST: ir.Selection.EARLIEST,
    ast.Mode.ALL: ir.Selection.ALL,
    ast.Mode.PREFERRED: ir.Selection.PREFERRED,
}
_SKIP = {
    ast.SkipTarget.PAST_LAST_EVENT: ir.SkipKind.PAST_LAST,
    ast.SkipTarget.TO_NEXT_EVENT: ir.SkipKind.TO_NEXT,
    ast.SkipTarget.TO_FIRST: ir.SkipKind.TO_FIRST,
    ast.SkipTarget.TO_LAST: ir.SkipKind.TO_LAST,
    ast.SkipTarget.NO_SKIP: ir.SkipKind.NO_SKIP,
}

_OVERFLOW = {
    ast.Overflow.DROP_OLDEST: ir.Overflow.DROP_OLDEST,
    ast.Overflow.DROP_NEWEST: ir.Overflow.DROP_NEWEST,
    ast.Overflow.FAIL: ir.Overflow.FAIL,
}


def analyze(
    rules: Iterable[ast.Rule], streams: Mapping[str, Stream]
) -> tuple[tuple[ir.Rule, ...], list[Diagnostic]]:
    """Return the typed rules and all problems, by file and place.

    Names must be unique over all `rules`, so give those of all files at once.
    """
    rules = tuple(rules)
    diagnostics = Problems()
    typed: list[ir.Rule] = []
    columns = _match_columns(rules)
    outputs = _Outputs(_streams_together(rules))
    names: dict[str, ast.Rule] = {}
    try:
        for rule in rules:
            before = len(diagnostics)
            analysis = _Analysis(rule, streams, columns, diagnostics)
            found = analysis.rule_or_none()
            analysis.check_unique(names.setdefault(rule.name.text, rule))
            if analysis.partitioning.streams:
                outputs.check(analysis)
            if found is not None and not any(problem.is_error for problem in diagnostics[before:]):
                typed.append(found)
    except TooManyErrorsError:
        pass  # the last diagnostic says so
    return tuple(typed), in_order(diagnostics)


def _match_columns(rules: Iterable[ast.Rule]) -> tuple[str, ...]:
    """Return the columns besides the key that matches have where these rules report into one table."""
    columns = list(MATCH_COLUMNS)
    if any(rule.report.timeout is not None for rule in rules):
        columns.append(OUTCOME)
    if any(rule.report.rows is ast.Rows.ALL for rule in rules):
        columns += EVENT_COLUMNS
    return tuple(columns)


@dataclass
class _Analysis:
    """One rule on its way, and what is wrong with it."""

    rule: ast.Rule
    streams: Mapping[str, Stream]
    match_columns: tuple[str, ...]
    diagnostics: Problems  # those of the rules before it, too
    partitioning: Partitioning = field(default_factory=Partitioning)
    measure_types: dict[str, str] = field(default_factory=dict)
    subsets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    untils: dict[ast.Repetition, str] = field(default_factory=dict)

    def problem(self, code: str, title: str, span: Span, label: str = "", help_text: str = "") -> None:
        self.diagnostics.append(Diagnostic(code, title, self.rule.source, span, label, help_text))

    def rule_or_none(self) -> ir.Rule | None:
        rule = self.rule
        places = variable_places(rule.pattern)
        self.partitioning = read_partitioning(rule, places, self.streams, self.match_columns, self.problem)
        if not self.pattern_is_sound():
            return None  # what is said about conditions would be guesswork
        self.name_untils()
        pattern = hold_in_loops(typed_pattern(rule.pattern, self.untils))
        warn_of_pattern(rule, self.partitioning.role_of, self.problem)
        window = self.window()
        self.subsets = self.find_subsets()
        skip = self.skip()
        variables = self.variables()
        measures = self.measures()
        selection = _SELECTION[rule.mode or ast.Mode.EARLIEST]
        return ir.Rule(
            rule.name.text,
            rule.title.text if rule.title is not None else "",
            rule.severity or DEFAULT_SEVERITY,
            rule.tags,
            tuple(stream.name for stream in self.partitioning.streams),
            self.partitioning.key,
            pattern,
            window,
            variables,
            measures,
            selection,
            skip or ir.Skip(_default_skip(selection)),
            self.report(),
            ir.Origin(rule.source, rule.name.span, rule.pattern.span),
            self.partitioning.roles,
            tuple(ir.Subset(name, members) for name, members in self.subsets.items()),
        )

    # Clauses

    def check_unique(self, first: ast.Rule) -> None:
        if first is not self.rule:
            line = first.source.text.count("\n", 0, first.name.span.start) + 1
            self.problem(
                "E0301",
                f"there are two rules `{self.rule.name.text}`",
                self.rule.name.span,
                f"the first one is in {first.source.name}:{line}",
                "give one of them another name",
            )

    def window(self) -> ir.Window | ir.EventWindow | None:
        return None if self.rule.window is None else typed_window(self.rule.window)

    def report(self) -> ir.Report:
        written = self.rule.report
        if written.timeout is not None and not has_limits(self.rule):
            self.problem(
                "E0331",
                "nothing limits how long this rule waits",
                written.timeout.span,
                "no limit, no timeout",
                "add WITHIN and a time after the pattern, or leave ON TIMEOUT out",
            )
        if written.timeout is not None and self.rule.mode is ast.Mode.PREFERRED:
            self.problem(
                "E0334",
                "MATCH PREFERRED reports no timeouts",
                written.timeout.span,
                "a run that ends may have been beaten by a match already held",
                "write MATCH EARLIEST, or leave ON TIMEOUT out",
            )
        suppress_us = 0
        if written.suppression is not None:
            suppress_us = written.suppression.length_us
            if suppress_us > MAX_DURATION_US:
                self.diagnostics.append(too_long(self.rule.source, written.suppression.span))
            elif suppress_us == 0:
                self.problem(
                    "E0332",
                    "this suppresses nothing",
                    written.suppression.span,
                    "no time at all",
                    "write a longer time, or leave SUPPRESS FOR out",
                )
        all_rows = written.rows is ast.Rows.ALL
        limit = written.limit
        if limit is None:
            return ir.Report(written.timeout is not None, suppress_us, all_rows=all_rows)
        if limit.n_runs == 0:
            self.problem(
                "E0333",
                "a key without runs has no matches",
                limit.span,
                "at most 0 runs",
                "write at least 1",
            )
        elif limit.n_runs > MAX_MAX_RUNS:
            self.problem(
                "E0931",
                f"a key may have {limit.n_runs:,} runs; the limit is {MAX_MAX_RUNS:,}",
                limit.span,
                "every event of the key looks at all of them",
                "use a smaller number, and a shorter window or a skip clause to need fewer runs",
            )
        overflow = _OVERFLOW[limit.overflow or ast.Overflow.DROP_OLDEST]
        return ir.Report(written.timeout is not None, suppress_us, limit.n_runs, overflow, all_rows)

    def skip(self) -> ir.Skip | None:
        written = self.rule.skip
        if written is None:
            return None
        kind = _SKIP[written.target]
        if written.variable is None:
            return ir.Skip(kind)
        name = written.variable
        taken = taken_variables(self.rule.pattern)
        members = self.subsets.get(name.text, (name.text,))
        if not taken.keys() >= set(members):
            self.problem(
                "E0309",
                f"no event is ever taken as `{name.text}`",
                name.span,
                "not a step of the pattern",
                did_you_mean(name.text, (*taken, *self.subsets), "variables"),
            )
        elif kind is ir.SkipKind.TO_FIRST:
            stuck = first_variables(self.rule.pattern) <= set(members)
            self.check_moves_on(stuck, name, "first")
        else:
            stuck = not any(later in members for _, later in event_order(self.rule.pattern).pairs)
            self.check_moves_on(stuck, name, "last")
        return ir.Skip(kind, name.text, self.subsets.get(name.text, ()))

    def find_subsets(self) -> dict[str, tuple[str, ...]]:
        names = variable_names(self.rule.pattern)
        taken = taken_variables(self.rule.pattern)
        subsets: dict[str, tuple[str, ...]] = {}
        for subset in self.rule.subsets:
            name = subset.name
            if name.text in names or name.text in subsets:
                what = "a variable of the pattern" if name.text in names else "another subset"
                self.problem(
                    "E0340",
                    f"the subset's name `{name.text}` is taken",
                    name.span,
                    f"already {what}",
                    "give the subset another name",
                )
                continue
            members: dict[str, None] = {}
            for member in subset.members:
                self.check_member(member, members, subsets, taken)
                if member.text in taken:
                    members[member.text] = None
            subsets[name.text] = tuple(members)
        return subsets

    def check_member(
        self,
        member: ast.Name,
        before: Mapping[str, None],
        subsets: Mapping[str, tuple[str, ...]],
        taken: Mapping[str, None],
    ) -> None:
        if member.text in subsets:
            what = "a subset is no member of a subset"
            help_text = f"name its members: {', '.join(subsets[member.text])}"
        elif member.text in before:
            what, help_text = "already a member", "name it once"
        elif member.text in taken:
            return
        elif member.text in variable_names(self.rule.pattern):
            what = f"stands only as `!{member.text}` in the pattern"
            help_text = f"use variables that take events: {', '.join(taken)}"
        else:
            what, help_text = "not a variable of the pattern", did_you_mean(member.text, taken, "variables")
        self.problem(
            "E0341", f"`{member.text}` cannot be a member of the subset", member.span, what, help_text
        )

    def check_moves_on(self, stuck: bool, name: ast.Name, which: str) -> None:
        """Refuse a skip to the first event; MATCH ALL only prunes what starts earlier, which is nothing."""
        if stuck and self.rule.mode is not ast.Mode.ALL:
            self.problem(
                "E0310",
                f"the {which} `{name.text}` is always the first event of the match",
                name.span,
                "matching would begin again where it began",
                "write AFTER MATCH SKIP TO NEXT EVENT",
            )

    # Conditions and measures

    def scope(self, subject: str | None, step: str | None = None) -> Scope:
        """Return what the condition of `subject` can name; its events are those of `step` (None: its own)."""
        partitioning = self.partitioning
        stream = partitioning.streams[0] if subject is None else partitioning.stream_of[step or subject]
        taken = tuple(taken_variables(self.rule.pattern))
        absent = tuple(name for name in variable_names(self.rule.pattern) if name not in taken)
        return Scope(
            self.rule.source,
            stream,
            taken,
            absent,
            subject,
            partitioning.stream_of,
            is_qualified=partitioning.has_several_streams,
            subsets=self.subsets,
        )

    def variables(self) -> tuple[ir.Variable, ...]:
        names = list(variable_names(self.rule.pattern))
        definitions: dict[str, ast.Definition] = {}
        for definition in self.rule.definitions:
            name = definition.variable
            if name.text not in names:
                self.problem(
                    "E0303",
                    f"`{name.text}` does not occur in the pattern",
                    name.span,
                    "defined, but not a variable of the pattern",
                    f"`{name.text}` is a subset: define its members"
                    if name.text in self.subsets
                    else did_you_mean(name.text, names, "variables"),
                )
            elif name.text in definitions:
                self.problem(
                    "E0302",
                    f"`{name.text}` is defined twice",
                    name.span,
                    "already has a condition",
                    "join the conditions with AND",
                )
            definitions.setdefault(name.text, definition)
        pairs = event_order(self.rule.pattern).pairs
        predicates = {}
        for definition in definitions.values():
            subject = definition.variable.text
            if definition.condition is not None and subject in self.partitioning.stream_of:
                predicates[subject] = self.predicate(definition.condition, subject, pairs)
        role_of = self.partitioning.role_of
        variables = [ir.Variable(name, predicates.get(name), role_of.get(name, -1)) for name in names]
        return (*variables, *self.until_variables(pairs))

    def name_untils(self) -> None:
        """Give each loop that is closed a variable for its condition, tested and never taken."""
        taken = variable_names(self.rule.pattern)
        free = (name for number in count(1) if (name := f"until#{number}") not in taken)
        for node in walk_pattern(self.rule.pattern):
            if isinstance(node, ast.Repetition) and node.until is not None and node not in self.untils:
                self.untils[node] = next(free)

    def until_variables(self, pairs: frozenset[tuple[str, str]]) -> Iterator[ir.Variable]:
        """Type the conditions of UNTIL. An event that may close a loop is of the stream of its first step."""
        for loop, name in self.untils.items():
            taken = taken_variables(loop.body)
            first = next(iter(taken))
            if loop.until is None or first not in self.partitioning.stream_of:
                continue
            inference = Inference(self.scope(name, first), self.diagnostics.append)
            role = self.partitioning.role_of.get(first, -1)
            yield ir.Variable(name, inference.condition(loop.until), role, closes=True)
            for read in inference.reads:
                if read.variable not in taken and not any((read.variable, step) in pairs for step in taken):
                    self.problem(
                        "W0507",
                        f"no event can be taken as `{read.variable}` before the loop is closed",
                        read.span,
                        f"`{read.variable}` has no event yet",
                        "compare with what the loop or an earlier step has taken",
                    )

    def predicate(
        self, condition: ast.Expression, subject: str, pairs: frozenset[tuple[str, str]]
    ) -> Expression | None:
        if not self.is_of_bounded_size(condition):
            return None
        inference = Inference(self.scope(subject), self.diagnostics.append)
        predicate = inference.condition(condition)
        looked_for = {
            name.text for absence in opening_absences(self.rule.pattern) for name in absence.variables
        }
        if subject in looked_for and predicate is not None and not is_local(predicate):
            self.problem(
                "E0323",
                f"`{subject}` is absent at the start, and its condition reads other events",
                next(
                    (read.span for read in inference.reads if read.variable != subject),
                    condition.span,
                ),
                "there is no match yet when this is tested",
                f"compare with columns of the event itself only, or begin with an event before `!{subject}`",
            )
            return predicate
        for read in inference.reads:
            members = self.subsets.get(read.variable, (read.variable,))
            if subject not in members and not any((member, subject) in pairs for member in members):
                self.problem(
                    "W0507",
                    f"no event can be taken as `{read.variable}` before one is tested as `{subject}`",
                    read.span,
                    f"`{read.variable}` has no event yet",
                    f"compare in the condition of `{read.variable}` instead",
                )
        return predicate

    def measures(self) -> tuple[ir.Measure, ...]:
        taken = {name.casefold(): f"every match has a column `{name}` already" for name in self.match_columns}
        taken |= {name.casefold(): f"`{name}` is a key column" for name in self.partitioning.key}
        result = []
        for measure in self.rule.measures:
            name = measure.name
            folded = name.text.casefold()
            if folded in taken:
                self.problem(
                    "E0304",
                    f"the measure's name `{name.text}` is taken",
                    name.span,
                    taken[folded],
                    "give it another name; upper and lower case are not told apart here",
                )
            elif name.text.startswith(("_", "#")):
                self.problem(
                    "E0304",
                    f"the measure's name `{name.text}` is taken",
                    name.span,
                    "names that begin with _ or # are the engine's own",
                    "give it another name",
                )
            taken.setdefault(folded, f"there is a measure `{name.text}` already")
            if len(self.partitioning.streams) < len(self.rule.streams):
                continue
            if not self.is_of_bounded_size(measure.expression):
                continue
            expression = Inference(self.scope(None), self.diagnostics.append).measure(measure.expression)
            if expression is not None:
                kind = f"array<{expression.type}>" if _is_list(expression) else expression.type
                self.measure_types.setdefault(name.text, kind)
                result.append(ir.Measure(name.text, expression))
        return tuple(result)

    def is_of_bounded_size(self, expression: ast.Expression) -> bool:
        """Say whether `expression` stays small when nothing in it is left short; report it if not."""
        if written_out(expression) <= MAX_EXPRESSION:
            return True
        self.problem(
            "E0913",
            f"written out, this expression has more than {MAX_EXPRESSION:,} operations",
            expression.span,
            "BETWEEN, IN and CASE repeat what is on their left",
            "compare a column where there is a long expression now, or split the condition",
        )
        return False

    # Patterns

    def pattern_is_sound(self) -> bool:
        before = len(self.diagnostics)
        pattern = self.rule.pattern
        self.check_absences(pattern, is_start=True, is_item=False)
        self.check_quantifiers(pattern)
        if len(self.diagnostics) > before:
            return False
        positions = count_positions(pattern)
        n_variables = len(variable_names(pattern))
        if positions > MAX_POSITIONS:
            many = f"{positions:,}" if positions < 10**15 else "very many"
            self.problem(
                "E0903",
                f"the pattern has {many} positions; the limit is {MAX_POSITIONS:,}",
                pattern.span,
                "bounded loops count as often as they repeat, n parts in any order 2^(n - 1) times",
                "use smaller bounds, a loop without an upper one: a->{3,}, or fewer parts in any order",
            )
        elif n_variables > MAX_VARIABLES:
            self.problem(
                "E0914",
                f"the pattern has {n_variables:,} variables; the limit is {MAX_VARIABLES:,}",
                pattern.span,
                "too many different names",
                "give steps with the same condition the same name",
            )
        elif can_be_empty(pattern):
            self.problem(
                "E0308",
                "the pattern matches without any event",
                pattern.span,
                "every part of it may be left out",
                "make one step necessary: a+ instead of a*",
            )
        else:
            check_times(self.rule, self.problem, self.diagnostics.append)
            return not any(problem.is_error for problem in self.diagnostics[before:])
        return len(self.diagnostics) == before

    def check_absences(self, pattern: ast.Pattern, *, is_start: bool, is_item: bool) -> None:
        """Check that each absence follows something in its own group."""
        match pattern:
            case ast.Absence(text=text) if not is_item:
                self.problem(
                    "E0313",
                    f"`{text}` begins a group",
                    pattern.span,
                    "no event comes before it or after it in its parentheses"
                    if is_start
                    else "nothing comes before it in its parentheses",
                    f"put it before the parenthesis: a -> {text} -> (...)",
                )
            case ast.Sequence(items=(first, *rest)):
                self.check_absences(first.pattern, is_start=is_start, is_item=is_start)
                for item in rest:
                    self.check_absences(item.pattern, is_start=False, is_item=True)
            case ast.Alternation(branches=branches):
                for branch in branches:
                    self.check_absences(branch, is_start=is_start, is_item=False)
            case ast.Permutation(parts=parts):
                for part in parts:
                    self.check_absences(part, is_start=False, is_item=False)
            case ast.Repetition(body=body, most=most):
                self.check_absences(body, is_start=is_start and most == 1, is_item=False)
            case ast.Group(body=body):
                self.check_absences(body, is_start=is_start, is_item=False)

    def check_quantifiers(self, pattern: ast.Pattern) -> None:
        for node in walk_pattern(pattern):
            if not isinstance(node, ast.Repetition):
                continue
            if node.most == 0:
                self.problem(
                    "E0306",
                    "a quantifier that allows no repetition",
                    node.quantifier_span,
                    "at most 0 times",
                    "leave the step out, or write !v for an event that must not come",
                )
            elif node.most is not None and node.least > node.most:
                self.problem(
                    "E0307",
                    f"at least {node.least} but at most {node.most}",
                    node.quantifier_span,
                    "the lower bound comes first",
                    f"write {{{node.most},{node.least}}}",
                )


@dataclass
class _Outputs:
    """Columns of the matches: rules over one stream, or over streams that some rule joins, report together.

    `together` has a name for each such set of streams.
    """

    together: Mapping[str, str]
    measures: dict[tuple[str, str], tuple[str, str, str]] = field(default_factory=dict)
    keys: dict[tuple[str, str], str] = field(default_factory=dict)
    key_types: dict[tuple[str, str], tuple[Type, str]] = field(default_factory=dict)

    def check(self, analysis: _Analysis) -> None:
        rule = analysis.rule
        stream = self.together[rule.streams[0].text]
        for name in (part.name for part in rule.key):
            self.check_key_type(analysis, stream, name)
            self.keys.setdefault((stream, name.text.casefold()), rule.name.text)
            known = self.measures.get((stream, name.text.casefold()))
            if known is not None and known[2] != rule.name.text:
                analysis.problem(
                    "E0304",
                    f"the key column `{name.text}` is a measure of rule `{known[2]}`",
                    name.span,
                    "both are columns of the matches",
                    f"give the measure of `{known[2]}` another name",
                )
        for measure in rule.measures:
            kind = analysis.measure_types.get(measure.name.text)
            if kind is not None:
                self.check_measure(analysis, stream, measure.name, kind)

    def check_key_type(self, analysis: _Analysis, stream: str, name: ast.Name) -> None:
        kind = analysis.partitioning.key_types.get(name.text)
        if kind is None:
            return
        rule = analysis.rule.name.text
        known, other = self.key_types.setdefault((stream, name.text.casefold()), (kind, rule))
        if known is not kind:
            analysis.problem(
                "E0213",
                f"the key `{name.text}` is {kind.upper()} here and {known.upper()} in rule `{other}`",
                name.span,
                "one column cannot hold both",
                "give the column another name in one of the streams",
            )

    def check_measure(self, analysis: _Analysis, stream: str, name: ast.Name, kind: str) -> None:
        rule = analysis.rule.name.text
        place = (stream, name.text.casefold())
        key_of = self.keys.get(place)
        if key_of is not None and key_of != rule:
            analysis.problem(
                "E0304",
                f"the measure `{name.text}` is a key column of rule `{key_of}`",
                name.span,
                "both are columns of the matches",
                "give the measure another name",
            )
        written, known, other = self.measures.setdefault(place, (name.text, kind, rule))
        if other == rule:
            return
        if written != name.text:
            analysis.problem(
                "E0304",
                f"`{name.text}` and `{written}` of rule `{other}` differ in upper and lower case only",
                name.span,
                "both are columns of the matches",
                f"write `{written}`",
            )
        elif known != kind and {known, kind} != {Type.BIGINT, Type.DOUBLE}:
            analysis.problem(
                "E0213",
                f"the measure `{name.text}` is {kind.upper()} here and {known.upper()} in rule `{other}`",
                name.span,
                "one column cannot hold both",
                "give one of them another name",
            )


def _streams_together(rules: Iterable[ast.Rule]) -> dict[str, str]:
    """Return, for every stream of `rules`, a name that it shares with those that a rule reads with it."""
    together: dict[str, str] = {}
    for rule in rules:
        names = [name.text for name in rule.streams]
        for name in names:
            together.setdefault(name, name)
        joined = {together[name] for name in names}
        together = {name: names[0] if set_of in joined else set_of for name, set_of in together.items()}
    return together


def _is_list(expression: Expression) -> bool:
    return isinstance(expression, Aggregate) and expression.kind == "ARRAY_AGG"


def _default_skip(selection: ir.Selection) -> ir.SkipKind:
    return ir.SkipKind.NO_SKIP if selection is ir.Selection.ALL else ir.SkipKind.PAST_LAST
