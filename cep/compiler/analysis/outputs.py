"""The third pass over a rule: what it reports, and whether the rules of one output agree on its columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cep.compiler import ir
from cep.compiler.aggregates import is_list
from cep.compiler.analysis.conditions import is_of_bounded_size
from cep.compiler.analysis.names import Names
from cep.compiler.analysis.partitioning import Partitioning
from cep.compiler.analysis.patterns.time_limits import has_limits
from cep.compiler.typing.checker import too_long
from cep.compiler.typing.inference import Inference
from cep.diagnostics.report import Reporter
from cep.expression import Aggregate, Expression, Type
from cep.language import ast
from cep.program.match_stream import MatchStream
from cep.program.program import EVENT_COLUMNS, OUTCOME
from cep.program.views import KIND, REVISION
from cep.schema.time_literals import MAX_DURATION_US

_DEFAULT_SEVERITY = "medium"

MAX_MAX_RUNS = 1_000_000
"""Largest number in MAX RUNS."""

MATCH_COLUMNS = ("rule", "match_id", "match_start", "match_end")
"""Columns that every match has in addition to its key."""

_OVERFLOW = {
    ast.Overflow.DROP_OLDEST: ir.Overflow.DROP_OLDEST,
    ast.Overflow.DROP_NEWEST: ir.Overflow.DROP_NEWEST,
    ast.Overflow.FAIL: ir.Overflow.FAIL,
}


def rule_of_events(rule: ast.Rule, partitioning: Partitioning) -> ir.Rule:
    """Return `rule` with what it says about its name, streams and key; each event is a match of it."""
    return ir.Rule(
        name=rule.name.text,
        title=rule.title.text if rule.title is not None else "",
        severity=rule.severity or _DEFAULT_SEVERITY,
        tags=rule.tags,
        is_shadow=rule.is_shadow,
        streams=tuple(stream.name for stream in partitioning.streams),
        key=partitioning.key,
        pattern=ir.Take(""),
        window=None,
        variables=(ir.Variable("", None),),
        measures=(),
        selection=ir.Selection.EARLIEST,
        skip=ir.Skip(ir.SkipKind.NO_SKIP),
        origin=ir.Origin(rule.source, rule.name.span, rule.pattern.span),
        roles=partitioning.roles,
    )


def match_columns(rules: Iterable[ast.Rule]) -> tuple[str, ...]:
    """Return the columns, apart from the key, of matches if these rules report into one table."""
    columns = list(MATCH_COLUMNS)
    if any(rule.report.timeout is not None for rule in rules):
        columns.append(OUTCOME)
    if any(rule.is_view for rule in rules):
        columns += (REVISION, KIND)
    if any(rule.report.rows is ast.Rows.ALL for rule in rules):
        columns += EVENT_COLUMNS
    return tuple(columns)


def type_measures(
    names: Names,
    columns: Sequence[str],
    report: Reporter,
    typed: Callable[[ast.Expression], Expression | None] | None = None,
) -> tuple[ir.Measure, ...]:
    """Return the measures of the rule, typed; `columns` are those that every match has.

    `typed` types them if they are not values of a match of a pattern.
    """
    taken = {name.casefold(): f"every match has a column `{name}` already" for name in columns}
    taken |= {name.casefold(): f"`{name}` is a key column" for name in names.partitioning.key}
    measures = []
    for measure in names.rule.measures:
        _check_name(measure.name, taken, report)
        taken.setdefault(measure.name.text.casefold(), f"there is a measure `{measure.name.text}` already")
        if len(names.partitioning.streams) < len(names.rule.streams):
            continue  # a stream is unknown, and so are its columns
        if not is_of_bounded_size(measure.expression, names, report):
            continue
        infer = typed or Inference(names.scope(None), report.add).measure
        expression = infer(measure.expression)
        if expression is not None:
            measures.append(ir.Measure(measure.name.text, expression))
    return tuple(measures)


def _check_name(name: ast.Name, taken: Mapping[str, str], report: Reporter) -> None:
    if name.text.casefold() in taken:
        label = taken[name.text.casefold()]
        help_text = "give it another name; upper and lower case are not told apart here"
    elif name.text.startswith(("_", "#")):
        label, help_text = "names that begin with _ or # are the engine's own", "give it another name"
    else:
        return
    report("E0304", f"the measure's name `{name.text}` is taken", name.span, label, help_text)


def read_report(rule: ast.Rule, report: Reporter) -> ir.Report:
    """Return what the clauses of `rule` say about its reports."""
    written = rule.report
    if written.timeout is not None:
        _check_timeout(rule, written.timeout, report)
    overflow, max_runs = ir.Overflow.DROP_OLDEST, ir.DEFAULT_MAX_RUNS
    if written.limit is not None:
        _check_limit(written.limit, report)
        max_runs = written.limit.n_runs
        overflow = _OVERFLOW[written.limit.overflow or ast.Overflow.DROP_OLDEST]
    return ir.Report(
        timeouts=written.timeout is not None,
        suppress_us=_suppression_us(rule, report),
        n_per_day=_n_per_day(written.suppression, report),
        max_runs=max_runs,
        overflow=overflow,
        all_rows=written.rows is ast.Rows.ALL,
    )


def _check_timeout(rule: ast.Rule, timeout: ast.Timeout, report: Reporter) -> None:
    if not has_limits(rule):
        report(
            "E0331",
            "nothing limits how long this rule waits",
            timeout.span,
            "no limit, no timeout",
            "add WITHIN and a time after the pattern, or leave ON TIMEOUT out",
        )
    if rule.mode is ast.Mode.PREFERRED:
        report(
            "E0334",
            "MATCH PREFERRED reports no timeouts",
            timeout.span,
            "a run that ends may have been beaten by a match already held",
            "write MATCH EARLIEST, or leave ON TIMEOUT out",
        )


def _suppression_us(rule: ast.Rule, report: Reporter) -> int:
    suppression = rule.report.suppression
    if suppression is None or suppression.n_per_day is not None:
        return 0
    if suppression.length_us > MAX_DURATION_US:
        report.add(too_long(rule.source, suppression.span))
    elif suppression.length_us == 0:
        report(
            "E0332",
            "this suppresses nothing",
            suppression.span,
            "no time at all",
            "write a longer time, or leave SUPPRESS FOR out",
        )
    return suppression.length_us


def _n_per_day(suppression: ast.Suppression | None, report: Reporter) -> int:
    n_per_day = None if suppression is None else suppression.n_per_day
    if suppression is None or n_per_day is None:
        return 0
    if n_per_day == 0:
        report(
            "E0335",
            "a rule that reports nothing",
            suppression.span,
            "no match of any day",
            "write at least 1, or leave the rule out",
        )
    elif n_per_day > MAX_MAX_RUNS:
        report(
            "E0931",
            f"a key may report {n_per_day:,} matches a day; the limit is {MAX_MAX_RUNS:,}",
            suppression.span,
            "so many are never reported",
            "use a smaller number, or leave SUPPRESS out",
        )
    return n_per_day


def _check_limit(limit: ast.RunLimit, report: Reporter) -> None:
    if limit.n_runs == 0:
        report(
            "E0333",
            "a key without runs has no matches",
            limit.span,
            "at most 0 runs",
            "write at least 1",
        )
    elif limit.n_runs > MAX_MAX_RUNS:
        report(
            "E0931",
            f"a key may have {limit.n_runs:,} runs; the limit is {MAX_MAX_RUNS:,}",
            limit.span,
            "every event of the key is compared with all of them",
            "use a smaller number, and a shorter window or a skip clause to need fewer runs",
        )


@dataclass(frozen=True, slots=True)
class _Place:
    """A column of the matches: the streams whose rules report together, and its name in lower case."""

    streams: str
    name: str


@dataclass(frozen=True, slots=True)
class _Measured:
    """A measure, or a key that was a measure: its text, its type, and its rule."""

    name: str
    type: str
    rule: str

    def is_as(self, other: _Measured) -> bool:
        """Return whether one column can have both."""
        return (self.name, self.type) == (other.name, other.type)


@dataclass(slots=True)
class Outputs:
    """The columns of the matches of all rules. It grows with each rule that is checked.

    Rules over one stream, or over streams that some rule joins, report together: `together` has one name for
    all streams of such a set. A key of a rule over rules may be a measure of the rules whose matches it reads
    by this key, directly or through other rules. Then one column contains the measure and the keys, and these
    keys are `from_measure`.
    """

    together: Mapping[str, str]
    measures: dict[_Place, list[_Measured]] = field(default_factory=dict)
    keys: dict[_Place, str] = field(default_factory=dict)
    from_measure: dict[_Place, dict[str, _Measured]] = field(default_factory=dict)
    key_types: dict[_Place, tuple[Type, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, rules: Sequence[ast.Rule], rules_read: Callable[[ast.Rule], Iterable[str]]) -> Outputs:
        """Return the outputs of `rules`, still without columns; each reads the matches of `rules_read`."""
        return cls(_streams_together(rules, {name for rule in rules for name in rules_read(rule)}))

    def check(
        self, rule: ast.Rule, partitioning: Partitioning, measures: Iterable[ir.Measure], report: Reporter
    ) -> None:
        """Report what keeps the key and the `measures` of `rule` from being columns next to the others."""
        streams = self.together[rule.streams[0].text]
        for number, name in enumerate(part.name for part in rule.key):
            place = _Place(streams, name.text.casefold())
            kind = partitioning.key_types.get(name.text)
            is_measured = self._is_measured(place, number, name.text, partitioning)
            self._check_key(place, name, rule, kind, report, is_measured=is_measured)
        types: dict[str, str] = {}
        for measure in measures:
            types.setdefault(measure.name, _shown_type(measure.expression))
        for name in (measure.name for measure in rule.measures):
            if name.text in types:
                place = _Place(streams, name.text.casefold())
                self._check_measure(
                    place, name, _Measured(name.text, types[name.text], rule.name.text), report
                )

    def _is_measured(self, place: _Place, number: int, name: str, partitioning: Partitioning) -> bool:
        """Return whether a part of a key is a measure of a rule whose matches are read, also indirectly."""
        columns = {role.stream: role.key[number] for role in partitioning.roles}
        measured = self.from_measure.get(place, {})
        return any(
            isinstance(stream, MatchStream)
            and columns.get(stream.name, name) == name
            and (name not in stream.key or stream.name in measured)
            for stream in partitioning.streams
        )

    def _check_key(
        self,
        place: _Place,
        name: ast.Name,
        rule: ast.Rule,
        kind: Type | None,
        report: Reporter,
        *,
        is_measured: bool,
    ) -> None:
        if kind is not None:
            known, other = self.key_types.setdefault(place, (kind, rule.name.text))
            if known is not kind:
                report(
                    "E0213",
                    f"the key `{name.text}` is {kind.upper()} here and {known.upper()} in rule `{other}`",
                    name.span,
                    "one column cannot hold both",
                    "give the column another name in one of the streams",
                )
        if is_measured and kind is None:
            return  # the problem was reported
        own = _Measured(name.text, str(kind), rule.name.text)
        if is_measured:
            self.from_measure.setdefault(place, {})[rule.name.text] = own
        else:
            self.keys.setdefault(place, rule.name.text)
        for measured in self.measures.get(place, ()):
            if measured.rule != rule.name.text and not (is_measured and measured.is_as(own)):
                report(
                    "E0304",
                    f"the key column `{name.text}` is a measure of rule `{measured.rule}`",
                    name.span,
                    "both are columns of the matches",
                    f"give the measure of `{measured.rule}` another name",
                )
                return

    def _check_measure(self, place: _Place, name: ast.Name, measured: _Measured, report: Reporter) -> None:
        of_place = self.measures.setdefault(place, [])
        of_place.append(measured)
        known = of_place[0]
        of_keys = self.from_measure.get(place, {}).values()
        key_of = next((of.rule for of in of_keys if not of.is_as(measured)), self.keys.get(place))
        if key_of is not None and key_of != measured.rule:
            report(
                "E0304",
                f"the measure `{name.text}` is a key column of rule `{key_of}`",
                name.span,
                "both are columns of the matches",
                "give the measure another name",
            )
            return
        if known.rule == measured.rule:
            return
        if known.name != measured.name:
            report(
                "E0304",
                f"`{name.text}` and `{known.name}` of rule `{known.rule}` "
                "differ in upper and lower case only",
                name.span,
                "both are columns of the matches",
                f"write `{known.name}`",
            )
        elif known.type != measured.type and {known.type, measured.type} != {Type.BIGINT, Type.DOUBLE}:
            report(
                "E0213",
                f"the measure `{name.text}` is {measured.type.upper()} here and {known.type.upper()} "
                f"in rule `{known.rule}`",
                name.span,
                "one column cannot hold both",
                "give one of them another name",
            )


def _streams_together(rules: Iterable[ast.Rule], read: Collection[str]) -> dict[str, str]:
    """Return for every stream of `rules` a name that it shares with the streams that a rule reads with it.

    The matches of a rule, if they are `read`, are a stream next to those that they come from.
    """
    together: dict[str, str] = {}
    for rule in rules:
        names = [name.text for name in rule.streams]
        names += [rule.name.text] if rule.name.text in read else []
        for name in names:
            together.setdefault(name, name)
        joined = {together[name] for name in names}
        together = {name: names[0] if set_of in joined else set_of for name, set_of in together.items()}
    return together


def _shown_type(expression: Expression) -> str:
    """Return the type of a measure as one reads it."""
    of_list = isinstance(expression, Aggregate) and is_list(expression.kind)
    return f"array<{expression.type}>" if of_list else expression.type
