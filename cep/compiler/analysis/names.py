"""The first pass over a rule: the meaning of each name in it.

A rule names streams and key columns (see `partitioning`), the variables of its pattern, and subsets. The
conditions of UNTIL have no name in the text and get one here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import count

from cep.compiler import ir
from cep.compiler.analysis.partitioning import Partitioning
from cep.compiler.pattern_shape import EventOrder, event_order, summary, variable_names
from cep.compiler.typing.checker import Scope
from cep.compiler.typing.joins import RuleJoin
from cep.diagnostics.diagnostic import did_you_mean
from cep.diagnostics.report import Reporter
from cep.expression import Expression
from cep.language import ast
from cep.schema.stream import Stream

_SKIP = {
    ast.SkipTarget.PAST_LAST_EVENT: ir.SkipKind.PAST_LAST,
    ast.SkipTarget.TO_NEXT_EVENT: ir.SkipKind.TO_NEXT,
    ast.SkipTarget.TO_FIRST: ir.SkipKind.TO_FIRST,
    ast.SkipTarget.TO_LAST: ir.SkipKind.TO_LAST,
    ast.SkipTarget.NO_SKIP: ir.SkipKind.NO_SKIP,
}


@dataclass(frozen=True, slots=True)
class Names:
    """The meaning of the names in `rule`.

    `variables` are all variables of the pattern, `taken` the ones that events are taken as. `definitions` has
    the first definition of each variable, `untils` the name of each loop's condition. `lets` contains the
    values of LET by stream and name. `let_sizes` contains by name how many operations such a value has when
    it is written out.
    """

    rule: ast.Rule
    partitioning: Partitioning
    variables: tuple[str, ...]
    taken: tuple[str, ...]
    order: EventOrder
    definitions: Mapping[str, ast.Definition] = field(default_factory=dict)
    subsets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    untils: Mapping[ast.Repetition, str] = field(default_factory=dict)
    lets: Mapping[tuple[str, str], Expression | None] = field(default_factory=dict)
    let_sizes: Mapping[str, int] = field(default_factory=dict)
    joins: Mapping[str, RuleJoin | None] = field(default_factory=dict)
    tables: Collection[str] = ()

    @property
    def tables_joined(self) -> tuple[Stream, ...]:
        """The tables that the rule joins."""
        return tuple(join.table for join in self.joins.values() if join is not None)

    def members(self, name: str) -> tuple[str, ...]:
        """Return the variables of the pattern that `name` stands for."""
        return self.subsets.get(name, (name,))

    def scope(self, subject: str | None, step: str | None = None) -> Scope:
        """Return what the condition of `subject` can name; if None, what a measure can name.

        Bare columns belong to the stream of `step`, or to the stream of `subject` without a `step`.
        """
        partitioning = self.partitioning
        stream = partitioning.streams[0] if subject is None else partitioning.stream_of[step or subject]
        return Scope(
            self.rule.source,
            stream,
            self.taken,
            tuple(name for name in self.variables if name not in self.taken),
            subject,
            partitioning.stream_of,
            is_qualified=partitioning.has_several_streams,
            subsets=self.subsets,
            lets=self.lets,
            joins=self.joins,
            tables=self.tables,
            measures=self.rule.measures,
        )

    def event_scope(self, stream: Stream) -> Scope:
        """Return what a value of each event of `stream` can name. The event is the subject."""
        return Scope(
            self.rule.source,
            stream,
            (),
            (),
            _EVENT,
            {_EVENT: stream},
            is_qualified=self.partitioning.has_several_streams,
            lets=self.lets,
            joins=self.joins,
            tables=self.tables,
            measures=self.rule.measures,
        )


_EVENT = ""  # a name that no text can have


def resolve_names(rule: ast.Rule, partitioning: Partitioning, report: Reporter) -> Names:
    """Return the meaning of the names in `rule`, whose pattern is sound."""
    variables, taken = tuple(variable_names(rule.pattern)), summary(rule.pattern).taken
    subsets = _subsets(rule, variables, taken, report)
    return Names(
        rule=rule,
        partitioning=partitioning,
        variables=variables,
        taken=taken,
        order=event_order(rule.pattern),
        definitions=_definitions(rule, variables, subsets, report),
        subsets=subsets,
        untils=_untils(rule, variables),
    )


def _definitions(
    rule: ast.Rule, variables: tuple[str, ...], subsets: Mapping[str, object], report: Reporter
) -> dict[str, ast.Definition]:
    definitions: dict[str, ast.Definition] = {}
    for definition in rule.definitions:
        name = definition.variable
        if name.text not in variables:
            report(
                "E0303",
                f"`{name.text}` does not occur in the pattern",
                name.span,
                "defined, but not a variable of the pattern",
                f"`{name.text}` is a subset: define its members"
                if name.text in subsets
                else did_you_mean(name.text, variables, "variables"),
            )
        elif name.text in definitions:
            report(
                "E0302",
                f"`{name.text}` is defined twice",
                name.span,
                "already has a condition",
                "join the conditions with AND",
            )
        definitions.setdefault(name.text, definition)
    return definitions


def _untils(rule: ast.Rule, variables: tuple[str, ...]) -> dict[ast.Repetition, str]:
    """Return a name for the condition of each loop that has UNTIL: it is tested and never taken.

    Nothing reads the number in the name. Only a name in backticks can be equal, and such a number is skipped.
    """
    free = (name for number in count(1) if (name := f"until#{number}") not in variables)
    loops = (node for node in ast.walk(rule.pattern) if isinstance(node, ast.Repetition))
    return {loop: next(free) for loop in dict.fromkeys(loops) if loop.until is not None}


def _subsets(
    rule: ast.Rule, variables: tuple[str, ...], taken: tuple[str, ...], report: Reporter
) -> dict[str, tuple[str, ...]]:
    subsets: dict[str, tuple[str, ...]] = {}
    for subset in rule.subsets:
        name = subset.name
        if name.text in variables or name.text in subsets:
            what = "a variable of the pattern" if name.text in variables else "another subset"
            report(
                "E0340",
                f"the subset's name `{name.text}` is taken",
                name.span,
                f"already {what}",
                "give the subset another name",
            )
            continue
        members: list[str] = []
        for member in subset.members:
            wrong = _wrong_member(member.text, members, subsets, variables, taken)
            if wrong is not None:
                label, help_text = wrong
                report(
                    "E0341",
                    f"`{member.text}` cannot be a member of the subset",
                    member.span,
                    label,
                    help_text,
                )
            elif member.text not in members:
                members.append(member.text)
        subsets[name.text] = tuple(members)
    return subsets


def _wrong_member(
    name: str,
    before: list[str],
    subsets: Mapping[str, tuple[str, ...]],
    variables: tuple[str, ...],
    taken: tuple[str, ...],
) -> tuple[str, str] | None:
    """Return what is wrong with a member of a subset and what to write instead; None: nothing."""
    if name in subsets:
        return "a subset is no member of a subset", f"name its members: {', '.join(subsets[name])}"
    if name in before:
        return "already a member", "name it once"
    if name in taken:
        return None
    if name in variables:
        label = "is allowed only after `!` or WITHOUT in the pattern"
        return label, f"use variables that take events: {', '.join(taken)}"
    return "not a variable of the pattern", did_you_mean(name, taken, "variables")


def resolve_skip(names: Names, report: Reporter) -> ir.Skip | None:
    """Return the skip clause of the rule, or None where it has none; a clause that gets stuck is reported."""
    written = names.rule.skip
    if written is None:
        return None
    kind = _SKIP[written.target]
    if written.variable is None:
        return ir.Skip(kind)
    name = written.variable
    members = set(names.members(name.text))
    if not members <= set(names.taken):
        report(
            "E0309",
            f"no event is ever taken as `{name.text}`",
            name.span,
            "not a step of the pattern",
            did_you_mean(name.text, (*names.taken, *names.subsets), "variables"),
        )
        return ir.Skip(kind, name.text, names.subsets.get(name.text, ()))
    if kind is ir.SkipKind.TO_FIRST:
        which, is_stuck = "first", set(summary(names.rule.pattern).first) <= members
    else:
        which, is_stuck = "last", not any(later in members for _, later in names.order.pairs)
    # MATCH ALL only prunes what starts earlier than the event skipped to, so it cannot get stuck.
    if is_stuck and names.rule.mode is not ast.Mode.ALL:
        report(
            "E0310",
            f"the {which} `{name.text}` is always the first event of the match",
            name.span,
            "matching would begin again where it began",
            "write AFTER MATCH SKIP TO NEXT EVENT",
        )
    return ir.Skip(kind, name.text, names.subsets.get(name.text, ()))
