"""`cep test` runs the tests that are data files next to the rules."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cep.commands.group import EXIT_PROBLEMS
from cep.commands.match import input_paths
from cep.commands.options import quiet_option, set_option, streams_option
from cep.commands.progress_line import progress_line
from cep.commands.warm import compile_engine

if TYPE_CHECKING:
    from cep.rule_tests.report import FileResult
    from cep.rulebook import Rulebook

_FORMATS = ("table", "json", "junit")

_LOOK_SECONDS = 0.3
"""How often `--watch` looks whether a file has changed."""


@click.command()
@click.argument("paths", metavar="RULES...", nargs=-1, required=True, type=click.Path(path_type=Path))
@streams_option
@set_option
@click.option(
    "--format",
    "output_format",
    type=click.Choice(_FORMATS),
    default="table",
    help="json: one list. junit: XML for servers of continuous integration.",
)
@click.option("--mutate", "with_changes", is_flag=True, help="Also name small changes that no case notices.")
@click.option("--watch", is_flag=True, help="Run again whenever a file changes, until Ctrl-C.")
@click.option(
    "--record",
    "match",
    metavar="MATCH",
    help="Make a test of a match: a line of JSON from `cep match`, a file with one, or - for standard input.",
)
@click.option("-i", "--input", "inputs", multiple=True, help="With --record: the events, as for `cep match`.")
@click.option("--input-format", metavar="NAME", help="With --record: json, csv, parquet, ...")
@quiet_option
def test(  # noqa: PLR0913 - an option of the command is an argument
    paths: Sequence[Path],
    streams: Path | None,
    parameters: Mapping[str, str],
    output_format: str,
    with_changes: bool,
    watch: bool,
    match: str | None,
    inputs: Sequence[str],
    input_format: str | None,
    quiet: bool,
) -> None:
    """Run the tests of RULES: NAME.test.yaml beside NAME.cep, or all such files of a directory."""
    if match is not None:
        if not inputs:
            raise click.UsageError("--record needs the events: write --input FILE")
        _record(paths, streams, match, inputs, input_format)
        return
    if inputs or input_format:
        raise click.UsageError("--input is for --record: the events of tests are in their files")
    while True:
        results, seen = run_test_files(paths, streams, parameters, with_changes)
        _print(results, output_format, quiet)
        if not watch:
            break
        click.echo(f"watching {len(seen)} files; Ctrl-C ends", err=True)
        _wait(paths, seen)
    if any(result.n_failed for result in results):
        click.get_current_context().exit(EXIT_PROBLEMS)


def run_test_files(
    paths: Sequence[Path], streams: Path | None, parameters: Mapping[str, str], with_changes: bool
) -> tuple[list[FileResult], dict[Path, float]]:
    """Return the results of all test files, and the files that were read with their times of change."""
    from cep.errors import RuleError
    from cep.rule_tests.cases import RuleTests
    from cep.rule_tests.checking import check_case
    from cep.rule_tests.coverage import coverage
    from cep.rule_tests.mutants import mutate
    from cep.rule_tests.reading import read_tests, test_files
    from cep.rule_tests.report import CaseResult, FileResult

    files = test_files(paths)
    read, found = list(files), dict[Path, RuleTests | RuleError]()
    for file in files:
        try:
            found[file] = sound = read_tests(file, streams, parameters)
            read += map(Path, sound.files)
        except RuleError as error:
            found[file] = error
    programs = [
        program
        for tests in found.values()
        if not isinstance(tests, RuleError)
        for program in tests.compiled.programs
    ]
    compile_engine(progress_line(quiet=False, progress=None), False, programs)
    results = []
    for file, tests in found.items():
        if isinstance(tests, RuleError):
            results.append(FileResult(str(file), problems=tests.diagnostics))
            continue
        cases = []
        for case in tests.cases:
            begun = time.perf_counter()
            problems = tuple(check_case(tests, case))
            cases.append(CaseResult(case.name, problems, time.perf_counter() - begun))
        all_passed = not any(case.problems for case in cases)
        changes = mutate(tests) if with_changes and all_passed else None
        results.append(FileResult(str(file), tuple(cases), coverage(tests), changes))
    return results, _times(read)


def _print(results: Sequence[FileResult], output_format: str, quiet: bool) -> None:
    from cep.output.rows import json_line
    from cep.rule_tests.report import as_data, as_junit, as_text

    shown = {"json": lambda: json_line(as_data(results)), "junit": lambda: as_junit(results)}
    click.echo(shown.get(output_format, lambda: as_text(results, sys.stdout.isatty(), quiet))())


def _times(files: Sequence[Path]) -> dict[Path, float]:
    """Return when each file was changed; a file that does not exist has none."""
    return {file: file.stat().st_mtime for file in files if file.is_file()}


def _wait(paths: Sequence[Path], seen: dict[Path, float]) -> None:
    """Return when a file has changed, or another test file exists."""
    from cep.errors import RuleError
    from cep.rule_tests.reading import test_files

    while True:
        time.sleep(_LOOK_SECONDS)
        try:
            new = set(test_files(paths)) - seen.keys()
        except RuleError:  # a file that is being replaced
            continue
        if new or _times(list(seen)) != seen:
            return


def _text_of(match: str) -> str:
    """Return the text of a match, which is given itself, as the name of a file, or on standard input."""
    from cep.errors import InputError

    if match == "-":
        return sys.stdin.read()
    if match.lstrip()[:1] in ("{", "[", "") or "\n" in match.strip():
        return match
    try:
        return Path(match).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(
            "E0676",
            f"a match cannot be read from `{match}`: {reason}",
            "give a line of JSON as `cep match` writes it, or the name of a file with one",
        ) from None


def _record(
    paths: Sequence[Path], streams: Path | None, match: str, inputs: Sequence[str], file_format: str | None
) -> None:
    """Write the test of a match into the test file of its rule."""
    from cep.errors import Source
    from cep.local.match_file import read_inputs
    from cep.local.replay import typed_tables
    from cep.rule_files import beside_rule
    from cep.rule_tests.reading import text_of_tests
    from cep.rule_tests.recording import read_match, with_recorded
    from cep.rulebook import compile_rulebook, load_rulebook
    from cep.spool.folder import write_whole

    found = read_match(_text_of(match))
    book = load_rulebook(paths, streams)
    compiled = compile_rulebook(book, [found["rule"]])
    rules = compiled.rule_set
    compile_engine(progress_line(quiet=False, progress=None), False, rules.programs)
    unread = book.streams.keys() - rules.inputs.keys()  # those of the other rules, which may be given
    needed = [text for text in inputs if text.partition("=")[0] not in unread]
    tables = typed_tables(rules, read_inputs(rules, input_paths(rules, needed), file_format))
    rule = next(rule for rule in compiled.rules if rule.name == found["rule"])
    rule_file = rule.tree.source.name
    file = beside_rule(Path(rule_file))
    source = text_of_tests(file) if file.is_file() else Source(str(file), _head(book, rule_file))
    text, case = with_recorded(source, rules, found, tables, streams)
    write_whole(file, text)  # on a full disk the file remains as it was
    n = len(case.steps)
    click.echo(f"{file}: {case.name}, {n:,} event{'' if n == 1 else 's'}")


def _head(book: Rulebook, rule_file: str) -> str:
    """Return the first lines of a new test file, in which alerts of all rules of `rule_file` fit."""
    from cep.language.front_ends import read_rules
    from cep.rule_tests.recording import head_of
    from cep.rulebook import compile_rulebook

    source = next(source for source in book.sources if source.name == rule_file)
    own = [rule.name.text for rule in read_rules(source)[0]]
    compiled = compile_rulebook(book, own)
    files = dict.fromkeys([rule_file, *(rule.tree.source.name for rule in compiled.rules)])
    folder = Path(rule_file).parent
    names = [Path(os.path.relpath(name, folder)).as_posix() for name in files]
    # Of one rule over others, the matches of these need not be expected, too.
    return head_of(names, own[0] if len(own) == 1 < len(compiled.rules) else "")
