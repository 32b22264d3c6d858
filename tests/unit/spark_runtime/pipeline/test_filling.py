"""Gaps that are filled, without Spark: the micro-batches of a stream with one key group."""

from __future__ import annotations

import importlib
import json
import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from rich.console import Console

from cep import find_matches, load_rules
from cep.commands.cli import main
from cep.counts import Counts
from cep.schema.stream import Field, Stream
from cep.settings.file_mode import FileMode
from spark_runtime.dataflow.dataflow import Dataflow
from spark_runtime.dataflow.share_reader import ShareReader
from spark_runtime.event_time.watermarks import WatermarkRule
from spark_runtime.operator.call import Moment
from spark_runtime.pipeline.checkpoint import SourceIdentity, last_done, open_checkpoint
from spark_runtime.pipeline.delivering import delivery_of, named
from spark_runtime.pipeline.gaps import Entry, Ledger, all_gaps
from spark_runtime.pipeline.generations import Filled
from spark_runtime.pipeline.micro_batches import MicroBatches
from spark_runtime.pipeline.missing import counted, others, unreported
from spark_runtime.pipeline.next_plan import Turn
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.pipeline.reloading import Reloading, RuleTurn
from spark_runtime.pipeline.restoring import restore
from spark_runtime.pipeline.saving import save
from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.sinks.match_log import MatchLog
from spark_runtime.sinks.protocol import MicroBatch, Rows
from spark_runtime.sinks.registry import SinkContext
from spark_runtime.storage.checkpoint_files import LocalFiles
from spark_runtime.wire.parcels import of_batch
from spark_runtime.wire.shared import SharedFolders

PAIR = "RULE {} FROM t PARTITION BY k PATTERN a -> b WITHIN 1 MINUTE DEFINE a AS x < 3, b AS x > 7\n"
BEFORE = PAIR.format("pair")
LATER = PAIR.format("later").replace("x > 7", "x > 5")
STREAM = Stream(
    "t", (Field("k", "string"), Field("ts", "timestamp"), Field("x", "bigint")), "ts", lateness_us=10_000_000
)


