"""What `cep backtest`, `cep tune` and `cep scorecard` share: options, and a run over history."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cep.commands.group import EXIT_PASSED_OVER, tell
from cep.commands.match import Reading, input_option, input_paths, require_order
from cep.commands.options import (
    Command,
    only_option,
    progress_option,
    quiet_option,
    set_option,
    streams_option,
    table_or_json,
)
from cep.commands.progress_line import progress_line

if TYPE_CHECKING:
    import pyarrow as pa

    from cep.backtest.figures import Truth
    from cep.backtest.history import Backtest, Chunks, Scope
    from cep.counts import Counts
    from cep.language import ast
    from cep.rule_set import RuleSet
    from cep.rulebook import Rulebook
    from cep.schema.stream import Stream


_OPTIONS = (
    click.argument("rules", nargs=-1, required=True, type=click.Path(path_type=Path)),
    input_option(required=True),
    streams_option,
    only_option,
    set_option,
    click.option("--from", "from_time", metavar="TIME", help="Alerts that end at this time or later."),
    click.option("--to", "to_time", metavar="TIME", help="Alerts that end before this time."),
    click.option(
        "--margin", metavar="DURATION", help="Read only events so close to the range. Default: all events."
    ),
    click.option("--sample", metavar="SHARE", help="Events of a share of the keys: 10%."),
    click.option(
        "--truth",
        type=click.Path(path_type=Path),
        help="What there is to find: rule, start, end, key.",
    ),
    click.option(
        "--same",
        metavar="COLUMN=COLUMN,...",
        multiple=True,
        help="A column of the truth is the same as the first of these of a match that has a value.",
    ),
    click.option(
        "--input-format", metavar="NAME", help="json, csv, parquet, ... Default: by the file's ending."
    ),
    click.option(
        "--spark", is_flag=True, help="Run on Spark: inputs are what Spark reads, or tables of its catalog."
    ),
    table_or_json("json: one JSON object."),
    quiet_option,
    progress_option,
)


def history_options(command: Command) -> Command:
    """Add the options that all three verbs have; their values are those of `Given`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Given:
    """The values of `history_options`."""

    rules: Sequence[Path]
    inputs: Sequence[str]
    streams: Path | None
    only: Sequence[str]
    parameters: Mapping[str, str]
    from_time: str | None
    to_time: str | None
    margin: str | None
    sample: str | None
    truth: Path | None
    same: Sequence[str]
    input_format: str | None
    spark: bool
    output_format: str
    quiet: bool
    progress: bool | None

    def book(self, paths: Sequence[Path] = ()) -> Rulebook:
        """Return the rules with their streams: those in `paths`, or else RULES."""
        from cep.rulebook import load_rulebook

        require_order(self.rules, self.inputs)
        return load_rulebook(paths or self.rules, self.streams)

    def scope(self, rules: RuleSet) -> Scope:
        """Return which alerts of `rules` count."""
        from cep.backtest.history import Scope
        from cep.backtest.sampling import sample_of

        from_us, to_us = _time("--from", self.from_time), _time("--to", self.to_time)
        if from_us is not None and to_us is not None and from_us >= to_us:
            raise click.UsageError("--from must be before --to")
        margin_us = _duration("--margin", self.margin)
        if margin_us is not None and from_us is None and to_us is None:
            raise click.UsageError("--margin is that of a range: write --from or --to, too")
        share = share_of("--sample", "write 10% or 0.1", self.sample)
        sample = None if share is None or share == 1 else sample_of(rules, share)
        return Scope(from_us, to_us, margin_us, sample)

    def truth_of(self, rules: RuleSet, scope: Scope) -> Truth | None:
        """Return what is known about the truth; None if nothing is known."""
        from cep.backtest.figures import Truth
        from cep.backtest.truth import read_truth

        if self.truth is None:
            if self.same:
                raise click.UsageError("--same is about the columns of --truth")
            return None
        same: dict[str, list[str]] = {}
        for text in self.same:
            name, sign, columns = text.partition("=")
            if not sign or not name or not columns:
                raise click.UsageError(f"`{text}` is not COLUMN=COLUMN")
            same[name.strip()] = [column.strip() for column in columns.split(",")]
        stories, found = read_truth(self.truth, same, rules.match_schema)
        others = sorted(
            {str(rule) for rule in stories["rule"].to_pylist()} - {rule.name for rule in rules.rules}
        )
        if others and not self.quiet:
            tell(f"`{self.truth}` is also about rules that do not run: {', '.join(others)}", err=True)
        return Truth(stories, found, scope)


def _time(option: str, text: str | None) -> int | None:
    from cep.schema.time_literals import parse_timestamp

    found = None if text is None else parse_timestamp(text)
    if text is not None and found is None:
        raise click.UsageError(f"{option} {text} is no time: write 2024-05-01 or 2024-05-01T10:00:00Z")
    return found


def _duration(option: str, text: str | None) -> int | None:
    from cep.schema.time_literals import parse_duration

    found = None if text is None else parse_duration(text)
    if text is not None and found is None:
        raise click.UsageError(f"{option} {text} is no duration: write 1 day")
    return found


