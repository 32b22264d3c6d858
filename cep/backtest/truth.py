"""How well rules found the planted stories.

A match and a story meet if they have the same rule and the same subject, such as a card, and overlap in time.
Recall is the share of stories that a match meets. Precision is the share of matches that meet one. A match
that meets a near miss, an honest look-alike or no story lowers precision.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64, Mask
from cep.backtest.history import Scope, times_us
from cep.errors import InputError
from cep.formats.ahead import AheadGuard
from cep.formats.dead_letter import not_of_type
from cep.formats.files import BLOCK_BYTES, Reading, read_file
from cep.formats.registry import format_of_name
from cep.formats.text.text_files import line_blocks
from cep.schema.arrow_columns import fits, typed_column, word_of
from cep.schema.arrow_types import DDL_ARROW_TYPES
from cep.schema.stream import Field, Stream, TableKind, TableSettings
from cep.schema.text_values import column_from_text

NEAR_MISS = "near_miss"
LOOKALIKE = "lookalike"
"""The labels of stories that are not to be found. Each other label is of stories that are."""

_OF_STORY = ("rule", "start", "end")
_NO_SUBJECT = (*_OF_STORY, "label", "variant", "event_ids")
"""Columns of a truth file that do not say who or what a story is about."""

_DDL = {kind: ddl for ddl, kind in DDL_ARROW_TYPES.items()}
_TIME = DDL_ARROW_TYPES["timestamp"]

_ColumnsOf = Callable[[str], list[str]]
_RowsOf = Callable[[str, Sequence[Field]], pa.Table]

Same = Mapping[str, Sequence[str]]
"""Column of the truth -> columns of matches, the first of which that has a value must have the same one."""


@dataclass(frozen=True, slots=True)
class Score:
    """The numbers of one rule."""

    rule: str
    planted: int
    found: int
    alerts: int
    alerts_on_planted: int
    near_misses: int
    near_misses_reported: int
    lookalikes_reported: int

    @property
    def recall(self) -> float:
        """Share of the planted stories that were found."""
        return self.found / self.planted if self.planted else 1.0

    @property
    def precision(self) -> float:
        """Share of the alerts that are about a planted story."""
        return self.alerts_on_planted / self.alerts if self.alerts else 1.0


def score(matches: pa.Table, truth: pa.Table, same: Same) -> list[Score]:
    """Return one score for each rule of `truth`, in its order."""
    scores = []
    for rule in truth["rule"].unique().to_pylist():
        alerts = matches.filter(pc.equal(matches["rule"], rule))
        stories = truth.filter(pc.equal(truth["rule"], rule))
        label = np.array(stories["label"].to_pylist())
        is_planted = (label != NEAR_MISS) & (label != LOOKALIKE)
        alert_idx, story_idx = meetings(alerts, stories, same)
        is_met = np.zeros(len(stories), dtype=bool)
        is_met[story_idx] = True
        scores.append(
            Score(
                rule,
                planted=int(is_planted.sum()),
                found=int(is_met[is_planted].sum()),
                alerts=len(alerts),
                alerts_on_planted=len(np.unique(alert_idx[is_planted[story_idx]])),
                near_misses=int((label == NEAR_MISS).sum()),
                near_misses_reported=int(is_met[label == NEAR_MISS].sum()),
                lookalikes_reported=int(is_met[label == LOOKALIKE].sum()),
            )
        )
    return scores


def meetings(alerts: pa.Table, stories: pa.Table, same: Same) -> tuple[I64, I64]:
    """Return the pairs (alert, story) with the same subject that overlap in time, as row numbers.

    A column that is NULL in all alerts is not compared: the matches of the rule do not have it.
    """
    of_alerts = {name: _first_value(alerts, columns) for name, columns in same.items()}
    compared = [name for name, values in of_alerts.items() if values.null_count < len(values)]
    left = _with_subject([of_alerts[name] for name in compared], alerts, "alert", "match_start", "match_end")
    of_stories = [stories[name].cast(pa.string()) for name in compared]
    right = _with_subject(of_stories, stories, "story", "start", "end")
    pairs = left.join(right, "subject", join_type="inner")
    start, end, begun, over = (
        pairs[name].to_numpy() for name in ("match_start", "match_end", "start", "end")
    )
    meets: Mask = (start <= over) & (begun <= end)
    return pairs["alert"].to_numpy()[meets], pairs["story"].to_numpy()[meets]


def _first_value(alerts: pa.Table, columns: Sequence[str]) -> pa.ChunkedArray:
    known = [alerts[name].cast(pa.string()) for name in columns if name in alerts.column_names]
    return pc.coalesce(pa.chunked_array([pa.nulls(len(alerts), pa.string())]), *known)


def _with_subject(
    parts: Sequence[pa.ChunkedArray], table: pa.Table, number: str, start: str, end: str
) -> pa.Table:
    """Return the subject of each row, its number and its times."""
    texts = [pc.fill_null(part, "") for part in parts]
    subject = (
        pc.binary_join_element_wise(*texts, "\x1f") if texts else pa.array([""] * len(table), pa.string())
    )
    times = {name: times_us(table, name) for name in (start, end)}
    return pa.table({"subject": subject, number: np.arange(len(table)), **times})


def read_truth(path: str | Path, same: Same, matches: pa.Schema) -> tuple[pa.Table, Same]:
    """Return the stories of a file, and the columns by which matches of `matches` meet them.

    Raises InputError (E0690): the file cannot be read, lacks a column, has nothing to compare, or a value
    that is not of its column's type.

    `path`: a file of Parquet, CSV or JSON lines with the columns ``rule``, ``start``, ``end``, maybe
    ``label`` and others, as `scenarios` write it. Without labels all stories are to be found. `same`: what
    was given; a column that `matches` have under the same name needs nothing. Such a column has the type of
    the matches, or its values could never be the same: ``003`` is not a number if keys are strings.
    """
    reader = _READERS.get(Path(path).suffix)
    if reader is None:
        advice = f"names end in {', '.join(_READERS)}"
        raise InputError("E0690", f"the format of `{path}` cannot be told", advice)
    columns_of, rows_of = reader
    with _problems_of(path):
        columns = columns_of(str(path))
    missing = [name for name in (*_OF_STORY, *same) if name not in columns]
    if missing:
        raise InputError(
            "E0690",
            f"`{path}` has no column {', '.join(f'`{name}`' for name in missing)}",
            f"its columns: {', '.join(columns) or 'none'}",
        )
    types = {column.name: column.type for column in matches if _ddl_of(column.type)}
    found = _compared(path, columns, same, types)
    kinds: dict[str, pa.DataType] = {"rule": pa.string(), "start": _TIME, "end": _TIME}
    kinds |= {"label": pa.string()} if "label" in columns else {}
    for name, of_matches in found.items():
        several = {types[column] for column in of_matches}
        kinds.setdefault(name, several.pop() if len(several) == 1 else pa.string())
    double = [name for name in kinds if columns.count(name) > 1]
    if double:
        raise InputError("E0690", f"`{path}` has column `{double[0]}` more than once", "rename one of them")
    fields = tuple(Field(name, _ddl_of(kind)) for name, kind in kinds.items())
    with _problems_of(path):
        truth = rows_of(str(path), fields)
    times = [pa.field(of.name, _TIME if of.ddl in ("timestamp", "date") else kinds[of.name]) for of in fields]
    truth = truth.cast(pa.schema(times)).cast(pa.schema(list(kinds.items())))
    if "label" not in kinds:
        truth = truth.append_column("label", pa.array(["planted"] * len(truth), pa.string()))
    for name in _OF_STORY:
        unknown = np.flatnonzero(pc.is_null(truth[name]).to_numpy())
        if len(unknown):
            says = f"`{name}` of `{path}` is NULL in row {unknown[0] + 1}"
            raise InputError("E0690", says, "each story has a rule, a start and an end")
    turned = np.flatnonzero(times_us(truth, "start") > times_us(truth, "end"))
    if len(turned):
        says = f"`start` of `{path}` is after `end` in row {turned[0] + 1}"
        raise InputError("E0690", says, "correct the times, or exchange the columns")
    return truth, found


def _ddl_of(kind: pa.DataType) -> str:
    """Return how a stream declares a column of matches; empty: it has lists, which are not compared."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _DDL.get(kind, "")


