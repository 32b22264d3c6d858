"""The console as a sink: tables of matches on a terminal, one for each rule. Only for the driver."""

from __future__ import annotations

from dataclasses import dataclass

from cep.output.terminal import match_tables
from cep.settings import declared
from cep.settings.declared import Declared
from spark_runtime.compat.driver import to_arrow
from spark_runtime.sinks.protocol import BatchRows, DriverSink, Guarantee, MicroBatch, Output
from spark_runtime.sinks.registry import SinkContext, SinkType
from spark_runtime.wire.output import MATCH


@dataclass(frozen=True, slots=True)
class ConsoleSpec:
    """The console, which shows a limited number of rows in a run."""

    limit: int = declared.integer(20)

    def open(self, output: Output, context: SinkContext) -> DriverSink:
        """Return the sink."""
        return ConsoleSink(output, context, self.limit)


@dataclass(slots=True)
class ConsoleSink:
    """Shows at most `limit` rows of a run."""

    output: Output
    context: SinkContext
    limit: int
    n_shown: int = 0
    n_rows: int = 0

    guarantee = Guarantee.AT_LEAST_ONCE

    @property
    def wants_rows(self) -> bool:
        """Whether more rows may be shown."""
        return self.n_shown < self.limit

    def check(self) -> None:
        """Do nothing: a terminal can always be written."""

    def last(self, run: str) -> None:
        """Return None: it does not record what it showed."""

    def begin(self, batch: MicroBatch) -> None:
        """Do nothing: shown rows remain."""

    def write_batch(self, batch: MicroBatch, rows: BatchRows) -> None:
        """Show the first rows."""
        n_wanted = min(self.limit - self.n_shown, rows.n_rows)
        self.n_rows += rows.n_rows
        if n_wanted <= 0:
            return
        rules = self.context.rules
        table = rules.in_order([to_arrow(rows.frame.limit(n_wanted))])
        for shown in match_tables(rules, table):
            self.context.console.print(shown)
        self.n_shown += n_wanted

    def commit(self, batch: MicroBatch) -> None:
        """Do nothing: the rows are already shown."""

    def close(self) -> None:
        """Print how many rows were not shown."""
        if self.n_rows > self.n_shown:
            programs = self.context.rules.programs
            has_others = any(program.has_all_rows or program.has_timeouts for program in programs)
            what = "rows" if has_others else "matches"
            self.context.console.print(f"... and {self.n_rows - self.n_shown:,} more {what}")


CONSOLE: SinkType = Declared(ConsoleSpec, kinds=frozenset((MATCH,)))
