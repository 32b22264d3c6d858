"""Views have the changes of the oracle, however the versions are delivered.

The examples are the same each time; `python -m tests.property` draws new ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from cep.compiler.compile import compile_sources
from cep.engine.context.tables import GivenTable
from cep.engine.matcher import Matcher
from cep.engine.prepare.versions import prepared_versions
from cep.errors import Source
from cep.program.program import Program
from cep.schema.stream import Field, Stream, TableKind, TableSettings
from cep.testing import event_table
from tests.oracle.views import Change, Joined, Row, View, changes
from tests.property.test_engine import GATE

SOME = settings(GATE, max_examples=30)

_LAST_US = 9


def _table(name: str, key: Sequence[str], columns: Sequence[Field], kind: TableKind) -> Stream:
    is_static = kind is TableKind.STATIC
    keys = [Field(column, "string" if column == "s" else "bigint") for column in key]
    return Stream(
        name,
        (*keys, *columns, Field("at", "timestamp"), Field("n", "bigint"), Field("op", "string")),
        "" if is_static else "at",
        () if is_static else ("n",),
        table=TableSettings(tuple(key), kind, None if is_static else "op"),
    )


@dataclass(frozen=True, slots=True)
class Case:
    """A view as text and for the oracle, its tables, and in which step each version arrives.

    Event time reaches `reached[i]` behind step i. `restores` says behind which steps a snapshot is restored.
    """

    text: str
    view: View
    tables: Mapping[str, Stream]
    versions: tuple[tuple[str, int, Row], ...]
    reached: tuple[int, ...]
    restores: tuple[bool, ...]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a view of one to four tables, and changelogs of few keys, values and times."""
    key = draw(st.sampled_from([("k",), ("s",), ("s", "k")]))
    of_key = draw(st.permutations(key))
    values = [Field("x", "bigint"), Field("f", "bigint"), Field("t", "string"), Field("d", "double")]
    tables = {
        "base": _table("base", key, values, TableKind.CHANGELOG),
        "twin": _table("twin", of_key, [Field("x", "bigint"), Field("t", "string")], TableKind.CHANGELOG),
        "third": _table("third", key, [Field("x", "bigint"), Field("t", "string")], TableKind.CHANGELOG),
        "rates": _table("rates", of_key, [Field("x", "bigint")], TableKind.REPLICATED),
        "many": _table("many", ("f",), [Field("x", "bigint"), Field("t", "string")], TableKind.REPLICATED),
        "pair": _table("pair", ("t", "f"), [Field("x", "bigint")], TableKind.REPLICATED),
        "fixed": _table("fixed", ("x",), [Field("t", "string")], TableKind.STATIC),
    }
    tables["pair"] = Stream(
        "pair",
        (Field("t", "string"), Field("f", "bigint"), *tables["pair"].fields[2:]),
        "at",
        ("n",),
        table=tables["pair"].table,
    )
    ways = {
        "twin": tuple(of_key),
        "third": key,
        "rates": tuple(of_key),
        "many": ("f",),
        "pair": ("t", "f"),
        "fixed": ("x",),
    }
    names = draw(st.lists(st.sampled_from(list(ways)), max_size=4, unique=True))
    joins = tuple(Joined(name, ways[name], draw(st.sampled_from(_KINDS[name]))) for name in names)
    selected = draw(
        st.lists(
            st.sampled_from(
                [("base", "x"), ("base", "d"), *((name, "t" if name == "fixed" else "x") for name in names)]
            ),
            min_size=1,
            unique=True,
        )
    )
    where = draw(st.sampled_from(["", *(name for name in ("base", *names) if name != "fixed")]))
    clauses = [f"{join.kind} JOIN {join.table} ON {' AND '.join(join.columns)}" for join in joins]
    clauses += [f"WHERE {where}.x > 0"] if where else []
    items = [f"{table}.{column} AS {table}_{column}" for table, column in selected]
    text = "\n".join([f"VIEW v KEY {', '.join(key)} FROM base", *clauses, f"SELECT {', '.join(items)}"])
    view = View(
        "base",
        key,
        joins,
        lambda rows: not where or (rows[where].get("x") or 0) > 0,
        lambda rows: tuple(rows[table].get(column) for table, column in selected),
    )
    reached = tuple(sorted(draw(st.lists(st.integers(0, _LAST_US), max_size=4, unique=True))))
    versions = []
    for name in ("base", *names):
        table = tables[name]
        for _ in range(draw(st.integers(0, 6))):
            row = {field.name: draw(_VALUES[field.name]) for field in table.fields}
            of_table = () if table.table is None else table.table.key
            row |= {column: draw(_KEYS[column]) for column in of_table}
            latest = sum(us < row["at"] for us in reached)
            versions.append((name, draw(st.integers(0, latest)), row))
    if any(name == "fixed" for name in names):
        versions = _one_of_each_static(versions)
    order = draw(st.permutations(versions))
    order = sorted(order, key=lambda version: version[1])
    restores = tuple(draw(st.booleans()) for _ in reached)
    return Case(
        text, view, {name: tables[name] for name in ("base", *names)}, tuple(order), reached, restores
    )


