"""The metrics of a running pipeline for Prometheus, computed at each request.

A run counts for its summary anyway. `Metrics` reads these counts, so that a scrape costs the run nothing but
the time in which another thread reads them.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from cep.counts import DELAYS_S, MOST_NAMES, Counts, delay_name
from cep.engine.event_time.watermark import END_OF_TIME_US
from cep.rule_set import RuleSet
from spark_runtime.event_time.time_status import PartitionStatus, TimeStatus
from spark_runtime.pipeline.gaps import KnownGaps
from spark_runtime.pipeline.health import State, Watched, health_of
from spark_runtime.pipeline.phases import Phases
from spark_runtime.pipeline.runs import PipelineRun
from spark_runtime.sinks.protocol import RefusingSink

OTHER = "other"
"""The label of all names beyond the first `MOST_NAMES`."""

_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
"""Upper bounds of the durations of micro-batches that are counted together."""


class _Split(NamedTuple):
    """A counter that is split by one label, and the field of `Counts` that has it."""

    field: str
    name: str
    label: str
    help: str


_BY_RULE = (
    _Split("matches", "cep_matches", "rule", "Matches."),
    _Split("timeouts", "cep_timeouts", "rule", "Runs that ended by a limit and were reported."),
    _Split("suppressed", "cep_suppressed_matches", "rule", "Matches that were not reported (SUPPRESS)."),
    _Split("dropped_runs", "cep_dropped_runs", "rule", "Runs that were dropped beyond a limit."),
    _Split("dropped_matches", "cep_dropped_matches", "rule", "Matches that were dropped beyond `limits`."),
    _Split("retracted", "cep_retracted_matches", "rule", "Matches that a correction withdrew."),
)
_SPLITS = (
    _Split("late_of", "cep_late_events", "stream", "Events that the watermark had passed."),
    _Split("dropped_events", "cep_dropped_events", "stream", "Waiting events dropped beyond `limits`."),
    _Split("reasons", "cep_dead_letters", "reason", "Records that could not become events."),
    _Split("lost", "cep_lost_messages", "partition", "Messages that were removed before they were read."),
    _Split("tombstones", "cep_tombstones", "partition", "Messages without a value."),
)
_FILES = ("empty", "partial", "refused", "gone", "changed")


class Metrics:
    """A Prometheus collector for one pipeline. Every metric exists from the start, with zeros if it can."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._lock = threading.Lock()  # scrapes may overlap
        self._names: dict[str, dict[str, None]] = {}  # by metric, the names that are labels of their own
        self._n_batches = [0] * (len(_SECONDS) + 1)
        self._batch_seconds = 0.0
        self._n_seen = 0  # micro-batches in `_n_batches`
        self._phases = Phases()
        self._gaps = KnownGaps(watched.pipeline)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        with self._lock:
            run = self._watched.run
            yield from self._of_pipeline()
            # A copy of each mapping: the run continues while this thread reads.
            counts = Counts() if run is None else _copied(run.totals.counts)
            yield from self._of_counts(counts, run)
            yield from self._of_rules(counts, [rule.name for rule in self._rules.rules])
            yield from self._of_hot_keys(run)
            yield from self._of_sinks(counts, run)
            yield from self._of_batches(run)
            batches = None if run is None else run.batches
            yield from self._of_time(None if batches is None else batches.known_status())

    @property
    def _rules(self) -> RuleSet:
        """The rules of the run, or of the file before it has started."""
        run = self._watched.run
        return (self._watched.pipeline if run is None else run).rules

    def _of_pipeline(self) -> Iterator[Metric]:
        health = health_of(self._watched)
        info = GaugeMetricFamily("cep_pipeline_info", "The pipeline; always 1.", labels=["pipeline", "mode"])
        mode = "stream" if self._watched.pipeline.is_stream else "batch"
        info.add_metric([self._watched.pipeline.name, mode], 1)
        yield info
        state = GaugeMetricFamily("cep_pipeline_state", "1 for the state of the pipeline.", labels=["state"])
        for each in State:
            state.add_metric([each.value], float(each is health.state))
        yield state
        yield _gauge("cep_healthy", "Whether the pipeline is neither stuck nor failed.", health.is_good)

    def _of_counts(self, counts: Counts, run: PipelineRun | None) -> Iterator[Metric]:
        streams = self._rules.inputs.values()
        events = {stream.name: 0 for stream in streams if stream.table is None} | counts.events_of
        yield self._split("cep_events", "Events that were read, including late ones.", "stream", events)
        # Prometheus misses the first value of a sample that did not exist before.
        arriving = {stream.name: 0 for stream in streams if not stream.is_static}
        for split in _SPLITS:
            zeros = {} if split.label == "reason" else arriving
            yield self._split(split.name, split.help, split.label, zeros | getattr(counts, split.field))
        yield _counter("cep_corrected_events", "Late events that were counted.", max(counts.corrected, 0))
        uncorrected = "Late events beyond `max_retained`."
        yield _counter("cep_uncorrected_events", uncorrected, counts.uncorrected)
        most: dict[str, int] = {}
        for name, n in counts.duplicates_of.items():
            stream = name.partition(": ")[0]
            most[stream] = max(most.get(stream, 0), n)
        yield self._split("cep_duplicates", "Repeated deliveries.", "stream", most)
        files = {why: len(getattr(counts, why)) for why in _FILES}
        yield self._split("cep_files_passed_over", "Files that were not read, or changed.", "why", files)
        stale = {stream.name: 0 for stream in streams if stream.is_static} | counts.stale_tables
        versions = {stream.name: 0 for stream in streams if stream.table is not None} | counts.versions
        if run is not None and run.batches is not None:  # `counts` has them at the end of the run
            of_static = run.batches.tables.counts()
            for known, more in ((stale, of_static.stale_tables), (versions, of_static.versions)):
                for name, n in more.items():
                    known[name] = max(known.get(name, 0), n)
        yield self._split("cep_versions", "Versions of rows of tables.", "table", versions)
        yield self._split("cep_stale_tables", "Changed tables that cannot be used.", "table", stale)
        state = counts.state
        yield _counter("cep_touched_keys", "Keys with events, in each micro-batch.", state.get("touched", 0))
        n_bytes = {name: state.get(name, 0) for name in ("carried", "recorded", "written")}
        yield self._split("cep_state_bytes", "State that was written: by Spark, to files.", "kind", n_bytes)
        calls = {name: state.get(name, 0) for name in ("warm", "cold")}
        yield self._split("cep_state_calls", "Calls of key groups with state in files.", "memory", calls)
        n_evicted = state.get("evicted", 0)
        yield _counter("cep_state_evicted", "Key groups that left the memory, which was full.", n_evicted)

    def _of_rules(self, counts: Counts, rules: Iterable[str]) -> Iterator[Metric]:
        zeros = dict.fromkeys(rules, 0)
        for split in _BY_RULE:
            yield _labelled(split.name, split.help, "rule", zeros | getattr(counts, split.field))
        shadow = GaugeMetricFamily("cep_shadow_rule", "1 for a rule that alerts nobody.", labels=["rule"])
        for rule in zeros:
            shadow.add_metric([rule], float(rule in self._rules.shadow))
        yield shadow
        gaps = GaugeMetricFamily(
            "cep_gaps", "Gaps that are not filled: what a rule did not see.", labels=["rule", "kind"]
        )
        missed = Counter((rule, gap.loss) for gap in self._gaps.now() if not gap.filled for rule in gap.rules)
        for place, n in sorted(missed.items()):
            gaps.add_metric(place, n)
        yield gaps
        gauge = GaugeMetricFamily("cep_open_runs", "Open runs, of key groups called so far.", labels=["rule"])
        for rule, n in (zeros | counts.open_runs_of).items():
            gauge.add_metric([rule], n)
        yield gauge
        help_text = "From the end of a match, in event time, until a worker found it."
        delays = HistogramMetricFamily("cep_match_delay_seconds", help_text, labels=["rule"])
        for rule in zeros | dict.fromkeys(counts.delay_us):
            numbers = [counts.delays.get(delay_name(rule, at), 0) for at in range(len(DELAYS_S) + 1)]
            delays.add_metric([rule], _buckets(DELAYS_S, numbers), counts.delay_us.get(rule, 0) / 1e6)
        yield delays

    def _of_hot_keys(self, run: PipelineRun | None) -> Iterator[Metric]:
        help_text = "The share of a key of the last micro-batch, from 0 to 1, if it is hot."
        shares = GaugeMetricFamily("cep_hot_key_share", help_text, labels=["of", "key"])
        for hot in () if run is None else run.totals.hot_now[:MOST_NAMES]:
            shares.add_metric([hot.of, hot.key], hot.share)
        yield shares

    def _of_sinks(self, counts: Counts, run: PipelineRun | None) -> Iterator[Metric]:
        rows = dict.fromkeys(self._watched.pipeline.sink_names(), 0)
        rows |= {} if run is None else run.written.rows
        seconds = {} if run is None else dict(run.written.seconds)
        yield self._split("cep_sink_rows", "Rows that sinks got.", "sink", rows)
        yield self._split("cep_sink_seconds", "Time in which the driver wrote to sinks.", "sink", seconds)
        refused = dict.fromkeys(self._watched.pipeline.sink_names(), 0)
        # The run opens its sinks: two threads would open each twice.
        for item in () if run is None else vars(run).get("sinks", ()):
            if isinstance(item.sink, RefusingSink):
                refused[item.shown] = refused.get(item.shown, 0) + item.sink.n_refused
        yield self._split("cep_refused_rows", "Rows that sinks refused for good.", "sink", refused)

    def _of_batches(self, run: PipelineRun | None) -> Iterator[Metric]:
        seconds = [] if run is None else run.totals.times.since(self._n_seen)
        self._n_seen += len(seconds)
        self._batch_seconds += sum(seconds)
        for each in seconds:
            self._n_batches[bisect_left(_SECONDS, each)] += 1
        durations = HistogramMetricFamily("cep_micro_batch_seconds", "Durations of micro-batches.")
        durations.add_metric([], _buckets(_SECONDS, self._n_batches), self._batch_seconds)
        yield durations
        n = 0 if run is None else run.totals.n_batches
        yield _counter("cep_micro_batches", "Micro-batches whose results were counted.", n)
        batches = None if run is None else run.batches
        running_s = None if batches is None else batches.running_s
        yield _gauge("cep_micro_batch_running_seconds", "For how long one has been running.", running_s or 0)
        completed = None if batches is None else batches.completed
        ended_s = None if completed is None else time.time() - (time.monotonic() - completed)
        help_text = "When the last micro-batch was complete."
        yield _gauge("cep_micro_batch_completed_timestamp_seconds", help_text, ended_s)
        phases = {} if run is None else self._phases.seconds(run)
        help_text = "Time by Spark's phases; `wait`: until there was something to do."
        yield self._split("cep_micro_batch_phase_seconds", help_text, "phase", phases)

    def _of_time(self, status: TimeStatus | None) -> Iterator[Metric]:
        us = None if status is None else status.watermark_us
        yield _gauge("cep_watermark_timestamp_seconds", "The watermark; +Inf: complete.", _seconds(us))
        unmoved_s = None if status is None else status.held_s
        yield _gauge("cep_watermark_unmoved_seconds", "How long ago the watermark last moved.", unmoved_s)
        holder = GaugeMetricFamily(
            "cep_watermark_holder", "1 for the partition that holds it back.", labels=["partition"]
        )
        if status is not None and status.holder:
            holder.add_metric([status.holder], 1)
        yield holder
        waiting = None if status is None else status.waiting
        yield _gauge(
            "cep_waiting_events", "Events that wait for the partition that holds back the watermark.", waiting
        )
        given_up = None if status is None else len(status.given_up)
        yield _gauge("cep_given_up_partitions", "Partitions that the watermark does not wait for.", given_up)
        known = () if status is None else status.partitions
        yield _gauge("cep_partitions", "Source partitions.", len(known) if known else None)
        yield from _of_partitions(known[:MOST_NAMES])

    def _split(self, name: str, help_text: str, label: str, values: Mapping[str, float]) -> Metric:
        """Return a counter by name. Names after the first `MOST_NAMES` share one, so that none decreases."""
        known = self._names.setdefault(name, {})
        shown: dict[str, float] = {}
        for each, value in values.items():
            if each not in known and len(known) < MOST_NAMES:
                known[each] = None
            place = each if each in known else OTHER
            shown[place] = shown.get(place, 0) + value
        return _labelled(name, help_text, label, shown)


