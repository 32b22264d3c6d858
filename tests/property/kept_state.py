"""State in files beside state in memory: the same matches, whatever is lost between two calls.

Each call of a key group finds its state warm, cold, or as a lost attempt left it. Records are few before a
snapshot, or many. The smallest states go in and out of Spark's store. A restart may bring the rules in
another order.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa

from cep.engine.chains.chain import Chain
from cep.engine.event_time.watermark import END_OF_TIME_US, START_OF_TIME_US
from cep.rule_set import RuleSet
from spark_runtime.state.files import StateFiles, WarmGroups
from spark_runtime.state.pointer import Kept, Pointer, Task, is_pointer
from spark_runtime.state.recording import Layout
from spark_runtime.state.snapshots import decode_state, encode_state
from tests.property.cases import try_cases
from tests.property.differential import stream_table
from tests.property.strategies.late import Late

N_GROUPS = 1
LABEL = 7

Input = tuple[list[tuple[str, list[dict[str, object]]]], int | None]
"""What a call gets: rows of inputs, and the time that is reached."""


class KeptState:
    """A key group whose state is in files, as Spark would keep its value.

    Parameters
    ----------
    rules
        The same rules in one or more orders, which alternate between runs.
    """

    def __init__(self, rules: Sequence[RuleSet], folder: Path, random: Random, tally: Counter[str]) -> None:
        self.rules = rules
        self.random = random
        self.tally = tally
        self.value: bytes | None = None
        self.n_calls = 0
        self.batch = 0
        self.drops = random.random() < 0.5
        self.kept = Kept(
            str(folder),
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
        self.files = StateFiles(self.kept, self.now, N_GROUPS)
        self.warm = WarmGroups(self.files, lambda: self.drops and self.random.random() < 0.3)

    def call(self, given: Input) -> list[pa.Table]:
        """Do a call, some attempts of which are lost; return its matches."""
        self.batch += 1
        while self.random.random() < 0.25:
            self.tally["lost attempts"] += 1
            self._attempt(given)
        found, self.value = self._attempt(given)
        return found

    def _attempt(self, given: Input) -> tuple[list[pa.Table], bytes]:
        self.n_calls += 1
        task = Task(self.batch, LABEL, 0, self.n_calls)
        if self.random.random() < 0.2:
            self._start()
        if self.value is None or not is_pointer(self.value):
            self.tally["inline"] += 1
            matchers = None if self.value is None else decode_state(self.value, self.now, N_GROUPS)
            plain = Chain(self.now, matchers)
            found = play(plain, given)
            return found, self.files.stored(encode_state(plain.matchers, N_GROUPS), task).value
        pointer = Pointer.decode(self.value)
        assert Pointer.decode(pointer.encode()) == pointer
        chain, was_warm = self.warm.take(LABEL, pointer)
        self.tally["warm" if was_warm else "cold"] += 1
        if not was_warm and pointer.records:
            is_same = pointer.digest == Layout.of(self.now).digest
            self.tally["repeated" if is_same else "repeated in another order"] += 1
        found = play(chain, given)
        value, now, _ = self.files.after(pointer, task, chain)
        if now is not None:
            self.warm.put(LABEL, now, chain)
        self.tally["snapshots"] += now is None or not now.records
        return found, value


def play(chain: Chain, given: Input) -> list[pa.Table]:
    """Give a chain what a call gets; return the matches."""
    rows_of, reached_us = given
    for name, rows in rows_of:
        stream = chain.rules.inputs[name]
        chain.push_events(stream, stream_table(stream, rows))
    found: list[pa.Table] = []
    if reached_us is not None:
        chain.advance(reached_us, found.append)
    return found


def inputs_of(case: Late, rules: RuleSet) -> list[Input]:
    """Return what each call gets: the arrivals of a cut, and at the end the end of time."""
    given: list[Input] = []
    at, newest_us = 0, START_OF_TIME_US
    for cut in case.cuts:
        arrivals = case.arrivals[at : at + cut.n]
        at += cut.n
        rows_of: list[tuple[str, list[dict[str, object]]]] = []
        for name, stream in rules.inputs.items():
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
    plain, kept = Chain(rules), KeptState(orders, folder, random, tally)
    for given in inputs_of(case, rules):
        expected, found = play(plain, given), kept.call(given)
        assert rows_of(found) == rows_of(expected), given
        tally["matches"] += sum(table.num_rows for table in found)


def rows_of(tables: Sequence[pa.Table]) -> list[str]:
    """Return matches as text, to the last bit. The order of rules determines that of columns and rows."""
    return sorted(repr(sorted(row.items())) for table in tables for row in table.to_pylist())


if __name__ == "__main__":
    sys.exit(try_cases("tests.property.kept_state", check))
