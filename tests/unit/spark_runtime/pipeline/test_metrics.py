"""Metrics of a pipeline, without Spark: counts as samples, health, the server."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from prometheus_client.exposition import generate_latest
from rich.console import Console

from cep.counts import MOST_NAMES, Counts, Loss
from cep.errors import CepError, InputError, RuleError
from spark_runtime.pipeline.address import Address, address_of
from spark_runtime.pipeline.gaps import Entry, Ledger
from spark_runtime.pipeline.generations import Filled, Generation, write_generation
from spark_runtime.pipeline.health import State, Watched, health_of
from spark_runtime.pipeline.made import Pipeline
from spark_runtime.pipeline.metrics import registry_of
from spark_runtime.pipeline.metrics_server import monitored
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.pipeline.progress import MOST_TIMES
from spark_runtime.pipeline.runs import StreamRun
from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.storage.checkpoint_files import LocalFiles
from spark_runtime.tables.static import StaticTables
from spark_runtime.wire.plan import Plan
from tests.pages import DOCS, blocks
from tests.pipeline_metrics import HISTOGRAMS, METRICS, PAGE
from tests.unit.spark_runtime.pipeline.test_micro_batches import batches, put

RULE = "RULE r FROM readings PARTITION BY k PATTERN a -> b WITHIN 1 MINUTE DEFINE a AS v > 1, b AS v < 0"


def pipeline(folder: Path, *settings: str) -> Pipeline:
    (folder / "r.cep").write_text(RULE)
    lines = (
        "streams: {readings: {event_time: ts, schema: {k: string, ts: timestamp, v: double}}}",
        "rules: [r.cep]",
        "source: {stream: readings, format: json, path: events}",
        "sinks: [{format: console}]",
        "checkpoint: out/checkpoint",
        *settings,
    )
    (folder / "p.yaml").write_text("\n".join(lines))
    return load_pipeline(folder / "p.yaml")


def watched(folder: Path, *settings: str) -> Watched:
    """Return a watched stream that has a run, but no Spark."""
    made = pipeline(folder, 'trigger: "10 seconds"', "metrics: 0", *settings)
    nothing = cast(Any, None)
    run = StreamRun(made, nothing, Console(), Console(), 0.0, nothing)
    run.batches = batches(folder, interval_s=10.0)
    return Watched(made, run=run)


def samples(found: Watched) -> dict[str, float]:
    lines = generate_latest(registry_of(found)).decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def test_gaps_are_counted_by_rule_and_kind_until_they_are_filled(tmp_path: Path) -> None:
    found = watched(tmp_path)
    files = LocalFiles(found.pipeline.checkpoint)
    rules = StoredRules.of(found.pipeline.texts, found.pipeline.rules)
    write_generation(files, Generation(0, rules))
    gaps = [Entry(loss, "readings", 0, 2, 5, 9, 3) for loss in (Loss.LATE, Loss.DEAD)]
    Ledger(files).record(3, gaps)
    name = 'cep_gaps{kind="%s",rule="r"}'
    late, dead = name % "late", name % "dead letters"
    assert {each: n for each, n in samples(found).items() if "gaps" in each} == {late: 1.0, dead: 1.0}
    filled = Filled(tuple(gaps[0].to_list()), ("r",))
    write_generation(files, Generation(1, rules, 4, filled=(filled,)))
    assert {each: n for each, n in samples(found).items() if "gaps" in each} == {dead: 1.0}


# ------------------------------------------------------------ the setting


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9464", Address("127.0.0.1", 9464)),
        ("9464", Address("127.0.0.1", 9464)),
        ("0", Address("127.0.0.1", 0)),
        ("localhost:1", Address("localhost", 1)),
        ("[::1]:9464", Address("::1", 9464)),
        ("0.0.0.0:65535", Address("0.0.0.0", 65_535)),
        ("9464x", None),
        ("127.0.0.1:65536", None),
        ("::1:9464", None),
        ("http://127.0.0.1:9464", None),
        ("127.0.0.1", None),
        ("ä.b:80", Address("ä.b", 80)),
        ("ä..b:80", None),
        (f"{'a' * 64}:80", None),
        ("a\0b:80", None),
        ("", None),
    ],
)
def test_an_address_is_a_host_and_a_port_or_a_port_of_this_machine(
    text: str, address: Address | None
) -> None:
    assert address_of(text) == address
    if address is not None and address.host != "127.0.0.1":
        assert str(address) == text


def test_the_setting_is_an_address(tmp_path: Path) -> None:
    assert pipeline(tmp_path).metrics is None
    made = pipeline(tmp_path, "metrics: 127.0.0.1:9464")
    assert (made.metrics, made.stuck_after_s) == (Address("127.0.0.1", 9464), 1800)
    assert pipeline(tmp_path, "metrics: 9464", "stuck_after: 2 hours").stuck_after_s == 7200
    with pytest.raises(RuleError) as caught:
        pipeline(tmp_path, "metrics: here")
    assert str(caught.value) == (
        "error[E0402]: `here` is not an address\n"
        f"  --> {tmp_path}/p.yaml:6:10\n"
        "   |\n"
        " 6 | metrics: here\n"
        "   |          ^^^^ expected a host and a port\n"
        "   |\n"
        "help: write for example: metrics: 127.0.0.1:9464"
    )


def test_the_time_after_which_a_run_is_stuck_needs_metrics(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match=r"E0843.*`stuck_after` without `metrics`"):
        pipeline(tmp_path, "stuck_after: 1 hour")


def test_without_the_package_the_setting_is_refused_at_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cep.packages.find_spec", lambda name: None)
    with pytest.raises(RuleError) as caught:
        pipeline(tmp_path, "metrics: 9464")
    found = str(caught.value)
    assert found.startswith(
        "error[E0683]: `metrics` needs the package `prometheus_client`, which is not installed"
    )
    assert "p.yaml:6:10" in found
    assert "help: pip install 'spark-cep[metrics]'" in found


# ------------------------------------------------------------ samples


def test_the_page_names_all_metrics_and_each_exists_from_the_start(tmp_path: Path) -> None:
    starting = Watched(pipeline(tmp_path))
    for found in (starting, watched(tmp_path)):
        text = generate_latest(registry_of(found)).decode()
        assert set(re.findall(r"^# TYPE (cep_\w+)", text, re.MULTILINE)) == METRICS
    assert len(METRICS) > 30


def test_counts_of_a_run_are_samples_and_rules_without_a_match_have_zeros(tmp_path: Path) -> None:
    found = watched(tmp_path)
    assert found.run is not None
    before = samples(Watched(found.pipeline))
    assert samples(found).keys() >= before.keys()
    assert before['cep_matches_total{rule="r"}'] == before['cep_match_delay_seconds_count{rule="r"}'] == 0
    assert before['cep_sink_rows_total{sink="console"}'] == 0
    assert "sinks" not in vars(found.run)  # a scrape opens none
    found.run.totals.add(
        0,
        [
            Counts(
                events=7,
                events_of={"readings": 7},
                matches={"r": 3},
                delays={"r: 0": 1, "r: 3": 1, "r: 13": 1},
                delay_us={"r": 90_000_000_000},
                open_runs={"0": {"r": 4}, "1": {"r": 2}},
                duplicates_of={"readings: 0": 2, "readings: 1": 3},
                gone={"a": 1, "b": 1},
                state={"carried": 10, "touched": 4, "warm": 1},
            ),
            Counts(open_runs={"1": {}}),
        ],
    )
    now = samples(found)
    assert now['cep_events_total{stream="readings"}'] == 7
    assert before['cep_events_total{stream="readings"}'] == 0
    assert now['cep_matches_total{rule="r"}'] == 3
    delays = {name: value for name, value in now.items() if name.startswith("cep_match_delay_seconds")}
    assert delays['cep_match_delay_seconds_bucket{le="0.1",rule="r"}'] == 1
    assert delays['cep_match_delay_seconds_bucket{le="1.0",rule="r"}'] == 1
    assert delays['cep_match_delay_seconds_bucket{le="2.5",rule="r"}'] == 2
    assert delays['cep_match_delay_seconds_bucket{le="86400.0",rule="r"}'] == 2
    assert delays['cep_match_delay_seconds_bucket{le="+Inf",rule="r"}'] == 3
    assert delays['cep_match_delay_seconds_sum{rule="r"}'] == 90_000
    assert now['cep_open_runs{rule="r"}'] == 4  # the second key group has none any more
    assert now['cep_duplicates_total{stream="readings"}'] == 3
    assert now['cep_files_passed_over_total{why="gone"}'] == 2
    assert now['cep_state_bytes_total{kind="carried"}'] == 10
    assert now["cep_touched_keys_total"] == 4


def test_a_counter_of_an_alert_has_a_zero_before_its_first_occurrence(tmp_path: Path) -> None:
    pipeline(tmp_path)
    (tmp_path / "r.cep").write_text(RULE.replace("FROM readings", "FROM readings JOIN kinds ON k"))
    text = (tmp_path / "p.yaml").read_text()
    text = text.replace("streams: {", "streams: streams.yaml\n#").replace("source: {", "sources:\n- {")
    (tmp_path / "p.yaml").write_text(
        text.replace("path: events}", "path: events}\n- {table: kinds, format: csv, path: kinds.csv}")
    )
    (tmp_path / "streams.yaml").write_text(
        "streams: {readings: {event_time: ts, schema: {k: string, ts: timestamp, v: double}}}\n"
        "tables: {kinds: {key: [k], static: true, schema: {k: string, n: bigint}}}\n"
    )
    (tmp_path / "kinds.csv").write_text("k,n\na,1\nb,2\n")
    made = load_pipeline(tmp_path / "p.yaml")
    before = samples(Watched(made))
    for name in (
        'cep_lost_messages_total{partition="readings"}',
        'cep_late_events_total{stream="readings"}',
        'cep_dropped_events_total{stream="readings"}',
        'cep_refused_rows_total{sink="console"}',
        'cep_stale_tables_total{table="kinds"}',
        'cep_versions_total{table="kinds"}',
    ):
        assert before[name] == 0, name
    nothing = cast(Any, None)
    run = StreamRun(made, nothing, Console(), Console(), 0.0, nothing)
    (file,) = made.tables
    run.batches = batches(tmp_path, interval_s=10.0)
    run.batches.tables = StaticTables({"kinds": file})
    run.batches.tables.load()
    now = samples(Watched(made, run=run))
    assert now['cep_versions_total{table="kinds"}'] == 2
    assert 'cep_lost_messages_total{partition="kinds"}' not in now


def test_of_many_names_the_first_are_labels_and_no_count_ever_decreases(tmp_path: Path) -> None:
    found = watched(tmp_path)
    assert found.run is not None
    registry, counts = registry_of(found), found.run.totals.counts

    def reasons() -> dict[str, float]:
        lines = generate_latest(registry).decode().splitlines()
        return {
            line.partition('"')[2].partition('"')[0]: float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.startswith("cep_dead_letters_total{")
        }

    counts.reasons = {f"r{number}": number for number in range(MOST_NAMES + 20)}
    before = reasons()
    assert len(before) == MOST_NAMES + 1
    assert sum(before.values()) == sum(counts.reasons.values())
    counts.reasons = {"new": 10_000, **{name: n + 1 for name, n in counts.reasons.items()}}
    after = reasons()
    assert after.keys() == before.keys()
    assert all(after[name] > n for name, n in before.items())


def test_durations_of_micro_batches_are_counted_once(tmp_path: Path) -> None:
    found = watched(tmp_path)
    assert found.run is not None
    registry, seconds = registry_of(found), found.run.totals.times

    def total() -> tuple[str, ...]:
        text = generate_latest(registry).decode()
        return tuple(re.findall(r"^cep_micro_batch_seconds_(?:count|sum) (\S+)$", text, re.MULTILINE))

    seconds.append(0.2)
    seconds.append(3.0)
    assert total() == total() == ("2.0", "3.2")
    seconds.append(1000.0)
    assert total() == ("3.0", "1003.2")
    for _ in range(MOST_TIMES):
        seconds.append(1.0)
    assert (len(seconds.last), seconds.n, seconds.seconds) == (
        MOST_TIMES,
        MOST_TIMES + 3,
        MOST_TIMES + 1003.2,
    )
    assert seconds.since(MOST_TIMES) == [1.0, 1.0, 1.0]
    assert total()[0] == f"{MOST_TIMES + 3}.0"


# ------------------------------------------------------------ health


def test_a_stream_is_starting_waiting_running_and_ended(tmp_path: Path) -> None:
    found = watched(tmp_path)
    assert found.run is not None
    run = found.run.batches
    assert run is not None
    assert health_of(Watched(found.pipeline)).state is State.STARTING
    assert health_of(found).state is State.STARTING
    found.run.query = cast(Any, object())
    assert health_of(found).state is State.WAITING
    put(tmp_path, "a.json")
    assert isinstance(run.next(0), Plan)
    assert health_of(found).state is State.RUNNING
    run.complete(0, Counts(latest={"s": (1_714_521_600_000_000, "")}))
    run.add_seconds()
    health = health_of(found)
    assert (health.state, health.micro_batch, health.is_good) == (State.WAITING, 0, True)
    assert health.age_s is not None
    assert 0 <= health.age_s < 60
    assert health.to_json()["watermark"] == "2024-04-30T23:59:59.999990Z"
    found.has_ended = True
    assert health_of(found).state is State.ENDED


def test_a_stream_is_stuck_if_a_micro_batch_its_sources_or_its_start_take_too_long(tmp_path: Path) -> None:
    found = watched(tmp_path, "stuck_after: 1 minute")
    assert found.run is not None
    run = found.run.batches
    assert run is not None
    now_s = time.time()
    run._watermark.looked_s = now_s - 65  # the trigger waits for 10 seconds
    assert health_of(found).is_good
    run._watermark.looked_s = now_s - 75
    health = health_of(found)
    assert (health.state, health.reason) == (State.STUCK, "the sources have not been checked for 75 seconds")
    put(tmp_path, "a.json")
    run.next(0)
    assert health_of(found).is_good
    run._begun = time.monotonic() - 61
    assert health_of(found).reason == "a micro-batch has been running for 61 seconds"
    starting = Watched(found.pipeline, started=time.monotonic() - 61)
    assert health_of(starting).reason == "it has been starting for 61 seconds"


def test_a_batch_is_never_stuck(tmp_path: Path) -> None:
    made = pipeline(tmp_path, "mode: batch", "metrics: 0", "stuck_after: 1 second")
    nothing = cast(Any, None)
    run = StreamRun(made, nothing, Console(), Console(), 0.0, nothing)
    assert health_of(Watched(made, started=time.monotonic() - 90, run=run)).state is State.RUNNING


def test_a_failure_is_told_by_its_first_line(tmp_path: Path) -> None:
    found = watched(tmp_path)
    assert found.run is not None
    found.run.failure = CepError("E0804", "Spark failed", "read the log")
    health = health_of(found)
    assert (health.state, health.reason) == (State.FAILED, "error[E0804]: Spark failed")
    assert samples(found)["cep_healthy"] == samples(found)['cep_pipeline_state{state="running"}'] == 0


# ------------------------------------------------------------ the server


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a server learn sooner that it is to end, or that a client is late."""
    monkeypatch.setattr("spark_runtime.pipeline.metrics_server._POLL_SECONDS", 0.01)


