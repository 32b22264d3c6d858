"""Where a rule differs from Flink on purpose: docs/flink.md gives the reasons, this page who is concerned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.conformance.stages import Pattern, UntranslatableError, read_pattern

Test = Callable[[Pattern, Mapping[str, Any]], bool]

DIFFERENCES: dict[str, Test] = {}


def differences_of(case: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the differences that the case's pattern can show."""
    try:
        pattern = read_pattern(case["pattern"])
    except UntranslatableError:
        return
    yield from (name for name, applies in DIFFERENCES.items() if applies(pattern, case))
