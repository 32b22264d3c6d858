"""A pipeline that is killed and goes on: its source gets events, its sinks are looked at."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spark_runtime.state.pieces import batch_of
from spark_runtime.state.pointer import Pointer
from spark_runtime.state.spark_store import SparkStore
from spark_runtime.storage.checkpoint_files import LocalFiles
from tests.kills.feeds import Feed
from tests.kills.runs import Kill, killed, places_of, wait_for_end
from tests.kills.saves import Command, Save
from tests.kills.ticks import PAIR, Row, Running, Tick, expected_rows, turn_rules, write_rules
from tests.kills.written import MadeSink

_HELD = 7
"""One of so many events is late, if events are corrected."""


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
    held: list[Tick] = field(default_factory=list)  # which come late
    n_saved: int = 0

    def __post_init__(self) -> None:
        write_rules(self.folder, self.running)
        sinks = "".join(f"  - {{{sink.settings}}}\n" for sink in self.sinks.values())
        sources = "".join(f"  - {{{of}, {self.feed.settings}}}\n" for of in self.running.inputs)
        for name in self.running.static:
            sources += f"  - {{table: {name}, format: csv, path: {name}.csv}}\n"
        spark = f"spark: {{spark.sql.streaming.stateStore.checkpointFormatVersion: {self.state_format}}}\n"
        self.file.write_text(
            f"rules: [rules.cep]\nsources:\n{sources}checkpoint: checkpoint\n{spark}sinks:\n{sinks}"
            "reload: on change\n" + "late: correct within 1 hour\n" * self.running.corrects
        )

    @property
    def file(self) -> Path:
        """The pipeline file."""
        return self.folder / "pipeline.yaml"

    def send(self, n: int) -> None:
        """Give the source more events."""
        more = [Tick(number) for number in range(len(self.ticks), len(self.ticks) + n)]
        self.ticks += more
        if self.running.corrects:
            late = [tick for tick in more if tick.number % _HELD == _HELD - 1]
            more, self.held = [tick for tick in more if tick not in late] + self.held, late
        self.feed.send(more)
        for name, rows in self.running.static.items():
            (self.folder / f"{name}.csv").write_text(f"{rows}z{len(self.ticks)},0\n")

    def run(self, kill: Kill | None = None) -> bool:
        """Run it in a process of its own; return whether it was killed."""
        kill = kill or Kill()
        if kill.changes_at_ms is None:
            return killed(self.file, kill, accepts=self._is_restored)
        usual = self.file.read_text()
        self.file.write_text(f"{usual}trigger: 0 seconds\n")
        try:
            return killed(self.file, kill, accepts=self._is_restored)
        finally:
            self.file.write_text(usual)

    def change(self) -> None:
        """Let the rules take turns."""
        turn_rules(self.folder)

    def keep_checkpoint(self) -> None:
        """Copy the checkpoint, on which nobody works."""
        shutil.rmtree(self._kept, ignore_errors=True)
        if self.checkpoint.exists():
            shutil.copytree(self.checkpoint, self._kept)

    def put_back(self) -> str:
        """Put the copy of the checkpoint back, and run; return what becomes of it.

        A run that is refused is repeated, and accepts the older checkpoint.
        """
        if not self._kept.exists():
            return ""
        wait_for_end(self.folder)
        shutil.rmtree(self.checkpoint)
        shutil.copytree(self._kept, self.checkpoint)
        try:
            self.run()
        except AssertionError as error:
            if "error[E0849]" not in str(error):
                raise
            killed(self.file, Kill(), accepts=True)
            return "refused, accepted"
        return "not refused"

    @property
    def n_micro_batches(self) -> int:
        """How many micro-batches the checkpoint has planned."""
        return max((int(file.stem) + 1 for file in self.checkpoint.glob("plan/[0-9]*.json")), default=0)

    # ------------------------------------------------------------ savepoints

    def save(self, save: Save, during: Kill | None = None) -> tuple[str | None, bool]:
        """Make a savepoint of a pipeline that rests, or while it runs; return what `Command.waited` does.

        The second value says whether the run was killed.
        """
        self.n_saved += 1
        command = Command(["savepoint", str(self.checkpoint), str(self.saved)], save)
        try:
            was_killed = during is not None and self.run(during)
            return command.waited(), was_killed
        finally:
            command.end()

    def save_again(self) -> None:
        """Make the savepoint that was killed."""
        whole = (self.saved / "savepoint.json").exists()
        refused = Command(["restore", str(self.saved), str(self.folder / "none")]).waited()
        assert whole == (refused == ""), refused
        assert whole or "error[E0714]" in str(refused), refused
        shutil.rmtree(self.folder / "none", ignore_errors=True)
        said = Command(["savepoint", str(self.checkpoint), str(self.saved)]).waited()
        assert ("error[E0716]" in said if whole else said == "") if said is not None else False, said

    @property
    def saved(self) -> Path:
        """The last savepoint, or where it is to be."""
        return self.folder / f"saved-{self.n_saved}"

    def restore(self, n_groups: int, save: Save) -> bool:
        """Restore the last savepoint over the checkpoint; return whether that was killed, and repeated."""
        wait_for_end(self.folder)
        shutil.rmtree(self.checkpoint)
        words = ["restore", str(self.saved), str(self.checkpoint), "--key-groups", str(n_groups)]
        said = Command(words, save).waited()
        if said is None:
            is_whole = self.checkpoint.exists()
            said = Command(words).waited()
            assert said is not None, "killed again"
            assert ("error[E0716]" in said) if is_whole else not said, said
            return True
        assert not said, said
        return False

    @property
    def _is_restored(self) -> bool:
        """Whether the checkpoint was restored, and nothing was computed since."""
        return (self.checkpoint / "restored").exists()

    def leftovers(self) -> list[str]:
        """Return the files that a run which has ended should not have left."""
        temporary = [*places_of(self.folder).glob("spark-cep-owners-*/*"), *self.folder.glob(".*.unfinished")]
        ours = (file for file in self.checkpoint.rglob(".*.tmp") if "query" not in file.parts)
        return [str(file.relative_to(self.folder)) for file in (*temporary, *ours, *self._unneeded())]

    def _unneeded(self) -> Iterator[Path]:
        """Yield the files of state before all that retained state needs."""
        files = LocalFiles(str(self.checkpoint))
        done = [int(name) for name in files.names("query/commits") if name.isdigit()]
        if not done:
            return
        store, first = SparkStore.after(files, max(done)), {}
        for group, value in store.values():
            pointer = Pointer.decode(value)
            first[group] = pointer.snapshots[0].batch
        for file in self.checkpoint.glob("state/*/*"):
            group = int(file.parent.name)
            if group not in first or batch_of(file.name) < first[group]:
                yield file

    @property
    def checkpoint(self) -> Path:
        """Its folder."""
        return self.folder / "checkpoint"

    @property
    def _kept(self) -> Path:
        return self.folder / "kept-checkpoint"

    def finish(self) -> None:
        """Say that the input is complete when the next run has read it."""
        self.feed.send(self.held)
        self.file.write_text(self.file.read_text() + "at_end: finish\n")

    def rows(self) -> dict[str, list[Row]]:
        """Return what the sinks have."""
        return {name: sink.rows() for name, sink in self.sinks.items()}

    def expected(self) -> list[Row]:
        """Return what they should have in the end."""
        return expected_rows(self.folder, self.ticks)