@contextmanager
def served(folder: Path, *settings: str) -> Iterator[tuple[Watched, HTTPConnection]]:
    made, said = pipeline(folder, *(settings or ("metrics: 0",))), list[str]()
    with monitored(made, said.append, is_quiet=True) as found:
        port = int(re.findall(r"^metrics: http://127\.0\.0\.1:(\d+)/metrics$", said[0])[0])
        yield found, HTTPConnection("127.0.0.1", port, timeout=30)


def answer(connection: HTTPConnection, method: str, path: str) -> tuple[int, str, str]:
    connection.request(method, path)
    found = connection.getresponse()
    body = found.read().decode()
    connection.close()
    return found.status, found.headers["Content-Type"], body


def test_the_server_answers_metrics_and_health_and_nothing_else(tmp_path: Path) -> None:
    with served(tmp_path, "metrics: 0", "stuck_after: 10 minutes") as (found, connection):
        status, kind, text = answer(connection, "GET", "/metrics")
        assert (status, kind.partition(";")[0]) == (200, "text/plain")
        assert 'cep_pipeline_info{mode="stream",pipeline="p"} 1.0' in text
        assert "process_resident_memory_bytes" in text
        status, kind, text = answer(connection, "GET", "/health")
        assert (status, kind, json.loads(text)["state"]) == (200, "application/json", "starting")
        found.started -= 3600
        status, _, text = answer(connection, "GET", "/health?verbose=1")
        assert (status, json.loads(text)["state"]) == (503, "stuck")
        assert answer(connection, "GET", "/")[0] == 200
        assert answer(connection, "GET", "/etc/passwd")[0] == 404
        assert answer(connection, "POST", "/metrics")[0] == 501


