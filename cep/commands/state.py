"""`cep state` shows what a pipeline remembers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from cep.commands.options import AS_JSON, table_or_json
from cep.schema.time_literals import time_for_people

if TYPE_CHECKING:
    import pyarrow as pa

    from cep.engine.state.open_runs import RunsOfRule
    from spark_runtime.state.contents import StoredGroup, StoredState

Row = dict[str, Any]

_NEVER = 1 << 62
"""An event time that is no time of the years 1 to 9999."""

format_option = table_or_json("json: a JSON object in each line.")
_checkpoint = click.argument("checkpoint")


@click.group()
def state() -> None:
    """Show the state in the CHECKPOINT folder of a pipeline, which may be running, or in a savepoint.

    It is the state after the last finished micro-batch. Only a checkpoint on remote storage other than S3
    needs Spark.
    """


@state.command(name="ls")
@_checkpoint
@format_option
def list_state(checkpoint: str, output_format: str) -> None:
    """Show the open runs of each rule, and the size of each key group."""
    import numpy as np

    groups: list[Row] = []
    counts: dict[str, tuple[int, int]] = {}
    oldest: dict[str, tuple[int, int]] = {}
    for group in stored_state_of(checkpoint).groups:
        groups.append(_size(group))
        for found, _, watermark_us in _runs(group):
            name, n_keys = found.rule.name, len(np.unique(found.slots))
            n_runs, n_keys_before = counts.get(name, (0, 0))
            counts[name] = n_runs + len(found.rows), n_keys_before + n_keys
            if n_keys:
                of_group = int(found.started_us.min()), watermark_us
                oldest[name] = min(oldest.get(name, of_group), of_group)
    rules = [
        {"rule": name, "open_runs": n_runs, "keys": n_keys, **_begin(*oldest.get(name, (_NEVER, 0)))}
        for name, (n_runs, n_keys) in sorted(counts.items(), key=lambda item: -item[1][0])
    ]
    _show([*rules, *groups], output_format)


@state.command()
@_checkpoint
@click.option("--limit", type=click.IntRange(1), default=10, help="How many keys; without it, 10.")
@format_option
def top(checkpoint: str, limit: int, output_format: str) -> None:
    """Show the keys with the most open runs."""
    import numpy as np

    found: list[Row] = []
    for group in stored_state_of(checkpoint).groups:
        for runs, keys, _ in _runs(group):
            slots, n_runs = np.unique(runs.slots, return_counts=True)
            heaviest = np.argsort(-n_runs, kind="stable")[:limit]
            of_heaviest = keys.take(slots[heaviest]).to_pylist()
            found += [
                {"rule": runs.rule.name, "key": key, "open_runs": n, "group": group.group}
                for key, n in zip(of_heaviest, n_runs[heaviest].tolist(), strict=True)
            ]
    _show(sorted(found, key=lambda row: -row["open_runs"])[:limit], output_format)


@state.command()
@_checkpoint
@click.argument("key")
@format_option
def show(checkpoint: str, key: str, output_format: str) -> None:
    """Show the open runs of a KEY: what each waits for, until when, and what it holds.

    KEY is the value of PARTITION BY; several values are separated by commas.
    """
    _show([row for row, _ in runs_of_key(stored_state_of(checkpoint).groups, key)], output_format)


def runs_of_key(groups: Iterable[StoredGroup], key: str) -> Iterator[tuple[Row, list[str]]]:
    """Yield the open runs of a key, as shown, and the variables that the next event of each may become."""
    for group in groups:
        for runs, keys, watermark_us in _runs(group):
            wanted = {number for number, values in enumerate(keys.to_pylist()) if _text(values) == key}
            for run, slot in enumerate(runs.slots.tolist()):
                if slot in wanted:
                    row = {
                        "rule": runs.rule.name,
                        **_begin(int(runs.started_us[run]), watermark_us),
                        "waits_for": runs.waits_for(run),
                        "until": time_for_people(int(runs.until_us[run])),
                        "holds": runs.values(run),
                    }
                    yield row, runs.variables(run)


def _text(key: Row) -> str:
    """Return a key as it is written on the command line."""
    return ",".join(
        value.isoformat() if isinstance(value, datetime) else str(value) for value in key.values()
    )


def stored_state_of(checkpoint: str) -> StoredState:
    """Return what a checkpoint or a savepoint contains."""
    from spark_runtime.pipeline.savepoint import is_savepoint, opened

    if is_savepoint(checkpoint):
        return opened(checkpoint).stored_state()
    from spark_runtime.pipeline.stored_state import stored_state

    return stored_state(checkpoint)


def _runs(group: StoredGroup) -> Iterator[tuple[RunsOfRule, pa.Table, int]]:
    """Yield the open runs of the rules of a key group, their keys by slot, and the time reached."""
    from cep.engine.state.open_runs import keys_of, runs_of_rules

    for part in group.programs:
        if part.program is not None and part.sections is not None:
            keys = keys_of(part.program, part.sections)
            for found in runs_of_rules(part.program, part.sections):
                yield found, keys, part.sections.shared.watermark_us


def _size(group: StoredGroup) -> Row:
    return {
        "group": group.group,
        "bytes": sum(part.n_bytes for part in group.programs),
        "carried": group.n_carried,
        "in_files": group.is_in_files,
    }


def _begin(us: int, watermark_us: int) -> Row:
    """Return when a run started, and how much event time has passed since then."""
    from cep.output.summary import long_duration

    started, now = time_for_people(us), time_for_people(watermark_us)
    return {"started": started, "age": long_duration(watermark_us - us) if started and now else None}


def _show(rows: Sequence[Row], output_format: str) -> None:
    if AS_JSON[output_format]:
        for row in rows:
            click.echo(json.dumps(row, ensure_ascii=False, default=str))
        return
    if not rows:
        click.echo("no open runs")
    last: list[str] = []
    for row in rows:
        if list(row) != last:
            if last:
                click.echo()
            last = list(row)
            alike = [other for other in rows if list(other) == last]
            show_table(last, alike)


def show_table(names: list[str], rows: Iterable[Row]) -> None:
    """Show rows with the same columns."""
    cells = [
        [name.replace("_", " ") for name in names],
        *([cell(row[name]) for name in names] for row in rows),
    ]
    widths = [max(len(line[place]) for line in cells) for place in range(len(names))]
    for line in cells:
        click.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def cell(value: object) -> str:
    """Return a value as it is shown in a table."""
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    if isinstance(value, dict):
        return ", ".join(f"{name} = {cell(item)}" for name, item in value.items()) or "-"
    return f"{value:,}" if isinstance(value, int) else str(value)
