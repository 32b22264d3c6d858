"""The live page of a run: what it shows, who may read it, and how it looks in a browser."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from cep.counts import Counts
from cep.engine.matching.matcher import Matcher
from cep.errors import RuleError
from spark_runtime.operator.shown import MOST_MATCHES, NewestMatches
from spark_runtime.pipeline.address import Address
from spark_runtime.pipeline.health import Watched
from spark_runtime.pipeline.live_page import LivePage
from spark_runtime.pipeline.metrics_server import monitored
from tests.unit.engine.events import SECOND, prepared, program
from tests.unit.spark_runtime.pipeline.test_metrics import answer, pipeline, watched

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


HOSTS = (("evil.example", 421), ("127.0.0.1:80", 200), ("localhost", 200), ("[::1]:9", 200))


def counted() -> Counts:
    """Return the counts of a run, whose matches try to be more than text."""
    row = {
        "rule": "r",
        "k": "<img src=x onerror=alert(1)>",
        "match_id": "m1",
        "match_start": "2024-05-01T10:00:00+00:00",
        "match_end": "2024-05-01T10:00:30+00:00",
        "total": "</script><script>document.title='broken'</script>",
    }
    return Counts(
        events=7,
        events_of={"readings": 7},
        late_of={"readings": 2},
        reasons={"not a JSON object": 1},
        matches={"r": 3},
        dropped_runs={"r": 4},
        open_runs={"0": {"r": 4}, "1": {"r": 2}},
        open_steps={"0": {"r": {"b": 4}}, "1": {"r": {"b": 1, "the end of the window": 1}}},
        newest={"0": json.dumps([row])},
    )


@contextmanager
def served(folder: Path, found: Watched | None = None) -> Iterator[HTTPConnection]:
    said = list[str]()
    with monitored(pipeline(folder, "ui: 0"), said.append, is_quiet=True) as seen:
        if found is not None:
            seen.run = found.run
        port = int(re.findall(r"^live page: http://127\.0\.0\.1:(\d+)/$", said[0])[0])
        yield HTTPConnection("127.0.0.1", port, timeout=30)


def test_the_page_shows_the_counts_of_a_run_by_rule_stream_and_sink(tmp_path: Path) -> None:
    found = watched(tmp_path)
    assert found.run is not None
    live = LivePage(found)
    live.sample()
    found.run.totals.add(0, [counted()])
    shown = live.to_json()
    (rule,) = shown["rules"]
    assert (rule["name"], rule["matches"], rule["dropped"], rule["open"]) == ("r", 3, 4, 6)
    assert rule["steps"] == {"b": 5, "the end of the window": 1}
    assert shown["streams"] == [{"name": "readings", "events": 7, "late": 2}]
    assert shown["dead_letters"] == {"not a JSON object": 1}
    assert shown["losses"] == {"runs dropped by a limit": 4}
    assert [sink["name"] for sink in shown["sinks"]] == ["console"]
    assert "sinks" not in vars(found.run)  # the page opens none
    assert "&lt;img src=x" in shown["timeline"]
    assert "<img" not in shown["timeline"]
    assert "<script" not in shown["timeline"]


def test_rates_are_those_between_samples_that_are_taken_every_few_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, now = watched(tmp_path), [100.0]
    assert found.run is not None
    monkeypatch.setattr("spark_runtime.pipeline.live_page.time.monotonic", lambda: now[0])
    live = LivePage(found)
    live.sample()
    found.run.totals.add(0, [Counts(events=50, matches={"r": 10})])
    for now[0] in (104.9, 105.0, 107.0, 110.0):
        live.sample()
    monkeypatch.undo()
    shown = live.to_json()
    assert shown["events"]["rates"] == [10.0, 0.0]
    assert shown["rules"][0]["rates"] == [2.0, 0.0]


def test_the_newest_matches_of_a_call_are_kept_with_all_their_rows() -> None:
    ends = pa.array(range(1000), pa.timestamp("us", tz="UTC"))
    ids = pa.array([f"m{number // 2}" for number in range(1000)])
    newest = NewestMatches()
    assert newest.text() == ""
    newest.add(pa.table({"match_id": ids, "match_end": ends, "long": ["x" * 1000] * 1000}))
    rows = json.loads(newest.text())
    assert [row["match_id"] for row in rows[:3]] == ["m499", "m499", "m498"]
    assert len(rows) == MOST_MATCHES
    assert len(rows[0]["long"]) == 203


def test_open_runs_are_counted_by_what_they_wait_for() -> None:
    compiled = program(
        "a -> b -> c", "WITHIN 1 MINUTE", define="a AS letter = 'a', b AS letter = 'b', c AS letter = 'c'"
    )
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, ("k", 1, "a"), ("k", 2, "b"), ("m", 3, "a")))
    matcher.advance(4 * SECOND)
    (name,) = matcher.open_runs
    assert matcher.open_steps(most=10) == {name: {"c": 1, "b": 1}}
    assert matcher.open_steps(most=1) == {}


def test_the_page_is_whole_and_only_its_own_script_may_run(tmp_path: Path) -> None:
    with served(tmp_path) as connection:
        connection.request("GET", "/")
        found = connection.getresponse()
        html, policy = found.read().decode(), found.headers["Content-Security-Policy"]
        connection.close()
        assert not re.findall(r"(?:src|href)\s*=|https?://(?!www\.w3\.org/2000/svg)", html)
        assert "default-src 'none'" in policy
        assert "script-src 'sha256-" in policy
        status, kind, text = answer(connection, "GET", "/live.json")
        assert (status, kind, json.loads(text)["health"]["state"]) == (200, "application/json", "starting")
        assert answer(connection, "GET", "/health")[0] == 200
        assert answer(connection, "GET", "/metrics")[0] == 404


def test_a_page_of_another_site_cannot_read_it_under_a_name_of_its_own(tmp_path: Path) -> None:
    with served(tmp_path) as connection:
        for host, status in HOSTS:
            connection.request("GET", "/live.json", headers={"Host": host})
            assert connection.getresponse().status == status, host
            connection.close()


def test_the_setting_is_an_address(tmp_path: Path) -> None:
    assert pipeline(tmp_path, "ui: 8080", "stuck_after: 1 hour").ui == Address("127.0.0.1", 8080)
    with pytest.raises(RuleError, match="`nowhere` is not an address"):
        pipeline(tmp_path, "ui: nowhere")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
@pytest.mark.parametrize("width", [420, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_the_page(tmp_path: Path, scheme: str, width: int) -> None:
    found = watched(tmp_path)
    assert found.run is not None
    found.run.totals.add(0, [counted()])
    with served(tmp_path, found) as connection:
        options = (
            *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--window-size={width},1600",
            f"--blink-settings=preferredColorScheme={int(scheme == 'light')}",
            "--virtual-time-budget=1500",
        )
        address = f"http://127.0.0.1:{connection.port}/"
        picture = tmp_path / "page.png"
        command = [cast(str, CHROMIUM), *options]
        for what in (f"--screenshot={picture}", "--dump-dom"):
            done = subprocess.run([*command, what, address], check=True, capture_output=True, timeout=120)
    dom = done.stdout.decode()
    assert "<title>p: " in dom
    assert "not a JSON object" in dom
    assert "b: 5, the end of the window: 1" in dom
    assert "<img" not in dom
    assert (sum(first_pixel(picture)) > 600) is (scheme == "light")


def first_pixel(picture: Path) -> Any:
    """Return red, green and blue of the upper left corner of a PNG; no filter changes these."""
    data = picture.read_bytes()
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        packed += data[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += 12 + length
    return tuple(zlib.decompress(packed)[1:4])