def share_of(option: str, help_text: str, text: str | None) -> float | None:
    """Return the share that an option gives, more than 0 and at most 1; None: it is not given."""
    if text is None:
        return None
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise click.UsageError(f"{option} {text} is no share: {help_text}")
    return share


class Runner:
    """Runs rule sets over the events of the inputs.

    `readers`: all rule sets that may run. Their events are read when the first of them runs. `keeps`: whether
    the events stay in memory, so that they can be matched again.
    """

    def __init__(self, given: Given, readers: Sequence[RuleSet], scope: Scope, *, keeps: bool) -> None:
        from cep.rule_set import RuleSet

        self.given = given
        self.scope = scope
        self.keeps = keeps
        self.together = RuleSet(tuple(program for rules in readers for program in rules.programs))
        _require_same_streams(readers)
        self.paths = input_paths(self.together, given.inputs)
        self.watched = Reading(progress_line(given.quiet, given.progress), given.quiet, self.together)
        self._read: dict[str, Counts] = {}
        self._runs: list[Counts] = []
        self.last: Backtest | None = None
        self._chunks: Chunks | None = None
        self._spark: Any = None

    @property
    def chunks(self) -> Chunks:
        """The events of all inputs, in memory if they are kept."""
        from cep.backtest.history import kept
        from cep.formats.intake import counted
        from cep.local.match_file import read_inputs

        if self._chunks is None:
            read = read_inputs(self.together, self.paths, self.given.input_format, on_chunk=self.watched.see)
            read = counted(read, self.together.inputs, self._read)
            self._chunks = kept(read) if self.keeps else read
        return self._chunks

    def run(self, rules: RuleSet, name: str = "") -> Backtest:
        """Return the alerts of a rule set; `name` is shown as progress."""
        from cep.backtest.history import backtest

        if name:
            self.watched.line.show(name)
        try:
            if self.given.spark:
                found = self._on_spark(rules)
            else:
                read = {stream: self.chunks[stream] for stream in rules.inputs}
                found = backtest(rules, read, self.scope)
            self._runs.append(found.counts)
            self.last = found
            return found
        finally:
            self.watched.line.clear()

    def seen(self, rule: ast.Rule, column: str | None) -> pa.ChunkedArray | None:
        """Return finite values of a column of numbers that a rule reads, on Spark some quantiles; None: it is
        not such a column of the inputs.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        own = {name.text for number, name in enumerate(rule.streams) if number not in rule.matches}
        own |= {join.table.text for join in rule.joins}
        inputs = {name: stream for name, stream in self.together.inputs.items() if name in own}
        parts: list[pa.Array] = []
        for name, stream in inputs.items() if column is not None else ():
            field = stream.field(column or "")
            if field is None or field.type.value not in ("bigint", "double"):
                continue
            if self.given.spark:
                parts.append(pa.array(self._history.quantiles(stream, field), pa.float64()))
                continue
            for chunk in self.chunks[name]:
                # A whole number beyond 2^53 is rounded: the values that are tried are rounded, too.
                parts += chunk.events.column(column).cast(pa.float64(), safe=False).chunks
        found = pa.chunked_array(parts, pa.float64())
        return found.filter(pc.is_finite(found)) if parts else None  # a parameter is a number

    @property
    def _history(self) -> Any:
        from spark_runtime.history import SparkHistory

        if self._spark is None:
            self._spark = SparkHistory(self.together, self.paths, self.given.input_format)
        return self._spark

    def _on_spark(self, rules: RuleSet) -> Backtest:
        found: Backtest = self._history.backtest(rules, self.scope)
        return found

    def tell_losses(self) -> None:
        """Say what the runs could not read, and end with the exit code for it."""
        if self.say_losses():
            click.get_current_context().exit(EXIT_PASSED_OVER)

    def say_losses(self) -> bool:
        """Say what the runs could not read, and return whether the exit code must say so, too."""
        from cep.counts import Counts

        counts = Counts()
        counts.add_input(self._read.values(), self._runs)
        return tell_losses(counts, self.together.inputs, self.together.read_columns)


def tell_losses(
    counts: Counts, streams: Mapping[str, Stream], read: Collection[tuple[str, str]], heading: str = ""
) -> bool:
    """Say what was lost, below a heading, and return whether the exit code must say so, too.

    `read`: the columns that rules read (`RuleSet.read_columns`).
    """
    from cep.output.summary import loss_lines

    refused = "`cep match --dead-letter FILE` says why"
    lines = loss_lines(counts, streams, "", read, kept=[], refused=refused)
    for line in [heading, *lines] if heading and lines else lines:
        tell(line, err=True)
    return bool(counts.passed_over) or any(column in read for column in counts.absent_columns)


def _require_same_streams(readers: Iterable[RuleSet]) -> None:
    """Refuse rule sets that declare a stream in two ways: they would need other events."""
    from cep.errors import InputError

    known: dict[str, Any] = {}
    for rules in readers:
        for name, stream in rules.inputs.items():
            if known.setdefault(name, stream) != stream:
                raise InputError(
                    "E0614",
                    f"stream `{name}` is declared in two ways by the streams files of these rules",
                    "name the file to use, with --streams",
                )