def _compared(path: str | Path, columns: Sequence[str], same: Same, types: Iterable[str]) -> Same:
    """Return the columns of the truth that are compared, and those of the matches that they may equal."""
    known = tuple(types)
    for name, of_matches in same.items():
        if not set(of_matches) & set(known):
            raise InputError(
                "E0690",
                f"the matches have no column {' or '.join(f'`{column}`' for column in of_matches)}, "
                f"which is to be the same as `{name}`",
                f"columns of the matches: {', '.join(known)}",
            )
    found = {name: [name] for name in columns if name in known and name not in (*_NO_SUBJECT, *same)}
    found |= {name: [column for column in of if column in known] for name, of in same.items()}
    if not found:
        raise InputError(
            "E0690",
            f"no column of `{path}` is one of the matches",
            f"write --same COLUMN=COLUMN; columns of the matches: {', '.join(known)}",
        )
    return found


@contextmanager
def _problems_of(path: str | Path) -> Iterator[None]:
    """Make every problem of reading a file one of the truth."""
    try:
        yield
    except InputError as error:
        raise InputError("E0690", error.args[0], error.help or "name another file") from None
    except OSError as error:
        says = f"`{path}` cannot be read: {error.strerror or error}"
        raise InputError("E0690", says, "name another file") from None
    except pa.ArrowException as error:
        first = str(error).splitlines()[0]
        raise InputError("E0690", f"`{path}` cannot be read: {first}", "name another file") from None


