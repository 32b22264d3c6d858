"""The argument `limits` of `detect`: what it takes, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from cep.errors import CepError
from cep.rule_set import Corrections
from spark_runtime.detection import Call, _limits
from spark_runtime.operator.limits import Limit, Limits, Then
from tests.unit.engine.events import SECOND
from tests.unit.spark_runtime.operator.test_limits import RULES

CALL = Call(
    events=cast(Any, None),
    rules=RULES.rule_set,
    streams=None,
    event_time=None,
    tie_break=(),
    lateness=None,
    deduplicate=False,
    key_groups=None,
)
CORRECTED = RULES.rule_set.with_corrections(Corrections(60 * SECOND))


def test_limits_of_detect_are_those_of_a_pipeline_file() -> None:
    given = {"open_runs": {"at_most": 7, "then": "drop_oldest"}, "matches": {"at_most": 9}}
    expected = Limits(Limit(7, Then.OLDEST), Limit(9))
    assert _limits(replace(CALL, limits=cast(Any, given)), RULES.rule_set) == expected
    assert not _limits(CALL, RULES.rule_set)
    fails = Limits(Limit(7), Limit(9), waiting_events=Limit(5))
    given = {name: {"at_most": n} for name, n in (("open_runs", 7), ("matches", 9), ("waiting_events", 5))}
    assert _limits(replace(CALL, limits=cast(Any, given)), CORRECTED) == fails


@pytest.mark.parametrize(
    ("given", "is_corrected", "told"),
    [
        (["open_runs"], False, r"E0827.*limits is \['open_runs'\].*give a dictionary as in a pipeline file"),
        ({"open_runs": object()}, False, "E0827"),
        ({"open_runs": {"then": "fail"}}, False, "`at_most`"),
        ({"runs": {"at_most": 5}}, False, "`runs`"),
        ({"alerts_per_day": {"at_most": 5}}, False, "E0828.*`alerts_per_day` cannot be among the limits"),
        ({"hot_key_percent": 5}, False, "E0828.*`hot_key_percent` cannot be among the limits of detect"),
        (
            {"matches": {"at_most": 5, "then": "drop_oldest"}},
            True,
            "E0828.*`limits: matches` drops, with corrections: a late event may .*write: then: fail",
        ),
        ({"open_runs_mb": {"at_most": 5}}, True, "E0828.*`limits: open_runs_mb` with corrections"),
    ],
)
def test_limits_that_are_wrong_or_that_detect_cannot_keep_are_refused(
    given: Any, is_corrected: bool, told: str
) -> None:
    with pytest.raises(CepError, match=f"(?s){told}"):
        _limits(replace(CALL, limits=given), CORRECTED if is_corrected else RULES.rule_set)
