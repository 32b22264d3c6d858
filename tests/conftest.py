"""Settings of all tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.java_classes import VARIABLES
from tests.left_out import pytest_addoption as pytest_addoption
from tests.left_out import pytest_collection_modifyitems as pytest_collection_modifyitems
from tests.left_out import pytest_ignore_collect as pytest_ignore_collect
from tests.left_out import pytest_sessionfinish as pytest_sessionfinish

MAX_SECONDS = 600
"""No test may take longer: one that never ends would stop the gate without a word."""

os.environ.update(VARIABLES)  # before anything starts Spark
gc.set_threshold(20_000)  # with the default of 700 objects, collections take 7 % of the processor time

settings.register_profile(
    "gate",
    derandomize=True,  # a gate says the same twice; `python -m tests.property` looks further
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],  # a busy machine is no defect
)
settings.load_profile("gate")


class OverdueError(BaseException):
    """A test took too long. No `Exception`: neither the code under test nor Hypothesis is to catch it."""


def _give_up(number: int, frame: FrameType | None) -> None:
    raise OverdueError(f"not done after {MAX_SECONDS} seconds")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[Any]:
    """End a test that does not end."""
    before = signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(MAX_SECONDS)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session")
def compiled_engine() -> None:
    """Compile the engine where that has not been done, because a command would print that it does."""
    from cep.engine.warm import warm_up

    warm_up()