class Life:
    """A pipeline of which each run reads the files that are there, in the process of the test."""

    def __init__(
        self, folder: Path, settings: str = "log: log", of_source: str = ", max_files_per_trigger: 1"
    ) -> None:
        self.folder, self.settings, self.of_source = folder, settings, of_source
        self.checkpoint = folder / "checkpoint"
        self.said: list[str] = []
        self._n = 0
        (folder / "in").mkdir(parents=True)

    def write(self, rules: str) -> Path:
        (self.folder / "r.cep").write_text(rules)
        file = self.folder / "p.yaml"
        file.write_text(
            "streams: {t: {event_time: ts, lateness: 10 seconds, "
            "schema: {k: string, ts: timestamp, x: bigint}}}\n"
            f"rules: [r.cep]\nsource: {{stream: t, format: json, path: in{self.of_source}}}\n"
            f"sinks: [{{format: parquet, path: out}}]\ncheckpoint: {self.checkpoint}\nreload: on change\n"
            f"{self.settings}\n"
        )
        return file

    def add(self, events: Sequence[dict[str, Any]], *more: str) -> None:
        lines = [
            json.dumps({**event, "ts": datetime.fromtimestamp(event["ts"] / 1e6, UTC).isoformat()})
            for event in events
        ]
        (self.folder / f"in/{self._n:03}.json").write_text("".join(f"{line}\n" for line in (*lines, *more)))
        self._n += 1

    def run(self, rules: str, *parts: Sequence[dict[str, Any]]) -> None:
        for part in parts:
            self.add(part)
        pipeline = load_pipeline(self.write(rules))
        files = LocalFiles(str(self.checkpoint))
        identities = {each.stream: SourceIdentity(each.name, each.spec.place) for each in pipeline.sources}
        stored = StoredRules.of(pipeline.texts, pipeline.rules)
        checkpoint = open_checkpoint(
            files, str(self.checkpoint), stored, identities, 1, accepts_other_rules=True
        )
        reloading = Reloading(checkpoint, pipeline, self.said.append, tuple)
        turn: RuleTurn | None = reloading.turn
        ledger = Ledger(files)
        while turn is not None:
            self._turn(checkpoint, reloading, turn, ledger)
            turn = reloading.following()
            turn = None if turn is None else reloading.take(turn)

    def _turn(self, checkpoint: Any, reloading: Reloading, turn: RuleTurn, ledger: Ledger) -> None:
        pipeline, files = turn.pipeline, checkpoint.files
        context = SinkContext(pipeline.rules, Console(file=StringIO()), None)
        sinks = named(pipeline.opened_sinks(context), pipeline.sink_names())
        for item in sinks:
            item.sink.check()
        delivery = delivery_of(sinks, checkpoint.run_id, FileMode(0o600), SharedFolders())
        flow = Dataflow(pipeline.rules, 1, delivery, change=turn.change, limits=pipeline.limits)
        done = last_done(checkpoint, is_live=False)
        (entry,) = pipeline.sources
        source = pipeline.opened_source(entry, checkpoint.log_of("t"), has_begun=done.batch >= 0)
        leaving = Turn(takes_over=None if turn.change is None else turn.change.batch)
        if reloading.leaves:
            leaving.leaves.set()
        batches = MicroBatches(
            checkpoint=checkpoint,
            sources={"t": source},  # type: ignore[dict-item]
            n_tasks=1,
            rule=WatermarkRule(10_000_000),
            done=done,
            interval_s=None,
            finishes=False,
            turn=leaving,
            ledger=ledger,
            generation=reloading.generation,
        )
        while True:
            number = batches.done.batch + 1
            files.write(f"query/offsets/{number}", "v1")  # as Spark does before it asks for a plan
            plan = batches.next(number)
            if plan is None:
                break
            batch = MicroBatch(checkpoint.run_id, number, plan.identity)
            for item in sinks:
                item.sink.begin(batch)
            counts = self._computed(flow, source, plan, batch, turn, sinks)
            for item in sinks:
                item.sink.commit(batch)
            batches.complete(number, counts)
            files.write(f"query/commits/{number}", "v1")
        batches.close(Counts())

    def _computed(
        self, flow: Dataflow, source: Any, plan: Any, batch: MicroBatch, turn: RuleTurn, sinks: Any
    ) -> Counts:
        reader = ShareReader({"t": source}, flow.packer, plan)
        found = [reader._share(plan, number) for number in range(len(plan.shares))]
        parcels = [parcel for share in found for each in share for parcel in of_batch(each)]
        state = self.checkpoint / f"state-{batch.number - 1}"
        value = state.read_bytes() if state.exists() else None
        group = flow.packer.labels[0]
        change = turn.change
        if change is not None and change.batch == batch.number:
            value = change.state(group, value, flow.rules, 1)
        reached_us = plan.reached.watermark_us
        moment = Moment(group, reached_us, plan.cap_us, None)
        results, value = flow.operator._call_inline(value, moment, parcels)
        if change is not None and change.batch == batch.number:
            for table in change.matches(group):
                results.add_past(table, flow.rules)
        (self.checkpoint / f"state-{batch.number}").write_bytes(value)
        tables = list(results.found.matches)
        for item in sinks if tables else ():
            item.sink.write_part(batch, "0", Rows(item.sink.output, tables))
        counts = Counts()
        for text in results.counts:
            counts.add(Counts.of_json(text))
        return counts

    def cep(self, *words: str, code: int = 0) -> str:
        result = CliRunner().invoke(main, list(words))
        assert result.exit_code == code, result.output
        return result.output

    def backfill(self, *words: str, code: int = 0) -> str:
        return self.cep("backfill", str(self.folder / "p.yaml"), *words, code=code)

    def gaps(self) -> list[dict[str, Any]]:
        told = self.cep("gaps", str(self.checkpoint), "--format", "json")
        return [json.loads(line) for line in told.splitlines() if line.startswith("{")]

    def ids(self, *rules: str) -> Counter[str]:
        files = sorted(self.folder.glob("out/batch=*/part-*"))
        rows = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]
        return Counter(row["match_id"] for row in rows if not rules or row["rule"] in rules)


