"""`cep scorecard` says for each rule whether to keep it, tune it or retire it, and why."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cep.commands.group import show, tell
from cep.commands.history import Given, Runner, history_options
from cep.commands.options import AS_JSON, Amount

if TYPE_CHECKING:
    from cep.compiler.compile import Compiled

_CONFIRMED = {"confirmed": True, "true": True, "yes": True, "1": True}
_REFUSED = {"false": False, "false_positive": False, "no": False, "0": False, "refused": False}
_WORDS = _CONFIRMED | _REFUSED


@click.command()
@history_options
@click.option(
    "--verdicts",
    type=click.Path(path_type=Path),
    help="What people found: a CSV or JSON lines file with match_id and verdict, confirmed or false.",
)
@click.option("--max-per-day", type=Amount(), default=50.0, show_default=True, help="More alerts: tune.")
@click.option("--max-noise", default="50%", show_default=True, help="A larger share of repeats: tune.")
@click.option("--min-confirmed", default="30%", show_default=True, help="A smaller share: tune.")
@click.option(
    "--min-verdicts",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="With fewer, no share is judged.",
)
@click.option(
    "--silent-days", type=Amount(), default=30.0, show_default=True, help="So long without an alert: retire."
)
def scorecard(
    verdicts: Path | None,
    max_per_day: float,
    max_noise: str,
    min_confirmed: str,
    min_verdicts: int,
    silent_days: float,
    **options: Any,
) -> None:
    """Show each rule of RULES with its alerts, noise, tests and verdicts: keep, tune or retire."""
    from cep.backtest.figures import range_data, range_text
    from cep.backtest.scorecard import Thresholds, card_text, score_card
    from cep.output.rows import json_line
    from cep.rulebook import compile_rulebook

    given = Given(**options)
    thresholds = Thresholds(
        a_day=max_per_day,
        noise=_share("--max-noise", max_noise),
        confirmed=_share("--min-confirmed", min_confirmed),
        verdicts=min_verdicts,
        silent_days=silent_days,
    )
    judged = {} if verdicts is None else _verdicts(verdicts)
    compiled = compile_rulebook(given.book(), given.only, given.parameters)
    show(compiled.warnings)
    runner = Runner(given, [compiled.rule_set], given.scope(compiled.rule_set), keeps=False)
    found = runner.run(compiled.rule_set)
    cards = score_card(found, _tests(compiled), _changes(compiled), judged, thresholds)
    if AS_JSON[given.output_format]:
        click.echo(json_line({**range_data(found), "rules": [card.as_data() for card in cards]}))
    else:
        tell(f"{card_text(cards)}\n\n{range_text(found)}")
    known = set(found.matches["match_id"].to_pylist())
    n_unknown = sum(match not in known for match in judged)
    if n_unknown and not given.quiet:
        click.echo(f"{n_unknown:,} of {len(judged):,} verdicts are of no alert of this run", err=True)
    runner.tell_losses()


def _share(option: str, text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise click.UsageError(f"{option} {text} is no share: write 50% or 0.5")
    return share


def _verdicts(path: Path) -> dict[str, bool]:
    """Return whether alerts are confirmed, by match_id.

    Raises InputError (E0694): the file says no such, or two things about one alert.
    """
    from cep.errors import InputError

    advice = f"write CSV with the columns match_id and verdict, one of {', '.join(_WORDS)}, or JSON lines"
    try:
        rows = _READERS.get(path.suffix.lower(), _json_rows)(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError("E0694", f"`{path}` cannot be read: {error.strerror}", "name another file") from None
    except ValueError as error:  # including a UnicodeDecodeError
        raise InputError("E0694", f"`{path}` cannot be read: {error}", advice) from None
    found: dict[str, tuple[bool, int]] = {}
    for line, row in rows:
        word = str(row.get("verdict", "")).strip().lower() if isinstance(row, Mapping) else ""
        if not isinstance(row, Mapping) or not row.get("match_id") or word not in _WORDS:
            raise InputError("E0694", f"{path}:{line} is no verdict", advice)
        match, verdict = str(row["match_id"]), _WORDS[word]
        before, before_line = found.setdefault(match, (verdict, line))
        if before is not verdict:
            problem = f"{path}:{line} contradicts line {before_line} about the alert {match}"
            raise InputError("E0694", problem, "keep one of the two lines")
    return {match: verdict for match, (verdict, _) in found.items()}


def _json_rows(text: str) -> list[tuple[int, Any]]:
    """Return each row with the number of its line; None is no JSON."""
    return [(line, _json_row(row)) for line, row in enumerate(text.split("\n"), 1) if row.strip()]


def _json_row(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # nested too deeply
        return None


def _csv_rows(text: str) -> list[tuple[int, Any]]:
    """Return each row with the number of its first line. Raises ValueError: it is no CSV of verdicts."""
    lines = csv.reader(StringIO(text), strict=True)
    found, line = [], 1
    try:
        names = next(lines, [])
        missing = [name for name in ("match_id", "verdict") if name not in names]
        if missing:
            raise ValueError(f"its first line has no {' and no '.join(missing)}")
        line = lines.line_num + 1
        for row in lines:
            if row:
                found.append((line, dict(zip(names, row, strict=False))))
            line = lines.line_num + 1
    except csv.Error as error:
        raise ValueError(f"line {line}: {error}") from error
    return found


_READERS = {".csv": _csv_rows}
"""Ending of a file of verdicts -> how its rows are read; of other files, lines of JSON."""


def _tests(compiled: Compiled) -> dict[str, int]:
    """Return the number of cases in the test file beside each rule; one that cannot be read has none."""
    from cep.errors import RuleError
    from cep.rule_files import beside_rule
    from cep.rule_tests.reading import read_tests

    found = {}
    for rule in compiled.rules:
        file = beside_rule(Path(rule.tree.source.name))
        if not file.is_file():
            continue
        try:
            tests = read_tests(file)
        except RuleError as error:
            show(error.diagnostics)
            continue
        if rule.name in [of.name for of in tests.compiled.rules]:
            found[rule.name] = len(tests.cases)
    return found


def _changes(compiled: Compiled) -> dict[str, str]:
    """Return the date of the last change of each rule: of its lines by git, else of its file."""
    found = {}
    for rule in compiled.rules:
        source, span = rule.tree.source, rule.tree.span
        file = Path(source.name)
        first, last = (source.text.count("\n", 0, place) for place in (span.start, span.end))
        lines = _lines(source.text)[first : last + 1]
        found[rule.name] = _by_git(file, lines) or _by_file(file)
    return found


def _by_git(file: Path, lines: Sequence[str]) -> str:
    """Return the date of the last commit that changed some lines; empty: git does not say.

    Git counts lines as they were committed. It does not say when lines were changed that are not committed.
    """
    committed = _lines(_git(file, "show", f"HEAD:./{file.name}"))
    at = next((at for at in range(len(committed)) if committed[at : at + len(lines)] == lines), None)
    if at is None:
        return ""
    lines_of = f"-L{at + 1},{at + len(lines)}:{file.name}"
    return _git(file, "log", "-1", "--no-patch", "--format=%cs", lines_of).strip()[:10]


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").split("\n")


def _git(file: Path, *arguments: str) -> str:
    """Return what git prints about a file; empty: it cannot."""
    command = ["git", *arguments]
    try:
        done = subprocess.run(  # noqa: S603 - git, with the place of a rule
            command, cwd=file.parent, capture_output=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def _by_file(file: Path) -> str:
    try:
        return datetime.fromtimestamp(file.stat().st_mtime, UTC).date().isoformat()
    except OSError:
        return ""
