"""Servers of tests: their processes, and what a test does where one is missing."""

from __future__ import annotations

import os

import pytest

from scenarios.servers.process import running, wait_until

__all__ = ["require", "running", "wait_until"]


def require(is_there: bool, what: str, command: str = "make servers") -> None:
    """Skip the test where a server is missing; fail where the environment says that servers are required."""
    if is_there:
        return
    why = f"{what} is missing; get it with: {command}"
    if os.environ.get("CEP_SERVERS") == "required":
        pytest.fail(why)
    pytest.skip(why)