@pytest.mark.parametrize("kind", ["text/plain", "application/openmetrics-text"])
def test_a_version_that_is_none_gets_the_plain_format(kind: str, tmp_path: Path) -> None:
    with served(tmp_path) as (_, connection):
        connection.request("GET", "/metrics", headers={"Accept": f"{kind};version=abc.def"})
        found = connection.getresponse()
        assert (found.status, found.headers["Content-Type"].split(";")[0]) == (200, "text/plain")
        assert b"cep_pipeline_info" in found.read()


def test_slow_clients_do_not_keep_others_from_an_answer_nor_the_run_from_its_end(tmp_path: Path) -> None:
    begun = time.monotonic()
    with served(tmp_path) as (_, connection):
        slow = [socket.create_connection((connection.host, connection.port)) for _ in range(3)]
        assert answer(connection, "GET", "/health")[0] == 200
    assert time.monotonic() - begun < 8
    for each in slow:
        each.close()
    with pytest.raises(ConnectionRefusedError):
        answer(connection, "GET", "/health")


@pytest.mark.parametrize("n", [30, 100])
def test_many_clients_that_do_not_finish_a_request_do_not_keep_others_from_an_answer(
    tmp_path: Path, n: int
) -> None:
    with served(tmp_path) as (_, connection):
        slow = [socket.create_connection((connection.host, connection.port)) for _ in range(n)]
        for each in slow:
            with suppress(OSError):  # it was closed for a later one
                each.sendall(b"GET /he")
        begun = time.monotonic()
        assert answer(connection, "GET", "/health")[0] == 200
        assert answer(connection, "GET", "/metrics")[0] == 200
        assert time.monotonic() - begun < 5
    for each in slow:
        each.close()


