"""Progress after a computed micro-batch."""

from __future__ import annotations

from dataclasses import replace

from cep.counts import Counts
from cep.engine.event_time.watermark import END_OF_TIME_US
from spark_runtime.event_time.done import Done
from spark_runtime.event_time.partitions import after, require_few
from spark_runtime.event_time.reached import latest_time
from spark_runtime.event_time.remaining import Remaining
from spark_runtime.event_time.run_watermark import RunWatermark
from spark_runtime.pipeline.inputs import Inputs
from spark_runtime.wire.plan import Plan


def done_after(
    before: Done,
    batch: int,
    plan: Plan,
    counts: Counts,
    inputs: Inputs,
    watermark: RunWatermark,
    told_us: int | None,
) -> tuple[Done, Remaining]:
    """Return the progress after micro-batch `batch`, and the remaining input; record the watermark.

    `counts` are those of the micro-batch. `told_us`: the watermark that Spark had before it.

    Raises InputError: there are too many source partitions.
    """
    partitions = after(watermark.partitions(before), inputs.latest_of(counts), watermark.clock())
    require_few(partitions)
    waiting = before.waiting.after(counts)
    if plan.cap_us is None:  # no partition holds the watermark back, so key groups do not count
        waiting = replace(waiting, by_group={}, bytes_of_group={})
    offsets = {**before.offsets, **plan.offsets}
    done = Done(batch, before.reached, offsets, before.ended or plan.ends, partitions, waiting)
    remaining = inputs.remaining(done)
    called_us = plan.told_us if plan.offsets else told_us
    done = replace(done, waiting=watermark.given_up(done, remaining, called_us))
    events_us = watermark.reach(done, remaining).watermark_us
    # Input that has appeared meanwhile may be earlier than what the operator has already passed.
    passed_us = latest_time(events_us, watermark.passed_with(plan.cap_us), plan.clock_us)
    reached = plan.reached.after(counts.latest, passed_us, counts.clocks)
    if reached.watermark_us != plan.reached.watermark_us:
        watermark.moved_s = watermark.clock()
    waits = before.waits
    if waits is not None:
        shown_us = END_OF_TIME_US if done.ended else latest_time(waits.events_us, plan.cap_us, events_us)
        waits = waits.after(counts, shown_us, asked=plan.asks)
    return replace(done, reached=reached, waits=waits), remaining
