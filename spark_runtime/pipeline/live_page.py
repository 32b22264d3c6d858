"""The live page of a running pipeline: one page that shows it while it runs, and changes nothing.

The server takes a sample of the counts every few seconds, so that the page shows the past when somebody opens
it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from cep.counts import Counts
from cep.explain.match_spans import spans_of_rows
from cep.explain.timeline import timeline
from cep.schema.time_literals import time_for_people
from spark_runtime.pipeline.gaps import KnownGaps
from spark_runtime.pipeline.health import Watched, health_of
from spark_runtime.pipeline.runs import PipelineRun

SAMPLE_S = 5.0
"""Seconds from one sample to the next."""

N_SAMPLES = 120
"""Samples that are kept: ten minutes."""

MOST_GAPS = 20
"""Gaps that the page shows; `cep gaps` has all."""

MOST_MATCHES = 30
"""Newest matches that the page shows."""


@dataclass(frozen=True, slots=True)
class _Sample:
    """Counts at a time of `time.monotonic`."""

    at: float
    events: int
    matches: dict[str, int]


@dataclass(slots=True)
class LivePage:
    """What the page shows about a pipeline."""

    watched: Watched
    _samples: deque[_Sample] = field(default_factory=lambda: deque(maxlen=N_SAMPLES))
    _drawn: tuple[str, str] = ("", "")  # matches as JSON, and their time line
    _known_gaps: KnownGaps = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._known_gaps = KnownGaps(self.watched.pipeline)

    def sample(self) -> None:
        """Keep the counts as they are now, if the last sample is old enough."""
        now, run = time.monotonic(), self.watched.run
        with self._lock:
            if self._samples and now - self._samples[-1].at < SAMPLE_S:
                return
            counts = Counts() if run is None else run.totals.counts
            self._samples.append(_Sample(now, counts.events, dict(counts.matches)))

    def to_json(self) -> dict[str, Any]:
        """Return all that the page shows, as JSON values. It asks neither a source nor Spark."""
        run, pipeline = self.watched.run, self.watched.pipeline
        counts = Counts() if run is None else run.totals.counts
        health = health_of(self.watched)
        with self._lock:
            samples = list(self._samples)
            newest = _newest(counts)
            text = json.dumps(newest)
            if text != self._drawn[0]:
                spans = sorted(spans_of_rows(newest), key=lambda span: -span.end_us)[:MOST_MATCHES]
                self._drawn = (text, timeline(spans, "by rule and key"))
            drawn = self._drawn[1]
        return {
            "pipeline": pipeline.name,
            "mode": "stream" if pipeline.is_stream else "batch",
            "seconds": time.monotonic() - self.watched.started,
            "health": health.to_json(),
            "time": None if health.time is None else health.time.to_json(),
            "events": {"n": counts.events, "rates": _rates(samples, [sample.events for sample in samples])},
            "rules": self._rules(counts, samples),
            "streams": [
                {"name": name, "events": n, "late": counts.late_of.get(name, 0)}
                for name, n in (dict.fromkeys(_streams(self.watched), 0) | counts.events_of).items()
            ],
            "dead_letters": dict(counts.reasons),
            "losses": _losses(counts),
            "hot_keys": [] if run is None else [str(hot) for hot in run.totals.hot_now],
            "sinks": _sinks(self.watched, run),
            "batches": _batches(run),
            "gaps": self._gaps(),
            "timeline": drawn if newest else "",
        }

    def _gaps(self) -> list[dict[str, Any]]:
        """Return the last gaps in the ledger of a checkpoint on this machine, newest first."""
        found = sorted(self._known_gaps.now(), key=lambda gap: gap.last_us or 0, reverse=True)
        return [
            {
                "kind": gap.loss,
                "rules": list(gap.rules),
                "streams": list(gap.streams),
                "from": None if gap.first_us is None else time_for_people(gap.first_us),
                "to": None if gap.last_us is None else time_for_people(gap.last_us),
                "n": gap.n,
                "filled": None if gap.filled is None else gap.filled.time,
            }
            for gap in found[:MOST_GAPS]
        ]

    def _rules(self, counts: Counts, samples: list[_Sample]) -> list[dict[str, Any]]:
        open_runs = counts.open_runs_of
        steps: dict[str, dict[str, int]] = {}
        for of_rules in dict(counts.open_steps).values():
            for rule, by_step in of_rules.items():
                mine = steps.setdefault(rule, {})
                for words, n in by_step.items():
                    mine[words] = mine.get(words, 0) + n
        run = self.watched.run
        return [
            {
                "name": rule.name,
                "title": rule.title,
                "severity": rule.severity,
                "matches": counts.matches.get(rule.name, 0),
                "rates": _rates(samples, [sample.matches.get(rule.name, 0) for sample in samples]),
                "timeouts": counts.timeouts.get(rule.name, 0),
                "suppressed": counts.suppressed.get(rule.name, 0),
                "dropped": counts.dropped_runs.get(rule.name, 0),
                "open": open_runs.get(rule.name, 0),
                "steps": steps.get(rule.name, {}),
            }
            for rule in (self.watched.pipeline if run is None else run).rules.rules
        ]


def _newest(counts: Counts) -> list[dict[str, Any]]:
    """Return the rows of the newest matches of all key groups, the newest first."""
    rows = [row for text in list(counts.newest.values()) for row in json.loads(text)]
    kept = dict.fromkeys(
        row["match_id"]
        for row in sorted(rows, key=lambda row: (row["match_end"], row["match_id"]), reverse=True)
    )
    shown = set(list(kept)[:MOST_MATCHES])
    return [row for row in rows if row["match_id"] in shown]


def _rates(samples: list[_Sample], values: list[int]) -> list[float]:
    """Return how much a value grew per second between samples."""
    return [
        round(max(after - before, 0) / (to.at - begin.at), 3)
        for begin, to, before, after in zip(samples, samples[1:], values, values[1:], strict=False)
    ]


def _streams(watched: Watched) -> list[str]:
    rules = (watched.pipeline if watched.run is None else watched.run).rules
    return [stream.name for stream in rules.inputs.values() if stream.table is None]


def _losses(counts: Counts) -> dict[str, int]:
    """Return what was passed over or lost, by the words of the page."""
    found = {
        "files refused": len(counts.refused),
        "files gone": len(counts.gone),
        "files changed after they were read": len(counts.changed),
        "messages removed before they were read": sum(counts.lost.values()),
        "runs dropped by a limit": sum(counts.dropped_runs.values()),
        "matches dropped by a limit": sum(counts.dropped_matches.values()),
        "waiting events dropped by a limit": sum(counts.dropped_events.values()),
        "rows that a sink refused": sum(counts.refused_rows.values()),
        "tables that cannot be used": sum(counts.stale_tables.values()),
    }
    return {words: n for words, n in found.items() if n}


def _sinks(watched: Watched, run: PipelineRun | None) -> list[dict[str, Any]]:
    rows: dict[str, int] = {} if run is None else dict(run.written.rows)
    seconds: dict[str, float] = {} if run is None else dict(run.written.seconds)
    names = dict.fromkeys((*watched.pipeline.sink_names(), *rows))
    return [
        {"name": name, "rows": rows.get(name, 0), "seconds": round(seconds.get(name, 0.0), 3)}
        for name in names
    ]


def _batches(run: PipelineRun | None) -> dict[str, Any]:
    if run is None:
        return {"n": 0, "seconds": [], "running": None}
    running_s = None if run.batches is None else run.batches.running_s
    last = [round(each, 3) for each in list(run.totals.times.last)[-N_SAMPLES:]]
    return {"n": run.totals.n_batches, "seconds": last, "running": running_s}


def page() -> bytes:
    """Return the page. It needs nothing from the network except ``live.json`` of this server."""
    return files("spark_runtime.pipeline").joinpath("live_page.html").read_bytes()


def policy(html: bytes) -> str:
    """Return the Content-Security-Policy of the page: only its own script runs, whatever a match contains."""
    script = re.search(rb"<script>(.*?)</script>", html, re.DOTALL)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1]).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
