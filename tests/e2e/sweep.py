"""``python -m tests.e2e.sweep --kills 200``: kills pipelines over all pairs of sources and sinks.

A pipeline has one source and several sinks, so a kill tries a pair with each of them. It is killed at a point
(`tests.kills.points`), gets more events, goes on and is killed again. In the end each sink must have the
matches of a local run over all events: none is lost, and none comes twice where
docs/operate/guarantees.md says exactly once. Elsewhere only the same row may come again.

With ``--state``, kills are where files of state are written and removed. Between them the pipeline is saved,
while it runs or not, and restored with another number of key groups; these commands are killed, too.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from scenarios.servers.web import running_web_server
from tests.kills.feeds import Feed, feed_of, running_spool
from tests.kills.pipelines import KilledPipeline
from tests.kills.points import (
    MOMENT,
    OF_A_CHANGE,
    OF_A_RESTORE,
    OF_A_SAVEPOINT,
    OF_SINKS,
    OF_SOURCES,
    OF_STATE,
    Call,
    File,
    points_of,
)
from tests.kills.runs import Kill
from tests.kills.saves import Save
from tests.kills.ticks import (
    CORRECTED,
    JOINED,
    PAIR,
    RELOADED,
    VIEW,
    WINDOWS,
    WITH_STATIC,
    Row,
    Running,
    compared,
    standing,
)
from tests.kills.written import sink_of
from tests.servers.kafka_broker import running_broker
from tests.servers.kinesis_server import CREDENTIALS, running_kinesis
from tests.servers.nats_server import running_nats
from tests.servers.postgres_server import running_postgres
from tests.servers.rabbitmq_server import running_rabbit

SOURCES, SINKS = tuple(OF_SOURCES), tuple(OF_SINKS)
PROGRAMS: Mapping[str, Running] = {
    "rule": PAIR,
    "view": VIEW,
    "static": WITH_STATIC,
    "reload": RELOADED,
    "windows": WINDOWS,
    "joined": JOINED,
    "corrected": CORRECTED,
}
NAMES = {
    "view": "a view",
    "static": "a static table",
    "reload": "rules that change",
    "windows": "windows",
    "joined": "a joined table",
    "corrected": "corrections",
}
OF_VIEWS = ("files", "kafka")
"""Sources that two inputs may read at the same time."""
REREAD = ("files", "kafka", "nats", "kinesis", "rabbitmq_stream")
"""Sources that give again what was read before an older checkpoint. The others refuse it themselves."""
PUT_BACK = "an older checkpoint"
SAVED, RESTORED = "a savepoint", "a restore"
KILLS_OF_A_ROUND = 10
BEFORE_REMOVALS = 9
"""Micro-batches after which a key group soon removes files."""
LONGEST_MS = 4_000

Place = tuple[str, str, str]
"""Source, sink and point."""


@dataclass
class Tally:
    """What was found, by source, sink and point."""

    kills: Counter[Place] = field(default_factory=Counter)
    lost: Counter[Place] = field(default_factory=Counter)
    twice: Counter[Place] = field(default_factory=Counter)
    n_kills: int = 0
    n_matches: int = 0
    faults: list[str] = field(default_factory=list)

    def rows(self, by: tuple[int, ...]) -> Iterator[tuple[str, int, int, int]]:
        """Yield what was found by parts of a place: kills, lost, twice. A kill is one for all its sinks."""
        names = {tuple(place[i] for i in by): None for place in self.kills}
        for name in names:
            of = [place for place in self.kills if tuple(place[i] for i in by) == name]
            if 1 in by:
                n_kills = sum(self.kills[place] for place in of)
            else:
                n_kills = max(self.kills[place] for place in of)
            shown = " -> ".join(name)
            yield shown, n_kills, sum(self.lost[p] for p in of), sum(self.twice[p] for p in of)

    def print(self) -> None:
        """Print the tables."""
        for head, by in (("pair", (0, 1)), ("source and point", (0, 2))):
            click.echo(f"\n{head:<52}{'kills':>7}{'lost':>7}{'twice':>7}")
            for shown, *numbers in sorted(self.rows(by)):
                click.echo(f"{shown:<52}{''.join(f'{n:>7,}' for n in numbers)}")
        click.echo(f"\n{self.n_kills} kills, {self.n_matches:,} matches in sinks, {len(self.faults)} faults")
        for text in self.faults:
            click.echo(f"FAULT {text}")


@dataclass
class Round:
    """A pipeline that is killed again and again.

    Parameters
    ----------
    source
        Its source, by name, and what runs if it is no rule.
    """

    source: str
    pipeline: KilledPipeline
    points: list[str] = field(default_factory=list)  # where it was killed
    seen: list[dict[str, list[Row]]] = field(default_factory=list)  # what sinks had after each kill
    has_accepted: bool = False  # whether it went on from an older checkpoint that was refused before

    def kill(self, name: str, kill: Kill) -> bool:
        """Run and kill; return whether it came to that."""
        if not self.pipeline.run(kill):
            return False
        self.note(name)
        return True

    def note(self, point: str) -> None:
        """Note a kill, or what takes its place, and what sinks have now."""
        self.points.append(point)
        self.seen.append(self.pipeline.rows())

    def put_back(self) -> str:
        """Put an older checkpoint back, and run; return what became of it, an empty text: there was none."""
        said = self.pipeline.put_back()
        if said:
            self.has_accepted = self.has_accepted or said != "not refused"
            self.note(PUT_BACK)
        return said

    def finish(self, tally: Tally) -> None:
        """Let the pipeline end, and compare."""
        self.pipeline.finish()
        self.pipeline.run()
        self.seen.append(self.pipeline.rows())
        expected = self.pipeline.expected()
        for name, sink in self.pipeline.sinks.items():
            found = self.seen[-1][name]
            tally.n_matches += len(set(found))
            corrects = self.pipeline.running.corrects
            what = compared(standing(expected) if sink.is_current else expected, found, corrects=corrects)
            self._blame(tally, name, what.lost)
            is_once = sink.is_once and not (sink.may_repeat and self.has_accepted)
            if what.lost or what.foreign or (is_once and what.n_twice):
                tally.faults.append(
                    f"{self.source} -> {name}: {len(what.lost)} lost, {what.n_twice} twice, "
                    f"{len(what.foreign)} wrong of {len(expected)}; killed at {', '.join(self.points)}; "
                    f"see {self.pipeline.folder}"
                )
        if left := self.pipeline.leftovers():
            tally.faults.append(
                f"{self.source}: {', '.join(left)} remained; killed at {', '.join(self.points)}; "
                f"see {self.pipeline.folder}"
            )

    def _blame(self, tally: Tally, sink: str, lost: tuple[Row, ...]) -> None:
        """Note what a sink lacks, or has twice, at the kill that was followed by it."""
        before = 0
        for number, point in enumerate(self.points):
            place = (self.source, sink, point)
            tally.kills[place] += 1
            after = self.seen[number + 1][sink]
            n_twice = len(after) - len(set(after))
            tally.twice[place] += n_twice - before
            before = n_twice
        for row in lost:  # events come in order: what is behind it was written, so it was passed over
            passed = (
                number
                for number, seen in enumerate(self.seen)
                if any(second > row[2] + 2 for _, _, second in seen[sink])
            )
            number = min(next(passed, len(self.points)), len(self.points))
            if self.points:
                tally.lost[self.source, sink, self.points[max(number - 1, 0)]] += 1


@contextmanager
def running_servers(folder: Path, names: set[str]) -> Iterator[dict[str, Any]]:
    """Start the servers that some sources and sinks need."""
    starts: dict[str, Any] = {
        "kafka": running_broker,
        "nats": running_nats,
        "kinesis": running_kinesis,
        "rabbitmq": running_rabbit,
    }
    servers: dict[str, Any] = {}
    with ExitStack() as stack:
        if "postgres" in names:
            servers["postgres"] = stack.enter_context(running_postgres())
        for name, start in starts.items():
            if any(wanted.startswith(name) for wanted in names):
                (folder / name).mkdir()
                servers[name] = stack.enter_context(start(folder / name))
        servers["web"] = stack.enter_context(running_web_server())
        yield servers


@dataclass
class Sweep:
    """All rounds."""

    sources: tuple[str, ...]
    sinks: tuple[str, ...]
    programs: tuple[str, ...]
    state_formats: tuple[int, ...]
    drawn: random.Random
    out: Path
    is_of_state: bool = False
    tally: Tally = field(default_factory=Tally)
    tried: Counter[tuple[str, str]] = field(default_factory=Counter)
    began: float = field(default_factory=time.monotonic)

    def run(self, n_kills: int, servers: Mapping[str, Any]) -> None:
        """Kill so often; sources take turns."""
        number = 0
        while self.tally.n_kills < n_kills:
            turn, place = divmod(number, len(self.sources))
            source = self.sources[place]
            program = self.programs[turn % len(self.programs)]
            if len(PROGRAMS[program].inputs) > 1 and source not in OF_VIEWS:
                program = "rule"
            if (
                program in ("static", "corrected") and source == "postgres"
            ):  # whose rows lack a column, and are updated
                program = "rule"
            sinks = list(self.sinks)
            self.drawn.shuffle(sinks)
            if turn % 3 == 1:  # few: the last one, and the only one, are special
                sinks = sinks[: self.drawn.randint(1, 2)]
            folder = self.out / f"round-{number}"
            folder.mkdir()
            if self._round(folder, source, program, sinks, servers, n_kills):
                shutil.rmtree(folder)
            (self.out / "found.json").write_text(self.as_json())
            number += 1

    def _round(
        self,
        folder: Path,
        source: str,
        program: str,
        sinks: list[str],
        servers: Mapping[str, Any],
        n_kills: int,
    ) -> bool:
        """Run a pipeline to its end; return whether it was right."""
        tally, n_faults = self.tally, len(self.tally.faults)
        with ExitStack() as stack:
            if source == "spool":
                feed: Feed = stack.enter_context(running_spool(folder / "spool"))
            else:
                feed = feed_of(source, servers, folder)
            is_view = program == "view"
            made_sinks = {name: sink_of(name, servers, folder, is_current=is_view) for name in sinks}
            named = source if program == "rule" else f"{source}, {NAMES[program]}"
            state_format = self.drawn.choice(self.state_formats)
            made = Round(named, KilledPipeline(folder, feed, made_sinks, PROGRAMS[program], state_format))
            click.echo(f"{named}, format {state_format} of state -> {', '.join(sinks)}")
            try:
                made.pipeline.send(60)
                for _ in range(KILLS_OF_A_ROUND):
                    if tally.n_kills >= n_kills:
                        break
                    if self.is_of_state:
                        self._save_or_restore(made, source)
                        made.pipeline.send(self.drawn.randint(0, 20))
                        self._save_or_restore(made, source)
                    elif source in REREAD:
                        self._copy(made)
                    self._kill(made, source)
                    made.pipeline.send(self.drawn.randint(20, 60))
                made.finish(tally)
            except AssertionError as error:
                tally.faults.append(f"{named}, killed at {', '.join(made.points)}: {error}; see {folder}")
        what = "FAULT" if len(tally.faults) > n_faults else "right"
        click.echo(f"  {what}; {tally.n_kills} kills, {time.monotonic() - self.began:,.0f} s")
        return len(tally.faults) == n_faults

    def _copy(self, made: Round) -> None:
        """Copy the checkpoint, or put a copy back, or neither."""
        what = self.drawn.randint(0, 3)
        if what == 0:
            made.pipeline.keep_checkpoint()
        elif what == 1 and (said := made.put_back()):
            self.tally.n_kills += 1
            click.echo(f"  {self.tally.n_kills:>4} {PUT_BACK}: {said}")

    def _save_or_restore(self, made: Round, source: str) -> None:
        """Save, restore, or neither; the commands are killed, or not."""
        pipeline = made.pipeline
        if not (pipeline.checkpoint / "query/commits/0").exists():
            return
        what = self.drawn.choice(("save", "save", "save beside", "save beside", "restore", "restore", ""))
        if what.startswith("save"):
            where, save = self._drawn_save(OF_A_SAVEPOINT)
            kill = None
            if what == "save beside":
                save = replace(save, when_planned_ms=self.drawn.randint(0, LONGEST_MS // 2))
                where, kill = f"{where} beside the run", self._drawn_kill(made, source)[1]
            said, was_killed = pipeline.save(save, kill)
            if was_killed:
                made.note("beside a savepoint")
            assert not said, said
            if said is None:
                pipeline.save_again()
            self._count(f"{SAVED}, {where}", was_killed + (said is None))
        elif what and pipeline.saved.exists():
            where, save = self._drawn_save(OF_A_RESTORE)
            was_killed = pipeline.restore(self.drawn.randint(1, 5), save)
            made.has_accepted = True
            made.note(RESTORED)
            self._count(f"{RESTORED}, {where}", was_killed)

    def _drawn_save(self, points: Mapping[str, Call | File]) -> tuple[str, Save]:
        names = [*points, "not killed"]
        name = min(names, key=lambda name: (self.tried[SAVED, name], self.drawn.random()))
        self.tried[SAVED, name] += 1
        at = points.get(name)
        assert not isinstance(at, File)
        return name, Save(at, self.drawn.choice((1, 2)) if name in ("after a file",) else 1)

    def _count(self, what: str, n_kills: int) -> None:
        self.tally.n_kills += n_kills
        click.echo(f"  {self.tally.n_kills:>4} {what}")

    def _drawn_kill(self, made: Round, source: str) -> tuple[str, Kill]:
        changes = bool(made.pipeline.running.changed)
        sinks = tuple(made.pipeline.sinks)
        points = points_of(source, sinks, changes=changes)
        if self.is_of_state:
            is_soon = made.pipeline.n_micro_batches < BEFORE_REMOVALS
            points = {name: at for name, at in OF_STATE.items() if not (is_soon and "removal" in name)}
        names = [*points, MOMENT]
        self.drawn.shuffle(names)
        name = min(names, key=lambda name: self.tried[made.source, name])
        self.tried[made.source, name] += 1
        at: Call | File | int = points.get(name, self.drawn.randint(0, LONGEST_MS))
        nth = 1 if name in OF_A_CHANGE or name in OF_STATE else self.drawn.choice((1, 1, 2, 3))
        return name, Kill(at, nth, self.drawn.random() < 0.75)

    def _kill(self, made: Round, source: str) -> None:
        changes = bool(made.pipeline.running.changed)
        name, kill = self._drawn_kill(made, source)
        if changes and self.drawn.random() < 0.5:
            made.pipeline.change()
        elif changes:
            kill = replace(kill, changes_at_ms=self.drawn.randint(0, LONGEST_MS))
        was_killed = made.kill(name, kill)
        self.tally.n_kills += was_killed
        alone = "" if kill.with_java else ", without its Java"
        click.echo(
            f"  {self.tally.n_kills:>4} {name} ({kill.nth}){alone}{'' if was_killed else ': not reached'}"
        )

    def as_json(self) -> str:
        """Return what was found by source, sink and point."""
        tally = self.tally
        rows = [[*place, n, tally.lost[place], tally.twice[place]] for place, n in tally.kills.items()]
        return json.dumps({"kills": tally.n_kills, "faults": tally.faults, "rows": rows}, indent=1)


@click.command(help="Kill pipelines over all pairs of sources and sinks, and compare what they write.")
@click.option("--kills", type=click.IntRange(min=1), default=200, show_default=True)
@click.option("--seed", type=int, default=None, help="By default another one each time; it is printed.")
@click.option("--source", "sources", type=click.Choice(SOURCES), multiple=True, help="Only these.")
@click.option("--program", "programs", type=click.Choice(list(PROGRAMS)), multiple=True, help="Only these.")
@click.option(
    "--state-format",
    "state_formats",
    type=click.Choice(("1", "2")),
    multiple=True,
    help="Only this format of Spark's checkpoints of state.",
)
@click.option("--state", "is_of_state", is_flag=True, help="Only files of state, savepoints and restores.")
@click.option("--sink", "sinks", type=click.Choice(SINKS), multiple=True, help="Only these.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("out/sweep"), show_default=True
)
def main(
    kills: int,
    seed: int | None,
    sources: tuple[str, ...],
    programs: tuple[str, ...],
    state_formats: tuple[str, ...],
    is_of_state: bool,
    sinks: tuple[str, ...],
    out: Path,
) -> None:
    """Kill and compare."""
    os.environ.update(CREDENTIALS)
    for number in (signal.SIGINT, signal.SIGTERM):  # in the background a shell lets the first be ignored
        signal.signal(number, signal.default_int_handler)
    seed = random.randrange(1 << 30) if seed is None else seed
    click.echo(f"seed {seed}")
    out = out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    (out / "servers").mkdir(parents=True)
    formats = tuple(map(int, state_formats or ("1", "2")))
    if is_of_state:
        sources, sinks = sources or ("files",), sinks or ("json",)
    sweep = Sweep(
        sources or SOURCES,
        sinks or SINKS,
        programs or tuple(PROGRAMS),
        formats,
        random.Random(seed),
        out,
        is_of_state,
    )
    with running_servers(out / "servers", {*sweep.sources, *sweep.sinks}) as servers:
        try:
            sweep.run(kills, servers)
        except KeyboardInterrupt:
            click.echo("stopped")
    sweep.tally.print()
    if sweep.tally.faults:
        sys.exit(1)


if __name__ == "__main__":
    main()
