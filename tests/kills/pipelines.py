"""A pipeline that is killed and goes on: its source gets events, its sinks are looked at."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.kills.feeds import Feed
from tests.kills.runs import Kill, killed
from tests.kills.ticks import PAIR, Row, Running, Tick, expected_rows, turn_rules, write_rules
from tests.kills.written import MadeSink


@dataclass
class KilledPipeline:
    """A pipeline.

    Parameters
    ----------
    folder
        Where it is.
    feed
        Its source.
    sinks
        Its sinks, by name, in their order.
    running
        What it runs.
    state_format
        The format of Spark's checkpoints of state: 1 or 2.
    """

    folder: Path
    feed: Feed
    sinks: Mapping[str, MadeSink]
    running: Running = PAIR
    state_format: int = 1
    ticks: list[Tick] = field(default_factory=list)

    def __post_init__(self) -> None:
        write_rules(self.folder, self.running)
        sinks = "".join(f"  - {{{sink.settings}}}\n" for sink in self.sinks.values())
        sources = "".join(f"  - {{{of}, {self.feed.settings}}}\n" for of in self.running.inputs)
        for name in self.running.static:
            sources += f"  - {{table: {name}, format: csv, path: {name}.csv}}\n"
        spark = f"spark: {{spark.sql.streaming.stateStore.checkpointFormatVersion: {self.state_format}}}\n"
        self.file.write_text(
            f"rules: [rules.cep]\nsources:\n{sources}checkpoint: checkpoint\n{spark}sinks:\n{sinks}"
            "reload: on change\n"
        )

    @property
    def file(self) -> Path:
        """The pipeline file."""
        return self.folder / "pipeline.yaml"

    def send(self, n: int) -> None:
        """Give the source more events."""
        more = [Tick(number) for number in range(len(self.ticks), len(self.ticks) + n)]
        self.feed.send(more)
        self.ticks += more
        for name, rows in self.running.static.items():
            (self.folder / f"{name}.csv").write_text(f"{rows}z{len(self.ticks)},0\n")

    def run(self, kill: Kill | None = None) -> bool:
        """Run it in a process of its own; return whether it was killed."""
        kill = kill or Kill()
        if kill.changes_at_ms is None:
            return killed(self.file, kill)
        usual = self.file.read_text()
        self.file.write_text(f"{usual}trigger: 0 seconds\n")
        try:
            return killed(self.file, kill)
        finally:
            self.file.write_text(usual)

    def change(self) -> None:
        """Let the rules take turns."""
        turn_rules(self.folder)

    def keep_checkpoint(self) -> None:
        """Copy the checkpoint, on which nobody works."""
        shutil.rmtree(self._kept, ignore_errors=True)
        if self._checkpoint.exists():
            shutil.copytree(self._checkpoint, self._kept)

    def put_back(self) -> str:
        """Put the copy of the checkpoint back, and run; return what becomes of it.

        A run that is refused is repeated, and accepts the older checkpoint.
        """
        if not self._kept.exists():
            return ""
        shutil.rmtree(self._checkpoint)
        shutil.copytree(self._kept, self._checkpoint)
        try:
            self.run()
        except AssertionError as error:
            if "error[E0849]" not in str(error):
                raise
            killed(self.file, Kill(), accepts=True)
            return "refused, accepted"
        return "not refused"

    @property
    def _checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def _kept(self) -> Path:
        return self.folder / "kept-checkpoint"

    def finish(self) -> None:
        """Say that the input is complete when the next run has read it."""
        self.file.write_text(self.file.read_text() + "at_end: finish\n")

    def rows(self) -> dict[str, list[Row]]:
        """Return what the sinks have."""
        return {name: sink.rows() for name, sink in self.sinks.items()}

    def expected(self) -> list[Row]:
        """Return what they should have in the end."""
        return expected_rows(self.folder, self.ticks)
