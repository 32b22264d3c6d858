"""Which files a command reads, so that no output replaces one of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click


def refuse_overwriting(outputs: Sequence[str | Path | None], read: Iterable[str | Path]) -> None:
    """Refuse an output that is one of the files in `read`, or that is named twice.

    None and ``-`` are not files. The files in `read` are only compared if an output exists. Raises
    click.UsageError.
    """
    paths = [Path(output) for output in outputs if output is not None and str(output) != "-"]
    for number, path in enumerate(paths):
        other = next((other for other in paths[:number] if _is_same(path, other)), None)
        if other is not None:
            named = f"`{path}`" if path == other else f"`{path}`, which is the file `{other}`,"
            raise click.UsageError(f"{named} is named for two outputs: write another name for one of them")
    existing = [path for path in paths if os.path.exists(path)]  # False: it may not be seen
    for file in read if existing else ():
        if any(_is_same(path, file) for path in existing):
            raise click.UsageError(f"`{file}` is an input, and an output would replace it: name another file")


def rule_inputs(rules: Iterable[Path], streams: Path | None) -> Iterator[Path]:
    """Yield the rule files in `rules`, and `streams` or else the streams file of each of them."""
    from cep.rule_files import found_rule_files, nearest_streams_file

    if streams is not None:
        yield streams
    for file in found_rule_files(rules, problems=[]):  # reading them reports the problems
        yield file
        beside = nearest_streams_file(file) if streams is None else None
        if beside is not None:
            yield beside


def event_inputs(inputs: str | Mapping[str, str], file_format: str | None) -> Iterator[Path]:
    """Yield the files of events. Raises InputError, as reading them does."""
    from cep.formats.files import find_files
    from cep.formats.text.text_files import STDIN, is_read_once

    for path in [inputs] if isinstance(inputs, str) else inputs.values():
        if path == STDIN:
            yield Path("/dev/stdin")  # the shell may have opened a file
        elif not is_read_once(path):
            yield from map(Path, find_files(path, file_format)[0])


def files_at(paths: Iterable[str | Path]) -> Iterator[Path]:
    """Yield the files in `paths`, and what is in its folders and inside their folders."""
    for path in map(Path, paths):
        yield from path.rglob("*") if path.is_dir() else [path]


def _is_same(one: str | Path, other: str | Path) -> bool:
    """Return whether two paths lead to one file. A link may lead to a file that is written only later."""
    if os.path.exists(one) and os.path.exists(other):
        return os.path.samefile(one, other)
    return os.path.realpath(one) == os.path.realpath(other)
