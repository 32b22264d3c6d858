"""What a micro-batch writes to files: as much as it touches, however much is remembered."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from cep.compiler.compile import compile_sources
from cep.engine.chains.chain import Chain
from cep.engine.prepare.predicates import prepare
from cep.errors import Source
from cep.rule_set import RuleSet
from cep.schema.stream import Field, Stream
from cep.schema.text_values import event_table_schema
from spark_runtime.state.files import StateFiles
from spark_runtime.state.pointer import Kept, Pointer, Task
from spark_runtime.state.snapshots import divided_state, encode_state

STREAM = Stream(
    "e", (Field("ts", "timestamp"), Field("k", "bigint"), Field("x", "double"), Field("note", "string")), "ts"
)
KINDS = {
    "runs": "PATTERN a -> b WITHIN 30 DAYS DEFINE a AS x < 0.9, b AS x > 0.99 AND b.x > a.x",
    "windows": "PATTERN a LET n = COUNT(*) OVER LAST 30 DAYS, s = SUM(x) OVER LAST 30 DAYS "
    "DEFINE a AS n > 1000000 AND s > 90",
    "suppressed": "PATTERN a -> b WITHIN 30 DAYS DEFINE a AS x < 0.9, b AS x > 0.99 SUPPRESS FOR 1 DAY",
}
HELD = 8
"""Events of a key before the micro-batches that are measured."""


def rules_of(kind: str) -> RuleSet:
    text = f"RULE r FROM e PARTITION BY k {KINDS[kind]}"
    return compile_sources([Source("r", text)], {"e": STREAM}).rule_set


def events(keys: npt.NDArray[np.int64], second: int, random: Random) -> pa.Table:
    drawn = np.random.default_rng(random.randrange(1 << 30))
    values = drawn.random(len(keys))
    columns = {
        "ts": pa.array(second * 1_000_000 + np.arange(len(keys)), pa.int64()),
        "k": pa.array(keys, pa.int64()),
        "x": pa.array(values, pa.float64()),
        "note": pa.array(["not read by any rule"] * len(keys)),
    }
    schema = event_table_schema(STREAM)
    return pa.Table.from_arrays([columns[f.name].cast(f.type) for f in schema], schema=schema)


def push(chain: Chain, found: pa.Table, reached_us: int) -> None:
    chain.push(0, prepare(chain.rules.programs[0], found))
    chain.advance(reached_us, lambda matches: None)


class Measured:
    """A key group of `n_keys` keys that hold events, which then gets micro-batches."""

    def __init__(self, folder: Path, kind: str, n_keys: int, random: Random) -> None:
        self.rules = rules_of(kind)
        self.random = random
        self.n_keys = n_keys
        self.batch = 1
        kept = Kept(str(folder), "run", n_retained=2, inline_bytes=0, most_records=1000)
        self.files = StateFiles(kept, self.rules, 1)
        chain = Chain(self.rules)
        for second in range(HELD):
            push(chain, events(np.arange(n_keys), second, random), second * 1_000_000 + n_keys)
        stored = self.files.stored(encode_state(chain.matchers, 1), Task(1, 0, 0, 0))
        assert stored.pointer is not None
        self.pointer: Pointer = stored.pointer
        self.chain = self.files.read(self.pointer)

    def written(self, keys: npt.NDArray[np.int64]) -> tuple[int, int]:
        """Give some keys an event each; return the bytes written, and those of the prepared events."""
        self.batch += 1
        second = HELD + self.batch
        found = events(keys, second, self.random)
        push(self.chain, found, second * 1_000_000 + len(keys))
        stored = self.files.after(self.pointer, Task(self.batch, 0, 0, self.batch), self.chain)
        assert stored.pointer is not None
        assert stored.counts.get("written", 0) == 0, "a snapshot"
        self.pointer = stored.pointer
        return stored.counts["recorded"], prepare(self.rules.programs[0], found).nbytes

    def held_by(self, keys: npt.NDArray[np.int64]) -> int:
        """Return the bytes of these keys in a snapshot."""

        def is_touched(rows: pa.Table) -> npt.NDArray[np.uint16]:
            return np.isin(rows.column("k").to_numpy(), keys).astype(np.uint16)

        data = encode_state(self.chain.matchers, 1)
        return len(divided_state(data, self.rules, [is_touched], 2)[1].data)


@pytest.mark.parametrize("kind", KINDS)
def test_a_micro_batch_writes_at_most_half_more_than_the_keys_that_it_touches_hold(
    tmp_path: Path, kind: str
) -> None:
    random = Random(kind)
    for number in range(3):
        measured = Measured(tmp_path / str(number), kind, random.randint(1_000, 3_000), random)
        for _ in range(3):
            n = random.randint(200, measured.n_keys)
            keys = np.array(sorted(random.sample(range(measured.n_keys), n)))
            written, given = measured.written(keys)
            assert written <= 1.5 * measured.held_by(keys)
            assert written <= 1.5 * given + 1_000


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_micro_batch_writes_does_not_depend_on_what_other_keys_hold(tmp_path: Path, kind: str) -> None:
    keys = np.arange(0, 1_000, 2)
    few, many = (Measured(tmp_path / str(n), kind, n, Random(7)).written(keys) for n in (1_000, 5_000))
    assert few == many


@pytest.mark.parametrize("was_warm", [True, False])
def test_long_records_make_a_snapshot_due_after_eight_or_earlier_if_the_memory_was_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was_warm: bool
) -> None:
    monkeypatch.setattr("spark_runtime.state.files._LEAST_RECORD_BYTES", 1000)
    measured = Measured(tmp_path, "windows", 200, Random(5))
    lengths = []
    for number in range(12):
        task = Task(number + 2, 0, 0, number)
        is_due = measured.files.is_due(measured.pointer, task, was_warm=was_warm)
        measured.chain.is_recording = not is_due
        push(
            measured.chain, events(np.arange(200), 100 + number, measured.random), (101 + number) * 1_000_000
        )
        stored = measured.files.after(measured.pointer, task, measured.chain)
        assert stored.pointer is not None
        assert ("snapshots" in stored.counts) == is_due
        measured.pointer = stored.pointer
        lengths.append(len(stored.pointer.records))
        expected = encode_state(measured.chain.matchers, 1)
        assert encode_state(measured.files.read(stored.pointer).matchers, 1) == expected
    longest = max(lengths)
    assert longest == 8 if was_warm else 0 < longest < 4  # these are half as long as the snapshot
    assert lengths.count(0) == 12 // (longest + 1)
