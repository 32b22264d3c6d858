"""A fault that `python -m tests.property.faults` plants: a mistake that somebody could make."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault. `right` occurs once in `file`; with `wrong` instead, `module` must find a difference.

    `only`: in cases of this kind, where `module` has several.
    """

    name: str
    file: str
    right: str
    wrong: str
    module: str = "tests.property"
    only: str = ""
