"""`cep plot` draws a rule as an automaton, and matches as a time line."""

from __future__ import annotations

import codecs
import csv
import errno
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import click

from cep.commands.group import EXIT_PASSED_OVER
from cep.commands.match import input_paths, require_order
from cep.commands.options import only_option, set_option, streams_option
from cep.commands.outputs import event_inputs, files_at, refuse_overwriting, rule_inputs

_MOST_ATTEMPTS = 20


@click.command()
@click.argument("rules", metavar="RULES|MATCHES...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-i", "--input", "inputs", multiple=True, help="The events of a time line, as for `cep match`.")
@streams_option
@only_option
@set_option
@click.option(
    "--key", multiple=True, help="With --input: the key, as for `cep why`. With MATCHES: only this."
)
@click.option("--input-format", metavar="NAME", help="json, csv, parquet, ... of the events of --input.")
@click.option(
    "--format",
    "picture",
    type=click.Choice(["svg", "html", "dot", "mermaid"]),
    default="svg",
    help="html: a page that needs nothing else. dot, mermaid: an automaton, for Graphviz or Mermaid.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="File to write instead of standard output."
)
def plot(  # noqa: PLR0913 - an option of the command is an argument
    rules: Sequence[Path],
    inputs: Sequence[str],
    streams: Path | None,
    only: Sequence[str],
    parameters: Mapping[str, str],
    key: Sequence[str],
    input_format: str | None,
    picture: str,
    output: Path | None,
) -> None:
    """Draw the automata of RULES, or MATCHES (a file of `cep match` or of a sink) as a time line.

    With --input, the matches and attempts of one key in these events are drawn.
    """
    of_matches = any(path.suffix in _READERS or _is_sink(path) for path in rules)
    if picture in ("dot", "mermaid") and (of_matches or inputs):
        raise click.UsageError(f"--format {picture} draws automata: write svg or html for a time line")
    if of_matches and (inputs or input_format or streams or parameters):
        raise click.UsageError(
            "--input, --input-format, --streams and --set are for rules: a file of matches needs none"
        )
    if not of_matches and not inputs and (key or input_format):
        raise click.UsageError("--key and --input-format are for a time line: write --input FILE")
    refuse_overwriting([output], files_at(rules) if of_matches else rule_inputs(rules, streams))
    refused: list[str] = []
    if of_matches:
        title, drawn = _of_matches(rules, only, key)
    elif inputs:
        title, drawn = _of_events(
            rules, inputs, streams, only, parameters, key, input_format, output, refused
        )
    else:
        title, drawn = _of_rules(rules, streams, only, parameters, picture)
    if picture == "html":
        from cep.explain.svg import page

        drawn = page(title, drawn)
    if output is None:
        click.echo(drawn, nl=False)
    else:
        from cep.write_errors import replacing

        with replacing(output) as unfinished:
            unfinished.write_text(drawn, encoding="utf-8")
    if refused:
        click.get_current_context().exit(EXIT_PASSED_OVER)


def _of_rules(
    rules: Sequence[Path],
    streams: Path | None,
    only: Sequence[str],
    parameters: Mapping[str, str],
    picture: str,
) -> tuple[str, str]:
    from cep.explain import picture as text_pictures
    from cep.explain.drawn import drawn
    from cep.rulebook import compile_rulebook, load_rulebook

    compiled = compile_rulebook(load_rulebook(rules, streams), only, parameters).rules
    draw = {"dot": text_pictures.dot, "mermaid": text_pictures.mermaid}.get(picture, drawn)
    return ", ".join(rule.name for rule in compiled), draw(compiled)


