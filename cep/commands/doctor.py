"""`cep doctor` says what would keep rules from being tested, or a pipeline from running."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cep.commands.group import EXIT_PROBLEMS
from cep.commands.options import problems_format_option, roots_option, spark_settings_option

if TYPE_CHECKING:
    from cep.errors import CepError, Diagnostic
    from spark_runtime.doctor import Finding

_START_UPS = {
    "bash": (".bashrc", ".bash_profile", ".profile"),
    "zsh": (".zshrc",),
    "fish": (".config/fish/completions/cep.fish", ".config/fish/config.fish"),
}
"""Files in which shells look for completions, in the user's folder."""


@click.command()
@click.argument("pipeline", required=False, type=click.Path(path_type=Path))
@roots_option
@spark_settings_option
@problems_format_option
def doctor(
    pipeline: Path | None, roots: tuple[str, ...], allow_spark_settings: bool, output_format: str
) -> None:
    """Say what is missing on this machine and in this project, or would keep a PIPELINE from running.

    The project is that of the current folder, or of the pipeline file. Sources and sinks are asked whether
    they exist, whether this user may read or write them, and whether what they hold fits. Nothing is
    written, and Spark is not started.
    """
    from spark_runtime.doctor import examine_machine

    groups: dict[str, Iterator[Finding]] = {"machine": _with_completion(examine_machine(), os.environ)}
    groups["project"] = examine_project(Path() if pipeline is None else pipeline.parent)
    if pipeline is not None:
        from spark_runtime.doctor import examine_pipeline
        from spark_runtime.pipeline.trust import Trust

        trust = Trust.of(roots, any_spark_setting=allow_spark_settings)
        groups[str(pipeline)] = examine_pipeline(pipeline, trust)
    found: dict[str, list[Finding]] = {}
    for group, findings in groups.items():
        found[group] = []
        for finding in findings:
            found[group].append(finding)
            if output_format == "table":  # as it comes: a server may let one wait
                _show(finding)
    if output_format != "table":
        _show_all(found, output_format)
    if any(finding.problem is not None for findings in found.values() for finding in findings):
        click.get_current_context().exit(EXIT_PROBLEMS)


def examine_project(folder: Path) -> Iterator[Finding]:
    """Check the streams file, the rules and the tests of a folder; yield the findings."""
    from cep.errors import RuleError
    from cep.rule_files import STREAMS_FILE, beside_rule, nearest_streams_file
    from spark_runtime.doctor import Finding

    streams_file = nearest_streams_file(folder / STREAMS_FILE)
    if streams_file is None:
        advice = "`cep init alerts` writes a project, `cep new RULE` a rule"
        yield Finding("streams file", None, note="none here or above", advice=advice)
        return
    yield Finding("streams file", None, note=os.path.relpath(streams_file))
    from cep.language.front_ends import rule_files

    files = rule_files(folder)
    if not files:
        yield Finding("rules", None, note="none here", advice="`cep new RULE` writes one, with tests")
        return
    from cep.rulebook import check_rules

    checked = check_rules(files)
    errors = [problem for problem in checked.problems if problem.is_error]
    n_warnings = len(checked.problems) - len(errors)
    note = f"{checked.n_rules:,} in {checked.n_files:,} file{'' if checked.n_files == 1 else 's'}"
    warned = f"`cep check` says {n_warnings:,} warning{'' if n_warnings == 1 else 's'}" if n_warnings else ""
    yield Finding("rules", RuleError(errors) if errors else None, note=note, advice=warned)
    untested = [file for file in files if not beside_rule(file).is_file()]
    n_tested = len(files) - len(untested)
    advice = f"write {beside_rule(untested[0])}; `cep lint` names all that lack tests" if untested else ""
    yield Finding("tests", None, note=f"beside {n_tested:,} of {len(files):,} rule files", advice=advice)


def _with_completion(findings: Iterator[Finding], environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the findings, then whether the user's shell completes `cep`."""
    from spark_runtime.doctor import Finding

    yield from findings
    shell = Path(environment.get("SHELL", "")).name
    if shell not in _START_UPS:
        return
    home = Path(environment.get("HOME", "~")).expanduser()
    texts = (_text(home / name) for name in _START_UPS[shell])
    if any("_CEP_COMPLETE" in text or "cep completion" in text for text in texts):
        yield Finding("completion", None, note=shell)
    else:
        advice = f"`cep completion {shell} --help` says which line to add"
        yield Finding("completion", None, note=f"not set up for {shell}", advice=advice)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _show(finding: Finding) -> None:
    """Print a finding: a line, and what to do below it."""
    status = "PROBLEM" if finding.problem is not None else "note" if finding.advice else "ok"
    note = f"  {finding.note}" if finding.note and finding.problem is None else ""
    click.echo(f"{status:<8}{finding.what}{note}")
    below = (
        str(finding.problem) if finding.problem is not None else finding.advice and f"help: {finding.advice}"
    )
    click.echo("".join(f"        {line}\n" for line in below.splitlines()), nl=False)


def _show_all(found: Mapping[str, Sequence[Finding]], output_format: str) -> None:
    if output_format == "junit":
        from cep.output.junit import Test, junit

        suites = {
            group: [Test(one.what, _diagnostics(one.problem), one.seconds) for one in findings]
            for group, findings in found.items()
        }
        click.echo(junit(suites))
        return
    import json

    rows = [_row(group, finding) for group, findings in found.items() for finding in findings]
    click.echo(json.dumps(rows, ensure_ascii=False, indent=2))


def _row(group: str, finding: Finding) -> dict[str, Any]:
    from cep.diagnostics.diagnostic import to_json

    return {
        "group": group,
        "what": finding.what,
        "ok": finding.problem is None,
        "note": finding.note,
        "advice": finding.advice,
        "problems": to_json(_diagnostics(finding.problem)),
    }


def _diagnostics(problem: CepError | None) -> tuple[Diagnostic, ...]:
    from cep.errors import Diagnostic, RuleError

    if problem is None:
        return ()
    if isinstance(problem, RuleError):
        return tuple(problem.diagnostics)
    return (Diagnostic(problem.code, str(problem.args[0]), help=problem.help),)
