"""Settings as declarations: what each line says is read, and each problem is told with its place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cep.errors import Source
from cep.settings import declared
from cep.settings.declared import Declared, Wrong, declared_settings, read
from cep.settings.file_mode import PRIVATE, FileMode
from cep.settings.settings import Settings
from cep.settings.yaml_document import Document


def settings_of(text: str) -> Settings:
    document = Document(Source("p.yaml", text))
    root = document.root()
    assert root is not None
    found = {entry.name: entry.value for entry in document.mapping(root, "a thing") or []}
    return Settings(document, Path("/base"), root, "a thing", found)


def of(declaration: type[Any], text: str) -> Any:
    settings = settings_of(text)
    found = read(declaration, settings)
    assert settings.document.diagnostics == []
    return found


def problems(declaration: type[Any], text: str) -> list[str]:
    settings = settings_of(text)
    read(declaration, settings)
    return [
        f"{each.code} {'' if each.span is None else text[each.span.start : each.span.end]}: {each.title}; "
        f"{each.label}; {each.help}"
        for each in settings.document.diagnostics
    ]


@dataclass(frozen=True, slots=True)
class Inner:
    depth: int = declared.integer(3)
    name: str = declared.text()


@dataclass(frozen=True, slots=True)
class All:
    name: str = declared.text()
    folder: str = declared.path("")
    tables: tuple[str, ...] = declared.names((), name="table")
    is_on: bool = declared.flag(True, name="on")
    mode: str = declared.choice(("append", "upsert"))
    goes_on: bool = declared.choice({"fail": False, "go_on": True}, name="on_lost")
    most: int | None = declared.integer(None, at_least=1)
    wait_s: float = declared.duration(2.0, "s", name="wait")
    late_us: int = declared.duration(0, "us", above_zero=True, name="late")
    file_mode: FileMode = declared.file_mode()
    options: tuple[tuple[str, str], ...] = declared.texts(refused=("ours",))
    password: str = declared.text("", secret=True, hidden=True)
    inner: Inner | None = declared.nested(Inner)
    any: Any = declared.later()


def test_what_is_not_given_has_its_default() -> None:
    assert of(All, "name: x") == All(
        "x", "", (), True, "append", False, None, 2.0, 0, PRIVATE, (), "", None, None
    )


def test_each_kind_of_setting_is_read() -> None:
    found = of(
        All,
        "{name: x, folder: a/b, table: [t, u, t], on: no, mode: upsert, on_lost: go_on, most: 7,"
        " wait: 3 minutes, late: 2 seconds, file_mode: '0640', options: {a: 1, b: '${B}'}, password: 'p${P}',"
        " inner: {depth: 0, name: y}}",
    )
    assert found == All(
        "x", "/base/a/b", ("t", "u"), False, "upsert", True, 7, 180.0, 2_000_000, FileMode(0o640),
        (("a", "1"), ("b", "${B}")), "p${P}", Inner(0, "y"), None,
    )  # fmt: skip
    assert "${P}" not in repr(found)
    assert of(All, "{name: x, folder: s3://a/b}").folder == "s3://a/b"
    assert of(All, "{name: x, any: {deep: 1}}").any.value[0][0].value == "deep"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("on: true", "E0404 on: a thing has no `name`; `name` is missing; add: name: ..."),
        ("name: []", "E0402 []: `name` must be a text; expected a text; write one word or a quoted text"),
        (
            "name: '${X}'",
            "E0418 '${X}': `${X}` is not replaced; variables of the environment are not read; "
            "write the value itself",
        ),
        ("{name: x, on: 3}", "E0402 3: `on` must be true or false; expected true or false; "
            "write true or false"),
        ("{name: x, mode: z}", "E0841 z: `mode` cannot be `z`; not known; write append or upsert"),
        ("{name: x, most: 0}", "E0402 0: `most` must be at least 1; too small; write 1 or more"),
        ("{name: x, most: a}", "E0402 a: `most` must be a whole number; expected a whole number; "
            "write digits only"),
        (
            "{name: x, wait: soon}",
            "E0409 soon: `soon` is not a duration; expected a number and a unit; "
            "write for example: wait: 5 minutes",
        ),
        (
            "{name: x, late: 0 seconds}",
            "E0409 0 seconds: `0 seconds` is not a duration; expected a number and a unit; "
            "write for example: late: 5 minutes",
        ),
        (
            "{name: x, file_mode: '0777'}",
            "E0841 '0777': `file_mode` cannot be `0777`; expected 6, then 0, 4 or 6 for the group and for "
            'all others; write for example "0640": the user reads and writes, the group reads',
        ),
        (
            "{name: x, options: {Ours: 1}}",
            "E0843 1: `Ours` is not for `options`; the pipeline decides about it; remove it",
        ),
        (
            "{name: x, options: {a: [1]}}",
            "E0402 [1]: `a` must be a text; expected a text; write one word or a quoted text",
        ),
        (
            "{name: x, inner: {depth: 1}}",
            "E0404 depth: `inner` has no `name`; `name` is missing; add: name: ...",
        ),
        (
            "{name: x, inner: {name: y, deph: 1}}",
            "E0403 deph: `inner` has no setting `deph`; not a setting; did you mean `depth`? "
            "settings: depth, name",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(text: str, expected: str) -> None:
    assert problems(All, text) == [expected]


@dataclass(frozen=True, slots=True)
class Together:
    topic: str = declared.text(unless="pattern")
    pattern: str = declared.text("", not_with="topic")
    kept: int | None = declared.integer(None, needs=("pattern", "nothing is kept", "add: pattern: x"))
    slot: str = declared.text(
        "", valid=str.islower, wrong=Wrong("`{}` is no slot", "not a name", "write {} small", "E0841")
    )  # fmt: skip


def test_settings_that_go_with_others() -> None:
    assert of(Together, "pattern: x") == Together("", "x", None, "")
    assert problems(Together, "slot: a") == [
        "E0404 slot: a thing has neither `topic` nor `pattern`; `topic` is missing; add: topic: ..."
    ]
    assert problems(Together, "{topic: t, pattern: [x]}") == [
        "E0843 [x]: `topic` and `pattern` together; one or the other; remove one"
    ]
    assert problems(Together, "{topic: t, kept: 3}") == [
        "E0843 3: `kept` without `pattern`; nothing is kept; add: pattern: x"
    ]


def test_a_value_that_cannot_be_is_told_and_counts_as_not_given() -> None:
    settings = settings_of("{topic: t, slot: ABC}")
    assert read(Together, settings).slot == ""
    (problem,) = settings.document.diagnostics
    assert (problem.code, problem.title, problem.help) == (
        "E0841",
        "`ABC` is no slot",
        "write ABC small",
    )


def test_all_problems_are_told_together() -> None:
    assert len(problems(All, "{on: 3, mode: z, most: 0, wait: soon, options: {ours: 1}, inner: 3}")) == 7


def test_a_declaration_is_a_format_with_its_settings_and_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Declared[Together] = Declared(Together, package="there", extra="of_it")
    assert made.settings == ("topic", "pattern", "kept", "slot")
    monkeypatch.setattr("cep.packages.find_spec", lambda name: None if name == "missing" else "there")
    assert made.spec(settings_of("{format: f, topic: t}")) == Together("t")
    assert made.spec(settings_of("{format: f}")) is None
    settings = settings_of("{format: f, topic: t}")
    assert Declared(Together, package="missing", extra="of_it").spec(settings) is None
    (problem,) = settings.document.diagnostics
    assert (problem.code, problem.help) == ("E0683", "pip install 'spark-cep[of_it]'")
    assert problem.title == "a thing of format f needs the package `missing`, which is not installed"


def test_words_and_defaults_can_be_asked_for() -> None:
    found = declared_settings(All)
    assert found["mode"].words == ("append", "upsert")
    assert (found["wait"].default, found["name"].is_required, found["folder"].is_required) == (
        2.0,
        True,
        False,
    )
