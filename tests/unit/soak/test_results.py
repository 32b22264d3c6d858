"""What `make soak` finds in results: rows that are lost, doubled or foreign."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.soak.__main__ import ENDING, schedule
from tests.soak.feed import KINDS, Feed
from tests.soak.pipeline import CHANGES
from tests.soak.results import compared, counted


def row(number: int, **more: object) -> dict[str, Any]:
    return {"rule": "r", "match_id": f"m{number}", **more}


def test_equal_results_have_no_fault() -> None:
    assert compared([row(1), row(2)], [row(2), row(1)]) == []


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        ([row(1)], "1 compared, 1 lost, 0 twice, 0 foreign"),
        ([row(1), row(2), row(2)], "1 compared, 0 lost, 1 twice, 0 foreign"),
        ([row(1), row(2), row(3)], "2 compared, 0 lost, 0 twice, 1 foreign"),
    ],
)
def test_a_row_that_is_lost_doubled_or_foreign_is_a_fault(found: list[dict[str, Any]], fault: str) -> None:
    assert compared([row(1), row(2)], found) == [f"rule r: {fault}"]


def test_a_withdrawn_match_counts_as_if_it_had_not_been() -> None:
    right = [row(1, kind="match", revision=0)]
    withdrawn = [row(2, kind="match", revision=0), row(2, kind="retract", revision=1)]
    assert compared(right, right + withdrawn) == []
    assert compared(right, right + withdrawn[1:]) == ["rule r: 1 compared, 0 lost, 0 twice, 1 foreign"]


def test_late_events_are_those_that_must_be_and_some_that_may_be() -> None:
    assert counted("late", [1, 2], least={1}, most={1, 2, 3}) == []
    assert counted("late", [2, 4, 4], least={1}, most={1, 2}) == [
        "late: 3 compared, 1 lost, 1 twice, 1 foreign"
    ]


def test_nothing_ends_the_run_in_the_second_half_and_all_kinds_have_their_turn() -> None:
    kinds = [*ENDING, *KINDS, *CHANGES]
    planned = schedule(7200, 180, kinds, random.Random(3))
    assert {kind for _, kind in planned} == set(kinds)
    assert not [kind for at, kind in planned if at >= 3600 and kind in ENDING]
    assert planned == schedule(7200, 180, kinds, random.Random(3))
    assert schedule(7200, 180, [], random.Random(3)) == []


def test_a_feed_keeps_what_it_sent_but_for_dead_letters_and_late_events(tmp_path: Path) -> None:
    feed = Feed(tmp_path, 100, random.Random(1))
    for kind in KINDS:
        feed.disturb(kind)
    assert len(feed.must_be_late) == 30
    assert len(feed.dead) == 60
    files = (file.read_text().splitlines() for file in (tmp_path / "events").glob("*/*.json"))
    assert sum(map(len, files)) == 90
    kept = [line for name in ("pays", "logins", "limits") for line in feed.accepted(name, feed.must_be_late)]
    assert kept == []
    assert len(list(feed.accepted("pays", set()))) == 10
