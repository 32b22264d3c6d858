"""`cep tune` proposes values of parameters for a target number of alerts, or a target recall."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from cep.commands.group import tell
from cep.commands.history import Given, Runner, history_options, share_of
from cep.commands.options import AS_JSON, Amount

if TYPE_CHECKING:
    from cep.backtest.figures import Figures, Truth
    from cep.backtest.tuning import Goal, JointProposal, Names, Proposal, Tuned, Values
    from cep.compiler.compile import Compiled
    from cep.language import ast
    from cep.rulebook import Rulebook

_RUNS = 100
"""Runs of --together."""


@click.command()
@history_options
@click.option("--alerts-per-day", type=Amount(), metavar="N", help="At most so many alerts a day.")
@click.option("--recall", metavar="SHARE", help="At least this recall, such as 90%; needs --truth.")
@click.option("--parameter", "chosen", multiple=True, help="Only this parameter; several times: these.")
@click.option("--together", is_flag=True, help="Tune the parameters together, not each alone.")
@click.option(
    "--runs",
    type=click.IntRange(1, 10_000),
    help="With --together: runs over the events at most; 100 without.",
)
def tune(
    alerts_per_day: float | None,
    recall: str | None,
    chosen: Sequence[str],
    together: bool,
    runs: int | None,
    **options: Any,
) -> None:
    """Propose values of the parameters (PARAM) of one rule of RULES, and show what each would cost."""
    from cep.backtest.figures import range_data, range_text
    from cep.backtest.sweep import compared_column, declared_text
    from cep.backtest.tuning import Goal, Tuned
    from cep.errors import InputError
    from cep.language.front_ends import read_rules
    from cep.language.parameters import setting_of
    from cep.output.rows import json_line
    from cep.rulebook import compile_rulebook

    given = Given(**options)
    goal = Goal(alerts_per_day, share_of("--recall", "write 90% or 0.9", recall))
    if (alerts_per_day is None) == (recall is None):
        raise click.UsageError("what is wanted? Write --alerts-per-day N or --recall SHARE")
    if recall is not None and given.truth is None:
        raise click.UsageError("--recall needs to know what there is to find: write --truth FILE")
    if runs is not None and not together:
        raise click.UsageError("--runs is for --together")
    book = given.book()
    compiled = compile_rulebook(book, given.only, given.parameters)
    rule = _the_rule(compiled, given.only)
    parameters = [one for one in rule.parameters if not chosen or one.name.text in chosen]
    unknown = [name for name in chosen if name not in {one.name.text for one in parameters}]
    if unknown or not parameters:
        known = ", ".join(one.name.text for one in rule.parameters)
        named = " or ".join(f"`{name}`" for name in unknown)
        raise InputError(
            "E0693",
            f"rule `{rule.name.text}` has no parameter {named}".rstrip(),
            f"its parameters: {known}" if known else "name a constant: PARAM small = 5 after RULE",
        )
    compiled = compile_rulebook(book, [rule.name.text], given.parameters)
    scope = given.scope(compiled.rule_set)
    truth = given.truth_of(compiled.rule_set, scope)
    runner = Runner(given, [compiled.rule_set], scope, keeps=True)
    columns = {one.name.text: compared_column(rule, one.name.text) for one in parameters}
    tuned = [
        Tuned(
            one, declared_text(one.value), runner.seen(rule, columns[one.name.text]), columns[one.name.text]
        )
        for one in parameters
    ]
    tuned = _those_with_values(tuned, runner, compiled, is_chosen=bool(chosen))
    trees = [tree for source in dict.fromkeys(book.sources) for tree in read_rules(source)[0]]
    names = {one.name: setting_of(trees, rule.name.text, one.name) for one in tuned}
    now = tuple((one.name, one.declared) for one in tuned)
    run = _runs(runner, book, given, rule.name.text, truth, dict(now))
    figures, found = run(now), runner.last
    assert figures is not None
    assert found is not None
    has_data = bool(found.n_events or figures.alerts)
    if together:
        text, data = _together(tuned, run, goal, names, runs or _RUNS if has_data else 0)
    else:
        text, data = _each_alone(tuned, run, goal, names, has_data=has_data)
    if AS_JSON[given.output_format]:
        click.echo(json_line({**range_data(found), **data}))
    else:
        tell(f"{text if has_data else 'no events, so no proposal'}\n\n{range_text(found)}")
    runner.tell_losses()


def _together(
    tuned: Sequence[Tuned], run: Callable[[Values], Figures | None], goal: Goal, names: Names, budget: int
) -> tuple[str, dict[str, Any]]:
    """Return what is proposed, as text and as data; `budget`: the maximum number of runs, 0: no proposal."""
    from cep.backtest.tuning import JointProposal, joint_text, propose_together

    if not budget:
        now = tuple((one.name, one.declared) for one in tuned)
        return "", _joint_data(JointProposal({}, (now,), None, is_complete=False), names)
    proposal = propose_together(tuned, run, goal, budget)
    return joint_text(proposal, goal, names), _joint_data(proposal, names)


def _each_alone(
    tuned: Sequence[Tuned],
    run: Callable[[Values], Figures | None],
    goal: Goal,
    names: Names,
    *,
    has_data: bool,
) -> tuple[str, dict[str, Any]]:
    """Return what is proposed, as text and as data; without data nothing is."""
    from cep.backtest.tuning import Proposal, proposal_text, propose

    proposals = [
        propose(one.parameter, one.declared, one.seen, _of_values(run, one.name), goal)
        if has_data
        else Proposal(one.name, one.declared, (), None)
        for one in tuned
    ]
    text = "\n\n".join(proposal_text(one, goal, names) for one in proposals if has_data)
    return text, {"parameters": [_as_data(one, names) for one in proposals]}


def _the_rule(compiled: Compiled, only: Sequence[str]) -> ast.Rule:
    """Return the rule to tune: the one in `only`, or the only one with a parameter."""
    named = [rule.tree for rule in compiled.rules if rule.name in only]
    found = named or [rule.tree for rule in compiled.rules if rule.tree.parameters]
    found = found or [rule.tree for rule in compiled.rules]
    if len(found) > 1:
        names = ", ".join(rule.name.text for rule in found)
        raise click.UsageError(f"of which rule? Write one --only, one of {names}")
    return found[0]


def _those_with_values(
    tuned: Sequence[Tuned], runner: Runner, compiled: Compiled, *, is_chosen: bool
) -> list[Tuned]:
    """Return the parameters for which there are values to try, and say which others there are.

    Raises InputError (E0693): one of them was chosen, or no parameter is left.
    """
    from cep.backtest.figures import range_text
    from cep.backtest.sweep import NAME_ITS_VALUES, why_not_tuned
    from cep.errors import InputError

    reasons = {one.name: why_not_tuned(one.parameter.value, one.seen, one.column) for one in tuned}
    wrong = [f"parameter `{name}` {reason}" for name, reason in reasons.items() if reason is not None]
    if wrong and (is_chosen or len(wrong) == len(tuned)):
        if any(reasons[one.name] is not None and one.seen is not None for one in tuned):
            # A column without numbers: what was read, and what was lost, says why.
            tell(range_text(runner.run(compiled.rule_set)), err=True)
            runner.say_losses()
        raise InputError("E0693", "; ".join(wrong), NAME_ITS_VALUES)
    for text in wrong if not runner.given.quiet else ():
        tell(f"not tuned: {text}", err=True)
    return [one for one in tuned if reasons[one.name] is None]


def _runs(
    runner: Runner, book: Rulebook, given: Given, rule: str, truth: Truth | None, declared: Mapping[str, str]
) -> Callable[[Values], Figures | None]:
    """Return what runs the rule with values of parameters; None: the rule cannot have them.

    `declared`: the values that they have now. The rule keeps those as they are written, and runs only once
    with all of them.
    """
    from cep.backtest.figures import figures_of
    from cep.backtest.sweep import shown_values
    from cep.errors import RuleError
    from cep.rulebook import compile_rulebook

    known: list[Figures] = []

    def run(values: Values) -> Figures | None:
        changed = {f"{rule}.{name}": value for name, value in values if value != declared[name]}
        if not changed and known:
            return known[0]
        others = {name: value for name, value in given.parameters.items() if name not in changed}
        try:  # the last of two names of a parameter sets it
            rules = compile_rulebook(book, [rule], {**others, **changed}).rule_set
        except RuleError:
            if not changed:
                raise
            return None
        result = runner.run(rules, shown_values(dict(values)))
        figures = next(one for one in figures_of(result, truth) if one.rule == rule)
        if not changed:
            known.append(figures)
        return figures

    return run


def _of_values(
    run: Callable[[Values], Figures | None], name: str
) -> Callable[[Sequence[str]], list[Figures | None]]:
    return lambda values: [run(((name, value),)) for value in values]


def _joint_data(proposal: JointProposal, names: Names) -> dict[str, Any]:
    from cep.backtest.tuning import changed_settings, joint_changes

    return {
        "declared": dict(proposal.steps[0]),
        "proposed": None if proposal.best is None else dict(proposal.best),
        "set": changed_settings(joint_changes(proposal), names),
        "is_complete": proposal.is_complete,
        "tried": [{"values": dict(values), **of.as_data()} for values, of in proposal.tried.items()],
    }


def _as_data(proposal: Proposal, names: Names) -> dict[str, Any]:
    from cep.backtest.tuning import changed_settings, changes

    return {
        "parameter": proposal.parameter,
        "declared": proposal.declared,
        "proposed": None if proposal.best is None else proposal.best.value,
        "set": changed_settings(changes(proposal), names),
        "tried": [{"value": one.value, **one.figures.as_data()} for one in proposal.tried],
    }