def _of_events(  # noqa: PLR0913 - it has the options of the command
    rules: Sequence[Path],
    inputs: Sequence[str],
    streams: Path | None,
    only: Sequence[str],
    parameters: Mapping[str, str],
    key: Sequence[str],
    input_format: str | None,
    output: Path | None,
    refused: list[str],
) -> tuple[str, str]:
    """Return the time line of one rule and key, from the answer of `cep why`."""
    from cep.commands.why import compiled_rule, replayed
    from cep.profiles.profile import ENDING
    from cep.why.picture import picture, picture_of_rows, title_of
    from cep.why.reasons import Why
    from cep.why.rows import told

    require_order(rules, inputs)
    if len(only) > 1:
        raise click.UsageError("a time line is of one rule: write one --only")
    compiled = compiled_rule(rules, streams, only[0] if only else None, parameters)
    profiles = (found for file in rule_inputs(rules, streams) for found in file.parent.glob(f"*{ENDING}"))
    events = event_inputs(input_paths(compiled.rule_set, inputs), input_format)
    refuse_overwriting([output], chain(events, profiles))
    found = replayed(compiled, inputs, input_format, refused=refused)
    answer = told(found, found.key_of(key), limit=_MOST_ATTEMPTS)
    drawn = picture(answer) if isinstance(answer, Why) else picture_of_rows(answer)
    return title_of(answer), drawn


def _of_matches(paths: Sequence[Path], only: Sequence[str], key: Sequence[str]) -> tuple[str, str]:
    """Return the time line of the matches in files, those of one key together."""
    from cep.explain.match_spans import key_of_row, spans_of_rows
    from cep.explain.timeline import timeline

    rows = [row for path in paths for row in _rows(path)]
    names = sorted({row["rule"] for row in rows})
    unknown = next((name for name in only if names and name not in names), None)
    if unknown is not None:
        raise click.UsageError(f"--only {unknown}: the matches are of {', '.join(names)}")
    rows = [
        row
        for row in rows
        if (not only or row["rule"] in only) and (not key or key_of_row(row) == ",".join(key))
    ]
    spans = sorted(spans_of_rows(rows), key=lambda span: (span.lane, span.start_us))
    title = f"{len(spans):,} matches of {', '.join(sorted({row['rule'] for row in rows})) or 'no rule'}"
    return title, timeline(spans, title)


def _rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of matches. Raises InputError (E0653): it has something else."""
    from cep.errors import InputError
    from cep.explain.match_spans import is_match

    try:
        rows = list(_READERS.get(path.suffix, _parquet_rows)(path))
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError)  # that of Arrow has no words
        reason = os.strerror(errno.ENOENT) if is_missing else error.strerror or str(error)
        problem = f"`{path}` cannot be read: {reason}"
        raise InputError("E0653", problem, "name another file") from None
    except (ValueError, OverflowError, csv.Error):
        rows = [(None, None)]
    for line, row in rows:
        if not is_match(row):
            where = "" if line is None else f": line {line:,}"
            problem = f"`{path}` has a line that is no match{where}"
            raise InputError("E0653", problem, "give a file that `cep match` or a sink wrote")
    return [row for _, row in rows]


_Rows = Iterator[tuple[int | None, Any]]
"""The rows of a file, each with the number of its line; a line that cannot be read has None."""


def _json_rows(path: Path) -> _Rows:
    text = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    for number, line in enumerate(text.split(b"\n"), 1):
        if line.strip():
            yield number, _of_json(line)


def _of_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; None: it is not JSON, or is nested too deeply."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _csv_rows(path: Path) -> _Rows:
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file, strict=True)
        names = next(lines, [])
        for line in lines:
            if line:
                yield lines.line_num, _of_cells(names, line)


def _of_cells(names: Sequence[str], line: Sequence[str]) -> dict[str, Any] | None:
    """Return the row of a line of CSV; None: it has other columns than the first line."""
    if len(line) != len(names):
        return None
    row: dict[str, Any] = {name: text or None for name, text in zip(names, line, strict=True)}
    if row.get("event") and row.get("event_number"):
        event, number = map(_of_json, (row["event"], row["event_number"]))
        row |= {"event": event, "event_number": number} if isinstance(event, dict) else {}
    return row


def _parquet_rows(path: Path) -> _Rows:
    import pyarrow.dataset as ds

    yield from enumerate(ds.dataset(path, format="parquet").to_table().to_pylist(), 1)


_READERS = {
    ".parquet": _parquet_rows,
    ".csv": _csv_rows,
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), _json_rows),
}
"""Ending of a file of matches -> how it is read."""


def _is_sink(path: Path) -> bool:
    """Return whether a folder is one of a Parquet sink."""
    return path.is_dir() and any(path.glob("**/*.parquet"))
