"""Drivers that are killed around files of state, and savepoints: what `make sweep` draws with `--state`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kills.feeds import feed_of
from tests.kills.pipelines import KilledPipeline
from tests.kills.points import OF_A_RESTORE, OF_A_SAVEPOINT, OF_STATE, Call
from tests.kills.runs import Kill
from tests.kills.saves import Save
from tests.kills.ticks import CORRECTED, WINDOWS, Running, compared
from tests.kills.written import sink_of

pytestmark = [pytest.mark.spark, pytest.mark.deep]


def made(folder: Path, running: Running, state_format: int) -> KilledPipeline:
    pipeline = KilledPipeline(
        folder, feed_of("files", {}, folder), {"json": sink_of("json", {}, folder)}, running, state_format
    )
    pipeline.send(60)
    return pipeline


def require_right(pipeline: KilledPipeline) -> None:
    """Let the pipeline end; nothing is lost, wrong or twice, and no file remains for ever."""
    pipeline.finish()
    assert not pipeline.run()
    what = compared(pipeline.expected(), pipeline.rows()["json"], corrects=pipeline.running.corrects)
    assert (what.lost, what.foreign, what.n_twice) == ((), (), 0)
    assert pipeline.leftovers() == []


@pytest.mark.parametrize("point", OF_STATE)
def test_a_driver_that_is_killed_around_files_of_state_goes_on(tmp_path: Path, point: str) -> None:
    pipeline = made(tmp_path, WINDOWS, 2)
    for _ in range(2):  # so that there are files to be removed
        pipeline.run()
        pipeline.send(80)
    assert pipeline.run(Kill(OF_STATE[point])), "the point was not reached"
    require_right(pipeline)


def test_savepoints_and_restores_that_are_killed_are_made_again(tmp_path: Path) -> None:
    pipeline = made(tmp_path, CORRECTED, 1)
    pipeline.run()
    for number, at in enumerate(OF_A_SAVEPOINT.values()):
        assert isinstance(at, Call)
        assert pipeline.save(Save(at))[0] is None, "it was not killed"
        pipeline.save_again()
        assert pipeline.saved.name == f"saved-{number + 1}"
    pipeline.send(40)
    pipeline.run()  # beyond the savepoint
    for number, at in enumerate(OF_A_RESTORE.values()):
        assert isinstance(at, Call)
        assert pipeline.restore(number + 2, Save(at)), "it was not killed"
    assert pipeline.run(Kill(OF_STATE["after a file of state"])), "the first run was not killed"
    require_right(pipeline)
