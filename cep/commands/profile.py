"""`cep profile` says what the events of a stream look like, and keeps it for `cep check` and `cep why`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cep.commands.group import EXIT_PASSED_OVER, tell
from cep.commands.options import AS_JSON, progress_option, quiet_option, streams_option, table_or_json
from cep.commands.outputs import event_inputs, refuse_overwriting
from cep.commands.progress_line import ProgressLine, progress_line
from cep.diagnostics.diagnostic import did_you_mean
from cep.diagnostics.safe_text import for_terminal
from cep.errors import InputError

if TYPE_CHECKING:
    from cep.counts import Counts
    from cep.formats.chunks import Chunk
    from cep.schema.stream import Stream


@click.command()
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@streams_option
@click.option("--input-format", metavar="NAME", help="json, csv, parquet, ... Default: by the file's ending.")
@table_or_json("json: one JSON object for each stream.")
@quiet_option
@progress_option
def profile(
    inputs: Sequence[str],
    streams: Path | None,
    input_format: str | None,
    output_format: str,
    quiet: bool,
    progress: bool | None,
) -> None:
    """Say which values, ranges and times the events in INPUT have: a file or folder, or STREAM=FILE.

    Several inputs of a stream are read one after another, as one. The result is written next to the streams
    file. Then `cep check` and `cep why` say which values of rules the events never had.
    """
    from dataclasses import asdict

    from cep.counts import Counts
    from cep.engine.prepare.device_clocks import first_guard
    from cep.formats.files import read_events
    from cep.output.rows import json_line
    from cep.output.summary import loss_lines
    from cep.profiles.measuring import measured
    from cep.profiles.profile import profile_file, write_profile
    from cep.profiles.shown import profile_text
    from cep.settings.schema_file import load_streams

    file = streams or _streams_file(inputs[0].partition("=")[2] or inputs[0])
    known = load_streams(file)
    line = progress_line(quiet, progress)
    given = _by_stream(inputs, known)
    read = chain([file], *(event_inputs(path, input_format) for paths in given.values() for path in paths))
    refuse_overwriting([profile_file(file, name) for name in given], read)
    refused: list[str] = []
    counts = Counts()
    for name, paths in given.items():
        stream = known[name]
        guard = first_guard(stream)  # one for all inputs: they are read as one
        chunks = chain.from_iterable(read_events(path, stream, input_format, ahead=guard) for path in paths)
        try:
            found = measured(stream, (_told(chunk, stream, line, refused, counts) for chunk in chunks))
        finally:
            line.clear()
        written = write_profile(file, found)
        click.echo(json_line(asdict(found)) if AS_JSON[output_format] else profile_text(found))
        if not quiet:
            click.echo(f"written to {written}", err=True)
    for said in refused:
        click.echo(f"refused: {for_terminal(said)}", err=True)
    # A profile reads every column, as a rule reads some: so each absent field matters.
    for said in loss_lines(counts, known, read=counts.absent_columns):
        tell(said, err=True)
    if refused or counts.absent_columns:
        click.get_current_context().exit(EXIT_PASSED_OVER)


def _by_stream(inputs: Sequence[str], known: dict[str, Stream]) -> dict[str, list[str]]:
    """Return the inputs of each stream, in the order given; without empty files, unless all are empty."""
    found: dict[str, list[str]] = {}
    for text in inputs:
        stream, path = _input(text, known)
        found.setdefault(stream.name, []).append(path)
    return {name: [path for path in paths if not _is_empty(path)] or paths for name, paths in found.items()}


def _is_empty(path: str) -> bool:
    return Path(path).is_file() and Path(path).stat().st_size == 0


def _told(chunk: Chunk, stream: Stream, line: ProgressLine, refused: list[str], counts: Counts) -> Chunk:
    """Show what is read, and note which fields are absent, and where a file is refused and why."""
    from cep.formats.intake import count_fields

    counts.add(count_fields(chunk, stream))
    line.show(f"reading {chunk.source}")
    if chunk.is_refused:
        refused += (
            f"{row['source']}:{row['position']}: {row['reason']}" for row in chunk.dead_letters.to_pylist()
        )
    return chunk


def _streams_file(path: str) -> Path:
    """Return the streams file that is nearest to the input, or else to the current folder."""
    from cep.rule_files import STREAMS_FILE, nearest_streams_file

    for place in (Path(path), Path("events")):
        found = nearest_streams_file(place)
        if found is not None:
            return found
    raise InputError(
        "E0612",
        f"there is no `{STREAMS_FILE}` beside `{path}` or above it",
        f"name it by --streams; `cep new RULE --from {path}` writes one",
    )


def _input(text: str, known: dict[str, Stream]) -> tuple[Stream, str]:
    """Return the stream and the file of an input."""
    name, sign, path = text.partition("=")
    if sign and name in known:
        return known[name], path
    if not sign or Path(text).exists():
        if len(known) == 1:
            return next(iter(known.values())), text
        raise click.UsageError(
            f"of which stream is `{text}`? Write STREAM=FILE, STREAM one of {', '.join(known)}"
        )
    raise InputError(
        "E0610", f"there is no stream and no table `{name}`", did_you_mean(name, known, "streams")
    )
