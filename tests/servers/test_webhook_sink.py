"""Webhooks as a sink, against a server of HTTP on this machine: the standard library's."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pytest

from cep.errors import InputError
from cep.rule_set import Corrections
from scenarios.servers.web import Reply, Request, WebServer, running_web_server
from spark_runtime.connectors.webhook.bodies import BulkBody, JsonBody, verdict_of
from spark_runtime.connectors.webhook.endpoint import Endpoint
from spark_runtime.connectors.webhook.sending import Clock, Sending
from spark_runtime.connectors.webhook.settings import WebhookSpec
from spark_runtime.connectors.webhook.sink import WebhookSink
from spark_runtime.sinks.owner import Owner
from spark_runtime.sinks.protocol import (
    Collected,
    Guarantee,
    MicroBatch,
    Output,
    RefusingSink,
    Rows,
    TableSink,
)
from spark_runtime.wire.output import DEAD, LATE, MATCH
from tests.left_out import require
from tests.servers.gate import gate_to
from tests.servers.kafka_broker import free_ports
from tests.servers.web_server import made_certificate
from tests.spark.test_sink_contract import CONTEXT, OUTPUTS, RULES, collected, tell_what_they_have

KINDS = pytest.mark.parametrize("kind", [MATCH, LATE, DEAD])


@pytest.fixture
def web() -> Iterator[WebServer]:
    with running_web_server() as server:
        yield server


class FakeClock:
    """A clock whose time passes only while somebody waits."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waits: list[float] = []
        self._lock = threading.Lock()

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now_s, self._wait)

    def _wait(self, ends: threading.Event, seconds: float) -> None:
        with self._lock:
            self.waits.append(seconds)
            self.now_s += seconds


def sink_to(web: WebServer, refused: Path | None = None, **more: object) -> WebhookSink:
    path = "" if refused is None else str(refused)
    endpoint = Endpoint(web.url)
    settings = {"body": JsonBody(is_array=False), "clock": FakeClock().clock} | more
    return WebhookSink(OUTPUTS[MATCH], Sending(endpoint, **settings), path)  # type: ignore[arg-type]


def post(sink: TableSink, rows: Collected, number: int = 0) -> None:
    batch = MicroBatch("run", number)
    with closing(sink):
        sink.check()
        sink.begin(batch)
        sink.write_rows(batch, rows)
        sink.commit(batch)


@KINDS
def test_it_cannot_tell_what_it_has(web: WebServer, kind: str) -> None:
    tell_what_they_have(None, lambda: WebhookSpec(Endpoint(web.url)).open(OUTPUTS[kind], CONTEXT), kind)


@KINDS
def test_each_row_is_a_request_with_a_key_of_its_own(web: WebServer, kind: str) -> None:
    sink = WebhookSpec(Endpoint(web.url)).open(OUTPUTS[kind], CONTEXT)
    assert isinstance(sink, TableSink)
    assert sink.guarantee is Guarantee.AT_LEAST_ONCE
    post(sink, collected(kind, [1, 2, 3]))
    name = "position" if kind == DEAD else "id"
    assert sorted(row[name] for row in web.rows) == [1, 2, 3]
    keys = {request.headers["idempotency-key"] for request in web.requests}
    assert len(keys) == 3
    if kind == MATCH:
        assert keys == {"m1", "m2", "m3"}
    assert {request.headers["content-type"] for request in web.requests} == {"application/json"}


@KINDS
@pytest.mark.parametrize("together", [None, 2])
def test_a_micro_batch_that_comes_again_has_the_same_requests_under_the_same_keys(
    web: WebServer, kind: str, together: int | None
) -> None:
    spec = WebhookSpec(Endpoint(web.url), together=together)
    for ids in ([1, 2, 3, 4, 5], [5, 3, 1, 2, 4]):
        post(spec.open(OUTPUTS[kind], CONTEXT), collected(kind, ids))
    found = Counter((request.headers["idempotency-key"], request.body) for request in web.requests)
    assert set(found.values()) == {2}
    post(spec.open(OUTPUTS[kind], CONTEXT), collected(kind, [1]), 1)
    is_same = web.requests[-1].headers["idempotency-key"] in {key for key, _ in found}
    assert is_same == (kind == MATCH and together is None)


def test_equal_late_events_are_two(web: WebServer) -> None:
    post(WebhookSpec(Endpoint(web.url)).open(OUTPUTS[LATE], CONTEXT), collected(LATE, [1, 1]))
    assert len({request.headers["idempotency-key"] for request in web.requests}) == 2


