"""`cep profile` says what the events of a stream look like, and keeps it for `cep check` and `cep why`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cep.commands.group import EXIT_PASSED_OVER
from cep.commands.options import AS_JSON, progress_option, quiet_option, streams_option, table_or_json
from cep.commands.outputs import event_inputs, refuse_overwriting
from cep.commands.progress_line import ProgressLine, progress_line
from cep.diagnostics.diagnostic import did_you_mean
from cep.diagnostics.safe_text import for_terminal
from cep.errors import InputError

if TYPE_CHECKING:
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

    The result is written next to the streams file. Then `cep check` and `cep why` say which values of rules
    the events never had.
    """
    from dataclasses import asdict

    from cep.engine.prepare.device_clocks import first_guard
    from cep.formats.files import read_events
    from cep.output.rows import json_line
    from cep.profiles.measuring import measured
    from cep.profiles.profile import profile_file, write_profile
    from cep.profiles.shown import profile_text
    from cep.settings.schema_file import load_streams

    file = streams or _streams_file(inputs[0].partition("=")[2] or inputs[0])
    known = load_streams(file)
    line = progress_line(quiet, progress)
    given = [_input(text, known) for text in inputs]
    read = chain([file], *(event_inputs(path, input_format) for _, path in given))
    refuse_overwriting([profile_file(file, name) for name in {stream.name for stream, _ in given}], read)
    refused: list[str] = []
    for stream, path in given:
        chunks = read_events(path, stream, input_format, ahead=first_guard(stream))
        try:
            found = measured(stream, (_told(chunk, line, refused) for chunk in chunks))
        finally:
            line.clear()
        written = write_profile(file, found)
        click.echo(json_line(asdict(found)) if AS_JSON[output_format] else profile_text(found))
        if not quiet:
            click.echo(f"written to {written}", err=True)
    for said in refused:
        click.echo(f"refused: {for_terminal(said)}", err=True)
    if refused:
        click.get_current_context().exit(EXIT_PASSED_OVER)


def _told(chunk: Chunk, line: ProgressLine, refused: list[str]) -> Chunk:
    """Show what is read, and note where a file is refused and why."""
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
