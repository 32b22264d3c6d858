"""A shadow rule beside a live one: what both have written is compared, from the time on when both ran."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from cep.commands.cli import main
from cep.program.changes import RuleChange, Verdict
from spark_runtime.pipeline.generations import Generation, write_generation
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.storage.checkpoint_files import LocalFiles

RULE = "RULE {} {} FROM t PARTITION BY {} PATTERN a -> b WITHIN 1 MINUTE DEFINE a AS v > 1, b AS v < 0 "
RULES = (
    RULE.format("live", "", "k")
    + RULE.format("tried", "STATUS shadow", "k")
    + RULE.format("other", "STATUS shadow", "n")
)
START = datetime(2026, 11, 9, tzinfo=UTC)
BEGINS_US = int(START.timestamp()) * 1_000_000


def row(rule: str, key: str | None, start: int, end: int) -> dict[str, Any]:
    times = {"match_start": START + timedelta(hours=start), "match_end": START + timedelta(hours=end)}
    return {"rule": rule, "match_id": f"{rule} {key} {start}", **times, "k": key}


def put(folder: Path, number: int, rows: list[dict[str, Any]], kind: str) -> None:
    place = folder / f"batch=run-{number}"
    place.mkdir(parents=True)
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), place / "part-0.parquet")
    else:
        texts = [{name: str(value) for name, value in row.items() if value is not None} for row in rows]
        (place / "part-0.json").write_text("".join(f"{json.dumps(text)}\n" for text in texts))


def written(folder: Path, settings: str) -> str:
    (folder / "r.cep").write_text(RULES)
    file = folder / "p.yaml"
    file.write_text(
        "streams: {t: {event_time: ts, schema: {k: string, n: bigint, ts: timestamp, v: double}}}\n"
        "rules: [r.cep]\nsource: {stream: t, format: json, path: events}\ncheckpoint: checkpoint\n" + settings
    )
    pipeline = load_pipeline(file)
    rules = StoredRules.of(pipeline.texts, pipeline.rules)
    files = LocalFiles(str(folder / "checkpoint"))
    write_generation(files, Generation(0, rules))
    changes = (RuleChange("tried", Verdict.NEW),)
    write_generation(files, Generation(1, rules, 3, BEGINS_US, changes))
    return str(file)


def diff(*words: str) -> Result:
    return CliRunner().invoke(main, ["diff", *words])


@pytest.mark.parametrize("live", ["log", "sink"])
@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_what_both_rules_have_reported_is_compared_by_key_and_day(
    tmp_path: Path, kind: str, live: str
) -> None:
    log = "log: out/log\n" if live == "log" else ""
    settings = f"{log}sinks: [{{format: console}}, {{format: {kind}, path: out/alerts}}]\n"
    file = written(tmp_path, f"{settings}shadow: {{format: {kind}, path: out/shadow}}\n")
    before = [row("live", "a", -3, -2), row("other", "a", 9, 10)]  # the shadow rule had not begun
    both = [row("live", "a", 1, 2), row("live", None, 5, 6), row("live", "b", 3, 5), row("live", "a", 30, 31)]
    of_log = "parquet" if live == "log" else kind
    place = tmp_path / ("out/log" if live == "log" else "out/alerts")
    put(place, 1, before, of_log)
    put(place, 2, both, of_log)
    tried = [
        row("tried", "a", 1, 2),
        row("tried", None, 5, 6),
        row("tried", "b", 4, 6),
        row("tried", "c", 7, 8),
    ]
    put(tmp_path / "out/shadow", 2, tried, kind)
    result = diff(file, "--shadow", "tried=live")
    assert result.exit_code == 0, result.output
    heading, sums, _, *days = result.output.splitlines()
    assert heading.split() == ["matches", "same", "moved", "newly", "no", "longer"]
    assert sums.split() == ["tried", "2", "1", "1", "1"]
    assert sorted(days) == [
        "2026-11-09  tried    k b: moved 1",
        "2026-11-09  tried    k c: newly 1",
        "2026-11-10  tried    k a: no longer 1",
    ]
    found = json.loads(diff(file, "--shadow", "tried=live", "--format", "json").output)["matches"]
    assert [(item["key"]["k"], item["newly"]) for item in found if item["newly"]] == [("c", 1)]
    assert len(found) == 5


def test_rules_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path, "sinks: [{format: parquet, path: out/alerts}]\n")
    for pair, said in (
        ("live=tried", "write a shadow rule and a live rule"),
        ("tried=none", "write a shadow rule and a live rule"),
        ("tried", "write a shadow rule and a live rule"),
        ("other=live", "these rules have different keys"),
        ("tried=live", "the pipeline writes no matches of shadow rules"),
    ):
        result = diff(file, "--shadow", pair)
        assert (result.exit_code, said in result.output) == (2, True), result.output
    assert "give one pipeline file" in diff(file, file, "--shadow", "tried=live").output
