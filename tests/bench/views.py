"""``python -m tests.bench.views``: what a change of a view's tables costs, beside pandas.

Two tables have a million rows each. Changes of both come in, portion by portion, with the watermark behind
each portion. A view by the key of both, and one by a foreign key to a replicated table, report what changes.
A figure is the processor time of the process for a version, from columns to rows of the view.

pandas keeps the latest rows of both tables and the rows of the join. Of each portion it takes the last
version of a row, joins the rows that may have changed, and compares them with what they were. So it reports
one row for each portion, where the view has one for each instant.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pyarrow as pa

from cep.compiler.compile import compile_sources
from cep.engine.matching.matcher import Matcher
from cep.engine.prepare.versions import prepared_versions
from cep.errors import Source
from cep.schema.stream import Field, Stream, TableKind, TableSettings
from tests.bench.figures import Figure, report

PORTION = 10_000
"""Versions of each table that come together."""

SECOND_US = 1_000_000


def table(name: str, key: str, kind: TableKind, *columns: Field) -> Stream:
    """Return a table."""
    fields = (Field(key, "string"), *columns, Field("at", "timestamp"))
    return Stream(name, fields, "at", table=TableSettings((key,), kind))


@dataclass(frozen=True, slots=True)
class Case:
    """A view of customers and what is joined with them, by a column `on` of customers."""

    name: str
    on: str
    kind: TableKind

    @property
    def tables(self) -> dict[str, Stream]:
        """Both tables."""
        columns = (Field("town", "string"), Field("worth", "double"))
        return {
            "customers": table("customers", "id", TableKind.CHANGELOG, *columns),
            "others": table("others", self.on, self.kind, Field("rate", "double")),
        }

    @property
    def text(self) -> str:
        """The view."""
        return f"VIEW v KEY id FROM customers JOIN others ON {self.on} SELECT worth, others.rate"


CASES = (
    Case("by key", "id", TableKind.CHANGELOG),
    Case("by a foreign key", "town", TableKind.REPLICATED),
)


class Input:
    """All rows of both tables at first, then portions of versions."""

    def __init__(self, n_rows: int, n_portions: int) -> None:
        self.n_rows, self.n_portions = n_rows, n_portions
        self.names = {
            name: pa.array([f"{name}{number:07}" for number in range(n_rows)]) for name in ("id", "town")
        }

    def portions(self, case: Case) -> Iterator[tuple[int, dict[str, pa.Table]]]:
        """Yield how far event time gets, and the versions of each table."""
        draw = np.random.default_rng(5)
        everything = np.arange(self.n_rows)
        for number in range(self.n_portions + 1):
            start_us = number * SECOND_US
            n = PORTION if number else self.n_rows
            found = {}
            for name in case.tables:
                key = "id" if name == "customers" else case.on
                rows = draw.integers(0, self.n_rows, n) if number else everything
                columns = {key: self.names[key].take(pa.array(rows))}
                if name == "customers":
                    columns["town"] = self.names["town"].take(pa.array(rows))  # a customer stays there
                    columns["worth"] = pa.array(draw.random(n))
                else:
                    columns["rate"] = pa.array(draw.random(n))
                columns["at"] = pa.array(start_us + np.sort(draw.integers(0, SECOND_US, n)))
                found[name] = pa.table(columns)
            yield start_us + SECOND_US, found


def of_the_view(given: Input, case: Case) -> tuple[float, int]:
    """Return the seconds for all portions but the first, and the rows that are reported of these."""
    tables = case.tables
    (program,) = compile_sources([Source("bench.cep", case.text)], tables).programs
    matcher = Matcher(program)
    seconds, n_rows = 0.0, 0
    for number, (reached_us, versions) in enumerate(given.portions(case)):
        started = time.process_time()
        for name, rows in versions.items():
            for prepared in prepared_versions(program, tables[name], rows):
                matcher.push(prepared)
        found = matcher.advance(reached_us)
        if number:
            seconds += time.process_time() - started
            n_rows += found.num_rows
    return seconds, n_rows


def of_pandas(given: Input, case: Case) -> tuple[float, int]:
    """Return the same of pandas."""
    kept: dict[str, pd.DataFrame] = {}
    view = pd.DataFrame()
    seconds, n_rows = 0.0, 0
    for number, (_, versions) in enumerate(given.portions(case)):
        started = time.process_time()
        last = {
            name: rows.drop_columns("at")
            .to_pandas()
            .drop_duplicates(case.on if name == "others" else "id", keep="last")
            for name, rows in versions.items()
        }
        last = {name: rows.set_index("id" if name == "customers" else case.on) for name, rows in last.items()}
        if not number:
            kept = last
            view = _joined(kept["customers"], kept["others"], case.on)
            continue
        for name, rows in last.items():
            kept[name].loc[rows.index] = rows
        if case.on == "id":
            changed = kept["customers"].loc[last["customers"].index.union(last["others"].index)]
        else:
            customers = kept["customers"]
            is_changed = customers.index.isin(last["customers"].index) | customers["town"].isin(
                last["others"].index
            )
            changed = customers[is_changed]
        now = _joined(changed, kept["others"], case.on)
        differs = (now != view.loc[now.index]).any(axis=1)
        view.loc[now.index[differs]] = now[differs]
        seconds += time.process_time() - started
        n_rows += int(differs.sum())
    return seconds, n_rows


def _joined(customers: pd.DataFrame, others: pd.DataFrame, on: str) -> pd.DataFrame:
    found = customers.join(others, how="inner", on=None if on == "id" else on)
    return found[["worth", "rate"]]


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="a tenth of the rows and versions")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/bench/views.json"))
def main(quick: bool, out: Path) -> None:
    """Run the benchmark."""
    n_rows, n_portions, repeats = (100_000, 3, 1) if quick else (1_000_000, 20, 3)
    given = Input(n_rows, n_portions)
    n_versions = 2 * PORTION * n_portions
    figures = []
    for case in CASES:
        least: dict[str, float] = {}
        rows: dict[str, int] = {}
        for turn in range(repeats + 1):  # the first one compiles
            for name, run in (("view", of_the_view), ("pandas", of_pandas)):
                seconds, rows[name] = run(given, case)
                if turn:
                    least[name] = min(least.get(name, seconds), seconds)
        assert rows["view"] >= rows["pandas"] > 0, rows
        shown = f"{case.name}, {n_rows:,} rows of each table, {2 * PORTION:,} versions at once"
        figures.append(
            Figure(
                "versions to rows of a view",
                shown,
                least["view"] / n_versions * 1e6,
                "us",
                least["pandas"] / n_versions * 1e6,
            )
        )
        figures.append(Figure("rows of the view for a version", shown, rows["view"] / n_versions, "rows"))
    report("views", figures, {"rows": n_rows, "versions": n_versions, "repeats": repeats}, out)


if __name__ == "__main__":
    main()