def events_of(seed: int, n: int, start_s: int = 0) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    return [
        {"k": draw.choice("abc"), "ts": (start_s + 2 * at) * 1_000_000, "x": draw.randrange(10)}
        for at in range(n)
    ]


def whole(rules: str, events: Sequence[dict[str, Any]]) -> Counter[str]:
    rows = find_matches(load_rules(rules, STREAM), None, list(events))
    return Counter(row["match_id"] for row in rows)


def in_us(text: str | None, otherwise: int) -> int:
    return otherwise if text is None else round(datetime.fromisoformat(text).timestamp() * 1e6)


def require_filled(life: Life, rules: str, events: Sequence[dict[str, Any]], before: Counter[str]) -> None:
    """Check that each match of all events that belongs to a filled gap is reported, and each match once.

    `before` was reported before the gaps were filled.
    """
    rows = find_matches(load_rules(rules, STREAM), None, list(events))
    now, gaps = life.ids(), [gap for gap in life.gaps() if gap["filled"]]
    assert set(now.values()) == {1}
    assert now.keys() <= before.keys() | {row["match_id"] for row in rows}
    for row in rows:
        start, end = (round(row[name].timestamp() * 1e6) for name in ("match_start", "match_end"))
        belongs = any(
            row["rule"] in gap["rules"]
            and start <= in_us(gap["to"], 1 << 60)
            and end >= in_us(gap["from"], 0)
            for gap in gaps
        )
        assert row["match_id"] in now or not belongs
    missing = sum((life.ids() - before).values())
    assert missing > 0


def test_a_run_without_gaps_reports_what_a_local_run_reports(tmp_path: Path) -> None:
    life, events = Life(tmp_path), events_of(1, 300)
    life.run(BEFORE, events[:100], events[100:200])
    life.run(BEFORE, events[200:])
    assert life.ids() <= whole(BEFORE, events)
    assert life.ids().total() > 20
    assert life.backfill("--gaps").endswith("nothing to fill\n")


@pytest.mark.parametrize("seed", range(4))
def test_what_a_late_event_and_a_late_start_kept_back_is_reported_once(tmp_path: Path, seed: int) -> None:
    life, events = Life(tmp_path), events_of(seed, 500)
    late = [event for event in events[:80] if event["x"] > 7][:3]
    on_time = [event for event in events[:100] if event not in late]
    life.run(BEFORE, on_time, [*events[100:200], *late])
    life.run(BEFORE + LATER, events[200:300])
    before = life.ids()
    told = life.backfill("--gaps")
    assert "read 300 events up to micro-batch" in told
    assert "  late, pair, " in told
    assert "  late start, later, - to " in told
    assert life.ids() == before
    assert life.backfill("--gaps").endswith("while it runs, or at its next start\n")
    life.run(BEFORE + LATER, events[300:400])
    require_filled(life, BEFORE + LATER, events[:400], before)
    assert life.backfill("--gaps").endswith("nothing to fill, 2 are filled\n")
    assert [gap["filled"] is not None for gap in life.gaps()] == [True, True]
    assert "   filled    late, pair: " in life.cep("history", str(life.checkpoint))
    life.run(BEFORE + LATER, events[400:])  # the rules continue as if they had seen everything
    rows = find_matches(load_rules(BEFORE + LATER, STREAM), None, events)
    known = {row["match_id"] for row in rows if row["match_end"].timestamp() < 970}
    assert {
        row["match_id"] for row in rows if row["match_end"].timestamp() > 810
    } & known <= life.ids().keys()
    assert set(life.ids().values()) == {1}


