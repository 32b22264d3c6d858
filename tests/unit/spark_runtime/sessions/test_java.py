"""Which Java Spark is started with, and how one is started that lacks a module."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cep.errors import InputError, SetupError
from spark_runtime.sessions.java import Java, find_java

HELP = (
    "help: install Java 17 or later (a JDK or JRE) and put it on PATH, or set JAVA_HOME; "
    "or let pip bring one: pip install 'spark-cep[java]'"
)


def program(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "java"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def java(folder: Path, version: str, *, has_module: bool = True) -> Path:
    """A program that answers as Java of a version does."""
    refuse = "" if has_module else 'case "$*" in *--add-modules*) exit 1;; esac\n'
    return program(folder, f"""{refuse}echo 'openjdk version "{version}" 2021-09-14' >&2""")


def refusal(environment: dict[str, str]) -> str:
    with pytest.raises(SetupError) as caught:
        find_java(environment, bundled="")
    return str(caught.value)


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home = java(tmp_path / "home/bin", "21.0.1")
    on_path = java(tmp_path / "path", "17.0.1")
    environment = {"PATH": str(tmp_path / "path")}
    assert find_java(environment, "bundled") == Java(str(on_path), is_usual=True)
    environment["JAVA_HOME"] = str(tmp_path / "home")
    assert find_java(environment, "bundled") == Java(str(home), is_usual=True)


def test_a_java_without_the_module_is_found_and_is_not_usual(tmp_path: Path) -> None:
    small = java(tmp_path, "17.0.1", has_module=False)
    assert find_java({"PATH": str(tmp_path)}, "bundled") == Java(str(small), is_usual=False)


def test_the_bundled_java_stands_in_for_one_that_is_missing_too_old_or_broken(tmp_path: Path) -> None:
    bundled = Java("bundled", is_usual=False)
    assert find_java({"PATH": str(tmp_path)}, "bundled") == bundled
    assert find_java({"PATH": str(tmp_path), "JAVA_HOME": "/no/such"}, "bundled") == bundled
    java(tmp_path / "old", "1.8.0_292", has_module=False)
    assert find_java({"PATH": str(tmp_path / "old")}, "bundled") == bundled
    program(tmp_path / "broken", "exit 3")
    assert find_java({"PATH": str(tmp_path / "broken")}, "bundled") == bundled


def test_without_any_java_it_is_said_what_was_looked_at(tmp_path: Path) -> None:
    nothing = {"PATH": str(tmp_path)}
    assert refusal(nothing) == f"error[E0802]: Spark needs Java: no `java` on PATH\n{HELP}"
    assert refusal({**nothing, "JAVA_HOME": "/no/such"}) == (
        f"error[E0802]: Spark needs Java: JAVA_HOME is /no/such, which has no bin/java\n{HELP}"
    )
    old = java(tmp_path / "old", "11.0.2", has_module=False)
    assert refusal({"PATH": str(old.parent)}) == (
        f"error[E0802]: Spark needs Java 17 or later; {old} is Java 11\n{HELP}"
    )
    broken = program(tmp_path / "broken", "exit 3")
    assert refusal({"PATH": str(broken.parent)}) == (
        f"error[E0802]: {broken} does not say which Java it is\n{HELP}"
    )


def test_without_a_current_folder_java_is_not_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(InputError, match="the current folder does not exist any more"):
        find_java()


def test_a_java_that_lacks_the_module_is_started_without_it(tmp_path: Path) -> None:
    """The path of the program, and every other argument, come through as they are."""
    odd = program(tmp_path / "it's here", """for argument; do echo "<$argument>"; done""")
    environment = Java(str(odd), is_usual=False).environment(tmp_path)
    arguments = [
        "-Xmx1g",
        "-cp",
        "a b:c",
        "--add-modules=jdk.incubator.vector",
        "--add-modules=other",
        "",
        "$x 'y'",
    ]
    said = subprocess.run(
        [f"{environment['JAVA_HOME']}/bin/java", *arguments], capture_output=True, text=True, check=True
    )
    expected = [argument for argument in arguments if argument != "--add-modules=jdk.incubator.vector"]
    assert said.stdout.splitlines() == [f"<{argument}>" for argument in expected]


def test_a_usual_java_needs_no_environment(tmp_path: Path) -> None:
    assert Java("/usr/bin/java", is_usual=True).environment(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"LC_ALL": "C"}, "{'LC_ALL': 'C.UTF-8'}"),
        ({"LC_ALL": "C.UTF-8"}, "{}"),
        ({"LC_ALL": "C", "PYTHONUTF8": "0"}, "{}"),  # Python does not write such names either
    ],
)
def test_java_writes_names_of_files_as_python_does(variables: dict[str, str], said: str) -> None:
    line = "from spark_runtime.sessions.java import as_python_names; print(as_python_names())"
    done = subprocess.run(
        [sys.executable, "-c", line], env={**os.environ, **variables},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == said