def test_several_rows_are_an_array(web: WebServer) -> None:
    spec = WebhookSpec(Endpoint(web.url), together=2, parallel=1)
    post(spec.open(OUTPUTS[MATCH], CONTEXT), collected(MATCH, [1, 2, 3]))
    assert [len(json.loads(request.body)) for request in web.requests] == [2, 1]


def test_at_most_so_many_requests_are_sent_at_once(web: WebServer) -> None:
    barrier = threading.Barrier(3)

    def together(request: Request) -> Reply:
        barrier.wait(10)  # no request is answered before three are there
        return 200, {}, ""

    web.answering = together
    spec = WebhookSpec(Endpoint(web.url), parallel=3)
    shares: dict[int, list[int]] = {0: [], 1: [], 2: []}  # of equal length
    for i in range(60):
        shares[crc32(f"m{i}".encode()) % 3].append(i)
    chosen = [i for share in shares.values() for i in share[:2]]
    post(spec.open(OUTPUTS[MATCH], CONTEXT), collected(MATCH, chosen))
    assert (len(web.requests), web.most_at_once) == (6, 3)


def test_what_fails_for_now_is_sent_again_after_longer_and_longer_pauses(web: WebServer) -> None:
    replies: list[Reply] = [(503, {}, ""), (500, {}, ""), (0, {}, ""), (408, {}, ""), (200, {}, "")]
    web.answering = lambda request: replies.pop(0)
    clock = FakeClock()
    sink = sink_to(web, clock=clock.clock)
    post(sink, collected(MATCH, [1]))
    assert len(web.requests) == 5
    assert {request.headers["idempotency-key"] for request in web.requests} == {"m1"}
    # A connection that was used may have been ended for that: the row is sent at once over a new one.
    assert len(clock.waits) == 3
    assert all(n / 2 <= pause <= n for pause, n in zip(clock.waits, (0.5, 1, 2), strict=True))


def test_the_server_says_how_long_to_wait(web: WebServer) -> None:
    replies: list[Reply] = [(429, {"Retry-After": "7"}, ""), (503, {"Retry-After": "0"}, ""), (201, {}, "")]
    web.answering = lambda request: replies.pop(0)
    clock = FakeClock()
    post(sink_to(web, clock=clock.clock), collected(MATCH, [1]))
    assert clock.waits[0] == 7.0
    assert 0.5 <= clock.waits[1] <= 1.0  # as if the server had said nothing


def test_a_server_that_takes_nothing_for_too_long_ends_the_run(web: WebServer) -> None:
    web.answering = lambda request: (503, {}, "busy")
    clock = FakeClock()
    sink = sink_to(web, clock=clock.clock, retry_s=60.0)
    with pytest.raises(InputError) as caught:
        post(sink, collected(MATCH, [1]))
    assert caught.value.code == "E0874"
    assert caught.value.args[0] == (
        f"the webhook `http://127.0.0.1:{web.port}` takes nothing: 503 Service Unavailable: busy"
    )
    assert sum(clock.waits) == pytest.approx(60)
    assert sink.n_refused == 0


def test_a_server_that_comes_back_is_written_on(web: WebServer) -> None:
    with gate_to(web.port) as gate:
        clock = FakeClock()

        def wait(ends: threading.Event, seconds: float) -> None:
            clock.now_s += seconds
            clock.waits.append(seconds)
            if len(clock.waits) == 5:
                gate.open()

        endpoint = Endpoint(f"http://127.0.0.1:{gate.port}/hook")
        sending = Sending(endpoint, JsonBody(False), n_parallel=1, clock=Clock(lambda: clock.now_s, wait))
        sink = WebhookSink(OUTPUTS[MATCH], sending)
        sink.check()
        sink.begin(MicroBatch("run", 0))
        sink.write_rows(MicroBatch("run", 0), collected(MATCH, [1, 2]))
        gate.shut()
        sink.write_rows(MicroBatch("run", 0), collected(MATCH, [3, 4]))
        sink.close()
    assert sorted(row["id"] for row in web.rows) == [1, 2, 3, 4]
    assert len(clock.waits) == 5


