"""What other packages register: found by entry points; what does not fit is refused with a code."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from cep.errors import InputError, SetupError
from cep.registry import Registry

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder on the import path."""
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return tmp_path


def install(path: Path, package: str, entry_points: str, code: str = "") -> None:
    """Put a package with entry points of the group `t` on the path."""
    info = path / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[t]\n{entry_points}\n")
    (path / f"{package}_code.py").write_text(code)


def registry(built_in: str = "pathlib:Path") -> Registry[object]:
    return Registry("thing", "t", {"ours": built_in}, (("first", "second"), ("joinpath",)))


def refusal(name: str, things: Registry[object]) -> str:
    with pytest.raises((InputError, SetupError)) as caught:
        things.get(name)
    return str(caught.value)


def test_what_other_packages_register_is_found_by_name(path: Path) -> None:
    install(path, "one", "b = one_code:B\na = pathlib:PurePath", "class B:\n    first = second = 1\n")
    things = registry()
    assert things.names == ("ours", "a", "b")
    assert things.get("b").first == 1  # type: ignore[attr-defined]
    assert things.get("ours") is Path
    assert list(things.loaded()) == ["ours", "a", "b"]


def test_a_name_of_ours_is_found_without_a_look_at_other_packages(path: Path) -> None:
    install(path, "one", "a = pathlib:PurePath")
    install(path, "two", "a = pathlib:PurePosixPath")
    assert registry().get("ours") is Path


def test_an_unknown_name_is_refused_with_all_that_are_known(path: Path) -> None:
    install(path, "one", "a = pathlib:PurePath")
    assert refusal("c", registry()) == "error[E0680]: there is no thing `c`\nhelp: things: ours, a"


def test_a_name_that_two_packages_register_is_refused(path: Path) -> None:
    install(path, "one", "a = pathlib:PurePath")
    install(path, "two", "a = pathlib:PurePosixPath")
    assert refusal("a", registry()) == (
        "error[E0681]: the thing `a` is registered twice: by one and by two\nhelp: uninstall one of the two"
    )


def test_a_name_of_ours_cannot_be_registered_again(path: Path) -> None:
    install(path, "one", "ours = pathlib:PurePath")
    assert refusal("a", registry()) == (
        "error[E0681]: the thing `ours` is registered twice: by spark-cep and by one\n"
        "help: uninstall one of the two"
    )


@pytest.mark.parametrize(
    ("value", "code", "reason"),
    [
        ("one_code:A", "raise ValueError('no\\nluck')", "ValueError: no"),
        ("one_code:A", "", "AttributeError: module 'one_code' has no attribute 'A'"),
        ("nowhere:A", "", "ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_a_broken_entry_point_is_told_when_it_is_asked_for(
    path: Path, value: str, code: str, reason: str
) -> None:
    install(path, "one", f"a = {value}", code)
    sys.modules.pop("one_code", None)
    things = registry()
    assert list(things.loaded()) == ["ours"]
    assert refusal("a", things) == (
        f"error[E0682]: the thing `a` of one, `{value}`, cannot be loaded: {reason}\n"
        "help: ask its authors, or uninstall it"
    )


def test_a_missing_extra_is_named(path: Path) -> None:
    install(path, "one", "a = one_code:A [fast]", "import a_fast_library")
    sys.modules.pop("one_code", None)
    assert refusal("a", registry()) == (
        "error[E0683]: the thing `a` of one needs the package `a_fast_library`, which is not installed\n"
        "help: pip install 'one[fast]'"
    )
    assert refusal("ours", registry("a_slow_library:A [slow]")) == (
        "error[E0683]: the thing `ours` of spark-cep needs the package `a_slow_library`, "
        "which is not installed\nhelp: pip install 'spark-cep[slow]'"
    )


def test_what_lacks_a_member_of_its_protocol_is_refused(path: Path) -> None:
    install(path, "one", "a = one_code:A", "class A:\n    second = 2\n")
    sys.modules.pop("one_code", None)
    assert refusal("a", registry()) == (
        "error[E0684]: the thing `a` of one, `one_code:A`, has no `first`\nhelp: ask its authors"
    )


def test_two_formats_of_one_file_ending_are_refused(tmp_path: Path) -> None:
    install(tmp_path, "one", "", "from dataclasses import replace\n")
    (tmp_path / "one-1.0.dist-info/entry_points.txt").write_text("[cep.formats]\nother = one_code:OTHER\n")
    (tmp_path / "one_code.py").write_text(
        "from dataclasses import replace\nfrom cep.formats.text.json_lines import JSON_LINES\n"
        "OTHER = replace(JSON_LINES, name='other')\n"
    )
    code = "from cep.formats.registry import format_of_name; print(format_of_name('a.xml'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.splitlines()[-2:] == [
        "cep.errors.SetupError: error[E0681]: files that end in `.json` are of two formats: json and other",
        "help: uninstall the package of one of the two",
    ]
