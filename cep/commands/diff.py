"""`cep diff` says what a change of rules does to stored state."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cep.commands.group import EXIT_PROBLEMS, EXIT_STATE_ENDS
from cep.commands.options import AS_JSON, PIPELINE_FILES, set_option, streams_option

if TYPE_CHECKING:
    from cep.program.changes import Changes, RuleChange
    from cep.rule_set import RuleSet


@dataclass(frozen=True)
class _Stored:
    """What is stored.

    Parameters
    ----------
    rules
        The rules that wrote it.
    open_runs
        The number of open runs of each rule.
    read_until
        The greatest event time that was read, as text; None: no event was.
    has_corrections
        Whether it is the state of corrections.
    """

    rules: RuleSet
    open_runs: Mapping[str, int]
    read_until: str | None
    has_corrections: bool


@click.command()
@click.argument("paths", metavar="[OLD] NEW", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="A checkpoint or a savepoint, which has the old rules; their open runs are counted.",
)
@streams_option
@set_option
@click.option(
    "--format",
    "output_format",
    type=click.Choice(list(AS_JSON)),
    default="text",
    help="json: one JSON object.",
)
def diff(
    paths: Sequence[Path],
    checkpoint: str | None,
    streams: Path | None,
    parameters: Mapping[str, str],
    output_format: str,
) -> None:
    """Say what becomes of stored state if NEW rules replace OLD ones, rule by rule. Nothing is changed.

    OLD and NEW are rule files, directories or pipeline files. With --checkpoint only NEW is given.
    --set is for rule files and directories of NEW.

    Exit codes: 0 all state continues, 3 state of some rule ends or begins, 1 the state cannot continue.
    """
    from cep.program.changes import changes_of

    if len(paths) != (2 if checkpoint is None else 1):
        raise click.UsageError(
            "Give the old rules and the new ones."
            if checkpoint is None
            else "With --checkpoint, give only the new rules: the checkpoint has the old ones."
        )
    stored = None if checkpoint is None else _stored(checkpoint)
    before = _rules(paths[0], streams) if stored is None else stored.rules
    now = _rules(paths[-1], streams, parameters)
    has_corrections = bool(before.corrections or now.corrections) or (
        stored is not None and stored.has_corrections
    )
    changes = changes_of(before.programs, now.programs, has_corrections=has_corrections)
    if AS_JSON[output_format]:
        click.echo(json.dumps(_as_json(changes, stored), ensure_ascii=False, indent=2))
    else:
        _show(changes, stored)
    if not changes.keeps_all:
        click.get_current_context().exit(EXIT_PROBLEMS if changes.refusals else EXIT_STATE_ENDS)


def _rules(path: Path, streams: Path | None, parameters: Mapping[str, str] | None = None) -> RuleSet:
    if path.suffix in PIPELINE_FILES:
        if parameters:
            raise click.UsageError(f"--set is for rules: write `parameters` into {path}")
        from spark_runtime.pipeline.pipeline_file import load_pipeline

        return load_pipeline(path).rules
    from cep.rulebook import load_rules

    return load_rules([path], streams, parameters=parameters)


def _stored(checkpoint: str) -> _Stored:
    from cep.commands.state import stored_groups_of
    from cep.schema.time_literals import time_for_people

    rules, reached, groups = stored_groups_of(checkpoint)
    open_runs: Counter[str] = Counter()
    has_corrections = False
    for group in groups:
        for part in group.programs:
            has_corrections |= part.sections is None
            for section in () if part.sections is None else part.sections.rules:
                open_runs[section.name] += section.rows.n_rows
    read_until_us = reached.read_until_us
    read_until = None if read_until_us is None else time_for_people(read_until_us)
    return _Stored(rules, open_runs, read_until, has_corrections)


def _n_open(change: RuleChange, stored: _Stored | None) -> int | None:
    """Return the number of open runs of a rule; None: it is new, or nothing is stored."""
    from cep.program.changes import Verdict

    return None if stored is None or change.verdict is Verdict.NEW else stored.open_runs.get(change.rule, 0)


def _as_json(changes: Changes, stored: _Stored | None) -> dict[str, Any]:
    return {
        "rules": [
            {
                "rule": change.rule,
                "verdict": change.verdict.value,
                "reasons": list(change.reasons),
                **({} if stored is None else {"open_runs": _n_open(change, stored)}),
            }
            for change in changes.rules
        ],
        "inputs": [{"name": item.name, "verdict": item.verdict.value} for item in changes.inputs],
        "refused": [{"fact": refusal.fact, "help": refusal.help} for refusal in changes.refusals],
        **({} if stored is None else {"begins_after": stored.read_until}),
    }


def _show(changes: Changes, stored: _Stored | None) -> None:
    from cep.program.changes import KEPT, Verdict

    width = max((len(change.rule) for change in changes.rules), default=0)
    for change in changes.rules:
        n_open, begins = _n_open(change, stored), "it begins"
        if stored is not None and stored.read_until is not None:
            begins = f"it begins after {stored.read_until}"
        told = list(change.reasons)
        if n_open is not None:
            told.append(f"{_counted(n_open)} {'continue' if change.verdict in KEPT else 'end'}")
        if change.verdict is Verdict.NEW:
            told.append(begins)
        elif change.verdict is Verdict.CHANGED:
            told.append(f"{begins} again" if begins == "it begins" else begins)
        click.echo(f"{change.verdict.value:<8}  {change.rule:<{width}}  {'; '.join(told)}".rstrip())
    for item in changes.inputs:
        click.echo(f"{item.verdict.value:<8}  input {item.name}")
    for refusal in changes.refusals:
        click.echo(f"refused   {refusal.fact}\n          help: {refusal.help}")


def _counted(n_runs: int) -> str:
    return f"{n_runs:,} open run{'' if n_runs == 1 else 's'}"