@pytest.mark.parametrize("together", [1, 3])
def test_rows_that_are_refused_for_good_are_in_a_file_and_counted(
    web: WebServer, tmp_path: Path, together: int
) -> None:
    def answer(request: Request) -> Reply:
        return (422, {}, "no such card") if any(row["id"] == 2 for row in request.rows) else (200, {}, "")

    web.answering = answer
    body = JsonBody(is_array=together > 1)
    for _ in range(2):  # it comes again after a crash
        sink = sink_to(web, tmp_path / "refused", body=body, n_together=together, n_parallel=1)
        post(sink, collected(MATCH, [1, 2, 3]))
        assert isinstance(sink, RefusingSink)
        assert sink.n_refused == 1
    (file,) = (tmp_path / "refused").iterdir()
    (line,) = file.read_text().splitlines()
    found = json.loads(line)
    assert (file.name, found["key"], found["row"]["id"]) == ("batch=run-0.json", "m2", 2)
    assert found["reason"] == "422 Unprocessable Entity: no such card"
    alone = [row["id"] for request in web.requests if len(request.rows) == 1 for row in request.rows]
    assert sorted(alone) == [1, 1, 2, 2, 3, 3]


def test_refused_rows_of_a_batch_are_not_replaced_by_those_of_another_pipeline(
    web: WebServer, tmp_path: Path
) -> None:
    web.answering = lambda request: (422, {}, "")
    spec = WebhookSpec(Endpoint(web.url), refused=str(tmp_path / "refused"))

    def send(pipeline: str, ids: list[int]) -> None:
        owner = Owner(f"{tmp_path}/{pipeline}", {"s": ("json", f"{tmp_path}/in")})
        sink, batch = spec.open(OUTPUTS[MATCH], replace(CONTEXT, owner=owner)), MicroBatch(None, 0)
        with closing(sink):
            sink.check()
            sink.begin(batch)
            sink.write_rows(batch, collected(MATCH, ids))
            sink.commit(batch)

    send("p.yaml", [1])
    send("p.yaml", [2])
    with pytest.raises(InputError) as caught:
        send("q.yaml", [3])
    assert caught.value.code == "E0887"
    (line,) = (tmp_path / "refused" / "batch=all.json").read_text().splitlines()
    assert json.loads(line)["key"] == "m2"


def test_without_a_place_for_it_a_row_that_is_refused_ends_the_run(web: WebServer) -> None:
    web.answering = lambda request: (400, {}, "")
    with pytest.raises(InputError) as caught:
        post(sink_to(web), collected(MATCH, [1, 2]))
    assert (caught.value.code, caught.value.help) == (
        "E0875",
        "name a folder for such rows: refused: out/refused",
    )
    assert "refuses 2 rows for good, the first is m" in caught.value.args[0]


@pytest.mark.parametrize("status", [301, 401, 403, 404, 405])
def test_a_server_that_refuses_everything_ends_the_run_at_once(
    web: WebServer, tmp_path: Path, status: int
) -> None:
    web.answering = lambda request: (status, {}, "")
    with pytest.raises(InputError) as caught:
        post(sink_to(web, tmp_path / "refused", n_parallel=1), collected(MATCH, [1, 2]))
    assert caught.value.code == "E0875"
    assert len(web.requests) == 1
    assert list((tmp_path / "refused").iterdir()) == []


def test_each_status_has_a_verdict() -> None:
    found = Counter(verdict_of(status).name for status in range(200, 600))
    assert found == {"TAKEN": 100, "AGAIN": 103, "REFUSED": 88, "STOP": 109}


# ---------------------------------------------------------------- corrections, bulk

CORRECTED = Output(MATCH, RULES.with_corrections(Corrections(1)).match_schema)


def corrected(rows: list[tuple[int, int, str]]) -> Collected:
    objects = [
        {"rule": "r", "k": "k", "match_id": f"m{i}", "match_start": i, "match_end": i, "id": i}
        | {"revision": revision, "kind": kind}
        for i, revision, kind in rows
    ]
    table = pa.Table.from_pylist(objects, CORRECTED.schema)
    return Collected(len(rows), Rows(CORRECTED, [table]), lambda texts: table)


def test_a_row_that_is_withdrawn_is_sent_after_the_row_itself(web: WebServer) -> None:
    rows = [(i, 1, "retract") for i in range(20)] + [(i, 0, "match") for i in range(20)]
    post(WebhookSpec(Endpoint(web.url)).open(CORRECTED, CONTEXT), corrected(rows))
    for i in range(20):
        keys = [r.headers["idempotency-key"] for r in web.requests if r.rows[0]["id"] == i]
        assert keys == [f"m{i}-r0", f"m{i}-r1"]


