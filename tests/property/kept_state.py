"""State in files beside state in memory: the same matches, whatever is lost between two calls.

Each call of a key group finds its state warm, cold, or as a lost attempt left it. Some micro-batches do not
call it. Records are few before a snapshot, or many; it is written in a call, or between two. The smallest
states go in and out of Spark's store. A restart may bring the rules in another order. A static table changes
between calls; its contents are files that are deleted once nothing needs them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from unittest import mock

import numpy as np
import pyarrow as pa

from cep.engine.chains.chain import Chain
from cep.engine.event_time.watermark import END_OF_TIME_US, START_OF_TIME_US, is_late, late_by_us
from cep.engine.prepare.predicates import prepare
from cep.engine.prepare.versions import extents, prepared_versions
from cep.program.program import TIME_COLUMN, Program
from cep.rule_set import RuleSet
from cep.schema.stream import Stream
from spark_runtime.pipeline.checkpoint import KEPT_BATCHES
from spark_runtime.state.files import StateFiles, WarmGroups
from spark_runtime.state.pieces import Given, Pieces
from spark_runtime.state.pointer import Kept, Pointer, Task, is_pointer
from spark_runtime.state.recording import Layout, RecordedChain
from spark_runtime.state.snapshots import Tables, decode_state, encode_state
from spark_runtime.storage.checkpoint_files import LocalFiles
from spark_runtime.tables import content as contents
from spark_runtime.tables.content import Content, store, tables_in, timed_inputs
from spark_runtime.tables.static import StaticFile, StaticTables
from spark_runtime.wire.parcels import record_bytes, table_of_bytes
from tests.property.cases import try_cases
from tests.property.differential import stream_table
from tests.property.strategies.late import DOUBLES, STATIC, Late

N_GROUPS = 1
LABEL = 7

Input = tuple[list[tuple[str, list[dict[str, object]]]], int | None]
"""What a call gets: rows of inputs, and the time that is reached."""


class StaticCodes:
    """The static table of a case, in the checkpoint of a pipeline.

    Parameters
    ----------
    contents
        What it contains at some time.
    """

    def __init__(self, folder: Path, random: Random, tally: Counter[str]) -> None:
        self.folder = folder
        self.random = random
        self.tally = tally
        self.contents = [_content(random) for _ in range(5)]
        self.now = self.contents[0]
        self.start()

    def start(self) -> None:
        """Start the driver."""
        written = Pieces(str(self.folder / "state")).batches
        sources = {STATIC.name: StaticFile(STATIC, "", "csv")}
        self.driver = StaticTables(sources, LocalFiles(str(self.folder)), str(self.folder), written=written)

    def plan(self, batch: int) -> None:
        """Plan a micro-batch."""
        if self.random.random() < 0.3:
            self.now = self.random.choice(self.contents)
        if self.random.random() < 0.2:
            self.start()
        before = self.n_files
        self.driver.now[STATIC.name] = self.now
        store(str(self.folder / "tables"), [self.now])
        self.driver.keep(batch, self.digests, KEPT_BATCHES)
        self.tally["contents deleted"] += max(0, before - self.n_files)

    @property
    def n_files(self) -> int:
        """How many contents the checkpoint has."""
        return len(list((self.folder / "tables").glob("*.arrow")))

    @property
    def digests(self) -> dict[str, str]:
        """The content of the micro-batch."""
        return {STATIC.name: self.now.digest}

    def tables(self, rules: RuleSet) -> Tables:
        """Return the table as a task gets it; nothing that was read before is remembered."""
        contents._KEPT._tables.clear()
        return tables_in(str(self.folder / "tables"), rules.programs, self.digests)


def _content(random: Random) -> Content:
    rows: list[dict[str, object]] = [
        {"i": i, "p": random.choice(DOUBLES), "q": random.choice(["low", "high", None])}
        for i in range(4)
        if random.random() < 0.8
    ]
    return Content.of(stream_table(STATIC, rows))


Attempt = Generator[None, None, tuple[list[pa.Table], bytes]]
"""An attempt of a call: its matches, and what Spark's store would contain."""


