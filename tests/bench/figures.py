"""What all benchmarks share: a figure with its no-op and its target, medians, the table, the JSON.

A figure on its own says little, for machines differ and one machine differs from hour to hour. So each stands
beside a no-op on the same path, measured in the same run; their ratio is what can be compared.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure should reach."""

    bound: float
    at_most: bool = False

    def is_met_by(self, value: float) -> bool:
        """Say whether `value` is on the right side."""
        return value <= self.bound if self.at_most else value >= self.bound

    def __str__(self) -> str:
        return f"{'<=' if self.at_most else '>='} {_number(self.bound)}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing measured: `path` is what ran, `case` over what; the no-op is in the same unit."""

    path: str
    case: str
    value: float
    unit: str
    no_op: float | None = None
    target: Target | None = None

    @property
    def ratio(self) -> float | None:
        """Times the no-op; of what is better when larger, times as slow as it."""
        if self.no_op is None or not self.no_op or not self.value:
            return None
        return self.no_op / self.value if self.unit.endswith("/s") else self.value / self.no_op

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None: there is none."""
        return None if self.target is None else self.target.is_met_by(self.value)


def median_seconds(run: Callable[[], object], repeats: int) -> float:
    """Return the median time of `run`, after one run to warm up."""
    run()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def peak_bytes() -> int:
    """Return the largest memory that this process has had so far, or since `reset_peak`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def reset_peak() -> None:
    """Let `peak_bytes` begin anew (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def resident_bytes() -> int:
    """Return the memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cells(figure: Figure) -> tuple[str, ...]:
    """Return a figure as text: case, path, figure, no-op, ratio, target, whether it is met."""
    return (
        figure.case,
        figure.path,
        f"{_number(figure.value)} {figure.unit}",
        "" if figure.no_op is None else _number(figure.no_op),
        "" if figure.ratio is None else _number(figure.ratio),
        "" if figure.target is None else str(figure.target),
        {None: "", True: "met", False: "missed"}[figure.is_met],
    )


def markdown(figures: Sequence[Figure]) -> str:
    """Return figures as a table for a page."""
    head = ["| case | path | figure | no-op | ratio | target | |", "|---|---|---:|---:|---:|---:|---|"]
    rows = []
    previous = None
    for figure in figures:
        case, *rest = cells(figure)
        rows.append("| " + " | ".join(("" if case == previous else case, *rest)) + " |")
        previous = case
    return "\n".join(head + rows) + "\n"


def figure_table(title: str, figures: Sequence[Figure]) -> Table:
    """Return figures as a table for the terminal, a section for each case."""
    table = Table(title=title)
    for heading in ("case", "path"):
        table.add_column(heading)
    for heading in ("figure", "no-op", "ratio", "target", ""):
        table.add_column(heading, justify="right")
    previous = None
    for figure in figures:
        if previous not in (None, figure.case):
            table.add_section()
        previous = figure.case
        table.add_row(*cells(figure))
    return table


def report(title: str, figures: Sequence[Figure], options: dict[str, Any], out: Path) -> None:
    """Show figures as a table; write them with the machine and the options to `out`, a table beside it."""
    console = Console()
    console.width = max(console.width, 120)
    console.print(figure_table(title, figures))
    rows = [{**asdict(figure), "ratio": figure.ratio, "met": figure.is_met} for figure in figures]
    machine = {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"options": options, "machine": machine, "figures": rows}, indent=1)
    out.write_text(text + "\n")
    out.with_suffix(".md").write_text(markdown(figures))
    console.print(f"all figures: {out}")


def _number(value: float) -> str:
    """Return a number with three digits that say something."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