def test_a_request_must_arrive_in_time_however_its_bytes_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_runtime.pipeline.metrics_server._SLOW_SECONDS", 0.1)
    with served(tmp_path) as (_, connection):
        begun = time.monotonic()
        with socket.create_connection((connection.host, connection.port)) as slow, suppress(ConnectionError):
            while time.monotonic() - begun < 10:
                slow.sendall(b"G")
                time.sleep(0.02)
        assert time.monotonic() - begun < 5


def test_an_address_that_is_taken_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with served(tmp_path) as (_, connection):
        made = pipeline(tmp_path, f"metrics: {connection.port}")
        with pytest.raises(InputError) as caught, monitored(made, print, is_quiet=False):
            pytest.fail("it ran")
    assert str(caught.value) == (
        f"error[E0834]: nothing can listen at 127.0.0.1:{connection.port}: Address already in use\n"
        "help: give `metrics` another address; with port 0, the system chooses a port"
    )


def test_without_the_setting_nothing_listens(tmp_path: Path) -> None:
    with monitored(pipeline(tmp_path), lambda text: pytest.fail(text), is_quiet=False) as found:
        assert found.run is None


# ------------------------------------------------------------ files for Prometheus, Grafana, OpenTelemetry

MONITORING = DOCS / "operate/monitoring"


