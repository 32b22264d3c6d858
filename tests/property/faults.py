"""``python -m tests.property.faults``: plant known faults in a copy, see that `make fuzz` finds each of them.

A comparison that finds nothing may be blind. Each fault is a line of the compiler or the engine made wrong in
the way in which somebody might write it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_FOLDERS = ("cep", "tests", "rules")
TIMEOUT_SECONDS = 1800


@dataclass(frozen=True, slots=True)
class Fault:
    """`right` stands once in `file`; with `wrong` instead, matches differ."""

    name: str
    file: str
    right: str
    wrong: str


_GRAPH = "cep/compiler/pattern_graph.py"
_NFA, _LOWER, _KERNELS = "cep/compiler/nfa.py", "cep/compiler/lower.py", "cep/engine/kernels"

FAULTS = (
    Fault(
        "an event that no event skips is not looked at",
        "cep/engine/packed_rule.py",
        "ALWAYS_WALKS: int(rule.tables.state_always[1:].any())",
        "ALWAYS_WALKS: 0",
    ),
    Fault(
        "an absence is dropped where `->` follows",
        _NFA,
        "bars = () if joint.contiguity is ir.Contiguity.STRICT else path.bars",
        "bars = path.bars if joint.contiguity is ir.Contiguity.ANY else ()",
    ),
    Fault(
        "an absence behind a loop does not hold in it",
        _GRAPH,
        "after = self.add(Mark.BAR, after, value=item.node.variable)",
        "pass",
    ),
    Fault(
        "the branch written last is preferred",
        _GRAPH,
        'key=lambda other: graph.edges[node, other]["order"], reverse=True',
        'key=lambda other: graph.edges[node, other]["order"]',
    ),
    Fault(
        "a group's window begins with the match",
        _GRAPH,
        "path = replace(path, opened=_with(path.opened, value))",
        "pass",
    ),
    Fault(
        "rows are dropped although the next event counts",
        "cep/compiler/relevance.py",
        "return tuple(_reasons(rule, automaton, undecided))",
        "return ()",
    ),
    Fault(
        "a condition on the running aggregate reads it as it was before",
        _LOWER,
        "after_take=before is None",
        "after_take=False",
    ),
    Fault(
        "< as <= in WITHIN",
        _LOWER,
        "span_us=rule.window.span_us if",
        "span_us=rule.window.length_us if",
    ),
    Fault(
        "rules share bits they should not",
        _LOWER,
        "bits = {predicate: 1 << bit for bit, predicate in enumerate(shared.words[word])}",
        "bits = {predicate: 1 << bit // 2 * 2 for bit, predicate in enumerate(shared.words[word])}",
    ),
    Fault(
        "an absence at the start reaches one microsecond less far",
        f"{_KERNELS}/step.py",
        "keys[slot, memory] + rule[look + LOOK_US] >= time_us",
        "keys[slot, memory] + rule[look + LOOK_US] > time_us",
    ),
    Fault(
        "a match prunes nothing",
        f"{_KERNELS}/selection.py",
        "floor = max(floor, skip_target(rule, runs, run))",
        "floor = max(floor, NONE)",
    ),
    Fault(
        "`->` skips what it could take",
        f"{_KERNELS}/step.py",
        "if stays and mode == _NEXT and not early:",
        "if stays and mode == _NEXT and early:",
    ),
    Fault(
        "UNTIL does not open a fence",
        f"{_KERNELS}/step.py",
        "            until != NONE\n            and holds(",
        "            until < NONE\n            and holds(",
    ),
    Fault(
        "ties are left as they arrived",
        "cep/engine/ordering.py",
        "rows[places] = rows[places][order]",
        "rows[places] = rows[places]",
    ),
    Fault(
        "what a key remembers is forgotten with its last run",
        "cep/engine/matcher.py",
        "live = live | remembers(self.rule.tables, self.pool.keys, watermark_us)",
        "pass",
    ),
    Fault(
        "suppression ends too early",
        "cep/engine/suppression.py",
        "return self.until_us > watermark_us if self.length_us else False",
        "return False",
    ),
)


def find(fault: Fault, copy: Path, examples: int, seed: int) -> str | None:
    """Return after how many cases `fault` was found, or None."""
    target = copy / fault.file
    right = target.read_text()
    before = target.stat()
    target.write_text(right.replace(fault.right, fault.wrong))
    command = [sys.executable, "-m", "tests.property", "--examples", str(examples), "--seed", str(seed)]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, check=False,
            timeout=TIMEOUT_SECONDS,
        )  # fmt: skip
    finally:
        target.write_text(right)
        os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))  # kernels on disk stay good
    if done.returncode == 0:
        return None
    after = re.search(r"after ([\d,]+) cases", done.stderr)
    assert after is not None, done.stderr[-3000:]
    return after[1]


def main() -> int:
    """Plant one fault after the other; the exit code says whether all were found."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.faults", description=__doc__)
    parser.add_argument("--examples", type=int, default=10_000, help="cases for each fault")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="part of a fault's name")
    options = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in _FOLDERS:
            shutil.copytree(_ROOT / name, copy / name)
        for fault in FAULTS:
            if options.only in fault.name:
                started = time.monotonic()
                after = find(fault, copy, options.examples, options.seed)
                missed += after is None
                said = "NOT FOUND" if after is None else f"found after {after} cases"
                print(f"{said} in {time.monotonic() - started:.0f} s: {fault.name}", flush=True)
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
