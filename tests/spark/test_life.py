"""One pipeline through its life: rules change, are tried, begin with the past; more key groups; late events.

Late events correct matches; what comes too late for that is a gap, which is filled.

No match is lost, doubled or wrong: each rule reports what it reports over all events that it was to see.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from cep.commands.cli import main
from cep.program.program import MATCH
from cep.rule_set import KIND, RETRACT, REVISION
from tests.spark.events import EVENTS_RULE, ROOM_RULE, RULES, STRICT_RULE
from tests.spark.test_backfill import Folder
from tests.spark.test_pipeline import FINISH, keyed_events, quiet_run, read
from tests.spark.test_reload import cep, ids, in_time, latest, local_matches

N_PARTS = 6
BEFORE = RULES.replace("40 SECONDS", "4 MINUTES").replace("AS kind\n", "AS first_kind\n") + ROOM_RULE
CHANGED = BEFORE.replace("COUNT(low.*) AS lows", "COUNT(low.*) * 2 AS twice").replace(
    "5 SECONDS", "6 SECONDS"
)
SHADOW = CHANGED + STRICT_RULE.replace("FROM readings", "STATUS shadow FROM readings", 1)
PROMOTED = CHANGED + STRICT_RULE
WHOLE = PROMOTED + EVENTS_RULE


def after(events: Sequence[dict[str, Any]], part: int) -> list[dict[str, Any]]:
    """Return the events that a rule sees which began with a part."""
    begins = latest(events[: part * len(events) // N_PARTS])
    return [event for event in events if event["ts"] > begins]


class Corrected(Folder):
    """Late events correct its matches for six and a half minutes."""

    def write(self, rules: str, more: str = "") -> Path:
        file = super().write(rules, more)
        text = file.read_text()
        file.write_text(text.replace("path: out/late}", "path: out/late, correct_within: 390 seconds}"))
        return file


def standing(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of matches that are not withdrawn."""
    last: dict[str, int] = {}
    for row in rows:
        last[row["match_id"]] = max(last.get(row["match_id"], 0), row[REVISION])
    return [row for row in rows if row[KIND] == MATCH and row[REVISION] == last[row["match_id"]]]


def deliveries() -> tuple[list[dict[str, Any]], list[list[dict[str, Any]]], list[dict[str, Any]]]:
    """Return all events, their parts in the order of arrival, and those too late for a correction."""
    n = 200
    events = keyed_events(80, 1500)[: N_PARTS * n]
    parts = [events[part * n : (part + 1) * n] for part in range(N_PARTS)]
    for part, until in ((1, 3), (4, 5)):  # some events come late, after changes of the rules
        late, parts[part] = parts[part][80:120], parts[part][:80] + parts[part][120:]
        parts[until] = [*late, *parts[until]]
    too_late, parts[0] = parts[0][25:45], parts[0][:25] + parts[0][45:]
    parts[2] = [*too_late, *parts[2]]
    return events, parts, too_late


def require_fills(life: Corrected, n_late: int) -> None:
    """Prepare what fills the gap of late events; check that it adds and withdraws matches."""
    assert len(read(life.place / "out/late", "json")) == n_late
    told = life.backfill("--gaps")
    assert re.search(r"^  late, rise, silence, .*: [1-9]\d* missing match(es)?$", told, re.MULTILINE)
    assert re.search(
        r"^  [1-9]\d* reported match(es are| is) wrong, and (are|is) withdrawn$", told, re.MULTILINE
    )


@pytest.mark.deep
def test_a_pipeline_lives_through_every_change_without_a_lost_doubled_or_wrong_match(
    spark: SparkSession, tmp_path: Path
) -> None:
    events, parts, too_late = deliveries()
    more = "reload: after approval\nshadow: {format: json, path: out/shadow}\nlog: out/log"
    life = Corrected(tmp_path, more)
    pipeline = tmp_path / "pipeline.yaml"

    life.run(BEFORE, parts[0])

    # A changed rule set, with its verdict and an approval.
    life.write(CHANGED)
    told = CliRunner().invoke(main, ["diff", str(pipeline), "--checkpoint", str(life.checkpoint)]).output
    assert re.search(r"^measures +rise", told, re.MULTILINE)
    assert re.search(r"^changed +crowd .*window", told, re.MULTILINE)
    assert "approved: the rules " in cep("approve", str(pipeline), "--by", "ann")
    life.run(CHANGED, parts[1])

    # A shadow rule, and later its promotion, which changes only words.
    life.write(SHADOW)
    cep("approve", str(pipeline))
    life.run(SHADOW, parts[2])
    assert not ids(life.matches, "neighbours")
    tried = read(tmp_path / "out/shadow", "json")
    assert tried

    # A gap: the rules read again what came too late for a correction. Later events correct matches.
    require_fills(life, len(too_late))
    life.run(PROMOTED, parts[3])

    # A new rule that begins with the past.
    life.write(WHOLE)
    assert "read " in life.backfill("--matches", "alert")
    cep("approve", str(pipeline))
    life.run(WHOLE, parts[4])

    # A savepoint, restored with twice the key groups.
    told = cep("savepoint", str(life.checkpoint), str(tmp_path / "saved"))
    assert ", 2 key groups, " in told
    cep("restore", str(tmp_path / "saved"), str(tmp_path / "out/other"), "--key-groups", "4")
    file = life.write(WHOLE, FINISH)
    file.write_text(file.read_text().replace("checkpoint: out/checkpoint", "checkpoint: out/other"))
    life.add(parts[5])
    quiet_run(file)

    assert len(read(tmp_path / "out/late", "json")) == len(too_late)
    written, all_of = life.matches, local_matches(WHOLE, events)
    assert [row for row in written if row[KIND] == RETRACT]
    rows = standing(written)
    for rule in ("rise", "silence"):
        assert ids(rows, rule) == ids(all_of, rule), rule
        assert ids(rows, rule)
    seen = [event for event in events if event not in too_late]  # by the past of the new rule
    assert ids(rows, "whole") == ids(local_matches(WHOLE, seen), "whole")
    assert ids(rows, "whole")
    old = [row for row in local_matches(BEFORE, parts[0]) if in_time(row, latest(parts[0]))]
    assert ids(rows, "crowd") == ids(old, "crowd") + ids(local_matches(WHOLE, after(events, 1)), "crowd")
    expected = ids(local_matches(PROMOTED, after(events, 2)), "neighbours")
    assert ids(standing([*tried, *written]), "neighbours") == expected
    assert ids(rows, "neighbours")
    assert max(Counter(row["match_id"] for row in rows if row["rule"] != "whole").values()) == 1
    told = cep("history", str(tmp_path / "out/other"))
    assert "approved by ann" in told or "from micro-batch" in told
    assert "neighbours" in cep("history", str(life.checkpoint))
    told = cep("gaps", str(tmp_path / "out/other"))
    assert all(word in told for word in ("late start", "filled"))
