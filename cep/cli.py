"""The `cep` command.

Only click is loaded at the start; each command loads what it needs, so that `cep --help` answers at once and
a check loads neither the engine nor Spark.
"""

from __future__ import annotations

import errno
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cep.errors import CepError, Diagnostic, InputError, RuleError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from cep.compiler.compile import Compiled
    from cep.program import Program

EXIT_PROBLEMS = 1
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130

_MAX_SHOWN = 50
"""Matches shown on a terminal unless asked for more."""


class ErrorReportingGroup(click.Group):
    """A group of commands that shows errors as text, never as a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; turn errors into a message and an exit code."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except RuleError as error:
            _show(error.diagnostics)
            ctx.exit(EXIT_PROBLEMS)
        except CepError as error:
            click.echo(str(error), err=True)
            ctx.exit(EXIT_PROBLEMS)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(EXIT_INTERRUPTED)
        except Exception as error:
            if ctx.params.get("debug") or (isinstance(error, OSError) and error.errno == errno.EPIPE):
                raise
            first_line = (str(error).splitlines() or [""])[0]
            click.echo(
                f"internal error: {type(error).__name__}: {first_line}\n"
                "This is a fault of spark-cep: please report it, with what `cep --debug ...` prints.",
                err=True,
            )
            ctx.exit(EXIT_INTERNAL)


@click.group(
    cls=ErrorReportingGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 problems in your files, 2 wrong usage, 130 interrupted.",
)
@click.version_option(package_name="spark-cep", prog_name="cep")
@click.option("--debug", is_flag=True, help="Show the traceback of an internal error.")
def main(debug: bool) -> None:
    """Event pattern rules: check them, run them over files, run them on Spark."""


_streams_option = click.option(
    "--streams", type=click.Path(path_type=Path), help="Streams file; else the nearest streams.yaml."
)


@main.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@_streams_option
@click.option("--json", "as_json", is_flag=True, help="Print the problems as one JSON list.")
def check(paths: Sequence[Path], streams: Path | None, as_json: bool) -> None:
    """Report all problems of all rule files in PATHS (files or directories)."""
    from rules.rulebook import check_rules

    checked = check_rules(paths, streams)
    n_errors = sum(problem.is_error for problem in checked.problems)
    if as_json:
        import json

        from cep.language.diagnostics import to_json

        click.echo(json.dumps(to_json(checked.problems), ensure_ascii=False, indent=2))
    else:
        _show(checked.problems, err=False)
        found = [_counted(n_errors, "error"), _counted(len(checked.problems) - n_errors, "warning")]
        click.echo(
            f"checked {_counted(checked.n_files, 'file')}, {_counted(checked.n_rules, 'rule')}: "
            + (", ".join(filter(None, found)) or "no problems")
        )
    if n_errors:
        click.get_current_context().exit(EXIT_PROBLEMS)


@main.command()
@click.argument("rules", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-i",
    "--input",
    "inputs",
    required=True,
    multiple=True,
    help="File or directory of events; - for standard input. For rules over several streams: "
    "STREAM=FILE, once for each.",
)
@_streams_option
@click.option("--stream", "chosen", multiple=True, help="Run only the rules of this stream, or these.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["json", "csv", "parquet"]),
    help="Else: by the file's ending.",
)
@click.option("-o", "--output", help="Write the matches: FILE.jsonl, .csv, .parquet, or - for JSON lines.")
@click.option("--dead-letter", type=click.Path(path_type=Path), help="Write malformed input to this file.")
@click.option("--late", type=click.Path(path_type=Path), help="Write late events (--as-stream) to this file.")
@click.option("--limit", type=click.IntRange(min=0), help="Print this many matches at most.")
@click.option(
    "--as-stream",
    is_flag=True,
    help="Take events as arriving in the order of the file: those beyond the stream's lateness are late. "
    "Else the file is complete and none is late.",
)
def match(
    rules: Sequence[Path],
    inputs: Sequence[str],
    streams: Path | None,
    chosen: Sequence[str],
    file_format: str | None,
    output: str | None,
    dead_letter: Path | None,
    late: Path | None,
    limit: int | None,
    as_stream: bool,
) -> None:
    """Run RULES (files or directories) over files of events, without Spark."""
    started = time.perf_counter()
    from cep import output as out
    from cep.engine.warm import is_warm
    from cep.files import Format
    from cep.local import match_file

    files = [path for path in (output, dead_letter, late) if path is not None and path != "-"]
    for path in files:
        out.check_suffix(path)
    programs = _programs(_compiled(rules, streams), chosen)
    events = _inputs(programs, inputs)
    if not is_warm():
        click.echo("compiling the engine: about a minute, once after an installation", err=True)
    result = match_file(programs, events, Format(file_format) if file_format else None, as_stream=as_stream)
    matches = result.matches
    if output is not None and output != "-":
        out.write_table(output, matches, out.match_rows(programs, matches))
    elif output is None and sys.stdout.isatty():
        _print_tables(programs, matches, _MAX_SHOWN if limit is None else limit)
    else:
        for row in out.match_rows(programs, matches if limit is None else matches.slice(0, limit)):
            click.echo(out.json_line(row))
    if dead_letter is not None:
        out.write_table(dead_letter, result.dead_letters, result.dead_letters.to_pylist())
    if late is not None:
        out.write_table(late, result.late, result.late.to_pylist())
    reasons: dict[str, int] = {}
    for counted in result.dead_letters.column("reason").value_counts().to_pylist():
        reasons[counted["values"]] = counted["counts"]
    by_count = dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0])))
    for line in out.summary_lines(result.counts, by_count, time.perf_counter() - started):
        click.echo(line, err=True)


@main.command()
@click.argument("rules", nargs=-1, required=True, type=click.Path(path_type=Path))
@_streams_option
@click.option(
    "--stage",
    type=click.Choice(["ast", "ir", "nfa", "program", "all"]),
    help="Show a stage of compilation instead: syntax tree, typed rule, automaton, what the engine gets.",
)
@click.option(
    "--format",
    "picture",
    type=click.Choice(["text", "dot", "mermaid"]),
    default="text",
    help="dot, mermaid: a picture of the automata, for Graphviz or Mermaid.",
)
def explain(rules: Sequence[Path], streams: Path | None, stage: str | None, picture: str) -> None:
    """Show what RULES compile to: predicates, automaton, bounds, what a run remembers."""
    from rules.rulebook import compile_rulebook, load_rulebook

    rulebook = load_rulebook(rules, streams)
    compiled = compile_rulebook(rulebook)
    _show(compiled.warnings)
    if picture != "text":
        if stage is not None:
            raise click.UsageError(f"--format {picture} draws the automaton: leave out --stage")
        from cep import picture as draw

        click.echo((draw.dot if picture == "dot" else draw.mermaid)(compiled.rules), nl=False)
        return
    programs = {rule.name: program for program in compiled.programs for rule in program.rules}
    if stage is None:
        from cep.explain import explain as explain_rule

        shown = [explain_rule(rule, programs[rule.name]) for rule in compiled.rules]
    else:
        from cep.stages import show_stages

        shown = show_stages(rulebook.sources, compiled, stage)
    click.echo("\n".join(shown), nl=False)


@main.command()
@click.argument("pipeline", type=click.Path(path_type=Path))
def run(pipeline: Path) -> None:
    """Run a PIPELINE file (sources, rules, sinks) on Spark."""
    from spark_runtime.session import check_pyspark

    check_pyspark()
    from spark_runtime.pipeline import run as run_pipeline

    run_pipeline(pipeline)


def _compiled(paths: Sequence[Path], streams: Path | None) -> Compiled:
    """Return the rules in `paths`, compiled; show their warnings."""
    from rules.rulebook import compile_rulebook, load_rulebook

    compiled = compile_rulebook(load_rulebook(paths, streams))
    _show(compiled.warnings)
    return compiled


def _programs(compiled: Compiled, streams: Sequence[str]) -> Sequence[Program]:
    """Return the programs of the rules that read `streams` and no others; all of them if there are none."""
    if not streams:
        return compiled.programs
    read = [{stream.name for stream in program.streams} for program in compiled.programs]
    chosen = [
        program for program, names in zip(compiled.programs, read, strict=True) if names <= set(streams)
    ]
    for stream in streams:
        if not any(stream in names for names in read) or not chosen:
            known = ", ".join(sorted(set().union(*read)))
            raise InputError(
                "E0610", f"no rule reads a stream `{stream}`", f"streams of these rules: {known}"
            )
    return chosen


def _inputs(programs: Sequence[Program], inputs: Sequence[str]) -> str | dict[str, str]:
    """Return the path of the only input, or those of several streams by name."""
    from cep.local import only_stream, streams_of

    streams = streams_of(programs)
    named: dict[str, str] = {}
    for text in inputs:
        name, sign, path = text.partition("=")
        if sign and name in streams:
            if name in named:
                raise click.UsageError(f"there are two inputs for stream `{name}`: give a directory")
            named[name] = path
        elif len(inputs) == 1:
            only_stream(programs)
            return text
        else:
            raise click.UsageError(
                f"of which stream is `{text}`? Write STREAM=FILE, STREAM one of {', '.join(streams)}"
            )
    return named


def _show(problems: Sequence[Diagnostic], err: bool = True) -> None:
    from cep.language.diagnostics import in_order, render

    if problems:
        stream = sys.stderr if err else sys.stdout
        click.echo(render(in_order(problems), color=stream.isatty()) + "\n", err=err)


def _print_tables(programs: Sequence[Program], matches: pa.Table, limit: int) -> None:
    from rich.console import Console

    from cep import output as out

    console = Console()
    for table in out.match_tables(programs, matches.slice(0, limit)):
        console.print(table)
    if len(matches) > limit:
        click.echo(f"... and {len(matches) - limit:,} more; see --limit and --output")


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s") if count or noun in ("file", "rule") else ""
