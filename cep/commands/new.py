"""`cep new` writes a rule to start from, and its tests."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cep.commands.options import quiet_option

if TYPE_CHECKING:
    from cep.schema.stream import Stream

_TEMPLATES = ("sequence", "absence", "count", "threshold", "first-seen")

_STREAMS = """\
# The events that the rules read.
streams:
  events:
    event_time: ts
    lateness: 1 minute    # how late events may arrive, in a stream
    schema: {id: string, ts: timestamp, value: double, kind: string}
"""


@click.command()
@click.argument("rule", metavar="RULE", type=click.Path(path_type=Path))
@click.option(
    "-t",
    "--template",
    type=click.Choice(_TEMPLATES),
    default="sequence",
    help="What the rule finds: one after another, nothing after one, many in a window, ... [sequence]",
)
@click.option("--stream", metavar="NAME", help="The stream that it reads; without it, the first one.")
@click.option("--key", metavar="COLUMN", help="The column of PARTITION BY; without it, the first of texts.")
@click.option("--value", metavar="COLUMN", help="The column of its conditions; without it, one of numbers.")
@click.option(
    "--from",
    "events",
    metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A file of events, whose columns the new streams.yaml declares.",
)
@quiet_option
def new(
    rule: Path,
    template: str,
    stream: str | None,
    key: str | None,
    value: str | None,
    events: Path | None,
    quiet: bool,
) -> None:
    """Write RULE.cep and RULE.test.yaml: a rule with a case that matches and one that just does not.

    RULE is a name, with a folder before it or not. The nearest streams.yaml has the columns; if there is
    none, one is written, too, with --from for your own events. No file is replaced.
    """
    from cep.commands.init import write_files
    from cep.commands.rule_templates import columns_of, new_rule
    from cep.errors import InputError, RuleError, Source
    from cep.language.front_ends import RULE_TEXT
    from cep.rule_files import STREAMS_FILE, beside_rule, nearest_streams_file
    from cep.settings.schema_file import load_streams, parse_streams

    if not _is_name(rule.name):
        raise click.UsageError("RULE is the name of a rule in UTF-8, such as rules/card_testing")
    (ending,) = RULE_TEXT.suffixes
    file = rule if rule.name.endswith(ending) else rule.with_name(rule.name + ending)
    beside = nearest_streams_file(file)
    files: dict[Path, str] = {}
    if beside is not None and events is not None:
        raise InputError("E0662", f"`{beside}` declares the events already", "leave out --from")
    empty: tuple[str, ...] = ()
    if beside is None:
        declared, empty = (_STREAMS, ()) if events is None else _declared(events)
        files[_above_both(file, events) / STREAMS_FILE] = declared
        streams, problems = parse_streams(Source(STREAMS_FILE, declared))
        if problems:  # names of columns that a stream cannot have
            raise RuleError(problems)
        if events is not None:
            from cep.commands.streams_of_file import not_events  # loads Arrow

            reasons = not_events(events, next(iter(streams.values())))
            for reason, count in Counter(reasons).most_common(3):
                click.echo(
                    f"{'1 row is' if count == 1 else f'{count:,} rows are'} no event: {reason}", err=True
                )
    else:
        streams = load_streams(beside)
    columns = columns_of(_chosen(streams, stream, beside), key, value, empty)
    text, tests = new_rule(file.name.removesuffix(ending), template, columns)
    write_files({file: text, beside_rule(file): tests} | files, "name another rule", quiet=quiet)


def _is_name(text: str) -> bool:
    """Return whether a rule can have this name: not the name of a folder, and not bytes that are not text."""
    return text not in ("", "..") and not any("\ud800" <= sign <= "\udfff" for sign in text)


def _declared(events: Path) -> tuple[str, tuple[str, ...]]:
    """Return the text of a streams file for events, and their columns that are NULL in all rows."""
    from cep.commands.streams_of_file import streams_of_file  # loads Arrow

    declared = streams_of_file(events)
    return declared.text, declared.empty


def _above_both(file: Path, events: Path | None) -> Path:
    """Return where a rule and its events find a streams file: the folder of the rule, or one above."""
    if events is not None:
        above = Path(os.path.commonpath([file.resolve().parent, events.resolve().parent]))
        if above.is_relative_to(Path.cwd()):
            return Path(os.path.relpath(above))
    return file.parent


def _chosen(streams: dict[str, Stream], name: str | None, file: Path | None) -> Stream:
    """Return the stream of the rule. Raises InputError: there is none (E0662)."""
    from cep.diagnostics.diagnostic import did_you_mean
    from cep.errors import InputError

    known = {one.name: one for one in streams.values() if one.table is None}
    if name is not None and name not in known:
        raise InputError("E0662", f"there is no stream `{name}`", did_you_mean(name, known, "streams"))
    if not known:
        raise InputError("E0662", f"`{file}` declares no stream", "declare one under `streams`")
    return known[name] if name is not None else next(iter(known.values()))
