"""Arguments of another type than documented: they are named, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from cep import find_matches, load_streams, match_file
from cep.errors import InputError, RuleError
from spark_runtime import run_pipeline
from spark_runtime.detection import _checked, _tie_break
from tests.unit.spark_runtime.test_limits_of_detect import CALL

NOTHING = cast(Any, None)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: load_streams(NOTHING), "E0827.*path is None"),
        (lambda: match_file(CALL.rules, NOTHING), "E0827.*path is None"),  # type: ignore[arg-type]
        (lambda: find_matches(NOTHING, {}, []), "E0827.*rules is None"),
        (lambda: run_pipeline(NOTHING), "E0827.*path is None"),
        (lambda: run_pipeline("p.yaml", ui="here"), "E0827.*ui is 'here'"),
        (lambda: run_pipeline("p.yaml", roots=cast(Any, 5)), "E0827.*roots is 5"),
        (lambda: _checked(replace(CALL, events={})), "E0823.*the events are an empty dictionary"),
        (lambda: _tie_break(replace(CALL, tie_break=cast(Any, 5)), "t"), "E0827.*tie_break is 5"),
    ],
)
def test_an_argument_of_another_type_is_named(call: Callable[[], object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        call()


def test_the_page_of_a_pipeline_has_its_address_as_a_text() -> None:
    with pytest.raises(RuleError, match="the pipeline file `nowhere"):
        run_pipeline("nowhere.yaml", ui="127.0.0.1:8080")
