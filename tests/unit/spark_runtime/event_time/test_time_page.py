"""docs/operate/time.md: its settings are accepted, a run prints its lines, its example holds."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from cep.compiler.compile import compile_sources
from cep.engine.corrections.corrector import Corrector
from cep.engine.prepare.predicates import prepare
from cep.errors import Source
from cep.rule_set import Corrections
from cep.schema.stream import Field, Stream
from spark_runtime.event_time.time_status import ByClock, PartitionStatus, TimeStatus
from spark_runtime.pipeline.pipeline_file import load_pipeline

PAGE = (Path(__file__).parents[4] / "docs" / "operate" / "time.md").read_text()
MINUTE_US = 60_000_000


def us(text: str) -> int:
    return round(datetime.fromisoformat(f"2024-05-01T{text}+00:00").astimezone(UTC).timestamp() * 1e6)


@pytest.mark.parametrize("block", re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
def test_settings_of_the_page_are_accepted(tmp_path: Path, block: str) -> None:
    base = {
        "streams": {
            "readings": {
                "event_time": "ts",
                "schema": {"ts": "timestamp", "gateway": "string", "v": "double"},
            }
        },
        "rules": ["rules"],
        "source": {"stream": "readings", "format": "json", "path": "in/readings"},
        "sinks": [{"format": "console"}],
        "checkpoint": "state",
    }
    (tmp_path / "rules").mkdir()
    rule = "RULE r FROM readings PARTITION BY gateway PATTERN a -> b WITHIN 1 MINUTE "
    rule += "DEFINE a AS v > 1, b AS v < 0"
    (tmp_path / "rules" / "r.cep").write_text(rule)
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(base | yaml.safe_load(block)))
    pipeline = load_pipeline(tmp_path / "p.yaml")
    assert [source.stream for source in pipeline.sources] == ["readings"]


def test_lines_of_the_page_are_those_of_a_run() -> None:
    names = {"readings[gateway-b]": us("12:11:00"), "readings[gateway-a]": us("12:34:00")}
    parts = tuple(
        PartitionStatus(name, latest, us("12:34:00") - latest, 0.0) for name, latest in names.items()
    )
    held = TimeStatus(us("12:10:50"), "readings[gateway-b]", 240.2, 18_400, parts)
    shown = "\n".join([held.line(), *(part.line() for part in parts)])
    assert f"\n{shown}\n" in PAGE
    summary = "\n".join(f"{word:<28}{text}" for word, text in held.summary_lines())
    assert f"\n{summary}\n" in PAGE
    by_clock = TimeStatus(us("12:00:20"), "", 0.0, 0, by_clock=ByClock(is_ahead=True, n_steps=1))
    assert f"\n{by_clock.line()}\n" in PAGE
    paused = TimeStatus(us("00:00:50"), "payments", 12.0, 1_013_031, is_paused=True)
    assert f"\n{paused.line()}\n" in PAGE


def test_the_rows_of_the_example_of_corrections_are_those_that_come() -> None:
    stream = Stream("s", (Field("k", "string"), Field("ts", "timestamp"), Field("v", "string")), "ts")
    text = (
        "RULE r FROM s PARTITION BY k PATTERN a -> b WITHIN 1 MINUTE DEFINE a AS v = 'a', b AS v = 'b' "
        "AFTER MATCH SKIP PAST LAST EVENT"
    )
    (program,) = compile_sources([Source("r", text)], {"s": stream}).rule_set.programs
    corrector = Corrector(program, Corrections(60 * MINUTE_US))

    def come(events: list[tuple[int, str]], watermark_s: int) -> list[tuple[int, int, int, str]]:
        seconds, letters = zip(*events, strict=True)
        table = {"k": ["x"] * len(events), "ts": [s * 1_000_000 for s in seconds], "v": letters}
        corrector.push(prepare(program, pa.table(table), stream))
        rows = corrector.advance(watermark_s * 1_000_000).to_pylist()
        ids.extend(row["match_id"] for row in rows)
        return [
            (row["match_start"].second, row["match_end"].second, row["revision"], row["kind"]) for row in rows
        ]

    ids: list[str] = []
    found = come([(1, "a"), (3, "b")], 4) + come([(2, "b")], 4)
    rows = re.findall(r"^\| `(\w+)\.\.\.` \| (\d) \| (\d) \| (\d) \| `(\w+)` \|", PAGE, re.MULTILINE)
    assert found == [(int(start), int(end), int(revision), kind) for _, start, end, revision, kind in rows]
    named = [row[0] for row in rows]
    assert [ids.index(one) for one in ids] == [named.index(one) for one in named]