_OF_KEY = ("", "LEFT", "RIGHT", "FULL")
_KINDS = {
    "twin": _OF_KEY,
    "third": _OF_KEY,
    "rates": ("", "LEFT"),
    **dict.fromkeys(("many", "pair", "fixed"), ("", "LEFT")),
}

_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "k": st.integers(1, 3),
    "s": st.sampled_from(["a", "b", "ü"]),
    "x": st.none() | st.integers(-1, 2),
    "f": st.none() | st.integers(1, 3),
    "t": st.none() | st.sampled_from(["p", "q"]),
    "d": st.none() | st.sampled_from([0.0, -0.0, 1.5]),
    "at": st.integers(0, _LAST_US),
    "n": st.none() | st.integers(1, 2),
    "op": st.sampled_from(["c", "u", "u", "d"]),
}
_KEYS = _VALUES | {"x": st.integers(-1, 2), "f": st.integers(1, 3), "t": st.sampled_from(["p", "q"])}


def _one_of_each_static(versions: list[tuple[str, int, Row]]) -> list[tuple[str, int, Row]]:
    fixed = {row["x"]: (name, step, row) for name, step, row in versions if name == "fixed"}
    return [*(version for version in versions if version[0] != "fixed"), *fixed.values()]


def program_of(case: Case) -> Program:
    """Return the compiled view."""
    (program,) = compile_sources([Source("v.cep", case.text)], case.tables).programs
    return program


def delivered(program: Program, case: Case, *, at_once: bool = False) -> pa.Table:
    """Return the rows of the view, with versions pushed in their steps or all of them at once."""
    given_tables = {
        name: GivenTable(table, event_table(table, [row for of, _, row in case.versions if of == name]))
        for name, table in case.tables.items()
        if table.is_static
    }
    matcher = Matcher(program, given_tables)
    found = []

    def push(chosen: Sequence[tuple[str, int, Row]]) -> None:
        for name, _, row in chosen:
            table = case.tables[name]
            if not table.is_static:
                for versions in prepared_versions(program, table, event_table(table, [row])):
                    assert matcher.push(versions).num_rows == 0, "no version of a case is late"

    if at_once:
        push(case.versions)
    for step, (reach_us, restores) in enumerate(zip(case.reached, case.restores, strict=True)):
        if not at_once:
            push([version for version in case.versions if version[1] == step])
        found.append(matcher.advance(reach_us))
        if restores:
            matcher = Matcher.restore(program, matcher.snapshot(), given_tables)
    if not at_once:
        push([version for version in case.versions if version[1] == len(case.reached)])
    found.append(matcher.finish())
    return pa.concat_tables(found)


def reported(case: Case, rows: pa.Table) -> list[Change]:
    """Return rows of the view as the oracle has them."""
    names = rows.column_names[rows.column_names.index("kind") + 1 :]
    found = []
    for row in rows.to_pylist():
        assert row["match_start"] == row["match_end"]
        key = tuple(row[name] for name in case.view.key)
        values = tuple(row[name] for name in names)
        found.append(Change(row["revision"], key, row["kind"] == "match", values))
    return sorted(found, key=lambda change: (change.at_us, change.key))


@SOME
@given(cases())
def test_a_view_has_the_changes_of_the_oracle(case: Case) -> None:
    tables = {
        name: (table, [row for of, _, row in case.versions if of == name])
        for name, table in case.tables.items()
    }
    expected = changes(case.view, tables)
    program = program_of(case)
    rows = delivered(program, case)
    assert reported(case, rows) == expected
    assert delivered(program, case, at_once=True) == rows
    steps = range(_LAST_US + 1)
    versions = tuple((name, row["at"], row) for name, _, row in case.versions)
    by_instant = replace(case, versions=versions, reached=tuple(steps), restores=(False,) * len(steps))
    assert delivered(program, by_instant) == rows
    ids = set(zip(rows.column("match_id").to_pylist(), (change.key for change in expected), strict=True))
    assert len(ids) == len({change.key for change in expected}), "an id for each key"
