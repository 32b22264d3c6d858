"""`cep match` runs rules over files of events, without Spark."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from cep.commands.group import EXIT_PASSED_OVER, show, tell
from cep.commands.options import (
    Command,
    only_option,
    progress_option,
    quiet_option,
    set_option,
    shadow_option,
    streams_option,
)
from cep.commands.outputs import event_inputs, refuse_overwriting, rule_inputs
from cep.commands.progress_line import ProgressLine, progress_line
from cep.commands.warm import compile_engine
from cep.diagnostics.diagnostic import suggestion
from cep.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from cep.compiler.compile import Compiled
    from cep.formats.chunks import Chunk
    from cep.rule_set import Corrections, RuleSet


_MAX_SHOWN = 50
"""Most matches shown on a terminal without --limit."""


def _files(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    return [CompletionItem(begun, type="file")]


def _formats(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    from cep.formats.registry import FORMATS

    return [CompletionItem(name) for name in FORMATS.names if name.startswith(begun)]


def input_option(*, required: bool) -> Callable[[Command], Command]:
    """Return the option for files of events."""
    return click.option(
        "-i",
        "--input",
        "inputs",
        required=required,
        multiple=True,
        shell_complete=_files,
        help="File or directory of events, or a pattern (data/{day}.csv); - for standard input. For rules "
        "over several streams, or with tables: NAME=FILE, once for each.",
    )


@click.command()
@click.argument("rules", nargs=-1, required=True, type=click.Path(path_type=Path))
@input_option(required=True)
@streams_option
@only_option
@set_option
@shadow_option
@click.option(
    "--shadow-output",
    type=click.Path(path_type=Path),
    help="Write the matches of shadow rules to this file; without it they are only counted.",
)
@click.option("--rule-version", is_flag=True, help="Write also the version of the rule of each match.")
@click.option(
    "--stream",
    "chosen",
    multiple=True,
    help="Run only the rules of this stream, or the views of this table; several times: of these.",
)
@click.option(
    "--format",
    "file_format",
    metavar="NAME",
    shell_complete=_formats,
    help="json, csv, parquet, or a format of a plug-in. Default: by the file's ending.",
)
@click.option(
    "-o",
    "--output",
    shell_complete=_files,
    help="Write the matches: FILE.jsonl, .csv, .parquet, or - for JSON lines.",
)
@click.option("--dead-letter", type=click.Path(path_type=Path), help="Write malformed input to this file.")
@click.option(
    "--late",
    "late_ways",
    multiple=True,
    help='Write late events (--as-stream) to this file. "correct within 1 hour": count those that are late '
    "by less, and correct the matches reported before; may stand beside a file.",
)
@click.option("--limit", type=click.IntRange(min=0), help="Print this many matches at most.")
@click.option(
    "--on-bad-file",
    type=click.Choice(["fail", "quarantine"]),
    default="fail",
    help="What to do with a file that cannot be read to its end: fail, the default, or quarantine, which "
    "keeps the events read and makes the rest a dead letter.",
)
@click.option(
    "--as-stream",
    is_flag=True,
    help="Take events as arriving in the order of the file: events beyond the stream's lateness are late. "
    "Without it the file counts as complete, and no event is late.",
)
@quiet_option
@progress_option
def match(  # noqa: PLR0913 - an option of the command is an argument
    rules: Sequence[Path],
    inputs: Sequence[str],
    streams: Path | None,
    only: Sequence[str],
    parameters: Mapping[str, str],
    shadow: Sequence[str],
    shadow_output: Path | None,
    rule_version: bool,
    chosen: Sequence[str],
    file_format: str | None,
    output: str | None,
    dead_letter: Path | None,
    late_ways: Sequence[str],
    limit: int | None,
    as_stream: bool,
    on_bad_file: str,
    quiet: bool,
    progress: bool | None,
) -> None:
    """Run RULES (files or directories) over files of events, without Spark."""
    started = time.perf_counter()
    from cep.formats.files import BadFile
    from cep.formats.registry import FORMATS
    from cep.local.match_file import LocalRun, Result, read_inputs
    from cep.output.files import late_files, write_late, write_table, writer_of
    from cep.output.rows import match_rows
    from cep.output.summary import loss_lines, summary_lines

    require_order(rules, inputs)
    late, corrections = _late(late_ways)
    files = [path for path in (output, dead_letter, shadow_output) if path is not None and path != "-"]
    for path in [*files, *([late] if late is not None else [])]:
        writer_of(path)
    if file_format is not None:
        FORMATS.get(file_format)
    compiled = compile_files(rules, streams, only, parameters, shadow)
    rule_set = _chosen(compiled, chosen).with_corrections(corrections)
    rule_set = rule_set.telling_version() if rule_version else rule_set
    events = input_paths(rule_set, inputs)
    if late is not None:
        files += late_files(late, rule_set.inputs.values()).values()
    refuse_overwriting(files, chain(rule_inputs(rules, streams), event_inputs(events, file_format)))
    watched = Reading(progress_line(quiet, progress), quiet, rule_set)

    def deliver(result: Result) -> None:
        watched.line.clear()
        _give_matches(rule_set, result.matches, output, limit)
        if dead_letter is not None:
            write_table(dead_letter, result.dead_letters, result.dead_letters.to_pylist())
        if late is not None:
            write_late(late, result.late)
        if shadow_output is not None:
            write_table(shadow_output, result.shadow, match_rows(rule_set, result.shadow))

    try:
        chunks = read_inputs(
            rule_set, events, file_format, on_bad_file=BadFile(on_bad_file), on_chunk=watched.see
        )
        counts = LocalRun(rule_set, chunks, deliver, as_stream).run()
    finally:
        watched.line.clear()
    instead = "leave out --as-stream"
    if quiet:
        kept = [name for name, path in (("late", late), ("dead_letter", dead_letter)) if path is not None]
        lines = loss_lines(counts, rule_set.inputs, instead, rule_set.read_columns, kept=kept)
    else:
        seconds = time.perf_counter() - started - watched.compile_seconds
        read, names = rule_set.read_columns, rule_set.shadow
        lines = summary_lines(counts, seconds, rule_set.inputs, instead, read, shadow=names)
    for line in lines:
        tell(line, err=True)
    if counts.passed_over or not rule_set.read_columns.isdisjoint(counts.absent_columns):
        click.get_current_context().exit(EXIT_PASSED_OVER)


def _give_matches(rules: RuleSet, matches: pa.Table, output: str | None, limit: int | None) -> None:
    """Write the matches to a file, or show them."""
    from cep.output.files import write_table
    from cep.output.rows import json_line, match_rows

    if output is not None and output != "-":
        write_table(output, matches, match_rows(rules, matches))
    elif output is None and sys.stdout.isatty():
        _print_tables(rules, matches, _MAX_SHOWN if limit is None else limit)
    else:
        for row in match_rows(rules, matches if limit is None else matches.slice(0, limit)):
            click.echo(json_line(row))


def _late(ways: Sequence[str]) -> tuple[Path | None, Corrections | None]:
    """Return the file for late events, and how matches are corrected."""
    from cep.rule_set import Corrections

    corrections = {way: Corrections.of_text(way) for way in ways}
    files = [Path(way) for way, found in corrections.items() if found is None]
    bounds = [found for found in corrections.values() if found is not None]
    if len(files) > 1 or len(bounds) > 1:
        raise click.UsageError("--late occurs twice: give one file, and one `correct within`, at most")
    return next(iter(files), None), next(iter(bounds), None)


class Reading:
    """Progress of reading. The engine is compiled when the first chunk of events has been read."""

    def __init__(self, line: ProgressLine, quiet: bool, rules: RuleSet) -> None:
        self.line = line
        self._rules = rules
        self.compile_seconds = 0.0
        self._quiet = quiet
        self._n_events: int | None = None
        self._n_malformed = 0

    def see(self, chunk: Chunk) -> None:
        """Count the events of `chunk` and what is malformed, like the summary."""
        if self._n_events is None:
            self._n_events = 0
            self.compile_seconds = compile_engine(self.line, self._quiet, self._rules.programs)
        self._n_events += len(chunk.events)
        self._n_malformed += 0 if chunk.is_refused else len(chunk.dead_letters)
        malformed = f", malformed: {self._n_malformed:,}" if self._n_malformed else ""
        self.line.show(f"events read: {self._n_events:,}{malformed}")


def require_order(rules: Sequence[Path], inputs: Sequence[str]) -> None:
    """Refuse a rule file where events are expected."""
    from cep.language.front_ends import SUFFIXES

    given = next((text for text in inputs if text.endswith(SUFFIXES)), None)
    if given is None:
        return
    swapped = next((path for path in rules if path.is_file() and not path.name.endswith(SUFFIXES)), None)
    verb = click.get_current_context().info_name
    instead = f": write cep {verb} {given} --input {swapped}" if swapped is not None else ""
    raise click.UsageError(f"`{given}` is a rule file, --input takes events{instead}")


def compile_files(
    paths: Sequence[Path],
    streams: Path | None,
    only: Sequence[str] = (),
    parameters: Mapping[str, str] | None = None,
    shadow: Sequence[str] = (),
) -> Compiled:
    """Compile the rules in `paths`, or `only` some; show their warnings and return the result."""
    from cep.rulebook import compile_rulebook, load_rulebook

    compiled = compile_rulebook(load_rulebook(paths, streams), only, parameters, shadow)
    show(compiled.warnings)
    return compiled


def _chosen(compiled: Compiled, streams: Sequence[str]) -> RuleSet:
    """Return the rules that read only `streams`, or all rules if no stream is given."""
    rules = compiled.rule_set
    if not streams:
        return rules
    chosen = rules.of_streams(streams)
    for stream in streams:
        if stream not in rules.read_from or not chosen.programs:
            known = ", ".join(sorted(rules.read_from))
            raise InputError(
                "E0610", f"no rule reads a stream `{stream}`", f"streams of these rules: {known}"
            )
    return chosen


def input_paths(rules: RuleSet, inputs: Sequence[str]) -> str | dict[str, str]:
    """Return the path of the only input, or the paths of several inputs by stream."""
    named: dict[str, str] = {}
    for text in inputs:
        name, sign, path = text.partition("=")
        if sign and name in rules.inputs:
            if name in named:
                raise click.UsageError(f"there are two inputs for stream `{name}`: give a directory")
            if path == "-" and path in named.values():
                raise click.UsageError(
                    "standard input has the events of one stream: give the other ones files"
                )
            named[name] = path
        elif sign and not Path(text).exists() and _is_name(name, path, rules):
            known = ", ".join(rules.inputs)
            near = suggestion(name, rules.inputs)
            raise InputError(
                "E0610",
                f"no rule reads a stream{' or a table' if rules.tables else ''} `{name}`",
                f"did you mean {near}={path}? streams of these rules: {known}"
                if near
                else f"streams of these rules: {known}",
            )
        elif len(inputs) == 1:
            rules.only_stream()
            return text
        else:
            raise click.UsageError(
                f"of which stream is `{text}`? Write STREAM=FILE, STREAM one of {', '.join(rules.inputs)}"
            )
    return named


def _is_name(name: str, path: str, rules: RuleSet) -> bool:
    """Return whether ``name=path``, which is not a file, was intended as the events of a stream."""
    return Path(path).exists() or path == "-" or suggestion(name, rules.inputs) is not None


def _print_tables(rules: RuleSet, matches: pa.Table, limit: int) -> None:
    from rich.console import Console

    from cep.output.terminal import match_tables

    console = Console()
    for table in match_tables(rules, matches.slice(0, limit)):
        console.print(table)
    if len(matches) > limit:
        click.echo(f"... and {len(matches) - limit:,} more; see --limit and --output")
