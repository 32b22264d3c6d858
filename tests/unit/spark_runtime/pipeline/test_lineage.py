"""Events of OpenLineage: what a run read and wrote, by which rules, from its start to its end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from cep.errors import InputError, RuleError
from spark_runtime.pipeline.lineage import API_KEY, traced
from tests.unit.spark_runtime.pipeline.test_metrics import pipeline, watched


def events(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_run_is_an_event_at_its_start_and_one_at_its_end(tmp_path: Path) -> None:
    found = watched(tmp_path, "lineage: events.jsonl", "late: {format: json, path: out/late}")
    assert found.run is not None
    with traced(found, pytest.fail):
        found.run.written.rows["late"] = 3
    start, end = events(tmp_path / "events.jsonl")
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == end["run"]["runId"]
    rules = end["run"]["facets"]["cep_rules"]
    assert (rules["rules"], len(rules["ruleSet"])) == (["r"], 12)
    assert end["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    (read,) = end["inputs"]
    assert (read["namespace"], read["name"]) == ("file", str(tmp_path / "events"))
    columns = read["facets"]["schema"]["fields"]
    assert {"name": "v", "type": "double"} in columns
    (late,) = end["outputs"]  # a console is no dataset
    assert (late["namespace"], late["name"]) == ("file", str(tmp_path / "out/late"))
    assert late["outputFacets"]["outputStatistics"]["rowCount"] == 3
    assert start["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 0


def test_a_run_that_fails_or_is_stopped_says_so(tmp_path: Path) -> None:
    found = watched(tmp_path, "lineage: events.jsonl")
    assert found.run is not None
    found.run.was_stopped = True
    with traced(found, pytest.fail):
        pass
    with pytest.raises(InputError), traced(found, pytest.fail):
        raise InputError("E0834", "nothing can listen", "another address")
    stopped, failed = events(tmp_path / "events.jsonl")[1::2]
    assert (stopped["eventType"], failed["eventType"]) == ("ABORT", "FAIL")
    assert failed["run"]["facets"]["errorMessage"]["message"].startswith("error[E0834]: nothing can listen")


@contextmanager
def server(taken: list[tuple[str, str | None, Any]]) -> Iterator[str]:
    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            taken.append((self.path, self.headers["Authorization"], body["eventType"]))
            self.send_response(201)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            pass

    with HTTPServer(("127.0.0.1", 0), Taking) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


def test_a_stream_that_runs_sends_events_to_a_server_with_the_key_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_runtime.pipeline.lineage.EVERY_S", 0.05)
    monkeypatch.setenv(API_KEY, "secret")
    taken: list[tuple[str, str | None, Any]] = []
    with server(taken) as address, traced(watched(tmp_path, f"lineage: {address}/"), pytest.fail):
        while len(taken) < 3:
            threading.Event().wait(0.01)
    assert {place[:2] for place in taken} == {("/api/v1/lineage", "Bearer secret")}
    assert [kind for _, _, kind in taken[:3]] == ["START", "RUNNING", "RUNNING"]
    assert taken[-1][2] == "COMPLETE"


def test_a_server_that_does_not_answer_is_named_once_and_ends_no_run(tmp_path: Path) -> None:
    said: list[str] = []
    with server([]) as address:
        pass
    with traced(watched(tmp_path, f"lineage: {address}"), said.append):
        pass
    (warning,) = said
    assert warning.startswith(f"warning: events of OpenLineage cannot be sent to {address}: ")


def test_an_installation_without_metadata_has_an_unknown_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("spark_runtime.pipeline.lineage.version", missing)
    with traced(watched(tmp_path, "lineage: events.jsonl"), pytest.fail):
        pass
    for event in events(tmp_path / "events.jsonl"):
        assert event["run"]["facets"]["processing_engine"]["version"] == "unknown"


def test_other_addresses_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="`s3://bucket/events` takes no events of OpenLineage"):
        pipeline(tmp_path, "lineage: s3://bucket/events")