class KeptState:
    """A key group whose state is in files, as Spark would keep its value.

    Parameters
    ----------
    rules
        The same rules in one or more orders, which alternate between runs.
    codes
        Their static table, if they have one.
    inline
        What calls with state in Spark's store give.
    """

    def __init__(
        self,
        rules: Sequence[RuleSet],
        codes: StaticCodes,
        folder: Path,
        random: Random,
        tally: Counter[str],
        inline: InlinePlays,
    ) -> None:
        self.rules = rules
        self.codes = codes
        self.inline = inline
        self.random = random
        self.tally = tally
        self.value: bytes | None = None
        self.retained: list[bytes | None] = []  # as Spark retains the values of earlier micro-batches
        self.n_calls = 0
        self.batch = 0
        self.drops = random.random() < 0.5
        self.kept = Kept(
            str(folder / "state"),
            "run",
            n_retained=random.randrange(4),
            most_bytes=0,
            inline_bytes=random.choice((0, 20_000, 40_000)),
            most_records=random.choice((1, 2, 5, 1000)),
        )
        self._start()

    def _start(self) -> None:
        """Start the process that keeps the state warm, as after a restart, or on another host."""
        self.now = self.random.choice(self.rules)
        tables_of = partial(tables_in, str(self.codes.folder / "tables"), self.now.programs)
        self.files = StateFiles(self.kept, self.now, N_GROUPS, tables_of)
        self.warm = WarmGroups(self.files, lambda: self.drops and self.random.random() < 0.3)

    def call(self, given: Input) -> list[pa.Table]:
        """Do a call, some attempts of which are lost; return its matches."""
        for _ in range(self.random.choice((0, 0, 0, 1, 3))):
            self.tally["without a call"] += 1
            self._plan()
            self._retain()
        self._plan()
        while self.random.random() < 0.25:
            self.tally["lost attempts"] += 1
            _ended(self._attempt(given))
        attempts = [self._attempt(given)]
        if self.random.random() < 0.25:  # as speculation does, in one process or in two
            self.tally["attempts at once"] += 1
            attempts.append(self._attempt(given))
            for attempt in attempts:
                next(attempt)
            self.random.shuffle(attempts)
        found, self.value = self.random.choice([_ended(attempt) for attempt in attempts])
        self._retain()
        if self.random.random() < 0.1:
            for value in self.retained:
                if value is not None and is_pointer(value):
                    self.files.read(Pointer.decode(value))
                    self.tally["earlier state"] += 1
        return found

    def _plan(self) -> None:
        """Plan the next micro-batch."""
        self.batch += 1
        self.codes.plan(self.batch)

    def _retain(self) -> None:
        """Retain the state after a micro-batch, and no longer the oldest one."""
        self.retained = [*self.retained, self.value][-self.kept.n_retained - 1 :]

    def _attempt(self, given: Input) -> Attempt:
        """Do a call in two steps: take the state; play, and write."""
        self.n_calls += 1
        task = Task(self.batch, LABEL, 0, self.n_calls)
        if self.random.random() < 0.2:
            self._start()
        files, warm, tables = self.files, self.warm, self.codes.tables(self.now)
        if self.value is None or not is_pointer(self.value):
            self.tally["inline"] += 1
            rules = self.now
            yield
            found, snapshot = self.inline.play(rules, self.value, tables, given)
            return found, files.stored(snapshot, task).value
        pointer = Pointer.decode(self.value)
        assert Pointer.decode(pointer.encode()) == pointer
        chain, was_warm, ahead = warm.take(LABEL, pointer)
        self.tally["warm" if was_warm else "cold"] += 1
        if not was_warm and pointer.records:
            is_same = pointer.digest == Layout.of(self.now).digest
            self.tally["repeated" if is_same else "repeated in another order"] += 1
        if chain._contents and tables and chain._contents != self.codes.digests:
            self.tally["contents changed"] += 1
        self.tally["written ahead"] += ahead is not None
        chain.is_recording = ahead is not None or not files.is_due(pointer, task, was_warm=was_warm)
        chain.give(self.codes.digests if tables else {}, tables)
        written = None if self.random.random() < 0.5 else self._given(pointer, task, given)
        yield
        found = play(chain, given) if written is None else play(chain, given, iter(written[1]))
        value, now, counts = files.after(pointer, task, chain, None if written is None else written[0], ahead)
        if now is not None:
            warm.put(task, now, chain)
        self.tally["snapshots"] += now is None or counts.get("snapshots", 0)
        while not warm.is_settled and self.random.random() < 0.7:
            warm.settle()
        return found, value

    def _given(self, pointer: Pointer, task: Task, given: Input) -> tuple[Given, list[pa.Buffer]] | None:
        """Write what a call gets to the file of its task, as a worker does; return it, and its parts."""
        inputs = list(_inputs_in(self.now, given))
        with mock.patch("spark_runtime.state.files._LEAST_GIVEN_BYTES", 1):
            place = None if self.now.corrections else self.files.give(pointer, task, inputs)
        if place is None:
            return None
        self.tally["given"] += 1
        whole = self.files.given(task, *place[0])
        lengths = [len(data) for _, data in inputs]
        return whole, [whole.data.slice(*part) for part in zip(place[1], lengths, strict=True)]


def _ended(attempt: Attempt) -> tuple[list[pa.Table], bytes]:
    """Let an attempt end; return its result."""
    while True:
        try:
            next(attempt)
        except StopIteration as end:
            found: tuple[list[pa.Table], bytes] = end.value
            return found


class InlinePlays:
    """`play_inline`, once for each value and rules of a call, in which tables do not change."""

    def __init__(self) -> None:
        self._given: Input | None = None
        self._known: dict[tuple[int, bytes | None], tuple[list[pa.Table], bytes]] = {}

    def play(
        self, rules: RuleSet, value: bytes | None, tables: Tables, given: Input
    ) -> tuple[list[pa.Table], bytes]:
        """See `play_inline`."""
        if given is not self._given:
            self._given, self._known = given, {}
        key = (id(rules), value)
        if key not in self._known:
            self._known[key] = play_inline(rules, value, tables, given)
        return self._known[key]