def named(expression: str) -> set[str]:
    """Return the metrics that an expression names."""
    names = re.findall(r"\b(?:cep|process)_\w+", re.sub(r"\{[^}]*\}|by \([^)]*\)", "", expression))
    buckets = {f"{name}_bucket": name for name in HISTOGRAMS}
    return {buckets.get(name, name) for name in names}


def test_each_metric_of_the_dashboard_exists_and_each_panel_has_one() -> None:
    board = json.loads((MONITORING / "grafana.json").read_text())
    known = METRICS | {"process_resident_memory_bytes"}
    for panel in board["panels"]:
        for target in panel["targets"]:
            assert named(target["expr"]), panel["title"]
            assert named(target["expr"]) - known == set(), panel["title"]
            assert target["expr"].count("(") == target["expr"].count(")")
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids)) > 15
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    assert "cep_pipeline_info" in board["templating"]["list"][1]["query"]["query"]


def test_each_alert_rule_has_what_prometheus_wants_and_names_metrics_that_exist() -> None:
    [group] = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    assert group["name"] == "spark-cep"
    for rule in group["rules"]:
        assert rule.keys() - {"for"} == {"alert", "expr", "labels", "annotations"}
        assert re.fullmatch(r"Cep[A-Za-z]+", rule["alert"])
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert re.fullmatch(r"\d+m", rule.get("for", "1m"))
        assert rule["expr"].count("(") == rule["expr"].count(")")
        assert named(rule["expr"]) - METRICS == set()
        assert named(rule["expr"]) or rule["expr"] == 'up{job="spark-cep"} == 0'
        of_alert = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        assert of_alert <= {"instance", "rule", "partition", "why", "sink", "stream", "table"}
    names = [rule["alert"] for rule in group["rules"]]
    assert len(names) == len(set(names)) > 10


def test_a_metric_that_does_not_exist_would_be_found() -> None:
    assert named('rate(cep_event_total{instance="cep_x"}[5m])') - METRICS == {"cep_event_total"}
    assert named("rate(cep_match_delay_seconds_bucket[5m])") - METRICS == set()
    assert named("cep_events_total_bucket") - METRICS == {"cep_events_total_bucket"}


def test_the_settings_of_the_page_are_yaml_with_one_address(tmp_path: Path) -> None:
    own, prometheus, collector = (yaml.safe_load(text) for text in blocks(PAGE.read_text(), "yaml"))
    address = own["metrics"]
    assert address_of(address) == Address("127.0.0.1", 9464)
    [job] = prometheus["scrape_configs"]
    [of_collector] = collector["receivers"]["prometheus"]["config"]["scrape_configs"]
    for each in (job, of_collector):
        assert (each["job_name"], each["static_configs"]) == ("spark-cep", [{"targets": [address]}])
    [alerts] = prometheus["rule_files"]
    assert (MONITORING / alerts).exists()
    pipelines = collector["service"]["pipelines"]["metrics"]
    assert pipelines["receivers"] == list(collector["receivers"])
    assert pipelines["exporters"] == list(collector["exporters"])
