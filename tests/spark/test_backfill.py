"""New rules that begin with the past: the same matches, with the same ids, as had they always run."""

from __future__ import annotations

import importlib
import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cep.errors import StateError
from spark_runtime.pipeline.backfill import Wanted, _alone, backfill_pipeline
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.pipeline.prepared import PastMatches
from tests.spark.events import EVENTS_RULE, ROOM_RULE, RULES, STRICT_RULE
from tests.spark.test_pipeline import FINISH, keyed_events, quiet_run, read, text_of, write_pipeline
from tests.spark.test_reload import Live, cep, has_read, ids, local_matches, run_until, until

SINKS = "[{format: json, path: out/matches}]"
BEFORE = RULES.replace("40 SECONDS", "4 MINUTES")
LATER_RULE = """
RULE later
FROM readings
PARTITION BY sensor
PATTERN one -> other
WITHIN 10 MINUTES
DEFINE
  one   AS kind = 'd',
  other AS kind = 'c' AND COUNT(*) OVER LAST 2 MINUTES > 3
MEASURES
  one.serial AS serial
"""
NEW_RULES = ROOM_RULE + EVENTS_RULE + STRICT_RULE + LATER_RULE
AFTER = NEW_RULES + BEFORE
NEW = ("crowd", "whole", "neighbours", "later")
OLD = ("rise", "silence")


