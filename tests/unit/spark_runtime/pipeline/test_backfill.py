"""Why a checkpoint has no past with which new rules can begin."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cep.engine.event_time.watermark import END_OF_TIME_US
from cep.errors import StateError
from spark_runtime.event_time.done import Done
from spark_runtime.event_time.reached import Reached
from spark_runtime.pipeline.backfill import require_past

NOTHING_READ = Done(-1, Reached(), {}, ended=False)
READ = Done(0, Reached(50, {"t": (60, "")}), {"t": 1}, ended=False)


@pytest.mark.parametrize(
    ("done", "fact", "help_text"),
    [
        (NOTHING_READ, "the stream has read no event", "new rules see all of its events without a backfill"),
        (
            Done(0, Reached(None, {"t": (60, "")}), {"t": 1}, ended=False),
            "no watermark yet: a source has had no event",
            "until each source has had one",
        ),
        (replace(READ, ended=True), "declared complete (`at_end: finish`)", "an empty checkpoint directory"),
        (
            replace(READ, reached=Reached(END_OF_TIME_US, READ.reached.latest), ended=True),
            "events that come now are late",
            "all rules then see all of the input",
        ),
    ],
)
def test_a_checkpoint_without_a_past_is_refused_with_what_helps(
    done: Done, fact: str, help_text: str
) -> None:
    with pytest.raises(StateError) as refused:
        require_past(done)
    assert refused.value.code == "E0718"
    assert fact in str(refused.value)
    assert help_text in str(refused.value.help)


def test_a_stream_that_has_read_events_has_a_past() -> None:
    require_past(READ)
