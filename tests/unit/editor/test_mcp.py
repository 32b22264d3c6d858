"""`cep mcp` as an agent speaks to it, and what it refuses."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cep.commands.agent_tools import (
    MAX_TEXT,
    Access,
    RefusedError,
    answered,
    backtest,
    check,
    profile,
    why,
    write_file,
)
from cep.commands.agent_tools import test as run_tests
from cep.settings.roots import root_of
from tests.unit.editor.projects import RULE, TESTS, project

pytest.importorskip("mcp")


class Agent:
    """A running `cep mcp`: a message is a line of JSON."""

    def __init__(self, root: Path, *options: str) -> None:
        command = [sys.executable, "-m", "cep", "mcp", "--root", str(root), *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.number = 0
        about = {"name": "test", "version": "1"}
        self.server = self.request(
            "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=about
        )
        self._send({"method": "notifications/initialized"})

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def request(self, method: str, **params: Any) -> Any:
        self.number += 1
        self._send({"id": self.number, "method": method, "params": params})
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            if message.get("id") == self.number:
                return message["result"]
        raise AssertionError("the server has ended")

    def call(self, name: str, **arguments: Any) -> Any:
        """Return what a tool answers, or the text of its error."""
        result = self.request("tools/call", name=name, arguments=arguments)
        text = result["content"][0]["text"]
        return text if result.get("isError") else json.loads(text)

    def close(self) -> int:
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        return self.process.wait(timeout=60)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Agent, Path]]:
    folder = tmp_path_factory.mktemp("project")
    file = project(folder)
    (folder / "events.csv").write_text(
        "card,ts,amount,kind\n"
        "c1,2024-01-01 00:00:00,1,buy\nc1,2024-01-01 00:01:00,2,buy\nc1,2024-01-01 00:02:00,90,buy\n"
    )
    (folder / "two.csv").write_text("card,ts,amount,kind\nc1,2024-01-01,5,buy\nc2,2024-01-01,5,buy\n")
    running = Agent(folder)
    yield running, file
    assert running.close() == 0


def test_an_agent_sees_tools_that_only_read(agent: tuple[Agent, Path]) -> None:
    tools = agent[0].request("tools/list")["tools"]
    assert [tool["name"] for tool in tools] == ["check", "explain", "test", "why", "backtest", "profile"]
    assert all(tool["annotations"]["readOnlyHint"] for tool in tools)
    assert all(tool["description"] for tool in tools)
    assert "write" not in tools[-1]["inputSchema"]["properties"]
    assert not any(tool["inputSchema"]["additionalProperties"] for tool in tools)


def test_an_agent_checks_explains_tests_and_asks_why(agent: tuple[Agent, Path]) -> None:
    client, file = agent
    rules, folder = [str(file)], file.parent
    assert client.call("check", rules=rules) == {"files": 1, "rules": 1, "problems": [], "unread": {}}
    text = RULE.replace("amount < small", "amuont < small")
    (problem,) = client.call("check", text=text, streams=str(folder / "streams.yaml"))["problems"]
    assert (problem["code"], problem["line"], problem["column"]) == ("E0203", 8, 14)
    assert problem["help"].startswith("did you mean `amount`?")
    assert "drain" in client.call("explain", rules=rules)["text"]
    (tested,) = client.call("test", rules=rules)["files"]
    assert [case["passed"] for case in tested["cases"]] == [True]
    told = client.call("why", rules=rules, inputs=[str(folder / "events.csv")], key=["c1"])
    assert told["rule"] == "drain"
    assert told["matches"] == []
    assert "amount > 100 * AVG(probe.amount)" in json.dumps(told["attempts"])
    counts = client.call("why", rules=rules, inputs=[str(folder / "events.csv")], summary=True)
    assert "steps" in counts
    history = folder / "history.csv"
    history.write_text((folder / "events.csv").read_text().replace(",90,", ",900,"))
    for small, n_alerts in (("5", 1), ("2", 0)):
        count = client.call("backtest", rules=rules, inputs=[str(history)], parameters={"small": small})
        assert [(one["rule"], one["alerts"]) for one in count["rules"]] == [("drain", n_alerts)]
    refused = client.call("backtest", rules=rules, inputs=[str(history)], truth="/etc/passwd")
    assert "is not below a root" in refused
    measured = client.call("profile", stream="payments", file=str(folder / "events.csv"))
    assert measured["columns"]["kind"]["counts"] == {"buy": 3}
    assert not list(folder.glob("*.profile.json"))


def test_problems_of_rules_are_an_answer_and_other_places_are_an_error(agent: tuple[Agent, Path]) -> None:
    client, file = agent
    broken = file.with_name("broken.cep")
    broken.write_text("RULE x\nFROM nothing")
    answer = client.call("explain", rules=[str(broken)])
    broken.unlink()
    assert {one["code"] for one in answer["problems"]} == {"E0106"}
    assert "is not below a root" in client.call("check", rules=["/etc"])
    assert "is not below a root" in client.call("check", rules=[f"{file.parent}/../x.cep"])
    assert "is not below a root" in client.call("check", rules=["s3a://bucket/x.cep"])


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("check", {"paths": ["/etc"]}, "no argument `paths`: arguments: rules, streams, text"),
        ("check", {"rule": ["a.cep"]}, "no argument `rule`: did you mean `rules`? arguments: rules, str"),
        ("check", {}, "Write either `rules` or `text`"),
        ("check", {"rules": [""]}, "a path is empty"),
        ("check", {"rules": []}, "rules: [] should be non-empty"),
        ("check", {"rules": "a.cep"}, "rules: 'a.cep' is not of type 'array'"),
        ("check", {"rules": ["a.cep"], "text": "RULE"}, "Write either `rules` or `text`"),
        ("check", {"text": "x" * (MAX_TEXT + 1)}, "text: the value does not fit maxLength: 1048576"),
        ("backtest", {"parameter": {"small": "2"}}, "did you mean `parameters`?"),
        ("backtest", {"only": ["drain"]}, "no argument `only`"),
        ("backtest", {"parameters": {"small": 2}}, "parameters.small: 2 is not of type 'string'"),
        ("why", {"set": {"small": "2"}}, "no argument `set`"),
        ("why", {"limit": -1}, "limit: -1 is less than the minimum of 0"),
        ("why", {"limit": 21}, "limit: 21 is greater than the maximum of 20"),
        ("why", {"limit": True}, "limit: True is not of type 'integer'"),
        ("why", {"summary": "yes"}, "summary: 'yes' is not of type 'boolean'"),
        ("why", {"summary": True, "key": ["c1"]}, "leave out `key` and `at`"),
        ("why", {"inputs": ["two.csv"]}, "give `key`; keys with the most events: c1; c2"),
        ("why", {"key": ["c9"]}, "give `key`; keys with the most events: c1"),
        ("why", {"key": ["c1"], "at": "now"}, "`at` now is no time"),
        ("why", {"inputs": ["payments="]}, "a path is empty"),
    ],
)
def test_wrong_arguments_are_refused_and_not_passed_over(
    agent: tuple[Agent, Path], tool: str, arguments: dict[str, Any], told: str
) -> None:
    client, file = agent
    events = {"rules": [str(file)], "inputs": [str(file.with_name("events.csv"))]}
    answer = client.call(tool, **{**(events if tool != "check" else {}), **arguments})
    assert isinstance(answer, str), answer
    assert told in answer
    assert len(answer) < 400


def test_a_client_may_write_lists_and_objects_as_texts(agent: tuple[Agent, Path]) -> None:
    client, file = agent
    assert client.call("check", rules=json.dumps([str(file)]))["rules"] == 1


def test_relative_paths_are_those_below_the_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for root, name in ((first, "c1"), (second, "c2")):
        root.mkdir()
        project(root)
        (root / f"{name}.csv").write_text(f"card,ts,amount,kind\n{name},2024-01-01,5,buy\n")
    (tmp_path / "out.cep").write_text(RULE)
    monkeypatch.chdir(tmp_path)
    both = Access((root_of("first"), root_of("second")), may_write=True)
    assert check(both, ["."])["files"] == 2
    assert check(both, text=RULE, streams="streams.yaml")["rules"] == 1
    for name in ("c1", "c2"):
        assert why(both, ["drain.cep"], [f"payments={name}.csv"], [name])["key"] == {"card": name}
        assert backtest(both, ["drain.cep"], [f"{name}.csv"])["rules"][0]["alerts"] == 0
    assert profile(both, "payments", "c*2.csv")["columns"]["card"]["counts"] == {"c2": 1}
    assert run_tests(both, ["drain.test.yaml"])["files"]
    write_file(both, "new.cep", RULE)
    assert (first / "new.cep").read_text() == RULE
    outside = [refusal(lambda name=name: check(both, [f"../{name}.cep"])) for name in ("out", "missing")]
    assert outside[0].replace("out", "missing") == outside[1]
    assert "is not below a root" in outside[0]
    (first / "circle").symlink_to(first / "circle")
    for missing in ("missing.cep", "circle", "circle/a.cep"):
        problems = check(both, [missing])["problems"]
        assert [problem["code"] for problem in problems] == ["E0611"]


def access(folder: Path, may_write: bool = False) -> Access:
    return Access((root_of(str(folder)),), may_write)


def refusal(call: Any) -> str:
    with pytest.raises(RefusedError) as refused:
        answered(call)
    return str(refused.value)


def test_nothing_outside_of_the_roots_is_read_by_a_link_a_test_file_or_a_streams_file(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    file = project(inside)
    (outside / "secret.cep").write_text(RULE)
    reads = access(inside)
    (inside / "link.cep").symlink_to(outside / "secret.cep")
    assert "is not below a root" in refusal(lambda: check(reads, [str(inside)]))
    (inside / "link.cep").unlink()
    for named in ("rules: ../outside/secret.cep\n", "streams: ../outside/streams.yaml\n"):
        file.with_name("drain.test.yaml").write_text(named + TESTS)
        assert "is not below a root" in refusal(lambda: run_tests(reads, [str(file)]))
    file.with_name("drain.test.yaml").write_text(
        TESTS.replace("events: |", "events: {payments: {file: ../outside/events.csv}}\n    old: |")
    )
    assert "is not below a root" in refusal(lambda: run_tests(reads, [str(file)]))
    deeper = inside / "deeper"
    deeper.mkdir()
    (deeper / "a.cep").write_text(RULE)
    assert "streams.yaml` is not below a root" in refusal(
        lambda: check(access(deeper), [str(deeper / "a.cep")])
    )


def test_no_file_is_read_through_a_pattern_that_a_call_could_not_name(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    (inside / "days").mkdir(parents=True)
    outside.mkdir()
    file = project(inside)
    secret = outside / "secret.csv"
    secret.write_text("card,ts,amount,kind\nsecret,2024-01-01,5,buy\n")
    (inside / "days/1.csv").symlink_to(secret)
    (inside / "days/2.csv").write_text(secret.read_text().replace("secret", "c2"))
    reads = access(inside)
    for pattern in ("*.csv", "{kind}.csv"):
        days = str(inside / "days" / pattern)
        assert "1.csv` is not below a root" in refusal(lambda days=days: profile(reads, "payments", days))
        assert "1.csv` is not below a root" in refusal(
            lambda days=days: why(reads, [str(file)], [f"payments={days}"], summary=True)
        )
    file.with_name("drain.test.yaml").write_text(
        TESTS.replace("events: |", "events: {payments: {file: days/*.csv}}\n    old: |")
    )
    assert "is not below a root" in refusal(lambda: run_tests(reads, [str(file)]))
    (inside / "days/1.csv").unlink()
    assert profile(reads, "payments", str(inside / "days/*.csv"))["n_events"] == 1


def test_what_is_no_file_and_what_is_no_time_is_refused_at_once(tmp_path: Path) -> None:
    file = project(tmp_path)
    events = tmp_path / "events.csv"
    events.write_text("card,ts,amount,kind\nc1,2024-01-01,5,buy\n")
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    reads = access(tmp_path)
    for named in (str(pipe), f"payments={pipe}"):
        assert "is a pipe" in refusal(lambda named=named: why(reads, [str(file)], [named], summary=True))
    assert "is a pipe" in refusal(lambda: check(reads, text=RULE, streams=str(pipe)))
    assert "yesterday is no time" in refusal(
        lambda: why(reads, [str(file)], [str(events)], ["c1"], at="yesterday")
    )
    assert "too long" in refusal(lambda: check(reads, [str(tmp_path / ("x" * 300))]))


def test_only_a_server_that_may_write_writes(tmp_path: Path) -> None:
    file = project(tmp_path)
    events = tmp_path / "events.csv"
    events.write_text("card,ts,amount,kind\nc1,2024-01-01,5,buy\n")
    reads, writes = access(tmp_path), access(tmp_path, may_write=True)
    assert "--allow-write" in refusal(lambda: write_file(reads, str(file), "x"))
    assert "--allow-write" in refusal(lambda: profile(reads, "payments", str(events), write=True))
    assert file.read_text() == RULE
    write_file(writes, str(file), RULE + "-- changed\n")
    assert file.read_text().endswith("-- changed\n")
    assert "is none of" in refusal(lambda: write_file(writes, str(tmp_path / "run.sh"), "x"))
    assert "is not below a root" in refusal(lambda: write_file(writes, "/tmp/x.cep", "x"))
    assert "at most" in refusal(lambda: write_file(writes, str(file), "x" * (MAX_TEXT + 1)))
    profile(writes, "payments", str(events), write=True)
    assert [found.name for found in tmp_path.glob("*.profile.json")] == ["payments.profile.json"]


def test_a_call_reads_and_answers_no_more_than_its_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = project(tmp_path)
    reads = access(tmp_path)
    monkeypatch.setattr("cep.commands.agent_tools.MAX_FILES", 2)
    assert "a call may read 2" in refusal(lambda: check(reads, [str(tmp_path)]))
    monkeypatch.setattr("cep.commands.agent_tools.MAX_INPUT", 10)
    assert "10 bytes that a call may read" in refusal(lambda: check(reads, [str(file)]))
    monkeypatch.undo()
    monkeypatch.setattr("cep.commands.agent_tools.MAX_ANSWER", 10)
    assert "at most 10" in refusal(lambda: check(reads, [str(file)]))


@pytest.mark.parametrize("damaged", [False, True])
def test_the_bytes_of_a_packed_file_count_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    file, events = project(tmp_path), tmp_path / "events.csv.gz"
    line = "c1,2024-01-01,5,buy\n"
    packed = gzip.compress(("card,ts,amount,kind\n" + 3000 * line).encode())
    events.write_bytes(packed[:-40] if damaged else packed)
    monkeypatch.setattr("cep.commands.agent_tools._UNPACKED", 1000)
    monkeypatch.setattr("cep.commands.agent_tools.MAX_INPUT", 10_000)
    assert len(packed) < 1000
    found = refusal(lambda: why(access(tmp_path), [str(file)], [str(events)], ["c1"]))
    assert "10,000 bytes that a call may read" in found
    monkeypatch.setattr("cep.commands.agent_tools.MAX_INPUT", 100_000)
    if damaged:
        found = refusal(lambda: why(access(tmp_path), [str(file)], [str(events)], ["c1"]))
        assert "Truncated compressed stream" in found
    else:
        assert why(access(tmp_path), [str(file)], [str(events)], ["c1"])["key"]


def test_a_profile_has_no_number_that_json_lacks(tmp_path: Path) -> None:
    project(tmp_path)
    (tmp_path / "inf.csv").write_text(
        "card,ts,amount,kind\nc,2024-01-01,Infinity,buy\nc,2024-01-01,NaN,buy\n"
    )
    column = profile(access(tmp_path), "payments", str(tmp_path / "inf.csv"))["columns"]["amount"]
    assert (column["least"], column["greatest"], column["n_nan"]) == ("Infinity", "Infinity", 1)
