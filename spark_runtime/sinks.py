"""Where matches, late events and dead letters go: JSON lines, Parquet, the console.

A file sink writes each micro-batch into a directory of its own, named after query and batch, and overwrites
it: a batch that is run again after a crash replaces what it wrote the first time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from cep.local import in_order
from cep.output import match_tables
from cep.program import Program
from spark_runtime.delivery import Part

if TYPE_CHECKING:
    from rich.console import Console

TIMESTAMP_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
"""Times in JSON, to the microsecond."""


def write(rows: DataFrame, part: Part, batch: str) -> None:
    """Let Spark write the rows of one batch, in place of what was written under its name."""
    writer = rows.write.mode("overwrite").format(part.file_format)
    if part.file_format == "json":
        writer = writer.option("timestampFormat", TIMESTAMP_FORMAT).option("ignoreNullFields", "true")
    writer.save(part.folder(batch))


@dataclass(slots=True)
class ConsoleSink:
    """Tables on a terminal, one per rule; at most `limit` rows of a run are shown."""

    console: Console
    programs: Sequence[Program]
    limit: int
    n_shown: int = 0
    n_rows: int = 0

    @property
    def wants_more(self) -> bool:
        """Whether there may be more to show."""
        return self.n_shown < self.limit

    def write(self, matches: DataFrame, n_rows: int) -> None:
        """Show the first rows of one batch, which has `n_rows`."""
        n_wanted = min(self.limit - self.n_shown, n_rows)
        self.n_rows += n_rows
        if n_wanted <= 0:
            return
        table = in_order(self.programs, [matches.limit(n_wanted).toArrow()])
        for shown in match_tables(self.programs, table):
            self.console.print(shown)
        self.n_shown += n_wanted

    def close(self) -> None:
        """Say how many rows were not shown."""
        if self.n_rows > self.n_shown:
            is_match = not any(program.has_all_rows or program.has_timeouts for program in self.programs)
            what = "matches" if is_match else "rows"
            self.console.print(f"... and {self.n_rows - self.n_shown:,} more {what}")
