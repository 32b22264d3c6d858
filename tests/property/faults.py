"""``python -m tests.property.faults`` plants known faults in a copy and checks that the fuzzers find each.

A comparison that finds nothing may be blind. Each fault changes a line of the compiler, the engine or a
reader into a mistake that somebody could make.
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
    """A fault. `right` occurs once in `file`; with `wrong` instead, `module` must find a difference.

    `only`: in cases of this kind, where `module` has several.
    """

    name: str
    file: str
    right: str
    wrong: str
    module: str = "tests.property"
    only: str = ""


_GRAPH = "cep/compiler/automaton/pattern_graph.py"
_JSON, _READERS = "cep/formats/text/json_lines.py", "tests.property.readers"
_JSON_KERNEL = "cep/formats/text/json/kernel.py"
_CONTEXT = "cep/engine/context"
_NFA, _LOWER, _KERNELS = (
    "cep/compiler/automaton/nfa.py",
    "cep/compiler/lowering/lower.py",
    "cep/engine/kernels",
)

_WINDOWS = "cep/engine/context/kernels"
_FRAMES, _SUMS = f"{_WINDOWS}/frames.py", f"{_WINDOWS}/sums.py"
_SETS, _EXTREMES = f"{_WINDOWS}/sets.py", f"{_WINDOWS}/chosen.py"
_PANES, _PREFIXES = f"{_WINDOWS}/panes.py", f"{_WINDOWS}/prefixes.py"
_ENDS = "cep/engine/context/ends.py"

FAULTS = (
    Fault(
        "a run that must look at every event is not offered each",
        "cep/engine/packed_rule.py",
        '"always_walks": int(rule.tables.state_always[1:].any())',
        '"always_walks": 0',
    ),
    Fault(
        "an absence is dropped where `->` follows",
        _NFA,
        "not_followed_by = () if joint.contiguity is ir.Contiguity.STRICT else path.not_followed_by",
        "not_followed_by = path.not_followed_by if joint.contiguity is ir.Contiguity.ANY else ()",
    ),
    Fault(
        "an absence behind a loop does not hold in it",
        _GRAPH,
        "after = self.add(Mark.NOT_FOLLOWED_BY, after, value=item.node.variable)",
        "pass",
    ),
    Fault(
        "the branch written last is preferred",
        _GRAPH,
        "for successor in reversed(graph.nodes[node].successors)",
        "for successor in graph.nodes[node].successors",
    ),
    Fault(
        "a group's window begins with the match",
        _GRAPH,
        "path = replace(path, opened=_with(path.opened, value))",
        "pass",
    ),
    Fault(
        "rows are dropped although the next event counts",
        "cep/compiler/lowering/relevance.py",
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
        f"{_KERNELS}/conditions.py",
        "keys[slot, last] + rule[look_behind + at.LOOK_BEHIND_US] >= time_us",
        "keys[slot, last] + rule[look_behind + at.LOOK_BEHIND_US] > time_us",
    ),
    Fault(
        "a match prunes nothing",
        f"{_KERNELS}/selection.py",
        "prune_before = max(prune_before, skip_target(rule, runs, run))",
        "prune_before = max(prune_before, at.NONE)",
    ),
    Fault(
        "`->` ignores an event that it could take",
        f"{_KERNELS}/conditions.py",
        "if mode == _NEXT and not early",
        "if mode == _NEXT and early",
    ),
    Fault(
        "UNTIL does not release an exclusion",
        f"{_KERNELS}/conditions.py",
        "until != at.NONE and holds(",
        "until < at.NONE and holds(",
    ),
    Fault(
        "ties are left as they arrived",
        "cep/engine/order/ordering.py",
        "rows[places] = rows[places][order]",
        "rows[places] = rows[places]",
    ),
    Fault(
        "a key forgets its look-behinds with its last run",
        "cep/engine/matcher.py",
        "live = live | has_open_look_behinds(self.rule.tables, self.pool.keys, watermark_us)",
        "pass",
    ),
    Fault(
        "what is exactly as old as the window is long is not in it",
        _FRAMES,
        "while low < size and words[low] >> 1 < bound:",
        "while low < size and words[low] >> 1 < bound + (frame == at.TIME):",
        only="windowed values",
    ),
    Fault(
        "a pause of the length of a session ends it",
        _FRAMES,
        "time_us - mark > spec[at.SPAN]",
        "time_us - mark >= spec[at.SPAN]",
        only="windowed values",
    ),
    Fault(
        "a session begins with the first event that counts",
        _FRAMES,
        "if frame == at.SESSION and is_within:",
        "if frame == at.SESSION and (all_counting or reads.counting[place] != 0):",
        only="windowed values",
    ),
    Fault(
        "PREVIOUS has its own event in it",
        _FRAMES,
        "before if is_previous else size",
        "size",
        only="windowed values",
    ),
    Fault(
        "a value that left the window stays in the sum",
        _PREFIXES,
        "upper = halves.prefixes[last, 0] - halves.prefixes[first, 0] + ",
        "upper = halves.prefixes[last, 0] + ",
        only="windowed values",
    ),
    Fault(
        "a value that left the window stays in the running sum",
        _SUMS,
        "add_value(sums, frames.values[begin], is_double, with_squares, -1)",
        "pass",
        only="windowed values",
    ),
    Fault(
        "LAST n EVENTS has one event more",
        _FRAMES,
        "bound = mark - spec[at.SPAN] + 1",
        "bound = mark - spec[at.SPAN]",
        only="windowed values",
    ),
    Fault(
        "what a key kept of a sum is not loaded",
        _SUMS,
        "if keeps_sums and end == base:",
        "if keeps_sums and end == base and ring.keys[batch.slots[key], at.LENGTH] == 0:",
        only="windowed values",
    ),
    Fault(
        "a value that comes again is counted twice",
        _SETS,
        "is_latest[latest] = 0",
        "pass",
        only="windowed values",
    ),
    Fault(
        "SEEN remembers what left the window",
        _SETS,
        "is_seen = latest >= low",
        "is_seen = latest >= 0",
        only="windowed values",
    ),
    Fault(
        "the least value stays for one event too long",
        _EXTREMES,
        "while head < tail and queue[0, head] < first:",
        "while head < tail and queue[0, head] + 1 < first:",
        only="windowed values",
    ),
    Fault(
        "a window that moves in steps begins a pane too late",
        _PANES,
        "entries[slots[slot, at.START], at.WORD] >> 1 < pane - span",
        "entries[slots[slot, at.START], at.WORD] >> 1 <= pane - span",
        only="windowed values",
    ),
    Fault(
        "an event at the edge of two panes is in the first one",
        "cep/engine/context/rings.py",
        "return batch._replace(time_us=window_begins(panes, batch.time_us))",
        "return batch._replace(time_us=window_begins(panes, batch.time_us - 1))",
        only="windowed values",
    ),
    Fault(
        "a pane that goes on over a batch begins anew",
        _PANES,
        "n_of_pane, value_of_pane = 1, entries[header, at.VALUE]",
        "n_of_pane, value_of_pane = 0, entries[header, at.VALUE]",
        only="windowed values",
    ),
    Fault(
        "a value that is greater than the ones of a pane behind it is forgotten with its own",
        _FRAMES,
        "is_greatest = greatest_entry < 0 or high_key > greatest",
        "is_greatest = greatest_entry < 0",
        only="windowed values",
    ),
    Fault(
        "suppression ends too early",
        "cep/engine/state/suppression.py",
        "return self.until_us > watermark_us if self.length_us else False",
        "return False",
    ),
    Fault(
        "a window rule counts the events at a window's end",
        _ENDS,
        "Ends(codes[due], ends[due] - 1, begins[due]",
        "Ends(codes[due], ends[due], begins[due]",
        only="window rules",
    ),
    Fault(
        "a hopping window is a microsecond longer",
        "cep/engine/context/rings.py",
        "min(self.window.length, _FURTHEST) - is_hopping",
        "min(self.window.length, _FURTHEST)",
        only="window rules",
    ),
    Fault(
        "a hop of a window rule is forgotten",
        _ENDS,
        "first_hop = _hops(window, low) + 1",
        "first_hop = _hops(window, low) + 2",
        only="window rules",
    ),
    Fault(
        "windows of earlier events are forgotten when a key goes on",
        _ENDS,
        "np.full(len(of_state), before_us - window.length), low",
        "np.full(len(of_state), before_us), low",
        only="window rules",
    ),
    Fault(
        "a session ends at an event that is exactly a gap later",
        _ENDS,
        "np.full(len(state), NEVER)) > window.length",
        "np.full(len(state), NEVER)) >= window.length",
        only="window rules",
    ),
    Fault(
        "a session that goes on over a batch merges with one that is over",
        _ENDS,
        "last = np.concatenate((state[of_state, LAST], timeline.times))[order]\n    is_head",
        "last = np.concatenate((state[of_state, LAST] + window.length, timeline.times))[order]\n    is_head",
        only="window rules",
    ),
    Fault(
        "a session that goes on over a batch is as old as its first event",
        _ENDS,
        "np.stack((begins, ends_last), axis=1)[~due]",
        "np.stack((begins, begins), axis=1)[~due]",
        only="window rules",
    ),
    Fault(
        "events that do not count make a window",
        "cep/engine/context/window_rules.py",
        "counting = np.flatnonzero(self.due.holds(where)[self._events])",
        "pass",
        only="window rules",
    ),
    Fault(
        "a key's values go before its hopping window has ended",
        "cep/engine/context/window_rules.py",
        "self.values.expire(watermark_us - 1)",
        "self.values.expire(watermark_us)",
        only="window rules",
    ),
    Fault(
        "-0 has no sign in few lines",
        _JSON,
        "return _MinusZero()",
        "return 0",
        _READERS,
    ),
    Fault(
        "Arrow's own numbers are read",
        _JSON,
        'or (b"N" in block and b"-NaN" in block)',
        "",
        _READERS,
    ),
    Fault(
        "among many lines there is no limit to nesting",
        _JSON,
        "if n_opened - len(lines) >= MAX_NESTING:",
        "if False:",
        _READERS,
    ),
    Fault(
        "whole numbers beside fractions are not exact",
        _JSON,
        "is_event &= ~_inexact(values)",
        "pass",
        _READERS,
    ),
    Fault(
        "a line out of place stays there",
        _JSON,
        "if (np.diff(rows) < 0).any():",
        "if False:",
        _READERS,
    ),
    Fault(
        "of a name that stands twice the first value counts in the kernel of JSON lines",
        _JSON_KERNEL,
        "return REFUSED, inside  # twice in an object",
        "return skip_value(data, at, names.is_list), inside",
        _READERS,
    ),
    Fault(
        "the kernel of JSON lines keeps values of a line that it leaves",
        _JSON_KERNEL,
        "columns.state[column, row] = ABSENT",
        "pass",
        _READERS,
    ),
    Fault(
        "the kernel of JSON lines takes halves of surrogate pairs",
        "cep/formats/text/json/scan.py",
        "if code < 0 or 0xD800 <= code <= 0xDFFF:",
        "if code < 0:",
        _READERS,
    ),
    Fault(
        "the kernel of JSON lines takes two objects of a line for one",
        _JSON_KERNEL,
        "return is_end(data, at, end)",
        "return True",
        _READERS,
    ),
    Fault(
        "Arrow's year 0 is a year",
        "cep/schema/time_values.py",
        "is_sound = _are_within(values, FIRST_US + 2 * _DAY_US, END_US)",
        "is_sound = True",
        _READERS,
    ),
    Fault(
        "a byte order mark inside a file is dropped",
        "cep/formats/text/csv_lines.py",
        "block = _BOM + block",
        "pass",
        _READERS,
    ),
    Fault(
        "a record that goes over two blocks is cut",
        "cep/formats/text/csv_lines.py",
        "if n_lines == 0 and not is_last:",
        "if False:",
        _READERS,
    ),
    Fault(
        "text of Parquet is not checked",
        "cep/schema/arrow_values.py",
        "bad[row] = value is not None and not _is_utf8(value)",
        "pass",
        _READERS,
    ),
    Fault(
        "times of Parquet overflow",
        "cep/schema/time_values.py",
        "bad = ~((plain >= low) & (plain < high))",
        "bad = plain != plain",
        _READERS,
    ),
    Fault(
        "a reason shows what the line has",
        "cep/formats/dead_letter.py",
        "if shown.isprintable():",
        "if True:",
        _READERS,
    ),
    Fault(
        "a rule does not wait for matches that are held back",
        "cep/compiler/analysis/match_streams.py",
        "return rule.window.span_us if isinstance(rule.window, ir.Window) else None",
        "return 0 if isinstance(rule.window, ir.Window) else None",
        only="chains",
    ),
    Fault(
        "a rule over a rule that waits does not wait",
        "cep/program/chains.py",
        "lags[feed.source] + feed.stream.held_us)",
        "feed.stream.held_us)",
        only="chains",
    ),
    Fault(
        "a timeout is an event for the rules that read its rule",
        "cep/engine/chains/fed_matchers.py",
        "keep = pc.and_(keep, pc.equal(matches.column(OUTCOME), MATCH))",
        "pass",
        only="chains",
    ),
    Fault(
        "a match with a row for each event is as many events",
        "cep/engine/chains/fed_matchers.py",
        "keep = pc.and_(keep, pc.equal(pc.fill_null(matches.column(EVENT_NUMBER), 0), 0))",
        "pass",
        only="chains",
    ),
    Fault(
        "a version is valid an instant late",
        f"{_CONTEXT}/kernels/rows.py",
        "if due_us[middle] <= time_us[event]:",
        "if due_us[middle] < time_us[event]:",
        only="tables",
    ),
    Fault(
        "a deleted version stays valid",
        f"{_CONTEXT}/kept_rows.py",
        "self._is_there[places] = ~is_deleted",
        "self._is_there[places] = True",
        only="tables",
    ),
    Fault(
        "versions of different times collapse before their time",
        f"{_CONTEXT}/tables.py",
        "is_same = is_same_row & (times_us[1:] == times_us[:-1])",
        "is_same = is_same_row",
        only="tables",
    ),
    Fault(
        "of versions of one time the first counts",
        f"{_CONTEXT}/versions.py",
        'columns["arrival"] = order[places]',
        'columns["arrival"] = -order[places]',
        only="tables",
    ),
    Fault(
        "what a condition says of tables is not asked",
        f"{_CONTEXT}/columns.py",
        "return _refined(joins.refined, events)",
        "return _refined((), events)",
        only="tables",
    ),
)


def find(fault: Fault, copy: Path, examples: int, seed: int) -> str | None:
    """Return the number of cases after which `fault` was found, or None if it was not found."""
    target = copy / fault.file
    right = target.read_text()
    before = target.stat()
    target.write_text(right.replace(fault.right, fault.wrong))
    command = [sys.executable, "-m", fault.module, "--examples", str(examples), "--seed", str(seed)]
    command += ["--only", fault.only] if fault.only else []
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, check=False,
            timeout=TIMEOUT_SECONDS,
        )  # fmt: skip
    finally:
        target.write_text(right)
        os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))  # kernels on disk stay valid
    if done.returncode == 0:
        return None
    if done.returncode < 0:  # a kernel wrote where it may not: the process died
        return "some"
    after = re.search(r"after ([\d,]+) (?:cases|examples)", done.stderr)
    assert after is not None, done.stderr[-3000:]
    return after[1]


def main() -> int:
    """Plant one fault after the other. The exit code says whether all were found."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.faults", description=__doc__)
    parser.add_argument("--examples", type=int, default=10_000, help="cases for each fault")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", help="part of a fault's name; may be given several times")
    options = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in _FOLDERS:
            shutil.copytree(_ROOT / name, copy / name)
        for fault in FAULTS:
            if any(part in fault.name for part in options.only or ("",)):
                started = time.monotonic()
                after = find(fault, copy, options.examples, options.seed)
                missed += after is None
                said = "NOT FOUND" if after is None else f"found after {after} cases"
                print(f"{said} in {time.monotonic() - started:.0f} s: {fault.name}", flush=True)
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
