"""`cep tune` proposes values of parameters for a wanted number of alerts, or a wanted recall."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from cep.commands.history import Given, Runner, history_options, share_of
from cep.commands.options import AS_JSON

if TYPE_CHECKING:
    import pyarrow as pa

    from cep.backtest.figures import Figures, Truth
    from cep.backtest.tuning import Proposal
    from cep.compiler.compile import Compiled
    from cep.language import ast
    from cep.rulebook import Rulebook


@click.command()
@history_options
@click.option("--alerts-per-day", type=float, metavar="N", help="At most so many alerts a day.")
@click.option("--recall", metavar="SHARE", help="At least this recall, such as 90%; needs --truth.")
@click.option("--parameter", "chosen", multiple=True, help="Only this parameter; several times: these.")
def tune(alerts_per_day: float | None, recall: str | None, chosen: Sequence[str], **options: Any) -> None:
    """Propose values of the parameters (PARAM) of one rule of RULES, and show what each would cost."""
    from cep.backtest.sweep import declared_text
    from cep.backtest.tuning import Goal, proposal_text, propose
    from cep.errors import InputError
    from cep.output.rows import json_line
    from cep.rulebook import compile_rulebook

    given = Given(**options)
    goal = Goal(alerts_per_day, share_of("--recall", "write 90% or 0.9", recall))
    if (alerts_per_day is None) == (recall is None):
        raise click.UsageError("what is wanted? Write --alerts-per-day N or --recall SHARE")
    if recall is not None and given.truth is None:
        raise click.UsageError("--recall needs to know what there is to find: write --truth FILE")
    book = given.book()
    compiled = compile_rulebook(book, given.only, given.parameters)
    rule = _the_rule(compiled, given.only)
    parameters = [one for one in rule.parameters if not chosen or one.name.text in chosen]
    if not parameters:
        known = ", ".join(one.name.text for one in rule.parameters)
        named = " or ".join(f"`{name}`" for name in chosen)
        raise InputError(
            "E0693",
            f"rule `{rule.name.text}` has no parameter {named}".rstrip(),
            f"its parameters: {known}" if known else "name a constant: PARAM small = 5 after RULE",
        )
    compiled = compile_rulebook(book, [rule.name.text], given.parameters)
    scope = given.scope(compiled.rule_set)
    truth = given.truth_of(compiled.rule_set, scope)
    runner = Runner(given, [compiled.rule_set], scope, keeps=True)
    proposals = []
    for parameter in parameters:
        declared = declared_text(parameter.value)
        run = _runs(runner, book, given, rule.name.text, parameter.name.text, truth)
        seen = _seen(runner, compiled, rule, parameter)
        proposals.append(propose(parameter, declared, seen, run, goal))
    if AS_JSON[given.output_format]:
        click.echo(json_line([_as_data(one) for one in proposals]))
    else:
        click.echo("\n\n".join(proposal_text(one, goal) for one in proposals))
    runner.tell_losses()


def _the_rule(compiled: Compiled, only: Sequence[str]) -> ast.Rule:
    """Return the rule to tune: the one in `only`, or the only one with a parameter."""
    named = [rule.tree for rule in compiled.rules if rule.name in only]
    found = named or [rule.tree for rule in compiled.rules if rule.tree.parameters]
    found = found or [rule.tree for rule in compiled.rules]
    if len(found) > 1:
        names = ", ".join(rule.name.text for rule in found)
        raise click.UsageError(f"of which rule? Write one --only, one of {names}")
    return found[0]


def _seen(
    runner: Runner, compiled: Compiled, rule: ast.Rule, parameter: ast.Parameter
) -> pa.ChunkedArray | None:
    """Return the values of the column that the rule compares with a parameter; None: it compares none."""
    import pyarrow as pa

    from cep.backtest.sweep import compared_column

    column = compared_column(rule, parameter.name.text)
    parts: list[pa.Array] = []
    if column is not None and not runner.given.spark:
        for name, chunks in runner.chunks.items():
            field = compiled.rule_set.inputs[name].field(column)
            if field is not None and field.type.value in ("bigint", "double"):
                for chunk in chunks:
                    parts += chunk.events.column(column).cast(pa.float64()).chunks
    return pa.chunked_array(parts, pa.float64()) if parts else None


def _runs(
    runner: Runner, book: Rulebook, given: Given, rule: str, parameter: str, truth: Truth | None
) -> Callable[[Sequence[str]], list[Figures]]:
    """Return what runs the rule with each of some values."""
    from cep.backtest.figures import figures_of
    from cep.rulebook import compile_rulebook

    def run(values: Sequence[str]) -> list[Figures]:
        found = []
        for value in values:
            set_to = {**given.parameters, f"{rule}.{parameter}": value}
            rules = compile_rulebook(book, [rule], set_to).rule_set
            result = runner.run(rules, f"{parameter}={value}")
            found.append(next(one for one in figures_of(result, truth) if one.rule == rule))
        return found

    return run


def _as_data(proposal: Proposal) -> dict[str, Any]:
    return {
        "parameter": proposal.parameter,
        "declared": proposal.declared,
        "proposed": None if proposal.best is None else proposal.best.value,
        "tried": [{"value": one.value, **one.figures.as_data()} for one in proposal.tried],
    }
