"""Rule files and their streams files: where they are, and their texts. It loads no compiler."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from pathlib import Path

from cep.diagnostics.limits import MAX_BYTES
from cep.errors import Diagnostic, InputError, RuleError, Source
from cep.language.front_ends import SUFFIXES, rule_files
from cep.settings.source_file import read_source

STREAMS_FILE = "streams.yaml"

TEST_ENDING = ".test.yaml"
"""How the names of test files end."""


def rule_sources(paths: Iterable[str | Path]) -> tuple[Source, ...]:
    """Return the texts of all rule files in `paths`, each with its path as its name.

    Raises RuleError with every file that is missing or cannot be read.
    """
    problems: list[Diagnostic] = []
    sources = [read_rule_file(file, problems) for file in found_rule_files(paths, problems)]
    if problems:
        raise RuleError(problems)
    return tuple(source for source in sources if source is not None)


def nearest_streams_file(rule_file: Path) -> Path | None:
    """Return the streams file that belongs to a rule file, or None.

    Raises InputError (E0613): a folder cannot be read.
    """
    directory = rule_file.parent
    for above in (directory, *Path(posixpath.realpath(directory)).parents):
        try:
            if (above / STREAMS_FILE).is_file():
                return above / STREAMS_FILE
        except OSError as error:  # a folder without permission
            problem = unreadable(above / STREAMS_FILE, error)
            raise InputError(problem.code, problem.title, problem.help) from error
    return None


def found_rule_files(paths: Iterable[str | Path], problems: list[Diagnostic]) -> Sequence[Path]:
    """Return the rule files of `paths`, each once, however it is named.

    A path without rule files is reported in `problems`.
    """
    files: dict[Path, Path] = {}
    for given in paths:
        if given == "":  # as a path it would be the current directory
            advice = "write . for the current directory"
            problems.append(Diagnostic("E0611", "the path of rules is an empty text", help=advice))
            continue
        path = Path(given)
        try:
            for file in _found_at(path, problems):
                files.setdefault(file.resolve(), file)
        except OSError as error:
            problems.append(unreadable(path, error))
    return list(files.values())


def _found_at(path: Path, problems: list[Diagnostic]) -> Sequence[Path]:
    if path.is_dir():
        found = rule_files(path)
        if not found:
            problems.append(
                Diagnostic(
                    "E0611",
                    f"there are no rule files in `{path}`",
                    help=f"names of rule files end in {', '.join(SUFFIXES)}",
                )
            )
        return found
    if path.exists() and _is_of_events(path):
        problems.append(
            Diagnostic(
                "E0611",
                f"`{path}` is a file of events, not of rules",
                help=f"names of rule files end in {', '.join(SUFFIXES)}; "
                "the events are given by `--input`, or as a source of a pipeline",
            )
        )
    elif path.exists():
        return [path]
    else:
        problems.append(Diagnostic("E0611", f"there is no file or directory `{path}`"))
    return []


def unreadable(path: Path, error: OSError) -> Diagnostic:
    """Return the problem of a path that cannot be read, such as one in a folder without permission."""
    reason = error.strerror or str(error)
    return Diagnostic("E0613", f"`{path}` cannot be read: {reason}")


def beside_rule(path: Path) -> Path:
    """Return the name of the test file of a rule file."""
    ending = next(suffix for suffix in SUFFIXES if path.name.endswith(suffix))
    return path.with_name(path.name.removesuffix(ending) + TEST_ENDING)


def _is_of_events(path: Path) -> bool:
    """Return whether the ending of a file's name is that of a format of events."""
    if path.name.endswith(SUFFIXES):
        return False
    from cep.formats.registry import format_of_name  # loads the formats

    return format_of_name(path.name) is not None


def read_rule_file(file: Path, problems: list[Diagnostic]) -> Source | None:
    """Return the text of a rule file. None: it cannot be read, which is reported in `problems`."""
    try:
        return read_source(file, MAX_BYTES)
    except RuleError as error:
        problems += error.diagnostics
    except UnicodeDecodeError as error:
        problems.append(
            Diagnostic(
                "E0613",
                f"`{file}` is not UTF-8 text: byte {error.start + 1} begins no character",
                help="save the file as UTF-8",
            )
        )
    except OSError as error:
        problems.append(unreadable(file, error))
    return None
