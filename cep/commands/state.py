"""`cep state` shows what a pipeline remembers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from cep.commands.group import tell
from cep.commands.options import AS_JSON, table_or_json
from cep.schema.time_literals import time_for_people

if TYPE_CHECKING:
    import pyarrow as pa

    from cep.engine.matching.remembered import WindowState
    from cep.engine.state.open_runs import RunsOfRule
    from cep.engine.state.sections import StateSections
    from cep.program.program import Program
    from spark_runtime.state.contents import StoredGroup, StoredState

Row = dict[str, Any]

_NEVER = 1 << 62
"""An event time that is not in the years 1 to 9999."""

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
    """Show the open runs of each rule, its windows and tables, and the size of each key group."""
    import numpy as np

    groups: list[Row] = []
    counts: Counter[tuple[str, str]] = Counter()
    oldest: dict[str, tuple[int, int]] = {}
    windows: dict[str, Row] = {}
    tables: dict[str, Row] = {}
    for group in stored_state_of(checkpoint).groups:
        groups.append(_size(group))
        for found, _, watermark_us in _runs(group):
            name, n_keys = found.rule.name, len(np.unique(found.slots))
            counts.update({(name, "open_runs"): len(found.rows), (name, "keys"): n_keys})
            if n_keys:
                of_group = int(found.started_us.min()), watermark_us
                oldest[name] = min(oldest.get(name, of_group), of_group)
        for program, sections in _programs(group):
            _add_sizes(program, sections, counts, windows, tables)
    names = {name: counts[name, "open_runs"] for name, _ in counts}
    rules = [
        {
            "rule": name,
            **{what: counts[name, what] for what in ("open_runs", "keys")},
            **_begin(*oldest.get(name, (_NEVER, 0))),
            "bytes": counts[name, "bytes"],
        }
        for name, _ in sorted(names.items(), key=lambda item: -item[1])
    ]
    _show([*rules, *windows.values(), *tables.values(), *groups], output_format)


def _add_sizes(
    program: Program,
    sections: StateSections,
    counts: Counter[tuple[str, str]],
    windows: dict[str, Row],
    tables: dict[str, Row],
) -> None:
    """Add the sizes of what a program remembers in one key group."""
    from cep.engine.matching.remembered import bytes_of_rule, table_rows, window_states

    for section in sections.rules:
        counts[section.name, "bytes"] += bytes_of_rule(section)
    for state in window_states(program, sections):
        text = _texts(program, state)
        row = windows.setdefault(text, {"windows": text, "rules": "", "keys": 0, "entries": 0, "bytes": 0})
        row["rules"] = ", ".join(dict.fromkeys((*filter(None, row["rules"].split(", ")), *state.rules)))
        row["keys"] += int((state.n_entries > 0).sum())
        row["entries"] += int(state.n_entries.sum())
        row["bytes"] += state.n_bytes
    for name, rows, _ in table_rows(program, sections):
        row = tables.setdefault(name, {"table": name, "rows": 0, "bytes": 0})
        row["rows"] += rows.num_rows
        row["bytes"] += rows.nbytes


def _texts(program: Program, state: WindowState) -> str:
    from cep.explain.window_texts import text_of_window

    return ", ".join(text_of_window(program, column) for column in state.columns)


@state.command()
@_checkpoint
@click.option("--limit", type=click.IntRange(1), default=10, help="How many keys; without it, 10.")
@format_option
def top(checkpoint: str, limit: int, output_format: str) -> None:
    """Show the keys with the most open runs, and those with the most entries of windows."""
    import numpy as np

    from cep.engine.matching.remembered import window_states
    from cep.engine.state.open_runs import keys_of

    found: list[Row] = []
    entries: list[Row] = []
    for group in stored_state_of(checkpoint).groups:
        for runs, keys, _ in _runs(group):
            slots, n_runs = np.unique(runs.slots, return_counts=True)
            heaviest = np.argsort(-n_runs, kind="stable")[:limit]
            of_heaviest = keys.take(slots[heaviest]).to_pylist()
            found += [
                {"rule": runs.rule.name, "key": key, "open_runs": n, "group": group.group}
                for key, n in zip(of_heaviest, n_runs[heaviest].tolist(), strict=True)
            ]
        for program, sections in _programs(group):
            keys = keys_of(program, sections)
            for state in window_states(program, sections):
                heaviest = np.argsort(-state.n_entries, kind="stable")[:limit]
                entries += [
                    {"windows": _texts(program, state), "key": key, "entries": n, "group": group.group}
                    for key, n in zip(
                        keys.take(heaviest).to_pylist(), state.n_entries[heaviest].tolist(), strict=True
                    )
                    if n
                ]
    by_runs = sorted(found, key=lambda row: -row["open_runs"])[:limit]
    _show([*by_runs, *sorted(entries, key=lambda row: -row["entries"])[:limit]], output_format)


@state.command()
@_checkpoint
@click.argument("key")
@format_option
def show(checkpoint: str, key: str, output_format: str) -> None:
    """Show what is remembered of a KEY: open runs, windows, rows of tables.

    Of an open run this is what it waits for, until when, and what it holds. KEY is the value of PARTITION BY;
    several values are separated by commas.
    """
    found: list[Row] = []
    others: list[Row] = []
    stored = stored_state_of(checkpoint)
    for group in stored.groups:
        found += [row for row, _ in runs_of_key([group], key)]
        for program, sections in _programs(group):
            others += _remembered(program, sections, key)
    kinds = list(dict.fromkeys(next(iter(row)) for row in others))
    others.sort(key=lambda row: kinds.index(next(iter(row))))
    _show([*found, *others], output_format, f"nothing of this key{_about_keys(stored.rules.programs, key)}")


def _about_keys(programs: Iterable[Program], key: str) -> str:
    """Return which columns keys have, if none has as many as the key from the command line has values."""
    keys = sorted({program.key for program in programs if program.key}, key=len)
    if not keys or key.count(",") + 1 in map(len, keys):
        return ""
    told = [
        f"{'one column' if len(names) == 1 else f'{len(names)} columns'}, `{', '.join(names)}`"
        for names in keys
    ]
    return f": a key has {', or '.join(told)}"


def _remembered(program: Program, sections: StateSections, key: str) -> Iterator[Row]:
    """Yield what a program remembers of a key apart from open runs."""
    from cep.engine.matching import remembered
    from cep.engine.state.open_runs import keys_of
    from cep.explain.window_texts import text_of_window

    for slot in _slots(program, keys_of(program, sections), key):
        windows = remembered.open_windows(program, sections, slot)
        begins, ends = (
            windows.column(name).cast("int64").to_pylist() for name in ("match_start", "match_end")
        )
        for row, begin_us, end_us in zip(windows.to_pylist(), begins, ends, strict=True):
            rule = next(rule for rule in program.rules if rule.name == row["rule"])
            yield {
                "window_of": rule.name,
                "from": time_for_people(begin_us),
                "to": time_for_people(end_us),
                "so_far": {name: row[name] for name, _ in rule.measures},
            }
        for one in remembered.window_values(program, sections, slot):
            text = text_of_window(program, one.column)
            yield {"windowed_value": text, "rules": ", ".join(one.rules), "value": one.value}
        for name, until in remembered.suppressed_until(program, sections, slot).items():
            yield {"suppressed": name, "until": time_for_people(until)}
    typed = None
    for name, rows, is_of_key in remembered.table_rows(program, sections):
        typed = _typed_key(program, key) if typed is None else typed
        values = remembered.row_of_key(rows, typed) if is_of_key and typed is not None else None
        if values is not None:
            yield {"row_of": name, "holds": values}


def _typed_key(program: Program, key: str) -> pa.Table | None:
    """Return a key from the command line as one row; None: it cannot be a key of the program."""
    import pyarrow as pa

    from cep.schema.stream import Field
    from cep.schema.text_values import column_from_text

    names = program.key_columns
    texts = key.split(",") if len(names) > 1 else [key]
    if len(texts) != len(names):
        return None
    columns = {}
    for name, text in zip(names, texts, strict=True):
        columns[name], bad = column_from_text(pa.array([text]), Field(name, str(program.type_of(name))))
        if bad.any():
            return None
    return pa.table(columns)


def runs_of_key(groups: Iterable[StoredGroup], key: str) -> Iterator[tuple[Row, list[str]]]:
    """Yield the open runs of a key, as shown, and the variables that the next event of each may become."""
    import numpy as np

    from cep.engine.state.open_runs import keys_of, runs_of_rules

    for group in groups:
        for program, sections in _programs(group):
            slots = _slots(program, keys_of(program, sections), key)
            for runs in runs_of_rules(program, sections) if slots else ():
                for run in np.flatnonzero(np.isin(runs.slots, slots)).tolist():
                    row = {
                        "rule": runs.rule.name,
                        **_begin(int(runs.started_us[run]), sections.shared.watermark_us),
                        "waits_for": runs.waits_for(run),
                        "until": time_for_people(int(runs.until_us[run])),
                        "holds": runs.values(run),
                    }
                    yield row, runs.variables(run)


def _slots(program: Program, keys: pa.Table, key: str) -> list[int]:
    """Return the places of a key, as it is written on the command line, among the keys of a program."""
    import pyarrow.compute as pc

    from cep.engine.order.ordering import key_values

    typed = _typed_key(program, key) if keys.num_rows else None
    if typed is None:  # a comma in a value
        return [slot for slot, values in enumerate(keys.to_pylist()) if _text(values) == key]
    of_keys, wanted = (key_values(table, tuple(table.column_names)) for table in (keys, typed))
    is_key = pc.equal(of_keys, wanted.cast(of_keys.type)[0])
    found: list[int] = is_key.to_numpy(zero_copy_only=False).nonzero()[0].tolist()
    return found


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


def _programs(group: StoredGroup) -> Iterator[tuple[Program, StateSections]]:
    """Yield the programs of a key group with their state; what corrections retain has none."""
    for part in group.programs:
        if part.program is not None and part.sections is not None:
            yield part.program, part.sections


def _runs(group: StoredGroup) -> Iterator[tuple[RunsOfRule, pa.Table, int]]:
    """Yield the open runs of the rules of a key group, their keys by slot, and the time reached."""
    from cep.engine.state.open_runs import keys_of, runs_of_rules

    for program, sections in _programs(group):
        keys = keys_of(program, sections)
        for found in runs_of_rules(program, sections):
            yield found, keys, sections.shared.watermark_us


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


def _show(rows: Sequence[Row], output_format: str, nothing: str = "no open runs") -> None:
    if AS_JSON[output_format]:
        for row in rows:
            click.echo(json.dumps(row, ensure_ascii=False, default=str))
        return
    if not rows:
        tell(nothing)
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
        tell("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def cell(value: object) -> str:
    """Return a value as it is shown in a table."""
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    if isinstance(value, dict):
        return ", ".join(f"{name} = {cell(item)}" for name, item in value.items()) or "-"
    return f"{value:,}" if isinstance(value, int) else str(value)
