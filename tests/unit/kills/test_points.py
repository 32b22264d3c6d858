"""The sweep of kills tries all sources and sinks, at points that are there."""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cep.formats.registry import FORMATS
from spark_runtime.sinks.registry import SINKS
from spark_runtime.sources.registry import SOURCES
from tests.e2e.sweep import Round, Tally
from tests.kills.feeds import FileFeed
from tests.kills.pipelines import KilledPipeline
from tests.kills.points import OF_A_RESTORE, OF_A_SAVEPOINT, OF_SINKS, OF_SOURCES, OF_STATE, Call, points_of
from tests.kills.ticks import Row, compared
from tests.kills.written import MadeSink

EVERY = {name: points_of(name, tuple(OF_SINKS), changes=True) for name in OF_SOURCES}
COMMANDS = (OF_STATE, OF_A_SAVEPOINT, OF_A_RESTORE)
CALLS = {
    point for points in (*EVERY.values(), *COMMANDS) for point in points.values() if isinstance(point, Call)
}


def test_all_sources_and_sinks_are_tried() -> None:
    assert {"files", *SOURCES.built_in} - {"rate"} == set(OF_SOURCES)
    assert set(SINKS.built_in) - {"console"} == set(OF_SINKS)
    assert "json" in FORMATS.built_in


@pytest.mark.parametrize("call", sorted(CALLS, key=repr), ids=lambda call: f"{call.moment} {call.name}")
def test_a_point_is_there(call: Call) -> None:
    owner = importlib.import_module(call.module)
    for part in call.name.split("."):
        owner = getattr(owner, part)
    assert callable(owner)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_dies_where_it_is_told(moment: str) -> None:
    code = (
        "from tests.kills import ticks\n"
        "from tests.kills.points import Call, plant\n"
        f"plant(Call('tests.kills.ticks', 'Compared', '{moment}'), 2)\n"
        "for _ in range(3):\n"
        "    ticks.compared([], [])\n"
        "    print('done', flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "done\n")


A, B, C = ("a", 0, 5), ("b", 5, 10), ("c", 10, 15)


def test_what_is_lost_there_twice_or_wrong_is_told() -> None:
    found = compared([A, B], [B, B, C])
    assert (found.lost, found.n_twice, found.foreign) == ((A,), 1, (C,))
    assert compared([A, B], [B, A]) == compared([], [])


def test_what_goes_wrong_is_told_of_the_kill_before_it(tmp_path: Path) -> None:
    expected = [A, B, C]
    contents: list[list[Row]] = [[A], [A, A], [A, A, C]]
    sink = MadeSink("format: json, path: json", lambda: contents.pop(0))

    class Pipeline(KilledPipeline):
        """Does not run: its sinks have what the test says."""

        def run(self, kill: object = None) -> bool:
            return True

        def expected(self) -> list[Row]:
            return expected

    made = Round("files", Pipeline(tmp_path, FileFeed(tmp_path), {"json": sink}))
    for name in ("first", "second"):
        made.kill(name, None)  # type: ignore[arg-type]
    tally = Tally()
    made.finish(tally)
    places = {point: ("files", "json", point) for point in ("first", "second")}
    assert [tally.twice[place] for place in places.values()] == [1, 0]
    assert [tally.lost[place] for place in places.values()] == [0, 1]
    assert len(tally.faults) == 1
    assert tally.faults[0].startswith("files -> json: 1 lost, 1 twice, 0 wrong of 3; killed at first, second")