def with_late(events: Sequence[dict[str, Any]], draw: random.Random) -> list[dict[str, Any]]:
    """Return events of which some come long after those that are as old."""
    found = list(events)
    for _ in range(len(events) // 20):
        event = found.pop(draw.randrange(len(found) // 2))
        found.insert(draw.randrange(len(found) // 2, len(found)), event)
    return found


class Folder:
    """A pipeline whose input comes file by file."""

    def __init__(self, place: Path, more: str = "reload: on change") -> None:
        self.place, self.more = place, more
        self.checkpoint = place / "out/checkpoint"
        self._n = 0

    def write(self, rules: str, more: str = "") -> Path:
        self.place.mkdir(exist_ok=True)
        (self.place / "events").mkdir(exist_ok=True)
        source = "format: json, path: events, max_files_per_trigger: 1"
        return write_pipeline(self.place, source, f"{self.more}\n{more}", SINKS, rules)

    def add(self, events: Sequence[Mapping[str, Any]]) -> None:
        file = self.place / f"events/{self._n:03}.json"
        self._n += 1
        unfinished = file.with_name(f".{file.name}")
        unfinished.write_text("".join(f"{json.dumps(text_of(dict(event)))}\n" for event in events))
        unfinished.rename(file)

    def run(self, rules: str, *parts: Sequence[Mapping[str, Any]], more: str = "") -> None:
        """Run once, with a micro-batch for each part."""
        file = self.write(rules, more)
        for part in parts:
            self.add(part)
        quiet_run(file)

    def backfill(self, *words: str, code: int = 0) -> str:
        return cep("backfill", str(self.place / "pipeline.yaml"), *words, code=code)

    @property
    def matches(self) -> list[dict[str, Any]]:
        return read(self.place / "out/matches", "json")

    def apart(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.place / "apart" / name).read_text().splitlines()]


def parts_of(seed: int, n_parts: int = 4, n: int = 600) -> list[list[dict[str, Any]]]:
    draw = random.Random(seed)
    events = with_late(keyed_events(seed, n), draw)
    cuts = [0, *sorted(draw.sample(range(1, n - 1), n_parts - 1)), len(events)]
    return [events[first:last] for first, last in pairwise(cuts)]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.deep)])
def test_new_rules_with_the_past_report_what_they_had_reported_had_they_always_run(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    parts = parts_of(seed)
    always, warm = Folder(tmp_path / "always"), Folder(tmp_path / "warm")
    always.run(AFTER, *parts[: 1 + seed])
    always.run(AFTER, *parts[1 + seed :], more=FINISH)
    assert read(always.place / "out/late", "json")
    warm.run(BEFORE, *parts[: 1 + seed])
    warm.write(AFTER)
    said = warm.backfill("--matches", "alert")
    assert f"read {sum(map(len, parts[: 1 + seed])):,} events" in said
    warm.run(AFTER, *parts[1 + seed :], more=FINISH)
    for names in (NEW, OLD):
        expected = ids(always.matches, *names)
        assert ids(warm.matches, *names) == expected
        assert {row["rule"] for row in always.matches} >= set(names)
    assert not (warm.checkpoint / "backfill/prepared").exists()
    told = cep("history", str(warm.checkpoint))
    assert "crowd       it began with the past" in told or "it began with the past" in told


@pytest.mark.deep
def test_matches_of_the_past_are_written_apart_or_not_at_all(spark: SparkSession, tmp_path: Path) -> None:
    parts = parts_of(3)
    always = Folder(tmp_path / "always")
    always.run(AFTER, *parts[:2])
    past = ids(always.matches, *NEW)
    always.run(AFTER, parts[2])
    rest = ids(always.matches, *NEW) - past
    always.run(AFTER, parts[3], more=FINISH)
    whole = ids(always.matches, *NEW)
    for matches in ("none", "apart"):
        folder = Folder(tmp_path / matches)
        folder.run(BEFORE, *parts[:2])
        folder.write(AFTER)
        into = ["--into", str(folder.place / "apart")] if matches == "apart" else []
        said = folder.backfill("--matches", matches, *into)
        n_past = Counter(row["rule"] for row in always.matches if row["match_id"] in past)
        assert f"  crowd: {n_past['crowd']:,} matches in the past" in said
        folder.run(BEFORE, parts[2])  # it comes between the backfill and the change
        folder.run(AFTER, parts[3], more=FINISH)
        assert ids(folder.matches, *OLD) == ids(always.matches, *OLD)
        assert ids(folder.matches, *NEW) == whole - past - rest
        if matches == "apart":
            assert ids(folder.apart("past.jsonl"), *NEW) == past
            assert ids(folder.apart("rest.jsonl"), *NEW) == rest
            kept = [row for row in always.matches if row["rule"] == "crowd" and row["match_id"] in past]
            found = [row for row in folder.apart("past.jsonl") if row["rule"] == "crowd"]
            assert sorted(map(json.dumps, found)) == sorted(map(json.dumps, kept))


POINTS = (
    ("spark_runtime.pipeline.plans.write_plan", "after", "the last micro-batch before is planned"),
    ("spark_runtime.pipeline.prepared.write_warm", "before", "the past is read"),
    ("spark_runtime.pipeline.prepared.write_warm", "after", "its folder does not appear yet"),
    ("spark_runtime.pipeline.reloading.write_generation", "before", "nothing is recorded"),
    ("spark_runtime.pipeline.reloading.write_generation", "after", "the rules are recorded"),
    ("spark_runtime.pipeline.plans.write_plan", "after", "the first micro-batch is planned"),
    ("spark_runtime.pipeline.micro_batches.write_done", "before", "sinks have it"),
    ("spark_runtime.pipeline.micro_batches.write_done", "after", "it is done, and Spark does not know"),
    ("spark_runtime.pipeline.micro_batches.forget", "before", "Spark knows, and the past is still there"),
)
"""In the order of a change: each run comes to the next one."""


@pytest.mark.parametrize("state", ["inline", pytest.param("files", marks=pytest.mark.deep)])
def test_a_run_that_ends_at_any_point_loses_no_match_of_the_past_and_doubles_none(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    parts = parts_of(4)
    always = Folder(tmp_path / "always")
    always.run(AFTER, *parts[:2])
    always.run(AFTER, parts[2])
    always.run(AFTER, parts[3], more=FINISH)
    folder = Folder(tmp_path / "warm", f"reload: on change\nstate: {state}")
    folder.run(BEFORE, *parts[:2])
    file = folder.write(AFTER)
    folder.backfill("--matches", "alert")
    folder.add(parts[2])
    for place, moment, _ in POINTS:
        run_until(file, place, moment, monkeypatch)
    folder.run(AFTER, parts[3], more=FINISH)
    for names in (NEW, OLD):
        assert ids(folder.matches, *names) == ids(always.matches, *names)
    assert not list((folder.checkpoint / "backfill").iterdir())


WANTED = Wanted((), None, PastMatches.ALERT)

BACKFILL_POINTS = (
    ("spark_runtime.pipeline.past.Past.read", "before"),
    ("spark_runtime.pipeline.past.Past.read", "after"),
    ("spark_runtime.pipeline.backfill.write_matches", "before"),
    ("spark_runtime.pipeline.backfill.write_matches", "after"),
)


def plant(patched: pytest.MonkeyPatch, place: str, moment: str) -> None:
    """Let a backfill end before or after a call of a function."""
    owner, _, name = place.rpartition(".")
    module, _, member = owner.rpartition(".")
    target = importlib.import_module(owner) if member != "Past" else importlib.import_module(module).Past
    call = getattr(target, name)

    def planted(*given: Any) -> None:
        if moment == "after":
            call(*given)
        raise RuntimeError("the backfill ends here")

    patched.setattr(target, name, planted)


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_backfill_that_ends_at_any_point_leaves_the_checkpoint_as_it_was(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = parts_of(5, 3, 300)
    folder = Folder(tmp_path / "warm")
    folder.run(BEFORE, *parts[:2])
    folder.write(AFTER)
    before = files_in(folder.checkpoint)
    for place, moment in BACKFILL_POINTS:
        with monkeypatch.context() as patched:
            plant(patched, place, moment)
            with pytest.raises(RuntimeError, match="ends here"):
                backfill_pipeline(load_pipeline(folder.place / "pipeline.yaml"), WANTED)
        left = files_in(folder.checkpoint)
        assert {name: left[name] for name in before} == before
        assert all(".prepared.unfinished/" in name for name in left.keys() - before.keys())
    with (
        _alone(str(folder.checkpoint)),
        pytest.raises(StateError, match=r"E0718.*another `cep backfill` reads the past"),
    ):
        backfill_pipeline(load_pipeline(folder.place / "pipeline.yaml"), WANTED)
    assert "removed" not in folder.backfill("--discard")


def in_order(seed: int, n: int, n_parts: int) -> list[list[dict[str, Any]]]:
    events = sorted(keyed_events(seed, n), key=lambda event: (event["ts"], event["id"]))
    size = -(-n // n_parts)
    return [events[at : at + size] for at in range(0, len(events), size)]


def test_a_running_stream_takes_new_rules_with_the_past_when_they_are_approved(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    parts = in_order(6, 600, 4)
    folder = Folder(tmp_path / "live", 'trigger: "0 seconds"')
    file = folder.write(BEFORE)
    folder.add(parts[0])
    said = ""

    def told() -> str:
        nonlocal said
        said += capfd.readouterr().err
        return said

    def beside() -> None:
        until(lambda: has_read(folder.checkpoint, parts[0]))
        (folder.place / "readings.cep").write_text(AFTER)
        until(lambda: "nobody has approved it" in told())
        folder.backfill("--matches", "alert", "--rate", "100000")
        folder.add(parts[1])
        until(lambda: has_read(folder.checkpoint, parts[1]))
        cep("approve", str(file))
        until(lambda: "the rules have changed, from micro-batch" in told())
        folder.add(parts[2])
        until(lambda: has_read(folder.checkpoint, parts[2]))

    Live(file, beside).run()
    assert f"begin with the past: {len(parts[1]):,} events since `cep backfill`" in told()
    folder.more = ""
    folder.run(AFTER, parts[3], more=FINISH)
    whole = local_matches(AFTER, [event for part in parts for event in part])
    for names in (NEW, OLD):
        assert ids(folder.matches, *names) == ids(whole, *names)
    assert cep("gaps", str(folder.checkpoint)) == "no gaps\n"


def test_new_rules_see_the_events_from_the_given_time_on(spark: SparkSession, tmp_path: Path) -> None:
    parts = in_order(7, 600, 4)
    events = [event for part in parts for event in part]
    begins = parts[1][len(parts[1]) // 2]["ts"]
    folder = Folder(tmp_path / "from")
    folder.run(BEFORE, *parts[:3])
    folder.write(AFTER)
    folder.backfill(
        "--matches", "alert", "--from", begins.isoformat(), "--rules", "crowd", "--rules", "later"
    )
    folder.run(AFTER, parts[3], more=FINISH)
    expected = local_matches(AFTER, [event for event in events if event["ts"] >= begins])
    assert ids(folder.matches, "crowd", "later") == ids(expected, "crowd", "later")
    assert ids(folder.matches, *OLD) == ids(local_matches(AFTER, events), *OLD)
    last = max(event["ts"] for part in parts[:3] for event in part)
    cold = local_matches(AFTER, [event for event in events if event["ts"] > last])
    assert ids(folder.matches, "neighbours") == ids(cold, "neighbours")
    gaps = [json.loads(line) for line in cep("gaps", str(folder.checkpoint), "--format", "json").splitlines()]
    ends = {rule: gap["to"] for gap in gaps for rule in gap["rules"] if gap["kind"] == "late start"}
    assert datetime.fromisoformat(ends["crowd"]) == begins - timedelta(microseconds=1)
    assert datetime.fromisoformat(ends["neighbours"]) == last


def test_what_cannot_begin_with_a_past_is_refused_and_the_rules_before_continue(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    parts = in_order(8, 400, 4)
    folder = Folder(tmp_path / "other")
    folder.run(BEFORE, parts[0])
    file = str(folder.write(BEFORE))
    assert "E0718]: no rule is new" in cep("backfill", file, code=1)
    folder.write(AFTER)
    assert "E0718]: rule `rise` is not new: same" in cep("backfill", file, "--rules", "rise", code=1)
    assert "E0718]: there is no rule `x`" in cep("backfill", file, "--rules", "x", code=1)
    assert "--into names the folder" in cep("backfill", file, "--matches", "apart", code=2)
    changed = BEFORE.replace("4 MINUTES", "3 MINUTES")
    folder.write(changed)
    assert "rule `rise` has changed, and may have" in cep("backfill", file, "--matches", "alert", code=1)
    folder.write(changed + ROOM_RULE)
    folder.backfill("--rules", "crowd")
    folder.write(BEFORE + ROOM_RULE + STRICT_RULE)
    capfd.readouterr()
    folder.run(BEFORE + ROOM_RULE + STRICT_RULE, parts[1])
    assert "the changed rules are not used" not in capfd.readouterr().err  # its program is the same
    folder.write(BEFORE + ROOM_RULE + STRICT_RULE + EVENTS_RULE)
    folder.backfill()
    capfd.readouterr()
    folder.run(BEFORE + ROOM_RULE + STRICT_RULE + LATER_RULE + EVENTS_RULE, parts[2])
    told = capfd.readouterr().err
    assert "the changed rules are not used, those before continue" in told
    assert "error[E0718]: the past of `whole` was read for other rules" in told
    folder.write(BEFORE + ROOM_RULE + STRICT_RULE + EVENTS_RULE)
    folder.backfill()
    state = folder.checkpoint / "backfill/prepared/state"
    state.write_bytes(state.read_bytes()[:-1])
    folder.run(BEFORE + ROOM_RULE + STRICT_RULE + EVENTS_RULE)
    assert "which has the past of new rules, does not contain what was written" in capfd.readouterr().err
    assert "removed the past" in folder.backfill("--discard")
    folder.run(BEFORE + ROOM_RULE + STRICT_RULE + LATER_RULE + EVENTS_RULE, parts[3], more=FINISH)
    whole = local_matches(AFTER, [event for part in parts for event in part])
    assert ids(folder.matches, *OLD) == ids(whole, *OLD)


def test_a_batch_and_rules_that_never_change_need_no_backfill(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "batch", "mode: batch")
    file = folder.write(BEFORE)
    assert "needs no backfill: it is a batch" in cep("backfill", str(file))
    file.write_text(file.read_text().replace("mode: batch", "reload: never"))
    assert "E0718]: the pipeline has `reload: never`" in cep("backfill", str(file), code=1)
