"""What the open runs of a key in a checkpoint wait for: `cep why --checkpoint`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from cep.commands.state import cell, runs_of_key, stored_state_of
from cep.diagnostics.diagnostic import did_you_mean
from cep.diagnostics.safe_text import for_terminal
from cep.errors import InputError
from cep.language import ast
from cep.language.front_ends import read_rules
from cep.rule_files import rule_sources


def names_in(rules: Sequence[Path], name: str | None) -> list[str]:
    """Return the names of rules that are asked for; none: all."""
    if name is not None or not rules:
        return [] if name is None else [name]
    return [rule.name.text for source in rule_sources(rules) for rule in read_rules(source)[0]]


def tell_open_runs(checkpoint: str, names: Sequence[str], key: str, *, as_json: bool) -> None:
    """Say what the open runs of a key wait for, what they hold, and what the next event must be."""
    stored = stored_state_of(checkpoint)
    trees = {tree.name.text: tree for text in stored.texts for tree in read_rules(text)[0]}
    for wanted in names:
        if wanted not in trees:
            raise InputError(
                "E0897",
                f"the checkpoint has no rule `{wanted}`",
                did_you_mean(wanted, set(trees), "rules"),
            )
    runs: list[dict[str, Any]] = []
    for row, variables in runs_of_key(stored.groups, key):
        if not names or row["rule"] in names:
            tree = trees[row["rule"]]
            runs.append({**row, "takes": {name: _condition(tree, name) for name in variables}})
    if as_json:
        click.echo(json.dumps({"key": key, "open_runs": runs}, ensure_ascii=False, default=str))
        return
    click.echo(f"key {for_terminal(key)}: {len(runs):,} open run{'' if len(runs) == 1 else 's'}")
    for number, run in enumerate(runs, 1):
        click.echo("\n".join(_open_run(number, run)))


def _condition(tree: ast.Rule, variable: str) -> str:
    """Return the condition of a variable as it is written, on one line."""
    for definition in tree.definitions:
        if definition.variable.text == variable and definition.condition is not None:
            span = definition.condition.span
            return " ".join(tree.source.text[span.start : span.end].split())
    return "any event"


def _open_run(number: int, run: Mapping[str, Any]) -> Iterator[str]:
    age = f", {run['age']} of event time ago" if run["age"] else ""
    yield f"\nrun {number} of {run['rule']}: started {run['started']}{age}"
    yield f"  {'waits':<7}for {run['waits_for']}" + (f" until {run['until']}" if run["until"] else "")
    known = {name: value for name, value in run["holds"].items() if value is not None}
    yield f"  {'holds':<7}{cell(known)}"
    for variable, condition in run["takes"].items():
        yield f"  {'takes':<7}an event as {variable}: {condition}"
