"""The stateful operator: the engine's `Matcher` inside Spark, one call for all keys of a key group.

In a stream, it is `applyInPandasWithState` with event-time timeouts; in a batch, `mapInArrow` over
partitions. Its input are parcels (`spark_runtime.wire.parcels`); for its output see
`spark_runtime.wire.output`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from cep.counts import Counts
from cep.engine.chains.chain import Chain
from cep.errors import StateError
from cep.rule_set import RuleSet, of_rules
from spark_runtime.compat.worker import mend_state_reader
from spark_runtime.operator.busy_keys import busy_keys, watch_keys
from spark_runtime.operator.call import Call, Moment, Results
from spark_runtime.operator.limits import GroupLimits, Limits
from spark_runtime.operator.owner import owners_of
from spark_runtime.operator.shown import NewestMatches, open_steps
from spark_runtime.sinks.delivery import ALL_AS_ROWS, Delivery
from spark_runtime.state.changing import ChangedRules
from spark_runtime.state.files import StateFiles, Stored, remove_left
from spark_runtime.state.pointer import Kept, Pointer, Task, is_pointer
from spark_runtime.state.restored import Restored
from spark_runtime.state.snapshots import Tables, decode_state, encode_state, joined_state
from spark_runtime.tables.content import Content, tables_in, tables_of, told_to_task
from spark_runtime.wire.loaded import freeze_loaded
from spark_runtime.wire.output import KIND, LATE, MATCHES_COLUMN, OUTPUT_SCHEMA, TEXT, carried_schema
from spark_runtime.wire.packer import Packer
from spark_runtime.wire.parcels import (
    DATA,
    Contents,
    Parcel,
    of_batch,
    of_frame,
    parcels,
    table_of_bytes,
    which,
)
from spark_runtime.wire.plan import CAP_PROPERTY, CLOCK_PROPERTY, batch_of_task, time_of_task

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState


@dataclass(frozen=True)
class KeyGroups:
    """The operator as a function that Spark calls; it is sent to the executors.

    Parameters
    ----------
    rules
        The rules; the number of a program in a parcel is its index in `rules.programs`.
    n_groups
        Number of key groups. It is written into the state, because another number would send keys to other
        states.
    by_own_events
        Whether the latest event of a group determines its event time.
    tables
        The contents of static tables, unless the task's property names them.
    first_group
        The label of the key group that counts the input that all key groups get.
    kept
        Where large state is kept; None: in Spark's state store, as all state of a batch is in memory.
    restored
        The state with which the first micro-batch of a restored checkpoint begins.
    change
        The rules whose state is taken over in one of the micro-batches.
    limits
        What a stream may have in all.
    """

    rules: RuleSet
    n_groups: int
    delivery: Delivery = ALL_AS_ROWS
    by_own_events: bool = True
    tables: Mapping[str, Content] = field(default_factory=dict)
    first_group: int = 0
    kept: Kept | None = None
    restored: Restored | None = None
    change: ChangedRules | None = None
    limits: Limits = field(default_factory=Limits)

    def __call__(
        self, key: tuple[int], frames: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Handle the parcels of one key group and micro-batch, or its timeout; yield the output."""
        freeze_loaded()
        self.delivery.shared.require()
        group = int(key[0])
        parcels = (
            iter(()) if state.hasTimedOut else (parcel for frame in frames for parcel in of_frame(frame))
        )
        spark_watermark_us = state.getCurrentWatermarkMs() * 1000
        moment = Moment(
            group=group,
            # Spark's watermark starts at 1970: before the first event it means nothing.
            spark_us=spark_watermark_us if spark_watermark_us > 0 else None,
            cap_us=time_of_task(CAP_PROPERTY),
            clock_us=time_of_task(CLOCK_PROPERTY) if self.rules.tells_end else None,
            told=told_to_task(),
            now_us=time.time_ns() // 1000,
        )
        value: bytes | None = state.get[0] if state.exists else None
        change = self.change
        takes_over = self._takes_over and not state.hasTimedOut  # later in the micro-batch, it is taken over
        if takes_over:
            value = self._taken_over(group, value)
        if value is not None and is_pointer(value):
            operator = replace(self, kept=self._kept_in_task())
            results, value = owners_of(operator).call(value, Task.running(group), moment, list(parcels))
        else:
            results, value = self._call_inline(value, moment, parcels)
        if takes_over and change is not None:
            for table in change.matches(group):
                results.add_past(table, self.rules)
        state.update((value,))
        if results.deadline_us is not None:
            # Spark calls when its watermark is past the timeout; we want the call when it is reached.
            timeout_ms = -(-results.deadline_us // 1000) - 1
            state.setTimeoutTimestamp(max(timeout_ms, state.getCurrentWatermarkMs(), 1))
        file = f"{group}-timeout" if state.hasTimedOut else str(group)
        return (batch.to_pandas() for batch in results.output(self.delivery, self.rules, file))

    def _call_inline(
        self, value: bytes | None, moment: Moment, parcels: Iterable[Parcel]
    ) -> tuple[Results, bytes]:
        """Return the results of a call of a group whose state is in Spark's store, and the new value."""
        tables = tables_of(self.rules.programs, self.tables, moment.told)
        before: list[Results] = []
        if value is None and self.restored is not None:
            value = self._restored(self.restored.parts(moment.group), moment, tables, before)
        matchers = None if value is None else decode_state(value, self.rules, self.n_groups, tables)
        chain = Chain(self.rules, matchers, tables=tables)
        results = self.results(chain, moment, parcels)
        for earlier in before:
            results.counts += earlier.counts
            for table in earlier.found.matches:
                results.found.matches.append(table)
            earlier.found.matches.close()
        snapshot = encode_state(chain.matchers, self.n_groups)
        self.limits_of(moment.group).require_state(len(snapshot), chain)
        if self.kept is None:
            stored = Stored.of(snapshot, None)
        elif len(snapshot) <= self.kept.inline_bytes:
            stored = Stored.of(snapshot, None)
            remove_left(self._kept_in_task(), Task.running(moment.group))
        else:
            files = StateFiles(self._kept_in_task(), self.rules, self.n_groups)
            stored = files.stored(snapshot, Task.running(moment.group))
        results.counts.append(Counts(state=stored.counts).to_json())
        if len(stored.value) > _LARGE_BYTES:
            _warn_once(len(stored.value))
        return results, stored.value

    def _restored(
        self, parts: Sequence[bytes], moment: Moment, tables: Tables, before: list[Results]
    ) -> bytes | None:
        """Return the state in one or more parts; None: there are none.

        Parts have the same event time before they are joined. What they report on the way is added to
        `before`.
        """
        if len(parts) < 2:
            return parts[0] if parts else None
        chains = [Chain(self.rules, decode_state(part, self.rules, self.n_groups, tables), tables=tables)
                  for part in parts]  # fmt: skip
        reached_us = max(chain.watermark_us for chain in chains)
        cap_us = reached_us if moment.cap_us is None else max(reached_us, moment.cap_us)
        for chain in chains:
            call = Call(chain, gets_whole=False, is_first=False)
            call.advance(None, cap_us, moment.clock_us)
            before.append(call.results())
        return joined_state([chain.matchers for chain in chains], self.n_groups)

    @property
    def _takes_over(self) -> bool:
        """Return whether state of other rules is taken over in the micro-batch of the running task."""
        context = TaskContext.get()
        return self.change is not None and context is not None and batch_of_task(context) == self.change.batch

    def _taken_over(self, group: int, value: bytes | None) -> bytes:
        """Return the state of a key group, which may be in files, converted to the current rules."""
        assert self.change is not None
        before = self.change.before
        if value is not None and is_pointer(value):
            kept = self._kept_in_task()
            files = StateFiles(kept, before, self.n_groups, partial(tables_in, kept.tables, before.programs))
            value = encode_state(files.read(Pointer.decode(value)).matchers, self.n_groups)
        return self.change.state(group, value, self.rules, self.n_groups)

    def _kept_in_task(self) -> Kept:
        if self.kept is None:
            raise StateError(
                "E0702",
                "the state of a key group is in files, and no folder of state is given",
                "give `state_folder` as in the earlier runs of this checkpoint",
            )
        return self.kept.in_task()

    def limits_of(self, group: int) -> GroupLimits:
        """Return the limits for a key group."""
        return GroupLimits(self.limits, self.n_groups, group, self.rules)

    def results(self, chain: Chain, moment: Moment, parcels: Iterable[Parcel]) -> Results:
        """Return the results of a call, which changes `chain`."""
        call = Call(
            chain,
            gets_whole=self._gets_late,
            by_own_events=self.by_own_events,
            is_first=moment.group == self.first_group,
            now_us=moment.now_us,
            newest=NewestMatches() if self.delivery.is_watched else None,
            limits=self.limits_of(moment.group) if self.limits else None,
        )
        n_touched, percent = _n_touched(chain), self.limits.hot_percent
        if percent is not None:
            watch_keys(chain.matchers)
        call.push_all(parcels)
        call.advance(moment.spark_us, moment.cap_us, moment.clock_us)
        call.keep_limits()
        if _n_touched(chain) > n_touched:
            call.counts.state["touched"] = _n_touched(chain) - n_touched
        group = str(moment.group)
        if moment.cap_us is not None:
            call.counts.waiting[group] = sum(matcher.n_waiting for matcher in chain.matchers)
            call.counts.waiting_bytes[group] = sum(matcher.waiting_bytes for matcher in chain.matchers)
        open_runs = {name: n for name, n in chain.open_runs.items() if n}
        call.counts.open_runs[group] = open_runs
        if percent is not None and (busy := busy_keys(chain.matchers, open_runs, percent)):
            call.counts.busy[group] = busy
        if call.newest is not None:
            call.counts.open_steps[group] = open_steps(chain)
            call.counts.newest |= {group: text} if (text := call.newest.text()) else {}
        deadline_us = chain.next_deadline_us()
        if self.rules.tells_end:
            call.counts.deadlines[group] = deadline_us
        return call.results(deadline_us)

    @property
    def _gets_late(self) -> bool:
        return any(kind.startswith(LATE) for kind in self.delivery.kinds)

    def batch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Handle all parcels of one partition of a batch; yield the output."""
        freeze_loaded()
        self.delivery.shared.require()
        tables = tables_of(self.rules.programs, self.tables, {})
        call = Call(Chain(self.rules, tables=tables), gets_whole=self._gets_late)
        call.push_all(parcel for batch in batches for parcel in of_batch(batch))
        call.finish()
        context = TaskContext.get()
        assert context is not None
        yield from call.results().output(self.delivery, self.rules, str(context.partitionId()))

    def batch_stage(
        self, batches: Iterable[pa.RecordBatch], packer: Packer, stage: int, *, is_last: bool
    ) -> Iterator[pa.RecordBatch]:
        """Handle all parcels of one partition of a batch in one stage of the rules; yield the result.

        The result is parcels for the next stage, or the output if this stage `is_last`.
        """
        freeze_loaded()
        self.delivery.shared.require()
        fed: list[pa.RecordBatch] = []

        def forward(number: int, events: pa.Table) -> None:
            fed.extend(packer.of_events(number, events))

        tables = tables_of(self.rules.programs, self.tables, {})
        chain = Chain(self.rules, tables=tables, stage=stage, forward=forward)
        call = Call(chain, gets_whole=self._gets_late)
        due: list[Parcel] = []
        for batch in batches:
            now, later = later_parcels(batch, self.rules.chains.stages, stage)
            due += of_batch(now)
            if later.num_rows:
                yield as_output(later) if is_last else later
        call.push_all(due)
        del due  # otherwise it stays in memory until the end
        call.finish()
        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        found = call.results().output(self.delivery, self.rules, f"{stage}-{number}")
        yield from fed
        yield from found if is_last else as_parcels(found, packer.labels[number % len(packer.labels)])

    def unpack(
        self, names: Collection[str] | None, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the matches in rows of output (`carried_schema` of `schema`): of some rules, or of all."""
        self.delivery.shared.require()  # Spark writes the rows in the same task
        carried = carried_schema(self.rules.match_schema)
        wanted = carried_schema(schema)
        for batch in batches:
            for data in batch.column(0).to_pylist():
                found = table_of_bytes(data, carried)
                if names is not None:
                    found = of_rules(found, names, wanted).cast(wanted)
                yield from found.to_batches()


def _n_touched(chain: Chain) -> int:
    """Return how many keys with events there were in all calls; a key counts once for each program."""
    return sum(matcher.counters.keys for matcher in chain.matchers)


# Rules over rules by another key, in a batch: successive stages with a shuffle before each. The results of a
# stage pass through the later stages unchanged, in parcels of `Contents.OUTPUT`. So everything is computed
# once, and the last stage returns all of it.


def later_parcels(
    batch: pa.RecordBatch, stages: Sequence[int], stage: int
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the parcels of a batch that are for this stage, and those that later stages need."""
    later = [number for number, of_program in enumerate(stages) if of_program > stage]
    is_later = which(batch, Contents.EVENTS, later) | which(batch, Contents.OUTPUT)
    return batch.filter(pa.array(~is_later)), batch.filter(pa.array(is_later))


def as_parcels(output: Iterable[pa.RecordBatch], label: int) -> Iterator[pa.RecordBatch]:
    """Return the operator's output (`OUTPUT_SCHEMA`) as parcels of key group `label`."""
    for batch in output:
        rows = zip(batch.column(KIND).to_pylist(), batch.column(TEXT).to_pylist(), strict=True)
        texts = [json.dumps(row) for row in rows]
        yield parcels([label] * len(texts), Contents.OUTPUT, texts=texts, data=batch.column(MATCHES_COLUMN))


def as_output(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the operator's output from which `as_parcels` made these parcels."""
    rows = [json.loads(text) for text in batch.column(TEXT).to_pylist()]
    columns = [
        pa.array([kind for kind, _ in rows], pa.string()),
        pa.array([text for _, text in rows], pa.string()),
        batch.column(DATA),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=OUTPUT_SCHEMA)


_LARGE_BYTES = 16 << 20
"""State of one key group in Spark's store which takes half a second of every micro-batch."""

_warned: list[int] = []


def _warn_once(n_bytes: int) -> None:
    """Say once in each worker, where Spark shows what workers write, that state is large."""
    if not _warned:
        _warned.append(n_bytes)
        print(
            f"warning: the state of a key group has {n_bytes >> 20} MB, which Spark reads and writes in each "
            "micro-batch. A pipeline whose checkpoint is on a disk, without `state: inline`, and `detect` "
            "with `state_folder` write only changes.",
            file=sys.stderr,
        )


mend_state_reader()  # a worker reads this module before its first group