def play_inline(
    rules: RuleSet, value: bytes | None, tables: Tables, given: Input
) -> tuple[list[pa.Table], bytes]:
    """Give the state in Spark's store what a call gets; return the matches, and the new state."""
    matchers = None if value is None else decode_state(value, rules, N_GROUPS, tables)
    chain = Chain(rules, matchers, tables=tables)
    found = play(chain, given)
    return found, encode_state(chain.matchers, N_GROUPS)


def play(chain: Chain, given: Input, parts: Iterator[pa.Buffer] | None = None) -> list[pa.Table]:
    """Give a chain what a call gets; return the matches. `parts`: the data of the parcels (`_inputs_in`)."""
    rows_of, reached_us = given
    for name, rows in rows_of:
        stream = chain.rules.inputs[name]
        _push_events(chain, stream, stream_table(stream, rows), parts)
    found: list[pa.Table] = []
    if reached_us is not None:
        chain.advance(reached_us, found.append)
    return found


def _inputs_in(rules: RuleSet, given: Input) -> Iterator[tuple[int, bytes]]:
    """Yield the events of the parcels that a call gets, with the numbers of their programs."""
    for name, rows in given[0]:
        for number, _, prepared in _prepared(
            rules, rules.inputs[name], stream_table(rules.inputs[name], rows)
        ):
            yield number, record_bytes(prepared)


def _prepared(rules: RuleSet, stream: Stream, events: pa.Table) -> Iterator[tuple[int, Program, pa.Table]]:
    for number, program in enumerate(rules.programs):
        found = [prepare(program, events, stream)] if stream in program.streams else []
        for prepared in (*found, *prepared_versions(program, stream, events)):
            if prepared.num_rows:
                yield number, program, prepared


def _push_events(chain: Chain, stream: Stream, events: pa.Table, parts: Iterator[pa.Buffer] | None) -> None:
    """Give a chain events of a stream, as a call of the operator does: late ones by another door.

    A chain that records its input gets them in parcels, and others, with which it is compared, do not.
    """
    for number, program, prepared in _prepared(chain.rules, stream, events):
        data: bytes | pa.Buffer | None = None
        if isinstance(chain, RecordedChain):
            data = record_bytes(prepared) if parts is None else next(parts)
            prepared = table_of_bytes(data, program.event_schema)
        times_us = np.asarray(prepared.column(TIME_COLUMN))
        if is_late(late_by_us(times_us, chain.watermark_us)).any():
            chain.push(number, prepared)
        else:
            chain.take_in(number, prepared, data)
    for number, program in enumerate(chain.rules.programs):
        for extent in extents(program, stream, events):
            chain.push(number, extent)


def inputs_of(case: Late, rules: RuleSet) -> list[Input]:
    """Return what each call gets: the arrivals of a cut, and at the end the end of time."""
    given: list[Input] = []
    at, newest_us = 0, START_OF_TIME_US
    for cut in case.cuts:
        arrivals = case.arrivals[at : at + cut.n]
        at += cut.n
        rows_of: list[tuple[str, list[dict[str, object]]]] = []
        for name, stream in timed_inputs(rules).items():
            rows = [arrival.row for arrival in arrivals if arrival.name == name]
            if rows:
                newest_us = max(newest_us, *(row[stream.event_time] for row in rows))
                rows_of.append((name, rows))
        given.append((rows_of, newest_us - rules.lateness_us if cut.advances else None))
    return [*given, ([], END_OF_TIME_US)]


def check(case: Late, folder: Path, random: Random, tally: Counter[str]) -> None:
    """Compare the matches of every call; count what was tried."""
    rules = case.rule_set()
    orders = [rules]
    if random.random() < 0.5:
        rules = rules.with_corrections(None)
        backward = replace(case, texts=case.texts[::-1]).rule_set().with_corrections(None)
        orders = [rules, backward]
    codes = StaticCodes(folder, Random(len(case.arrivals)), tally)
    inline = InlinePlays()
    kept = KeptState(orders, codes, folder, random, tally, inline)
    plain, value = None if case.is_static else Chain(rules), None
    for given in inputs_of(case, rules):
        found = kept.call(given)
        if plain is None:
            expected, value = inline.play(rules, value, codes.tables(rules), given)
        else:
            expected = play(plain, given)
        assert rows_of(found) == rows_of(expected), given
        tally["matches"] += sum(table.num_rows for table in found)


def rows_of(tables: Sequence[pa.Table]) -> list[str]:
    """Return matches as text, to the last bit. The order of rules determines that of columns and rows."""
    return sorted(repr(sorted(row.items())) for table in tables for row in table.to_pylist())


def _drawn_tables(case: Late, folder: Path, random: Random, tally: Counter[str]) -> None:
    """Check a case, with `codes` as a static table in half of the cases."""
    check(replace(case, is_static=random.random() < 0.5), folder, random, tally)


if __name__ == "__main__":
    sys.exit(try_cases("tests.property.kept_state", _drawn_tables))