POINTS = (
    ("spark_runtime.pipeline.plans.write_plan", "after"),
    ("spark_runtime.pipeline.missing.brought_up", "before"),
    ("spark_runtime.pipeline.prepared.write_warm", "before"),
    ("spark_runtime.pipeline.prepared.write_warm", "after"),
    ("spark_runtime.pipeline.reloading.write_generation", "before"),
    ("spark_runtime.pipeline.reloading.write_generation", "after"),
    ("spark_runtime.pipeline.plans.write_plan", "after"),
    ("spark_runtime.pipeline.micro_batches.write_done", "before"),
    ("spark_runtime.pipeline.micro_batches.write_done", "after"),
    ("spark_runtime.pipeline.micro_batches.forget", "before"),
)
"""Where a run that fills gaps ends, in the order in which it comes there."""


def plant(patched: pytest.MonkeyPatch, place: str, moment: str) -> None:
    module, _, name = place.rpartition(".")
    call = getattr(importlib.import_module(module), name)

    def planted(*given: Any) -> None:
        if moment == "after":
            call(*given)
        raise RuntimeError("it ends here")

    patched.setattr(place, planted)


def test_a_run_that_ends_at_any_point_of_a_filling_loses_nothing_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life, events = Life(tmp_path), events_of(9, 400)
    late = [event for event in events[:80] if event["x"] > 7][:3]
    life.run(BEFORE, [event for event in events[:100] if event not in late], [*events[100:200], *late])
    life.run(BEFORE + LATER, events[200:300])
    before = life.ids()
    for place in (
        "spark_runtime.pipeline.backfill.write_matches",
        "spark_runtime.pipeline.filling.unreported",
    ):
        with monkeypatch.context() as patched:
            plant(patched, place, "after")
            life.backfill("--gaps", code=70)
        life.run(BEFORE + LATER)
        assert life.ids() == before
        assert not any(gap["filled"] for gap in life.gaps())
    life.backfill("--gaps")
    life.add(events[300:])
    for place, moment in POINTS:
        with monkeypatch.context() as patched:
            plant(patched, place, moment)
            with pytest.raises(RuntimeError, match="it ends here"):
                life.run(BEFORE + LATER)
    life.run(BEFORE + LATER)
    require_filled(life, BEFORE + LATER, events, before)
    assert all(gap["filled"] for gap in life.gaps())
    assert not list((life.checkpoint / "backfill").iterdir())


def test_a_late_event_that_comes_before_the_gaps_are_taken_up_remains_a_gap(tmp_path: Path) -> None:
    life, events = Life(tmp_path), events_of(3, 300)
    late = [event for event in events[:80] if event["x"] > 7][:4]
    life.run(BEFORE, [event for event in events[:100] if event not in late], [*events[100:200], *late[:2]])
    before = life.ids()
    life.backfill("--gaps")
    life.run(BEFORE, [*events[200:], *late[2:]])
    assert sorted((gap["count"], gap["filled"] is not None) for gap in life.gaps()) in (
        [(2, False), (2, True)],
        [(4, True)],
    )
    assert any(not gap["filled"] for gap in life.gaps())
    life.backfill("--gaps")
    life.run(BEFORE)
    assert all(gap["filled"] for gap in life.gaps())
    assert sum(gap["count"] for gap in life.gaps()) == 4
    require_filled(life, BEFORE, events, before)


