"""The second pass over a rule: the conditions of its variables and of UNTIL, typed."""

from __future__ import annotations

from collections.abc import Iterator

from cep.compiler import ir
from cep.compiler.analysis.empty_ranges import warn_of_empty_range
from cep.compiler.analysis.names import Names
from cep.compiler.pattern_shape import opening_absences, summary
from cep.compiler.typing.expression_size import MAX_EXPRESSION, written_out
from cep.compiler.typing.inference import Inference
from cep.diagnostics.report import Reporter
from cep.expression import Expression, Literal, Type, is_local
from cep.language import ast

_ANY_EVENT = Literal(True, Type.BOOLEAN)


def type_conditions(names: Names, report: Reporter) -> tuple[ir.Variable, ...]:
    """Return the variables of the rule with their conditions, and after them those of UNTIL."""
    stream_of, role_of = names.partitioning.stream_of, names.partitioning.role_of
    predicates: dict[str, Expression | None] = {}
    for subject, definition in names.definitions.items():
        if definition.condition is not None and subject in stream_of:
            predicate = _predicate(definition.condition, subject, names, report)
            predicates[subject] = None if predicate == _ANY_EVENT else predicate
    variables = (ir.Variable(name, predicates.get(name), role_of.get(name, -1)) for name in names.variables)
    return (*variables, *_until_variables(names, report))


def _predicate(condition: ast.Expression, subject: str, names: Names, report: Reporter) -> Expression | None:
    if not is_of_bounded_size(condition, names, report):
        return None
    inference = Inference(names.scope(subject), report.add)
    predicate = inference.condition(condition)
    warn_of_empty_range(predicate, condition.span, report)
    looked_for = {name.text for absence in opening_absences(names.rule.pattern) for name in absence.variables}
    if subject in looked_for and predicate is not None and not is_local(predicate):
        report(
            "E0323",
            f"`{subject}` is absent at the start, and its condition reads other events",
            next((read.span for read in inference.reads if read.variable != subject), condition.span),
            "there is no match yet when this is tested",
            f"compare with columns of the event itself only, or begin with an event before `!{subject}`",
        )
        return predicate
    for read in inference.reads:
        members = names.members(read.variable)
        if subject not in members and not any((member, subject) in names.order.pairs for member in members):
            report(
                "W0507",
                f"no event can be taken as `{read.variable}` before one is tested as `{subject}`",
                read.span,
                f"`{read.variable}` has no event yet",
                f"compare in the condition of `{read.variable}` instead",
            )
    return predicate


def _until_variables(names: Names, report: Reporter) -> Iterator[ir.Variable]:
    """Type the conditions of UNTIL. An event that may close a loop is of its first step's stream."""
    for loop, name in names.untils.items():
        taken = summary(loop.body).taken
        first = taken[0]
        if loop.until is None or first not in names.partitioning.stream_of:
            continue
        if not is_of_bounded_size(loop.until, names, report):
            continue
        inference = Inference(names.scope(name, first), report.add)
        role = names.partitioning.role_of.get(first, -1)
        yield ir.Variable(name, inference.condition(loop.until), role, closes=True)
        for read in inference.reads:
            is_early = not any((read.variable, step) in names.order.pairs for step in taken)
            if read.variable not in taken and is_early:
                report(
                    "W0507",
                    f"no event can be taken as `{read.variable}` before the loop is closed",
                    read.span,
                    f"`{read.variable}` has no event yet",
                    "compare with what the loop or an earlier step has taken",
                )


def is_of_bounded_size(expression: ast.Expression, names: Names, report: Reporter) -> bool:
    """Return whether `expression` stays small when written out in full; report it if not."""
    if written_out(expression, names.let_sizes) <= MAX_EXPRESSION:
        return True
    report(
        "E0913",
        f"written out, this expression has more than {MAX_EXPRESSION:,} operations",
        expression.span,
        "BETWEEN, IN and CASE repeat what is on their left, names of LET what they stand for",
        "compare a column where there is a long expression now, or split the condition",
    )
    return False