def _columns_of_csv(path: str) -> list[str]:
    first = next((lines[0] for lines in line_blocks(path, BLOCK_BYTES)), b"")
    try:
        return next(csv.reader([first.decode("utf-8-sig")], strict=True), [])
    except (csv.Error, UnicodeDecodeError):
        says = f"the first line of `{path}` is not a CSV header"
        raise InputError("E0690", says, "the first line must name the columns") from None


def _columns_of_json(path: str) -> list[str]:
    """Return the fields of all lines; a line that is not an object is refused when the rows are read."""
    names: dict[str, None] = {}
    for lines in line_blocks(path, BLOCK_BYTES):
        for line in lines:
            try:
                story = json.loads(line)
            except (ValueError, RecursionError):
                continue
            names |= dict.fromkeys(story) if isinstance(story, dict) else {}
    if not names:
        _text(path, (Field("rule", "string"),))  # it may say why
    return list(names)


def _columns_of_parquet(path: str) -> list[str]:
    import pyarrow.parquet as pq

    names: list[str] = pq.read_schema(path).names
    return names


def _text(path: str, fields: Sequence[Field]) -> pa.Table:
    """Return the rows of a file as the reader of events has them, without bounds of times."""
    rows = Stream("truth", tuple(fields), "", table=TableSettings((), TableKind.STATIC))
    chunks = []
    for chunk in read_file(path, rows, format_of_name(path) or "", Reading(), AheadGuard(rows.max_ahead_us)):
        for reason, _, line, _ in zip(*chunk.dead_letters.slice(0, 1).to_pydict().values(), strict=True):
            for field in fields:
                if reason.startswith(not_of_type(field)):  # its advice is about streams
                    raise _not_of_type(path, field, f"line {line}")
            raise InputError("E0690", f"{path}:{line}: {reason}", "correct the line")
        chunks.append(chunk.events)
    return pa.concat_tables(chunks)


def _parquet(path: str, fields: Sequence[Field]) -> pa.Table:
    """Return the rows of a file. Values of another type have the text that they have in CSV."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        table = file.read(columns=[field.name for field in fields])
    columns = []
    for field in fields:
        values = table[field.name].combine_chunks()
        try:
            typed, bad = (
                typed_column(values, field)
                if fits(values.type, field)
                else column_from_text(values.cast(pa.string()), field)
            )
        except pa.ArrowException:
            raise _not_of_type(path, field, "any row") from None
        if bad.any():
            raise _not_of_type(path, field, f"row {np.flatnonzero(bad)[0] + 1}")
        columns.append(typed)
    return pa.table(columns, names=[field.name for field in fields])


def _not_of_type(path: str, field: Field, where: str) -> InputError:
    if field.ddl == "timestamp":
        says, advice = "no time", "write times such as 2024-05-01T10:00:00Z"
    else:
        says, advice = f"not {word_of(field)}", "each column has the type that it has in the matches"
    return InputError("E0690", f"`{field.name}` of `{path}` is {says} in {where}", advice)


_READERS: dict[str, tuple[_ColumnsOf, _RowsOf]] = {
    ".parquet": (_columns_of_parquet, _parquet),
    ".csv": (_columns_of_csv, _text),
    **dict.fromkeys((".jsonl", ".json", ".ndjson"), (_columns_of_json, _text)),
}
"""Ending of a file's name -> what returns its columns, and what returns its rows."""


def truth_in(truth: pa.Table, rules: Iterable[str], scope: Scope, same: Same) -> pa.Table:
    """Return the stories of `rules` that end in the range of dates and whose keys are in the sample.

    Raises InputError (E0690): the truth does not say to which key a story belongs.
    """
    wanted = truth.filter(pc.is_in(truth["rule"], pa.array(list(rules), pa.string())))
    wanted = wanted.filter(pa.array(scope.within(times_us(wanted, "end"))))
    if scope.sample is None or not len(wanted):
        return wanted
    parts = [wanted.slice(0, 0)]
    for rule in wanted["rule"].unique().to_pylist():
        of_rule = wanted.filter(pc.equal(wanted["rule"], rule))
        columns = [_column_of(column, same) for column in scope.sample.of_rules[rule]]
        parts.append(of_rule.filter(pa.array(scope.sample.has(of_rule, columns))))
    return pa.concat_tables(parts)


def _column_of(column: str, same: Same) -> str:
    """Return the column of the truth that is the same as a column of matches."""
    found = next((name for name, columns in same.items() if column in columns), None)
    if found is None:
        raise InputError(
            "E0690",
            f"the truth has no column for `{column}`, by which the sample was chosen",
            f"write --same COLUMN={column}, or leave --sample out",
        )
    return found
