"""`cep history` shows the rules that ran on a checkpoint, `cep restore-rules` brings earlier ones back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cep.commands.approve import files_of
from cep.commands.group import tell
from cep.commands.options import AS_JSON, table_or_json
from cep.counts import amount

if TYPE_CHECKING:
    from cep.program.changes import RuleChange
    from spark_runtime.pipeline.generations import Generation
    from spark_runtime.pipeline.stored_rules import StoredRules


_BEFORE = "before the restore"
"""When rules ran that a savepoint knows."""


@click.command()
@click.argument("checkpoint")
@click.option("--diff", "shows_diff", is_flag=True, help="Show also how the texts differ from those before.")
@click.option(
    "--rule-version",
    "version",
    metavar="VERSION",
    help="Show only the rule that has this version, when it ran, and its text.",
)
@table_or_json("json: a JSON object in each line, with the texts of the rules.")
def history(checkpoint: str, shows_diff: bool, version: str | None, output_format: str) -> None:
    """Show the rules that ran on the CHECKPOINT of a pipeline: since when, by whom, and what changed."""
    from spark_runtime.pipeline.checkpoint import recorded_rules

    generations = recorded_rules(files_of(checkpoint), checkpoint)
    if version is not None:
        _show_version(generations, version)
        return
    before: StoredRules | None = None
    for generation in generations:
        if AS_JSON[output_format]:
            click.echo(json.dumps(_as_json(generation), ensure_ascii=False))
        else:
            tell("\n".join(_lines(generation, before)))
            if shows_diff and before is not None:
                click.echo("".join(_difference(before, generation.rules)), nl=False)
        before = generation.rules


@click.command("restore-rules")
@click.argument("checkpoint")
@click.argument("number", type=click.IntRange(min=0))
@click.option(
    "--to",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the rules into this folder; without it, into the files from which they came.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be written, and what the change would do.")
def restore_rules(checkpoint: str, number: int, to: Path | None, dry_run: bool) -> None:
    """Write the rules of generation NUMBER of a CHECKPOINT (`cep history`) back to their files.

    The pipeline takes them like any other change of these files, if need be after `cep approve`. A file with
    a text that never ran is not overwritten.
    """
    from spark_runtime.pipeline.checkpoint import recorded_rules
    from spark_runtime.pipeline.generations import change_lines
    from spark_runtime.pipeline.rules_back import rules_back

    generations = recorded_rules(files_of(checkpoint), checkpoint)
    if number not in {generation.number for generation in generations}:
        raise click.UsageError(f"there is no generation {number}: the latest is {generations[-1].number}")
    found = rules_back(generations, number, to)
    for line in change_lines(found.changes):
        tell(line)
    if not dry_run:
        found.apply()
    would = "would be " if dry_run else ""
    for path in found.written:
        tell(f"{would}written: {path}")
    for path in found.removed:
        tell(f"{would}removed: {path}")
    if not found.written and not found.removed:
        tell(f"nothing to write: the files have the rules of generation {number}")
    if found.other_streams:
        names = ", ".join(f"`{name}`" for name in found.other_streams)
        tell(f"note: {names} was declared otherwise then; the streams file is left as it is")
    if found.written and to is None and not dry_run:
        tell("the pipeline takes them after `cep approve PIPELINE`, or at once with `reload: on change`")


def _lines(generation: Generation, before: StoredRules | None) -> Iterator[str]:
    cause = generation.cause
    who = [
        f"{word} {text}"
        for word, text in (
            ("by", cause.author),
            ("commit", cause.commit[:12]),
            ("approved by", cause.approved_by),
        )
        if text
    ]
    since = f"from micro-batch {generation.batch:,}" if generation.batch >= 0 else _BEFORE
    yield "  ".join((f"{generation.number}", generation.rules.version, cause.time or "-", since, *who))
    known = {} if before is None else before.versions
    new = {rule: of for rule, of in generation.rules.versions.items() if known.get(rule) != of}
    width = max(map(len, (*new, *(change.rule for change in generation.changes))), default=0)
    for each in generation.filled:
        loss, *_ = each.entry
        missing = amount(each.matches, "missing match", "missing matches")
        yield f"   filled    {loss}, {', '.join(each.rules)}: {missing}"
    for change in generation.changes:
        past = ["it began with the past"] if change.rule in generation.warm else []
        why = "; ".join((*change.reasons, *past))
        yield f"   {change.verdict.value:<8}  {change.rule:<{width}}  {why}".rstrip()
    for rule, version in sorted(new.items()):
        yield f"   version   {rule:<{width}}  {version}"


def _difference(before: StoredRules, now: StoredRules) -> Iterator[str]:
    """Yield the lines in which the texts of two generations differ."""
    then, after = map(_by_name, (before, now))
    for file in sorted(then.keys() | after.keys()):
        name, _ = file
        old, new = (of.get(file, "").splitlines() for of in (then, after))
        yield from (f"{line.rstrip()}\n" for line in unified_diff(old, new, name, name, lineterm=""))


def _by_name(rules: StoredRules) -> dict[tuple[str, int], str]:
    """Return texts by the name of their file, and how many of this name come before.

    Only a savepoint of an earlier version has several of one name.
    """
    found: dict[tuple[str, int], str] = {}
    n_before: Counter[str] = Counter()
    for text in rules.texts:
        found[text.name, n_before[text.name]] = text.text
        n_before[text.name] += 1
    return found


def _show_version(generations: Sequence[Generation], version: str) -> None:
    """Show the rule that has a version, in each generation in which it begins."""
    from cep.language.front_ends import read_rules

    before: dict[str, str] = {}
    is_known = False
    for generation in generations:
        for rule, of in generation.rules.versions.items():
            if of != version or before.get(rule) == of:
                continue
            is_known = True
            ends = (item.batch for item in generations[generation.number :] if _version(item, rule) != of)
            until = next((f" to {max(batch, 0) - 1:,}" for batch in ends), " on")
            since = f"from micro-batch {generation.batch:,}{until}"
            if generation.batch < 0:
                since = _BEFORE
            tell(f"{rule}: generation {generation.number}, {since}, {generation.cause.time or '-'}")
            for text in generation.rules.texts:
                for tree in read_rules(text)[0]:
                    if tree.name.text == rule:
                        tell(f"{text.text[tree.span.start : tree.span.end].strip()}\n")
        before = generation.rules.versions
    if not is_known:
        raise click.UsageError(f"no rule of this checkpoint has the version {version}")


def _version(generation: Generation, rule: str) -> str | None:
    return generation.rules.versions.get(rule)


def _as_json(generation: Generation) -> dict[str, Any]:
    from cep.schema.time_literals import time_for_people

    begins_us = generation.begins_us
    return {
        "number": generation.number,
        "version": generation.rules.version,
        "micro_batch": generation.batch,
        "begins_after": None if begins_us is None else time_for_people(begins_us),
        **{name: text or None for name, text in asdict(generation.cause).items()},
        "changes": list(map(_change, generation.changes)),
        "filled": list(map(asdict, generation.filled)),
        "versions": generation.rules.versions,
        "rules": [{"file": text.name, "text": text.text} for text in generation.rules.texts],
    }


def _change(change: RuleChange) -> dict[str, Any]:
    return {"rule": change.rule, "verdict": change.verdict.value, "reasons": list(change.reasons)}