def test_a_bulk_request_says_what_becomes_of_each_document(web: WebServer, tmp_path: Path) -> None:
    seen: list[str] = []

    def answer(request: Request) -> Reply:
        lines = [json.loads(line) for line in request.body.splitlines()]
        items = []
        for action in (line for line in lines if "index" in line or "delete" in line):
            ((verb, place),) = action.items()
            name = f"{verb} {place['_id']}"
            status = {"index m1": 429 if name not in seen else 201, "index m2": 400, "delete m3": 404}
            items.append({verb: {"_id": place["_id"], "status": status.get(name, 200), "error": "e"}})
            seen.append(name)
        return 200, {}, json.dumps({"errors": True, "items": items})

    web.answering = answer
    sink = sink_to(web, tmp_path / "refused", body=BulkBody(), n_together=500, n_parallel=1)
    post(sink, corrected([(1, 0, "match"), (2, 0, "match"), (3, 1, "retract")]))
    assert seen == ["index m1", "index m2", "delete m3", "index m1"]
    assert sink.n_refused == 1
    assert web.requests[0].headers["content-type"] == "application/x-ndjson"


def test_an_answer_that_is_not_that_of_bulk_ends_the_run(web: WebServer) -> None:
    with pytest.raises(InputError, match="the answer is not that of _bulk"):
        post(sink_to(web, body=BulkBody(), n_together=500), collected(MATCH, [1]))


# ---------------------------------------------------------------- access, secrets, TLS


def test_secrets_are_sent_and_shown_nowhere(web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Endpoint(f"{web.url}/${{CEP_TEST_PATH}}", (("Authorization", "Bearer ${CEP_TEST_TOKEN}"),))
    with pytest.raises(InputError) as caught:
        endpoint.check()
    assert caught.value.code == "E0853"
    monkeypatch.setenv("CEP_TEST_PATH", "s3cret-path")
    monkeypatch.setenv("CEP_TEST_TOKEN", "t0p-s3cret")
    web.answering = lambda request: (403, {}, f"{request.path} {request.headers['authorization']}")
    with pytest.raises(InputError) as caught:
        post(WebhookSpec(endpoint).open(OUTPUTS[MATCH], CONTEXT), collected(MATCH, [1]))
    assert web.requests[0].path == "/hook/s3cret-path"
    assert web.requests[0].headers["authorization"] == "Bearer t0p-s3cret"
    shown = f"{caught.value} {endpoint!r} {WebhookSpec(endpoint)!r}"
    assert "s3cret" not in shown
    assert "***" in shown


def test_a_secret_with_a_line_feed_is_told_and_not_shown(
    web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CEP_TEST_TOKEN", "t0p-s3cret\n")
    with pytest.raises(InputError) as caught:
        Endpoint(web.url, (("Authorization", "Bearer ${CEP_TEST_TOKEN}"),)).check()
    assert caught.value.code == "E0853"
    assert "s3cret" not in str(caught.value)


def test_a_certificate_is_looked_at(tmp_path: Path) -> None:
    both = made_certificate(tmp_path)
    require(both is not None, "openssl")
    with running_web_server(both) as web:
        strict = Endpoint(web.url, timeout_s=5)
        with pytest.raises(InputError) as caught:
            strict.check()
        assert (caught.value.code, caught.value.help) == (
            "E0874",
            "name the file of its authority in `ca_file`",
        )
        for endpoint in (
            replace(strict, ca_file=str(tmp_path / "certificate.pem")),
            replace(strict, is_verified=False),
        ):
            post(WebhookSpec(endpoint).open(OUTPUTS[MATCH], CONTEXT), collected(MATCH, [1]))
        assert len(web.requests) == 2


def test_no_server_is_told_before_the_run() -> None:
    (port,) = free_ports(1)
    with pytest.raises(InputError) as caught:
        Endpoint(f"http://127.0.0.1:{port}/").check()
    assert caught.value.code == "E0874"
    assert f"the webhook `http://127.0.0.1:{port}` does not answer: " in caught.value.args[0]


def test_a_server_that_does_not_answer_in_time_is_asked_again(web: WebServer) -> None:
    is_slow = threading.Event()

    def answer(request: Request) -> Reply:
        if not is_slow.is_set():
            is_slow.set()
            threading.Event().wait(0.5)  # longer than the sink waits
        return 200, {}, ""

    web.answering = answer
    clock = FakeClock()
    sending = Sending(Endpoint(web.url, timeout_s=0.1), JsonBody(False), clock=clock.clock)
    post(WebhookSink(OUTPUTS[MATCH], sending), collected(MATCH, [1]))
    assert (len(web.requests), len(clock.waits)) == (2, 1)