def test_runs_that_the_limit_of_a_rule_dropped_are_found_and_first_only_shown(tmp_path: Path) -> None:
    rule = "RULE pair FROM t PARTITION BY k PATTERN a -> b WITHIN 1 MINUTE DEFINE a AS x < 8, b AS x > 8 "
    limited, life = f"{rule} MAX RUNS 1 PER KEY ON OVERFLOW DROP NEWEST", Life(tmp_path)
    events = events_of(4, 300)
    life.run(limited, events)
    (gap,) = life.gaps()
    assert gap["kind"] == "dropped runs"
    before = life.ids()
    told = life.backfill("--gaps", "--matches", "apart", "--into", str(tmp_path / "apart"))
    apart = (tmp_path / "apart/missing.jsonl").read_text().splitlines()
    assert f": {len(apart):,} missing matches" in told
    life.run(limited)
    assert life.ids() == before
    life.backfill("--gaps")
    life.run(limited)
    missing = life.ids() - before
    assert missing == Counter(json.loads(line)["match_id"] for line in apart)
    assert missing.total() > 5
    assert missing <= whole(rule, events)
    assert life.gaps()[0]["filled"]["matches"] == missing.total()


@pytest.mark.parametrize("limit", ["matches", "waiting_events", "open_runs"])
def test_what_a_limit_over_all_keys_dropped_is_found(tmp_path: Path, limit: str) -> None:
    life = Life(tmp_path, f"log: log\nlimits: {{{limit}: {{at_most: 2, then: drop_newest}}}}")
    events = events_of(4, 300)
    life.run(BEFORE, events[:150], events[150:])
    kind = {"matches": "dropped matches", "waiting_events": "dropped events", "open_runs": "dropped runs"}
    gaps = life.gaps()
    assert {gap["kind"] for gap in gaps} == {kind[limit]}
    before = life.ids()
    life.backfill("--gaps")
    life.run(BEFORE)
    require_filled(life, BEFORE, events, before)
    filled = [gap for gap in life.gaps() if gap["filled"]]  # a limit that is still reached drops more
    spans = [[(gap["from"], gap["to"]) for gap in which] for which in (gaps, filled)]
    assert spans[0] == spans[1]


def test_a_match_with_several_rows_is_missing_with_all_of_them(tmp_path: Path) -> None:
    log = MatchLog(str(tmp_path))
    folder = tmp_path / "batch=run-0"
    folder.mkdir()
    pq.write_table(pa.table({"rule": ["r", "r"], "match_id": ["m1", "m2"]}), folder / "part-0.parquet")
    log.append_rules(MicroBatch("run", 0), "one", "{}", 1)
    log.append_rows(MicroBatch("run", 0), "one", 1)
    rows = pa.table({"match_id": ["m3", "m1", "m3", "m4"], "event": [0, 0, 1, 0]})
    found = unreported([rows.slice(0, 2), rows.slice(2)], log)
    assert found is not None
    assert found.to_pylist() == [rows.to_pylist()[at] for at in (0, 2, 3)]
    late = unreported([rows], log, log.last.offset if log.last is not None else -1)
    assert late is not None
    assert late.num_rows == 4
    assert unreported([rows.slice(1, 1)], log) is None
    assert [table.to_pylist() for table in others([rows], [rows.slice(0, 1)])] == [rows.to_pylist()[1::2]]


def test_a_gap_counts_a_match_with_several_rows_once() -> None:
    time = pa.array([5, 5, 9], pa.timestamp("us", "UTC"))
    rows = pa.table({"rule": ["r"] * 3, "match_id": ["m", "m", "n"], "match_start": time, "match_end": time})
    gap = Filled(tuple(Entry("late", "t", 0, 1, 4, 6, 0).to_list()), ("r",), None)
    assert [each.matches for each in counted(rows, [gap])] == [1]
    assert [each.matches for each in counted(None, [gap])] == [0]


