"""`cep backtest` runs rules over history: alerts a day, precision, recall, what another rule set changes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cep.commands.group import show, tell
from cep.commands.history import Given, Runner, history_options
from cep.commands.options import AS_JSON
from cep.commands.outputs import event_inputs, files_at, refuse_overwriting, rule_inputs

if TYPE_CHECKING:
    from cep.backtest.figures import Figures, Truth
    from cep.backtest.history import Backtest
    from cep.compiler.compile import Compiled
    from cep.output.compare import Fired

_MOST_DIFFERENCES = 20
"""Keys and days with differences that are shown as text."""


@click.command()
@history_options
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    help="Other rules, a file or folder: what RULES report newly, and what no longer.",
)
@click.option(
    "--sweep",
    "sweeps",
    metavar="NAME=VALUES",
    multiple=True,
    help="A run for each value of a parameter: small=1..10, small=0.5..2..0.5, small=1,2,5.",
)
@click.option("-o", "--output", help="Write the matches: FILE.jsonl, .csv or .parquet.")
@click.option("--report", type=click.Path(path_type=Path), help="Write a page with pictures: FILE.html.")
def backtest(
    against: Path | None, sweeps: Sequence[str], output: str | None, report: Path | None, **options: Any
) -> None:
    """Run RULES (files or directories) over history, and count their alerts."""
    from cep.output.files import write_table, writer_of
    from cep.output.rows import match_rows
    from cep.rulebook import compile_rulebook

    given = Given(**options)
    if output is not None:
        writer_of(output)
    if report is not None and given.spark:
        raise click.UsageError("--report needs the events on this machine: leave out --spark")
    if report is not None and report.suffix not in (".html", ".htm"):
        raise click.UsageError(f"--report writes a page of HTML: name it {report.stem or 'report'}.html")
    book = given.book()
    compiled = compile_rulebook(book, given.only, given.parameters)
    show(compiled.warnings)
    old = None
    if against is not None:
        old = compile_rulebook(given.book([against]), given.only).rule_set
    variants = _variants(given, compiled, sweeps)
    scope = given.scope(compiled.rule_set)
    truth = given.truth_of(compiled.rule_set, scope)
    readers = [compiled.rule_set, *([old] if old else [])]
    keeps = len(readers) > 1 or bool(variants) or report is not None
    runner = Runner(given, readers, scope, keeps=keeps)
    refuse_overwriting([output, report], _files_read(given, runner, against))
    found = runner.run(compiled.rule_set)
    if output is not None:
        write_table(output, found.matches, match_rows(compiled.rule_set, found.matches))
    compared = None if old is None else _compared(found, runner.run(old, "the other rules"))
    swept = []
    for values, rules in variants:
        result = runner.run(rules, f"run with {_shown(values)}")
        swept += [(values, one) for one in _swept_figures(compiled, result, truth, values)]
    _print(given, found, truth, compared, swept)
    if report is not None:
        from cep.commands.report import write_report

        write_report(report, given, runner, found, truth, swept)
    runner.tell_losses()


def _files_read(given: Given, runner: Runner, against: Path | None) -> Iterator[Path]:
    """Yield the files that the command reads."""
    paths = runner.paths
    yield from rule_inputs([*given.rules, *([against] if against is not None else [])], given.streams)
    if given.truth is not None:
        yield given.truth
    if given.spark:  # which finds its files itself
        for path in [paths] if isinstance(paths, str) else paths.values():
            yield from files_at(glob(path, recursive=True) or [path])
    else:
        yield from event_inputs(paths, given.input_format)


def _variants(given: Given, compiled: Compiled, sweeps: Sequence[str]) -> list[tuple[dict[str, str], Any]]:
    """Return the rules of each run of a sweep: those with one of its parameters."""
    from cep.backtest.sweep import combinations
    from cep.rulebook import compile_rulebook

    book, found = given.book(), []
    for values in combinations(sweeps) if sweeps else ():
        names = _with_parameters(compiled, values)
        rules = compile_rulebook(book, names or given.only, {**given.parameters, **values}).rule_set
        found.append((values, rules))
    return found


def _with_parameters(compiled: Compiled, names: Collection[str]) -> list[str]:
    """Return the rules that have one of the parameters, and those that read their matches.

    A parameter is named ``small`` or ``card_testing.small``.
    """
    trees = [rule.tree for rule in compiled.rules]
    found = {
        tree.name.text
        for tree in trees
        for parameter in tree.parameters
        if parameter.name.text in names or f"{tree.name.text}.{parameter.name.text}" in names
    }
    for _ in trees:  # as often as a chain of rules can be long
        found |= {
            tree.name.text for tree in trees if tree.matches and found & {one.text for one in tree.streams}
        }
    return [tree.name.text for tree in trees if tree.name.text in found]


def _swept_figures(
    compiled: Compiled, found: Backtest, truth: Truth | None, values: dict[str, str]
) -> list[Figures]:
    """Return the figures of the rules that a parameter of the sweep changes."""
    from cep.backtest.figures import figures_of

    names = _with_parameters(compiled, values)
    return sorted((one for one in figures_of(found, truth) if one.rule in names), key=lambda one: one.rule)


def _shown(values: dict[str, str]) -> str:
    from cep.backtest.sweep import shown_values

    return shown_values(values)


def _compared(now: Backtest, before: Backtest) -> tuple[Fired, ...]:
    from cep.output.compare import compare

    return compare(before.rules, before.matches, now.rules, now.matches)


def _print(
    given: Given,
    found: Backtest,
    truth: Truth | None,
    compared: tuple[Fired, ...] | None,
    swept: Sequence[tuple[dict[str, str], Figures]],
) -> None:
    from cep.backtest.figures import figures_of, figures_text, range_data, range_text
    from cep.output.rows import json_line

    figures = figures_of(found, truth)
    if AS_JSON[given.output_format]:
        data: dict[str, Any] = {**range_data(found), "rules": [one.as_data() for one in figures]}
        if compared is not None:
            data["compared"] = [_fired_data(one) for one in compared if not one.is_same]
        if swept:
            data["sweep"] = [{"values": values, **one.as_data()} for values, one in swept]
        click.echo(json_line(data))
        return
    parts = [figures_text(figures)] if not swept else []
    parts += _sweep_texts(swept)
    if compared is not None:
        parts.append(_compared_text(compared))
    tell("\n\n".join([*parts, range_text(found)]))


def _sweep_texts(swept: Sequence[tuple[dict[str, str], Figures]]) -> list[str]:
    """Return a table for each rule."""
    from cep.backtest.figures import figure_cells, table_text
    from cep.diagnostics.safe_text import for_cell

    texts = []
    for rule in dict.fromkeys(one.rule for _, one in swept):
        of_rule = [(values, one) for values, one in swept if one.rule == rule]
        rows = [(", ".join(values), ", ".join(values.values()), one) for values, one in of_rule]
        texts.append(f"{for_cell(rule)}\n{table_text(*figure_cells(rows))}")
    return texts


def _compared_text(compared: Sequence[Fired]) -> str:
    from cep.backtest.figures import table_text
    from cep.output.compare import by_rule

    rules = [
        [rule, *(f"{n:,}" for n in (one.same, one.moved, one.newly, one.no_longer))]
        for rule, one in sorted(by_rule(compared).items())
    ]
    text = table_text(["rule", "same", "other events", "newly", "no longer"], rules)
    differ = [one for one in compared if not one.is_same]
    if not differ:
        return text
    rows = [
        [
            one.rule,
            ",".join(str(value) for _, value in one.key),
            one.day,
            *(f"{n:,}" if n else "" for n in (one.moved, one.newly, one.no_longer)),
        ]
        for one in differ[:_MOST_DIFFERENCES]
    ]
    text += "\n\n" + table_text(["rule", "key", "day", "other events", "newly", "no longer"], rows, n_words=3)
    more = len(differ) - len(rows)
    return text + (f"\nand {more:,} more; --format json has all" if more else "")


def _fired_data(one: Fired) -> dict[str, Any]:
    counts = {name: getattr(one, name) for name in ("same", "moved", "newly", "no_longer")}
    return {"rule": one.rule, "key": dict(one.key), "day": one.day, **counts}
