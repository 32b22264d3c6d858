"""What a soak wrote, beside a batch over the events that were neither late nor dead letters."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from cep.local.match_file import match_file
from cep.rule_set import KIND, RETRACT, REVISION
from cep.rulebook import compile_rulebook, load_rulebook
from tests.kills.written import files_of, lines_of
from tests.soak.feed import STREAMS, Feed
from tests.soak.pipeline import LEFT_OUT

Row = Mapping[str, Any]


def differences(feed: Feed, disk: Path) -> list[str]:
    """Return what is wrong, and say what was compared: one line for each."""
    late = [json.loads(line)["id"] for line in lines_of(disk / "late")]
    dead = [json.loads(line)["raw"] for line in lines_of(disk / "dead")]
    faults = counted("late events", late, least=feed.must_be_late, most=feed.may_be_late | feed.must_be_late)
    faults += counted("dead letters", dead, least=feed.dead, most=feed.dead)
    rows = _in_parquet(disk / "matches")
    expected = _batch(feed, set(late))
    faults += compared(expected, [row for row in rows if row["rule"] != LEFT_OUT])
    faults += counted(f"rows of {LEFT_OUT}", [_identity(row) for row in rows if row["rule"] == LEFT_OUT])
    in_json = [_identity(json.loads(line)) for line in lines_of(disk / "alerts")]
    in_parquet = list(map(_identity, rows))
    faults += counted("rows of the second sink", in_json, least=set(in_parquet), most=set(in_parquet))
    return faults


def counted(
    name: str, found: Sequence[Any], *, least: set[Any] | None = None, most: set[Any] | None = None
) -> list[str]:
    """Return whether values occur once each, all of `least` are there, and nothing but `most`."""
    times = Counter(found)
    n_lost = len((least or set()) - set(times))
    n_foreign = len(set(times) - most) if most is not None else 0
    return _fault(name, n_lost, len(found) - len(times), n_foreign, len(found))


def compared(expected: Iterable[Row], found: Sequence[Row]) -> list[str]:
    """Return in what the net result of rows differs from the rows of a batch.

    With corrections a withdrawn match counts as -1.
    """
    right = Counter(map(_values, expected))
    net = Counter[tuple[Any, ...]]()
    for row in found:
        net[_values(row)] += -1 if row.get(KIND) == RETRACT else 1
    names: dict[Any, Counter[str]] = {}
    for values in right.keys() | net.keys():
        rule = names.setdefault(dict(values)["rule"], Counter())
        n, n_right = net[values], right[values]
        rule["right"] += n == n_right != 0
        rule["lost"] += max(n_right - max(n, 0), 0)
        rule["twice"] += max(n - n_right, 0) if n_right else 0
        rule["foreign"] += abs(n) if n and not n_right else 0
    return [
        fault
        for name, of in sorted(names.items())
        for fault in _fault(f"rule {name}", of["lost"], of["twice"], of["foreign"], of["right"])
    ]


def _fault(name: str, n_lost: int, n_twice: int, n_foreign: int, n: int) -> list[str]:
    text = f"{name}: {n:,} compared, {n_lost} lost, {n_twice} twice, {n_foreign} foreign"
    print(f"  {text}")
    return [text] if n_lost or n_twice or n_foreign else []


def _batch(feed: Feed, late: set[int]) -> list[Row]:
    """Return the matches of a batch; the rule that was changed is not in it."""
    rules_file = feed.folder / "rules.cep"
    kept = feed.folder / "batch" / "rules.cep"
    kept.parent.mkdir()
    kept.write_text(rules_file.read_text().partition(f"\nRULE {LEFT_OUT}\n")[0])
    (kept.parent / "streams.yaml").write_text((feed.folder / "streams.yaml").read_text())
    paths = {}
    for name in STREAMS:
        paths[name] = kept.parent / f"{name}.json"
        with paths[name].open("w", encoding="utf-8") as out:
            out.writelines(feed.accepted(name, late))
    result = match_file(compile_rulebook(load_rulebook([kept])).rule_set, paths)
    assert result.dead_letters.num_rows == 0, "the batch has dead letters"
    rows: list[Row] = result.matches.to_pylist()
    return rows


def _in_parquet(folder: Path) -> list[Row]:
    files = list(map(str, files_of(folder)))
    if not files:
        return []
    rows: list[Row] = ds.dataset(files, format="parquet", partitioning=None).to_table().to_pylist()
    return rows


def _values(row: Row) -> tuple[Any, ...]:
    return tuple((name, value) for name, value in sorted(row.items()) if name not in (KIND, REVISION))


def _identity(row: Row) -> tuple[Any, ...]:
    return row["match_id"], row.get(KIND), row.get(REVISION)