def test_files_that_were_gone_and_came_back_are_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life, events = Life(tmp_path), events_of(5, 300)
    life.run(BEFORE, events[:100])
    life.add(events[100:200])
    with monkeypatch.context() as patched:
        plant(patched, "spark_runtime.pipeline.plans.write_plan", "after")
        with pytest.raises(RuntimeError, match="it ends here"):
            life.run(BEFORE)
    file, away = life.folder / "in/001.json", life.folder / "away.json"
    file.rename(away)
    life.run(BEFORE, events[200:])
    assert {gap["kind"] for gap in life.gaps()} == {"gone files"}
    before = life.ids()
    assert "not filled: the files can still not be read" in life.backfill("--gaps")
    away.rename(file)
    life.backfill("--gaps")
    life.run(BEFORE)
    assert life.ids() - before
    require_filled(life, BEFORE, events, before)
    (life.folder / "in/000.json").unlink()  # what was read must still be there
    life.add([events[0]])
    life.run(BEFORE)
    refused = life.backfill("--gaps", code=1)
    assert (
        "1 file that was read then can no longer be read, so rules that begin again would forget it"
        in refused
    )


def test_a_link_that_leads_nowhere_is_nothing_that_was_read(tmp_path: Path) -> None:
    life, events = Life(tmp_path), events_of(5, 100)
    life.run(BEFORE, events)
    (life.folder / "in/lost.json").symlink_to("/mnt/gone.json")
    life.write(BEFORE + LATER)
    assert "gone" not in life.backfill()  # with exit code 0


def test_what_cannot_be_filled_is_named_with_the_reason(tmp_path: Path) -> None:
    life, events = Life(tmp_path, ""), events_of(6, 300)
    shadow = PAIR.format("tried STATUS shadow")
    life.run(BEFORE + shadow, events[:100])
    life.add([*events[100:200], events[0]], "no event")
    life.run(BEFORE + shadow)
    told = life.backfill("--gaps")
    assert "not filled: a record that is no event stays none" in told
    assert "late, pair, " in told
    assert "not filled: nobody knows which matches are missing: the pipeline has no log" in told
    assert "not filled: no log has the matches of a shadow rule" in told
    assert told.endswith("nothing to fill\n")
    life.settings = "log: log"
    life.run(BEFORE + shadow, events[200:])
    assert "the log of matches begins later, so nobody knows" in life.backfill("--gaps")
    changed = BEFORE.replace("1 MINUTE", "2 MINUTES")
    life.run(changed + shadow)
    told = life.backfill("--gaps", "--matches", "none")
    assert "not filled: the rule has changed since, and begun again" in told
    assert "E0718]: there is no rule `x`" in life.backfill("--gaps", "--rules", "x", code=1)
    assert "leave --from out" in life.backfill("--gaps", "--from", "2024-05-01", code=2)
    life.write(changed + shadow + LATER)
    life.backfill()
    assert "E0718]: the past of `later` is prepared" in life.backfill("--gaps", code=1)


def test_matches_that_wait_when_rules_change_are_named(tmp_path: Path) -> None:
    life, events = Life(tmp_path), events_of(24, 400)
    changed = BEFORE.replace("1 MINUTE", "2 MINUTES")
    life.run(BEFORE + LATER, events[:100], events[100:200])
    life.run(changed, events[200:300])
    span = "after 1970-01-01T00:06:28Z, up to 1970-01-01T00:06:38Z,"
    said = f"matches of changed and removed rules that end {span} are reported by neither version"
    assert said in life.said[-1]
    holes = [gap for gap in life.gaps() if gap["kind"] == "rule change"]
    assert [(gap["rules"], gap["from"], gap["to"]) for gap in holes] == [
        (["later"], "1970-01-01T00:06:28.000001Z", "1970-01-01T00:06:38Z"),
        (["pair"], "1970-01-01T00:06:28.000001Z", "1970-01-01T00:06:38Z"),
    ]
    told = life.backfill("--gaps")
    assert "rule change, pair, 1970" in told
    assert (
        "to 1970-01-01T00:06:38Z: not filled: this version of the rule no longer runs: write it out" in told
    )


