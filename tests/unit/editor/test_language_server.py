"""`cep lsp` as an editor speaks to it: a process, the protocol over standard input and output."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.editor.client import LIMIT_S, Client
from tests.unit.editor.projects import RULE, TESTS, project

pytest.importorskip("pygls")


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Path]]:
    """Return a client that has opened the rule, and the file."""
    file = project(tmp_path_factory.mktemp("project"))
    client = Client(file.parent)
    document = {"uri": file.as_uri(), "languageId": "cep", "version": 1, "text": RULE}
    client.notify("textDocument/didOpen", textDocument=document)
    assert client.problems(file) == []
    yield client, file
    assert client.close() == 0


def at(file: Path, word: str, number: int = 0) -> dict[str, Any]:
    """Return the place inside the given occurrence of a word in the rule."""
    offset = -1
    for _ in range(number + 1):
        offset = RULE.index(word, offset + 1)
    before = RULE[: offset + 1]
    place = {"line": before.count("\n"), "character": len(before) - 1 - before.rfind("\n")}
    return {"textDocument": {"uri": file.as_uri()}, "position": place}


def write(client: Client, file: Path, text: str, version: int) -> None:
    document = {"uri": file.as_uri(), "version": version}
    client.notify("textDocument/didChange", textDocument=document, contentChanges=[{"text": text}])


def test_a_text_that_is_not_saved_has_the_problems_that_cep_check_would_report(
    editor: tuple[Client, Path],
) -> None:
    client, file = editor
    write(client, file, RULE.replace("amount < small", "amuont < small"), 2)
    (shown,) = client.problems(file)
    write(client, file, RULE, 3)
    assert client.problems(file) == []
    assert shown == {
        "range": {"start": {"line": 7, "character": 13}, "end": {"line": 7, "character": 19}},
        "message": "stream `payments` has no column `amuont`\nnot a column of `payments`\n"
        "help: did you mean `amount`? columns: amount, card, kind, ts",
        "severity": 1,
        "code": "E0203",
        "source": "cep",
    }


def test_the_server_answers_each_question_of_an_editor(editor: tuple[Client, Path]) -> None:
    client, file = editor
    labels = [found["label"] for found in client.request("textDocument/completion", **at(file, "amount"))]
    assert labels[:7] == ["probe", "cashout", "card", "ts", "amount", "kind", "small"]
    told = client.request("textDocument/hover", **at(file, "AVG"))
    assert told["contents"]["value"].startswith("```\nAVG(v.x) → DOUBLE\n```")
    there = client.request("textDocument/definition", **at(file, "amount"))
    assert there["uri"] == (file.parent / "streams.yaml").as_uri()
    assert (
        len(
            client.request(
                "textDocument/references", **{**at(file, "probe"), "context": {"includeDeclaration": True}}
            )
        )
        == 4
    )
    assert (
        client.request("textDocument/documentSymbol", textDocument={"uri": file.as_uri()})[0]["name"]
        == "drain"
    )


def test_a_measure_is_renamed_in_its_rule_in_readers_of_its_matches_and_in_tests(
    editor: tuple[Client, Path],
) -> None:
    client, file = editor
    place = at(file, "loss")
    assert client.request("textDocument/prepareRename", **place)["placeholder"] == "loss"
    edits = client.request("textDocument/rename", newName="lost", **place)["changes"]
    files = [file, file.with_name("twice.cep"), file.with_name("drain.test.yaml")]
    assert {uri: len(changes) for uri, changes in edits.items()} == dict(
        zip((each.as_uri() for each in files), (1, 4, 1), strict=True)
    )
    refused = client.request("textDocument/rename", newName="probes", **place)
    assert refused["message"] == "`probes` is already a measure of `drain`: write another name"


def test_formatting_is_that_of_cep_fmt(editor: tuple[Client, Path]) -> None:
    client, file = editor
    options = {"tabSize": 2, "insertSpaces": True}
    ask = {"textDocument": {"uri": file.as_uri()}, "options": options}
    assert client.request("textDocument/formatting", **ask) == []
    write(client, file, RULE.replace("probe   AS", "probe AS"), 4)
    (edit,) = client.request("textDocument/formatting", **ask)
    write(client, file, RULE, 5)
    assert edit["newText"] == RULE


def test_the_lens_above_a_rule_runs_its_tests(editor: tuple[Client, Path]) -> None:
    client, file = editor
    (lens,) = client.request("textDocument/codeLens", textDocument={"uri": file.as_uri()})
    assert lens["command"]["title"] == "run 1 case of drain.test.yaml"
    run = {"command": lens["command"]["command"], "arguments": lens["command"]["arguments"]}
    passed = client.request("workspace/executeCommand", **run)
    assert passed == {"text": "drain: 1 case passed", "cases": 1, "failed": 0}
    tests = file.with_name("drain.test.yaml")
    tests.write_text(TESTS.replace("loss: 900", "loss: 901"))
    failed = client.request("workspace/executeCommand", **run)
    tests.write_text(TESTS)
    assert failed == {"text": "drain: 1 of 1 case failed", "cases": 1, "failed": 1}


def test_a_request_with_invalid_parameters_is_answered_and_logged_in_one_line(tmp_path: Path) -> None:
    file = project(tmp_path)
    client = Client(tmp_path)
    known, start = {"uri": file.as_uri()}, {"line": 0, "character": 0}
    run: dict[str, Any] = {"command": "cep.runTests"}
    places: list[dict[str, Any]] = [{"position": start}, {"textDocument": {"uri": 5}, "position": None}]
    places += [
        {"textDocument": known, "position": {**start, "line": line}} for line in (-1, 2**40, "a", None)
    ]
    asked = [
        (f"textDocument/{method}", {"context": {"includeDeclaration": True, "triggerKind": 1}, **place})
        for method in ("hover", "definition", "completion", "prepareRename", "references")
        for place in places
    ]
    asked += [("workspace/executeCommand", {**run, **given}) for given in ({}, {"arguments": [known["uri"]]})]
    asked += [("textDocument/rename", {"textDocument": known, "position": start, "newName": "x"})]
    for method, wrong in asked:
        assert client.request(method, **wrong)["code"] == -32602, (method, wrong)
    client.notify("textDocument/didOpen", textDocument={"uri": 5})
    client._send({"id": 99, "method": "no/method"})
    while (answer := client.messages.get(timeout=LIMIT_S)).get("id") != 99:
        pass
    assert answer["error"]["code"] == -32601
    assert client.close() == 0
    assert len(client.log) <= 2 * len(asked) + 4, client.log
    assert not [line for line in client.log if "Traceback" in line]


@pytest.mark.parametrize(
    "uri",
    ["file:///nosuch/x.cep", "untitled:Untitled-1", "file:///x%00.cep", "file:///usr", "http://x/a.cep"],
)
def test_a_request_about_a_text_that_does_not_exist_has_an_empty_answer(
    editor: tuple[Client, Path], uri: str
) -> None:
    for method in (
        *("hover", "definition", "completion", "references", "prepareRename", "rename"),
        *("documentSymbol", "formatting", "codeLens"),
    ):
        more = {
            "newName": "x",
            "context": {"includeDeclaration": True, "triggerKind": 1},
            "options": {"tabSize": 2, "insertSpaces": True},
        }
        place = {"textDocument": {"uri": uri}, "position": {"line": 1, "character": 2}}
        assert editor[0].request(f"textDocument/{method}", **place, **more) is None, method


def test_the_command_loads_neither_servers_nor_their_packages_for_other_verbs() -> None:
    code = (
        "import sys; import cep.rulebook; from cep.commands.cli import main; "
        "main(['check', '--help'], standalone_mode=False); "
        "print([name for name in sys.modules if name.split('.')[0] in ('pygls', 'mcp', 'pydantic')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
