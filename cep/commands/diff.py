"""`cep diff` says what a change of rules does to stored state."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cep.commands.group import EXIT_PASSED_OVER, EXIT_PROBLEMS, EXIT_STATE_ENDS, tell
from cep.commands.options import AS_JSON, PIPELINE_FILES, set_option, streams_option, table_or_json
from cep.counts import amount

if TYPE_CHECKING:
    from cep.counts import Counts
    from cep.local.match_file import Result
    from cep.output.compare import Fired
    from cep.program.changes import Changes, Refusal, RuleChange
    from cep.rule_set import RuleSet


@dataclass(frozen=True)
class _Stored:
    """What is stored.

    - `open_runs`: the number of open runs of each rule.
    - `read_until`: the latest event time that was read, as text; None: no event was read.
    - `has_corrections`: whether it is the state of corrections.
    """

    rules: RuleSet
    open_runs: Mapping[str, int]
    read_until: str | None
    has_corrections: bool


@dataclass(frozen=True)
class _Side:
    """The old or the new rules over the events of `--input`; `read`: what was read of each stream."""

    rules: RuleSet
    result: Result
    read: dict[str, Counts]


@click.command()
@click.argument("paths", metavar="[OLD] NEW", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="A checkpoint or a savepoint, which has the old rules; their open runs are counted.",
)
@click.option(
    "-i",
    "--input",
    "inputs",
    multiple=True,
    help="Events, as for `cep match`: say also what NEW would report of them newly, and what no longer.",
)
@click.option(
    "--input-format", metavar="NAME", help="json, csv, parquet, ... Default: by the ending of the file."
)
@click.option(
    "--limit", type=click.IntRange(min=0), default=20, help="Keys and days with differences to show; 20."
)
@click.option(
    "--shadow",
    "pairs",
    metavar="SHADOW=LIVE",
    multiple=True,
    help="Of a pipeline file: say what its shadow rule has reported newly, and what no longer, compared with "
    "its live rule.",
)
@streams_option
@set_option
@table_or_json("json: one JSON object.")
def diff(  # noqa: PLR0913 - an option of the command is an argument
    paths: Sequence[Path],
    checkpoint: str | None,
    inputs: Sequence[str],
    input_format: str | None,
    limit: int,
    pairs: Sequence[str],
    streams: Path | None,
    parameters: Mapping[str, str],
    output_format: str,
) -> None:
    """Say what becomes of stored state if NEW rules replace OLD ones, rule by rule. Nothing is changed.

    OLD and NEW are rule files, directories or pipeline files. With --checkpoint only NEW is given.
    --set is for rule files and directories of NEW. With --input both run over these events. With --shadow
    only a pipeline file is given.

    Exit codes: 0 all state continues, 3 state of some rule ends or begins, 1 the state cannot continue. With
    --input also 3: no event has the field of a column that a rule reads.
    """
    from cep.program.changes import changes_of

    if pairs:
        _show_fired(_beside(paths, pairs), limit, output_format)
        return
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
    if paths[-1].suffix in PIPELINE_FILES and (stored is not None or paths[0].suffix in PIPELINE_FILES):
        was_corrected = before.corrections is not None or (stored is not None and stored.has_corrections)
        if was_corrected != (now.corrections is not None):
            changes = replace(changes, refusals=(*changes.refusals, _other_kind(was_corrected)))
    sides = _sides(before, now, inputs, input_format) if inputs else []
    compared = _compared(*sides) if sides else ()
    if AS_JSON[output_format]:
        found = _as_json(changes, stored)
        if inputs:
            found["matches"] = list(map(_fired_json, compared))
        click.echo(json.dumps(found, ensure_ascii=False, indent=2))
    else:
        _show(changes, stored)
        if inputs:
            tell("\n".join(("", *_fired_lines(compared, limit))))
    has_lost = _tell_losses(*sides) if sides else False
    if not changes.keeps_all:
        click.get_current_context().exit(EXIT_PROBLEMS if changes.refusals else EXIT_STATE_ENDS)
    if has_lost:
        click.get_current_context().exit(EXIT_PASSED_OVER)


def _other_kind(was_corrected: bool) -> Refusal:
    from cep.engine.corrections.retained import other_kind
    from cep.program.changes import Refusal

    error = other_kind(is_corrected=was_corrected)
    return Refusal(str(error.args[0]), error.help)


def _sides(before: RuleSet, now: RuleSet, inputs: Sequence[str], file_format: str | None) -> list[_Side]:
    """Run two rule sets over the same events; the status of rules does not matter."""
    from cep.commands.match import input_paths
    from cep.commands.progress_line import progress_line
    from cep.commands.warm import compile_engine
    from cep.formats.intake import counted
    from cep.formats.text.text_files import is_read_once
    from cep.local.match_file import match_chunks, read_inputs

    if any(is_read_once(text.rpartition("=")[2]) for text in inputs):
        raise click.UsageError("--input is read twice here: give a file")
    found = []
    for rules, other in ((before, now), (now, before)):
        rules, only_other = rules.without_shadow(), other.inputs.keys() - rules.inputs.keys()
        own = [text for text in inputs if text.partition("=")[0] not in only_other]
        compile_engine(progress_line(quiet=False, progress=None), False, rules.programs)
        read: dict[str, Counts] = {}
        chunks = read_inputs(rules, input_paths(rules, own), file_format)
        found.append(_Side(rules, match_chunks(rules, counted(chunks, rules.inputs, read)), read))
    return found


def _compared(before: _Side, now: _Side) -> tuple[Fired, ...]:
    from cep.output.compare import compare

    return compare(before.rules, before.result.matches, now.rules, now.result.matches)


def _tell_losses(before: _Side, now: _Side) -> bool:
    """Say what was lost of the events, and return whether the exit code must say so, too.

    Where both rule sets read the same events of each stream, each loss is said once.
    """
    from cep.commands.history import tell_losses
    from cep.counts import Counts

    common = before.rules.inputs.keys() & now.rules.inputs.keys()
    if all(_reading(before.rules, name) == _reading(now.rules, name) for name in common):
        counts = Counts()
        counts.add_input((before.read | now.read).values(), [before.result.counts, now.result.counts])
        read = before.rules.read_columns | now.rules.read_columns
        return tell_losses(counts, before.rules.inputs | now.rules.inputs, read)
    told = [
        tell_losses(side.result.counts, side.rules.inputs, side.rules.read_columns, heading)
        for side, heading in ((before, "of the old rules:"), (now, "of the new rules:"))
    ]
    return any(told)


def _reading(rules: RuleSet, name: str) -> tuple[object, frozenset[object]]:
    """Return what decides which records of a stream are events: its declaration, and its keys."""
    stream = rules.inputs[name]
    return stream, frozenset(rules.keys_of(stream))


def _beside(paths: Sequence[Path], pairs: Sequence[str]) -> tuple[Fired, ...]:
    """Return what shadow rules of a pipeline have reported, compared with live ones."""
    from spark_runtime.pipeline.pipeline_file import load_pipeline
    from spark_runtime.pipeline.trial import beside, live_folders, shadow_folders

    if len(paths) != 1 or paths[0].suffix not in PIPELINE_FILES:
        raise click.UsageError("With --shadow, give one pipeline file.")
    pipeline = load_pipeline(paths[0])
    keys = {rule.name: program.key for program in pipeline.rules.programs for rule in program.rules}
    found: list[Fired] = []
    for text in pairs:
        shadow, _, live = text.partition("=")
        if shadow not in pipeline.rules.shadow or live not in keys or live in pipeline.rules.shadow:
            raise click.UsageError(
                f"--shadow {text}: write a shadow rule and a live rule of the pipeline, as in "
                "card_testing_2=card_testing"
            )
        if keys[shadow] != keys[live]:
            raise click.UsageError(f"--shadow {text}: these rules have different keys (PARTITION BY)")
        for what, folders in (("live", live_folders(pipeline)), ("shadow", shadow_folders(pipeline))):
            if not folders:
                raise click.UsageError(
                    f"the pipeline writes no matches of {what} rules to parquet or json files on this machine"
                )
        found += beside(pipeline, shadow, live)
    return tuple(found)


def _show_fired(compared: Sequence[Fired], limit: int, output_format: str) -> None:
    if AS_JSON[output_format]:
        click.echo(json.dumps({"matches": list(map(_fired_json, compared))}, ensure_ascii=False, indent=2))
    else:
        tell("\n".join(_fired_lines(compared, limit)))


def _fired_json(fired: Fired) -> dict[str, Any]:
    from cep.output.rows import json_line

    found: dict[str, Any] = json.loads(json_line({**asdict(fired), "key": dict(fired.key)}))
    return found


def _fired_lines(compared: Sequence[Fired], limit: int) -> Iterator[str]:
    """Yield a line for each rule, then one for each key and day on which something differs."""
    from cep.diagnostics.safe_text import for_cell
    from cep.output.compare import by_rule

    sums = {for_cell(rule): of for rule, of in by_rule(compared).items()}
    width = max(map(len, ("matches", *sums)))
    yield f"{'matches':<{width}}  {'same':>9}  {'moved':>9}  {'newly':>9}  {'no longer':>9}"
    for rule, of in sums.items():
        numbers = (of.same, of.moved, of.newly, of.no_longer)
        yield f"{rule:<{width}}  {'  '.join(f'{number:>9,}' for number in numbers)}"
    differing = [item for item in compared if not item.is_same]
    if differing and limit:
        yield ""
    for item in differing[:limit]:
        key = ", ".join(for_cell(f"{name} {value}") for name, value in item.key)
        words = (("moved", item.moved), ("newly", item.newly), ("no longer", item.no_longer))
        told = ", ".join(f"{word} {number:,}" for word, number in words if number)
        yield f"{item.day}  {for_cell(item.rule):<{width}}  {key}: {told}"
    if len(differing) > limit:
        yield f"... and {len(differing) - limit:,} more; see --limit and --format json"


def _rules(path: Path, streams: Path | None, parameters: Mapping[str, str] | None = None) -> RuleSet:
    if path.suffix in PIPELINE_FILES:
        if parameters:
            raise click.UsageError(f"--set is for rules: write `parameters` into {path}")
        from spark_runtime.pipeline.pipeline_file import load_pipeline

        return load_pipeline(path).rules
    from cep.rulebook import load_rules

    return load_rules([path], streams, parameters=parameters)


def _stored(checkpoint: str) -> _Stored:
    from cep.commands.state import stored_state_of
    from cep.schema.time_literals import time_for_people

    _, rules, reached, groups = stored_state_of(checkpoint)
    open_runs: Counter[str] = Counter()
    has_corrections = False
    for group in groups:
        for part in group.programs:
            has_corrections |= part.program is None
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
                **({"final": change.rule in changes.final} if changes.has_corrections else {}),
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
            is_kept = change.verdict in KEPT
            if change.rule in changes.window_rules:  # the state does not contain their number
                told.append(f"its {changes.remembered(change.rule)} {'continue' if is_kept else 'end'}")
            else:
                told.append(f"{_counted(n_open)} {_verb(n_open, is_kept=is_kept)}")
        if change.rule in changes.final:
            told.append(changes.final[change.rule])
        if change.verdict is Verdict.NEW:
            told.append(begins)
        elif change.verdict is Verdict.CHANGED:
            told.append(f"{begins} again" if begins == "it begins" else begins)
        tell(f"{change.verdict.value:<8}  {change.rule:<{width}}  {'; '.join(told)}".rstrip())
    if stored is not None:
        from spark_runtime.pipeline.generations import unreported_before

        if told_by_neither := unreported_before(changes, stored.rules.lateness_us):
            tell(told_by_neither)
    for item in changes.inputs:
        tell(f"{item.verdict.value:<8}  input {item.name}")
    for refusal in changes.refusals:
        tell(f"refused   {refusal.fact}\n          help: {refusal.help}")


def _counted(n_runs: int) -> str:
    return amount(n_runs, "open run")


def _verb(n_runs: int, *, is_kept: bool) -> str:
    verb = "continue" if is_kept else "end"
    return f"{verb}s" if n_runs == 1 else verb
