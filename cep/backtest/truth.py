"""How well rules found the planted stories.

A match and a story meet if they have the same rule and the same subject, such as a card, and overlap in time.
Recall is the share of stories that a match meets. Precision is the share of matches that meet one. A match
that meets a near miss, an honest look-alike or no story lowers precision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64, Mask
from cep.backtest.history import Scope, times_us
from cep.errors import InputError

NEAR_MISS = "near_miss"
LOOKALIKE = "lookalike"
"""The labels of stories that are not to be found. Each other label is of stories that are."""

_OF_STORY = ("rule", "start", "end")
_NO_SUBJECT = (*_OF_STORY, "label", "variant", "event_ids")
"""Columns of a truth file that do not say who or what a story is about."""

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

    Raises InputError: the file cannot be read, lacks a column, or has nothing to compare (E0690).

    `path`: a file of Parquet, CSV or JSON lines with the columns ``rule``, ``start``, ``end``, maybe
    ``label`` and others, as `scenarios` write it. Without labels all stories are to be found. `same`: what
    was given; a column that `matches` have under the same name needs nothing.
    """
    truth = _read(Path(path))
    missing = [name for name in (*_OF_STORY, *same) if name not in truth.column_names]
    if missing:
        raise InputError(
            "E0690",
            f"`{path}` has no column {', '.join(f'`{name}`' for name in missing)}",
            f"its columns: {', '.join(truth.column_names)}",
        )
    for name, columns in same.items():
        if not set(columns) & set(matches.names):
            raise InputError(
                "E0690",
                f"the matches have no column {' or '.join(f'`{column}`' for column in columns)}, "
                f"which is to be the same as `{name}`",
                f"columns of the matches: {', '.join(matches.names)}",
            )
    subjects = [name for name in truth.column_names if name not in (*_NO_SUBJECT, *same)]
    known = {
        name: [column for column in columns if column in matches.names] for name, columns in same.items()
    }
    found = {name: [name] for name in subjects if name in matches.names} | known
    if not found:
        raise InputError(
            "E0690",
            f"no column of `{path}` is one of the matches",
            f"write --same COLUMN=COLUMN; columns of the matches: {', '.join(matches.names)}",
        )
    if "label" not in truth.column_names:
        truth = truth.append_column("label", pa.array(["planted"] * len(truth)))
    for name in ("start", "end"):
        try:
            times_us(truth, name)
        except pa.ArrowException:
            raise InputError(
                "E0690", f"`{name}` of `{path}` is no time", "write times such as 2024-05-01T10:00:00Z"
            ) from None
    turned = np.flatnonzero(times_us(truth, "start") > times_us(truth, "end"))
    if len(turned):
        says = f"`start` of `{path}` is after `end` in row {turned[0] + 1}"
        raise InputError("E0690", says, "correct the times, or exchange the columns")
    return truth, found


def _read(path: Path) -> pa.Table:
    """Return the rows of a file."""
    import pyarrow.csv
    import pyarrow.json
    import pyarrow.parquet

    readers = {".parquet": pyarrow.parquet.read_table, ".csv": pyarrow.csv.read_csv}
    readers |= dict.fromkeys((".jsonl", ".json", ".ndjson"), pyarrow.json.read_json)
    reader = readers.get(path.suffix)
    if reader is None:
        endings = ", ".join(readers)
        raise InputError("E0690", f"the format of `{path}` cannot be told", f"names end in {endings}")
    try:
        return reader(path)
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        raise InputError("E0690", f"`{path}` {reason}", "name another file") from None
    except pa.ArrowException as error:
        first = str(error).splitlines()[0]
        raise InputError("E0690", f"`{path}` cannot be read: {first}", "name another file") from None


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
