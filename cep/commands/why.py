"""`cep why` says why a rule matched for a key, or how far it came."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cep.commands.group import EXIT_PASSED_OVER, show, tell
from cep.commands.match import input_option, input_paths, require_order
from cep.commands.options import AS_JSON, PIPELINE_FILES, set_option, streams_option, table_or_json
from cep.commands.progress_line import progress_line
from cep.commands.warm import compile_engine
from cep.errors import Diagnostic, InputError, Source, Span

if TYPE_CHECKING:
    import pyarrow as pa

    from cep.compiler.compile import Compiled
    from cep.formats.chunks import Chunk
    from cep.local.replay import Replay
    from cep.why.rows import RowReplay


@click.command()
@click.argument("rules", nargs=-1, type=click.Path(path_type=Path))
@input_option(required=False)
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="Say what the open runs of the key in a checkpoint or a savepoint wait for, not what events did.",
)
@streams_option
@set_option
@click.option("--rule", "name", help="The rule, if RULES has several.")
@click.option(
    "--key",
    "key",
    multiple=True,
    help="The key: the value of PARTITION BY; several values with commas, or one option for each.",
)
@click.option("--at", "at", help="Only what was open at this event time: 2024-05-01T10:04:00Z.")
@click.option("--summary", is_flag=True, help="Count over all keys which condition refuses most events.")
@click.option("--limit", type=click.IntRange(min=0), default=3, help="Attempts to show; without it, 3.")
@click.option(
    "--input-format", metavar="NAME", help="json, csv, parquet, ... Default: by the ending of the file."
)
@table_or_json("json: one JSON object, with the code of each reason.")
def why(  # noqa: PLR0913 - an option of the command is an argument
    rules: Sequence[Path],
    inputs: Sequence[str],
    checkpoint: str | None,
    streams: Path | None,
    parameters: Mapping[str, str],
    name: str | None,
    key: Sequence[str],
    at: str | None,
    summary: bool,
    limit: int,
    input_format: str | None,
    output_format: str,
) -> None:
    """Say why a rule of RULES matched for a key, or how far it came and what was missing.

    RULES are files, directories, or one pipeline file, whose files of events are then read. With
    --checkpoint, RULES may be omitted: the checkpoint contains the rules.
    """
    if checkpoint is not None:
        if inputs or at is not None or summary or parameters or streams is not None or not key:
            raise click.UsageError("--checkpoint takes --key, and besides it only RULES, --rule and --format")
        from cep.commands.open_runs import names_in, tell_open_runs

        tell_open_runs(checkpoint, names_in(rules, name), ",".join(key), as_json=AS_JSON[output_format])
        return
    is_pipeline = len(rules) == 1 and rules[0].suffix in PIPELINE_FILES
    if not rules or not (inputs or is_pipeline):
        missing = "option '-i' / '--input'" if rules else "argument 'RULES...'"
        raise click.UsageError(f"Missing {missing}.")
    from cep.output.rows import json_line
    from cep.why.rows import told
    from cep.why.shown import as_data, as_text, funnel_text

    require_order(rules, inputs)
    if summary and (key or at is not None):
        raise click.UsageError("--summary counts over all keys and times: leave out --key and --at")
    at_us = None if at is None else time_asked(at)
    if is_pipeline:
        if parameters or streams is not None:
            raise click.UsageError(f"--set and --streams are for rule files: {rules[0]} has these settings")
        compiled, places = _of_pipeline(rules[0], name, has_inputs=bool(inputs))
    else:
        compiled, places = compiled_rule(rules, streams, name, parameters), None
    refused: list[str] = []
    found = replayed(compiled, inputs, input_format, places, refused)
    source = compiled.rules[-1].tree.source
    if summary:
        from cep.why.summary import funnel

        asked: Any = funnel(with_steps(found))
        text: Callable[[Any], str] = funnel_text
    else:
        asked = told(found, found.key_of(key), at_us, limit)
        text = partial(as_text, source=source, streams=list(compiled.rule_set.streams.values()))
    if AS_JSON[output_format]:
        click.echo(json_line(as_data(asked, source)))
    else:
        tell(text(asked))
    if refused:
        click.get_current_context().exit(EXIT_PASSED_OVER)


def with_steps(found: Replay | RowReplay) -> Replay:
    """Return a rule with steps. Raises InputError (E0899): it has none."""
    from cep.local.replay import Replay

    if isinstance(found, Replay):
        return found
    kind = "view" if found.events is None else "window rule"
    raise InputError(
        "E0899",
        f"`{found.rule.name}` is a {kind}: it has no steps",
        "`--summary` counts the steps of a PATTERN; write --key KEY in its place",
    )


def time_asked(text: str) -> int:
    """Return the time of `--at` in microseconds since 1970. Raises click.UsageError: it is not a time."""
    from cep.local.replay import time_of

    try:
        return time_of(text)
    except ValueError:
        raise click.UsageError(f"--at {text} is no time: write 2024-05-01T10:04:00Z") from None


def compiled_rule(
    rules: Sequence[Path], streams: Path | None, name: str | None, parameters: Mapping[str, str]
) -> Compiled:
    """Return the rule, after those whose matches it reads."""
    from cep.profiles.never_seen import profiles_of
    from cep.rulebook import compile_rulebook, load_rulebook, values_never_seen

    book = load_rulebook(rules, streams)
    compiled = compile_rulebook(book, [] if name is None else [name], parameters)
    _require_one(compiled, name)
    found = values_never_seen(book, profiles_of(book.streams_file, book.streams), parameters)
    spans = [(rule.tree.source, rule.tree.span) for rule in compiled.rules]
    show([problem for problem in found if any(_is_in(problem, *place) for place in spans)])
    return compiled


def _require_one(compiled: Compiled, name: str | None) -> None:
    names = [rule.name for rule in compiled.rules]
    if name is None and len(names) > 1:
        raise click.UsageError(f"of which rule? Write --rule, one of {', '.join(names)}")


def _of_pipeline(
    path: Path, name: str | None, *, has_inputs: bool
) -> tuple[Compiled, dict[str, tuple[str, str]] | None]:
    """Return the rule of a pipeline file, and the path and format of its files by stream.

    The files are None if the events are given as --input. Raises InputError (E0835): a source has no files.
    """
    from cep.rulebook import compile_texts
    from spark_runtime.pipeline.pipeline_file import load_pipeline

    pipeline = load_pipeline(path)
    compiled = compile_texts(pipeline.texts, pipeline.rules.inputs, [] if name is None else [name])
    _require_one(compiled, name)
    if has_inputs:
        return compiled, None
    places = {file.table.name: (file.path, file.file_format) for file in pipeline.tables}
    formats: dict[str, str] = {}
    for entry in pipeline.sources:
        formats[entry.stream] = entry.name
        if entry.local_files is not None:
            places[entry.stream] = entry.local_files
    for stream in compiled.rule_set.inputs:
        if stream not in places:
            waits = f"; for what waits now: cep why --checkpoint {pipeline.checkpoint} --key KEY"
            raise InputError(
                "E0835",
                f"`cep why` reads files on this machine: the source of `{stream}` is {formats[stream]}",
                f"write the events in question to a file, and add --input {stream}=FILE"
                + (waits if pipeline.is_stream else ""),
            )
    return compiled, places


def _is_in(problem: Diagnostic, source: Source, span: Span) -> bool:
    """Return whether a problem is about a part of a text."""
    place = problem.span
    is_inside = place is not None and span.start <= place.start < span.end
    return problem.source is not None and problem.source.name == source.name and is_inside


def replayed(
    compiled: Compiled,
    inputs: Sequence[str],
    file_format: str | None,
    places: Mapping[str, tuple[str, str]] | None = None,
    refused: list[str] | None = None,
) -> Replay | RowReplay:
    """Return the events of the inputs, ready to be matched again key by key.

    `places`: the path and the format of the files of each stream, instead of `inputs`. The names of files
    that were refused, at least from some place on, are added to `refused`.
    """
    from cep.compiler.automaton.build import Built
    from cep.local.match_file import read_inputs
    from cep.local.replay import typed_tables
    from cep.why.rows import prepared

    rule_set = compiled.rule_set
    dead: list[pa.Table] = []
    paths: str | Mapping[str, str]
    formats: str | Mapping[str, str] | None = file_format
    if places is None:
        paths = input_paths(rule_set, inputs)
    else:
        paths, formats = ({name: places[name][part] for name in rule_set.inputs} for part in (0, 1))

    def see(chunk: Chunk) -> None:
        dead.append(chunk.dead_letters)
        if chunk.is_refused and refused is not None:
            refused.append(chunk.source)

    chunks: Mapping[str, Iterator[Chunk]] = read_inputs(rule_set, paths, formats, on_chunk=see)
    tables = typed_tables(rule_set, chunks)
    _tell_malformed(dead)
    compile_engine(progress_line(quiet=False, progress=None), False, rule_set.programs)
    rule = compiled.rules[-1]
    built = [Built(one.typed, one.automaton) for one in compiled.rules]
    return prepared(built, rule_set, rule.name, tables, rule.tree)


def _tell_malformed(dead: Sequence[pa.Table]) -> None:
    """Print how many records of the input are not events: rules do not see these records, which may be what
    is missing.
    """
    n = sum(table.num_rows for table in dead)
    if n:
        first = next(table for table in dead if table.num_rows).slice(0, 1).to_pylist()[0]
        place = f"{first['source']}:{first['position']}: {first['reason']}"
        click.echo(f"malformed: {n:,}, not among the events; the first is {place}", err=True)