def registry_of(watched: Watched) -> CollectorRegistry:
    """Return the metrics of a pipeline, and those of the driver's process."""
    registry = CollectorRegistry()
    registry.register(Metrics(watched))  # type: ignore[arg-type, unused-ignore]
    ProcessCollector(registry=registry)
    return registry


def _of_partitions(known: Iterable[PartitionStatus]) -> Iterator[Metric]:
    """Yield the metrics of partitions: of those that lag most, if there are many."""
    latest, behind, silent = (
        GaugeMetricFamily(f"cep_partition_{name}", text, labels=["partition"])
        for name, text in (
            ("latest_timestamp_seconds", "The latest event time of a partition."),
            ("behind_seconds", "How far a partition lags behind the fastest."),
            ("silent_seconds", "How long ago a partition last delivered an event."),
        )
    )
    for part in known:
        if part.latest_us is not None:
            latest.add_metric([part.name], part.latest_us / 1e6)
            behind.add_metric([part.name], part.behind_us / 1e6)
        silent.add_metric([part.name], part.silent_s)
    yield from (latest, behind, silent)


def _copied(counts: Counts) -> Counts:
    """Return the counts as they are now."""
    found = Counts()
    for name in Counts.__slots__:
        value: Any = getattr(counts, name)
        setattr(found, name, dict(value) if isinstance(value, dict) else value)
    return found


def _buckets(bounds: Iterable[float], numbers: Iterable[int]) -> list[tuple[str, float]]:
    """Return numbers between bounds, and above the last one, in the form of Prometheus."""
    names = [*(repr(bound) for bound in bounds), "+Inf"]
    return [(name, float(n)) for name, n in zip(names, accumulate(numbers), strict=True)]


def _labelled(name: str, help_text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(name, help_text, labels=[label])
    for each, value in values.items():
        family.add_metric([each], value)
    return family


def _counter(name: str, help_text: str, value: float) -> Metric:
    return CounterMetricFamily(name, help_text, value=value)


def _gauge(name: str, help_text: str, value: float | None) -> Metric:
    """Return a gauge; without a value it has no sample."""
    family = GaugeMetricFamily(name, help_text)
    if value is not None:
        family.add_metric([], float(value))
    return family


def _seconds(us: int | None) -> float | None:
    if us is None:
        return None
    return float("inf") if us >= END_OF_TIME_US else us / 1e6
