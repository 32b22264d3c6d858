"""Tests that need what the set-up does not bring, such as a server: they are left out, and named at the end.

`require` leaves a test out. `pytest --left-out` runs only the tests that the last runs left out.
`make test-servers` fetches the servers and does that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.deep import choose
from tests.order import mix

_SIGN = "; get it with: "
_KEPT = "cep/left_out"
"""Where pytest's cache keeps the ids of the tests that were left out."""


def require(exists: bool, what: str, command: str = "make servers") -> None:
    """Leave the test out where `what` does not exist; with `CEP_SERVERS=required` fail."""
    if exists:
        return
    why = f"{what} is missing{_SIGN}{command}"
    if os.environ.get("CEP_SERVERS") == "required":
        pytest.fail(why)
    pytest.skip(why)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs what was left out."""
    parser.addoption("--left-out", action="store_true", help="run only the tests that were left out before")
    parser.addoption("--deep", action="store_true", help="run only the tests that look further than the gate")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With the option: pass over the files without a test that was left out."""
    if not config.getoption("--left-out") or collection_path.is_dir():
        return None
    files = {config.rootpath / nodeid.partition("::")[0] for nodeid in _kept(config)}
    return None if collection_path in files else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Drop what `tests.deep` does not choose; with the option, all tests that were not left out."""
    choose(config, items)
    mix(items)
    if not config.getoption("--left-out"):
        return
    wanted = set(_kept(config))
    dropped = [item for item in items if item.nodeid not in wanted]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item.nodeid in wanted]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[Any]:
    """After pytest's own last line: say how many tests were left out, and how to run them."""
    config = session.config
    is_empty = bool(config.getoption("--left-out")) and not _kept(config)
    if is_empty and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK
    result = yield
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if hasattr(config, "workerinput") or reporter is None or config.getoption("collectonly"):
        return result
    reports = reporter.stats
    now = sorted({report.nodeid for report in reports.get("skipped", ()) if _SIGN in _reason(report)})
    ran = {report.nodeid for kind in ("passed", "failed", "error") for report in reports.get(kind, ())}
    if (cache := _cache(config)) is not None:
        cache.set(_KEPT, sorted((set(_kept(config)) - ran) | set(now)))
    if now:
        reporter.write_line(_last_line(now))
    elif is_empty:
        reporter.write_line("left out: nothing")
    return result


def _cache(config: pytest.Config) -> pytest.Cache | None:
    """Return pytest's cache, None where it was switched off."""
    return getattr(config, "cache", None)


def _kept(config: pytest.Config) -> Sequence[str]:
    cache = _cache(config)
    found: Sequence[str] = cache.get(_KEPT, []) if cache is not None else []
    return found


def _reason(report: Any) -> str:
    """Return why a test was skipped."""
    where = report.longrepr
    return str(where[2]) if isinstance(where, tuple) else str(where)


def _last_line(left_out: Sequence[str]) -> str:
    files = len({Path(nodeid.partition("::")[0]) for nodeid in left_out})
    return (
        f"left out: {len(left_out)} tests of {files} files, which need servers. "
        "To fetch the servers and run these tests: make test-servers"
    )
