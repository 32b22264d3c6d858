"""What a release says of itself: one version, extras and locks that fit, bounds that can be tried."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]

NOT_IN_ALL = {
    "all",
    "amqp",  # needs a compiler
    "bench",
    "java",  # most machines have one
    "lsp",  # of an editor
    "mcp",  # of an agent
    "dev",
    "docs",
    "servers",
}
LOCKS = {
    "java": "java",
    "servers": "servers",
    "docs": "docs",
    "bench": "bench",
    "all": "",
    "dev": "",
    "lsp": "",
    "mcp": "",
}
"""Extra -> which lock has its packages; the set-up installs the lock without a name."""


def test_the_first_heading_of_the_changelog_is_the_version_of_the_package() -> None:
    headings = re.findall(
        r"^## (\S+) - (?:unreleased|\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert headings[0] == PROJECT["version"]
    assert headings == sorted(headings, key=Version, reverse=True)


def test_the_links_of_the_pages_at_the_root_lead_somewhere() -> None:
    for name in ("CHANGELOG.md", "SECURITY.md"):
        for target in re.findall(r"\]\((?!https?:)([^)]+)\)", (ROOT / name).read_text()):
            page, _, anchor = target.partition("#")
            assert (ROOT / page).exists(), target
            if anchor:
                headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
                slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
                assert anchor in slugs, target


def test_every_extra_is_in_all_or_is_left_out_for_a_reason() -> None:
    [all_of_them] = map(Requirement, EXTRAS["all"])
    assert all_of_them.name == PROJECT["name"]
    assert all_of_them.extras == EXTRAS.keys() - NOT_IN_ALL


def test_make_lock_pins_every_extra_but_the_one_that_needs_a_compiler() -> None:
    lock = (ROOT / "Makefile").read_text().partition("\nlock:")[2].partition("\n\n")[0]
    main = set(re.findall(r"--extra (\w+)", lock))
    own = set(re.findall(r"for extra in ([\w ]+);", lock)[0].split())
    assert (main, own) == ({"all", "dev", "lsp", "mcp"}, {"java", "servers", "docs", "bench"})
    assert NOT_IN_ALL - main - own == {"amqp"}


def test_locks_have_the_packages_of_their_extras_in_allowed_versions() -> None:
    extras = {**EXTRAS, "all": [text for name in EXTRAS.keys() - NOT_IN_ALL for text in EXTRAS[name]]}
    for extra, lock in LOCKS.items():
        text = (ROOT / f"requirements{lock and '-' + lock}.lock").read_text()
        pinned = {
            name.lower(): Version(version)
            for name, version in re.findall(r"^([\w.-]+)==([^ ;\\\n]+)", text, re.MULTILINE)
        }
        for needed in map(Requirement, extras[extra]):
            assert needed.specifier.contains(pinned[needed.name.lower()]), f"{needed} in {lock or 'the'} lock"


def test_every_dependency_has_a_lower_bound_so_that_make_lowest_can_try_it() -> None:
    tried = [text for extra, texts in EXTRAS.items() if extra not in ("all", "servers") for text in texts]
    for needed in map(Requirement, [*PROJECT["dependencies"], *tried]):
        assert {">=", "=="} & {part.operator for part in needed.specifier}, needed