def test_matches_that_wait_when_a_rule_changes_are_those_of_the_new_version_if_it_begins_with_the_past(
    tmp_path: Path,
) -> None:
    life, events = Life(tmp_path), events_of(24, 400)
    changed = BEFORE.replace("1 MINUTE", "2 MINUTES")
    life.run(BEFORE, events[:100], events[100:200])
    life.write(changed)
    life.backfill()
    life.run(changed, events[200:])
    assert [gap["kind"] for gap in life.gaps()] == []
    rows = find_matches(load_rules(changed, STREAM), None, events)
    due = [row["match_id"] for row in rows if 388 < row["match_end"].timestamp() < 788]
    waited = [row["match_id"] for row in rows if 388 < row["match_end"].timestamp() <= 398]
    assert waited
    assert set(due) <= life.ids().keys()


def test_the_late_start_of_a_changed_rule_is_filled_with_what_its_new_form_finds(tmp_path: Path) -> None:
    life, events = Life(tmp_path), events_of(24, 400)
    changed = BEFORE.replace("1 MINUTE", "2 MINUTES")
    life.run(BEFORE, events[:100], events[100:200])
    life.run(changed, events[200:300])
    before = life.ids()
    rows = find_matches(load_rules(changed, STREAM), None, events[:300])
    due = {row["match_id"] for row in rows if row["match_end"].timestamp() < 2 * 299 - 10}
    missing = due - before.keys()
    assert missing
    assert f"late start, pair, - to 1970-01-01T00:06:38Z: {len(missing)} missing matches" in life.backfill(
        "--gaps"
    )
    life.run(changed, events[300:])
    assert missing <= life.ids().keys()
    assert set(life.ids().values()) == {1}
    assert [gap["rules"] for gap in life.gaps() if gap["kind"] == "late start" and not gap["filled"]] == []


def test_a_new_rule_begins_with_the_past(tmp_path: Path) -> None:
    life, events = Life(tmp_path), events_of(7, 300)
    life.run(BEFORE, events[:100], events[100:200])
    life.write(BEFORE + LATER)
    life.backfill("--matches", "alert")
    life.run(BEFORE + LATER, events[200:])
    rows = find_matches(load_rules(BEFORE + LATER, STREAM), None, events)
    due = [row["match_id"] for row in rows if row["match_end"].timestamp() < 2 * 299 - 10]
    assert life.ids() == Counter(due)
    assert life.gaps() == []
    assert life.backfill("--gaps").endswith("nothing to fill\n")


def test_the_ledger_and_the_history_move_with_a_savepoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life, events = Life(tmp_path), events_of(8, 300)
    late = [event for event in events[:80] if event["x"] > 7][:3]
    life.run(BEFORE, [event for event in events[:100] if event not in late], [*events[100:200], *late])
    life.backfill("--gaps")
    life.run(BEFORE)
    life.run(BEFORE + LATER, [*events[200:], late[0]])
    expected = life.gaps()
    assert {(gap["kind"], gap["filled"] is not None) for gap in expected} == {
        ("late", True),
        ("late", False),
        ("late start", False),
    }
    monkeypatch.setattr("spark_runtime.pipeline.saving.stored_values", lambda *given: ())
    save(str(life.checkpoint), str(tmp_path / "saved"))
    restore(str(tmp_path / "saved"), str(tmp_path / "restored"))
    gaps = all_gaps(LocalFiles(str(tmp_path / "restored")), str(tmp_path / "restored"))
    assert [(gap.loss, gap.rules, gap.n, gap.filled) for gap in gaps] == [
        (gap.loss, gap.rules, gap.n, gap.filled)
        for gap in all_gaps(LocalFiles(str(life.checkpoint)), str(life.checkpoint))
    ]
    told = life.cep("history", str(tmp_path / "restored"))
    assert told.count("before the restore") == 3
    assert "   filled    late, pair: " in told
    saved_again = tmp_path / "saved/history/0.json"
    saved_again.write_text(saved_again.read_text() + " ")
    refused = life.cep("restore", str(tmp_path / "saved"), str(tmp_path / "other"), code=1)
    assert "E0714" in refused
