"""Views, drawn, and what the engine and the oracle report of them.

A case has one or two views of one to four tables, and changelogs of few keys, values and times. So versions
meet at one instant, rows are deleted and come back, and what is joined by a value finds several rows.
Versions arrive in any order; some are late. The oracle joins the rows of all tables anew at each instant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, TypeAlias
from unittest import mock

import pyarrow as pa
from hypothesis import strategies as st

from cep.compiler import ir
from cep.compiler.compile import check_sources, compile_rules
from cep.diagnostics.diagnostic import render
from cep.engine.matching.matcher import Matcher
from cep.engine.order.event_blocks import BLOCK_ROWS
from cep.engine.prepare.versions import prepared_versions
from cep.engine.tables.tables import GivenTable
from cep.errors import Source
from cep.local.given_events import event_table
from cep.program.program import Program
from cep.schema.stream import Field, Stream, TableKind, TableSettings
from tests.oracle.views import Joined, Row, View, changes
from tests.property.differential import advanced

LAST_US = 9
"""The time of the last version."""

KINDS = ("", "LEFT", "RIGHT", "FULL")
"""The words before JOIN of a changelog that is joined by the key of the view; of others the first two."""

Change: TypeAlias = tuple[Any, ...]
"""View, time, key, kind, values; what has the `match_id`, and whether this is the id that it had before."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a row of table `table`, and the step in which it arrives."""

    table: str
    step: int
    row: dict[str, Any]

    @property
    def at_us(self) -> int:
        """From when on it is valid."""
        time_us: int = self.row["at"]
        return time_us


@dataclass(frozen=True, slots=True)
class DrawnView:
    """A view as text and for the oracle."""

    name: str
    text: str
    view: View = field(repr=False)


@dataclass(frozen=True, slots=True)
class ViewCase:
    """Views, as written and as analyzed, their tables, and versions in order of arrival.

    Event time reaches ``reached[i]`` behind step i. Where `restores` is true a snapshot is restored then.
    """

    views: tuple[DrawnView, ...]
    rules: tuple[ir.Rule, ...] = field(repr=False)
    tables: Mapping[str, Stream]
    versions: tuple[Version, ...]
    reached: tuple[int, ...]
    restores: tuple[bool, ...]

    def is_late(self, version: Version) -> bool:
        """Return whether the watermark has reached the time of a version before it arrives."""
        if self.tables[version.table].is_static or version.step == 0:
            return False
        return self.reached[version.step - 1] >= version.at_us

    def rows(self, table: str, *, all_of_them: bool = False) -> list[Row]:
        """Return the versions of a table that are not late, in order of arrival."""
        return [
            version.row
            for version in self.versions
            if version.table == table and (all_of_them or not self.is_late(version))
        ]


# ---------------------------------------------------------------- strategies


def _table(name: str, key: Sequence[str], values: Sequence[str], kind: TableKind, random: Random) -> Stream:
    is_static = kind is TableKind.STATIC
    has_op, has_ties = random.random() < 0.9, random.random() < 0.7
    fields = [Field(column, _TYPES[column]) for column in (*key, *values, "at", "n", "op")]
    return Stream(
        name,
        tuple(fields),
        "" if is_static else "at",
        ("n",) if has_ties and not is_static else (),
        table=TableSettings(tuple(key), kind, "op" if has_op and not is_static else None),
    )


_TYPES = {
    **dict.fromkeys(("k", "x", "y", "f", "n"), "bigint"),
    **dict.fromkeys(("s", "t", "op"), "string"),
    **{"d": "double", "at": "timestamp"},
}

_KEYS: Mapping[str, Sequence[Any]] = {
    "k": (1, 1, 2, 3),
    "s": ("a", "b", "ü"),
    "x": (-1, 0, 1, 2),
    "f": (1, 2),
    "t": ("p", "q"),
}
_VALUES: Mapping[str, Sequence[Any]] = {
    **{name: (*values, None) for name, values in _KEYS.items()},
    "y": (None, -1, 1, 2),
    "d": (None, 0.0, -0.0, 1.5, float("nan")),
    "at": tuple(range(LAST_US + 1)),
    "n": (None, 1, 2),
    "op": ("c", "u", "u", "d"),
}

_WAYS: Mapping[str, Sequence[tuple[str, ...]]] = {
    "many": (("f",), ("x",)),
    "pair": (("t", "f"),),
    "fixed": (("x",), ("f",)),
}
"""Tables by foreign keys: by which columns of the table in FROM, in the order of their key."""

_NUMBER = {"fixed": "y"}
"""The column of numbers of tables in which it is not x."""


@st.composite
def view_cases(draw: st.DrawFn, max_views: int = 2) -> ViewCase:
    """Draw views of one to four tables, and changelogs of few keys, values and times."""
    # Hypothesis' own draws are so simple that most views report nothing; `smaller` makes a case small.
    random = Random(draw(st.integers(0, 2**32)))
    key = random.choice([("k",), ("s",), ("s", "k")])
    of_key = tuple(random.sample(key, len(key)))
    tables = {
        "base": _table("base", key, _without(key, "x", "f", "t", "d"), TableKind.CHANGELOG, random),
        "twin": _table("twin", of_key, ("x", "t"), TableKind.CHANGELOG, random),
        "third": _table("third", key, ("x",), TableKind.CHANGELOG, random),
        "rates": _table("rates", of_key, ("x",), TableKind.REPLICATED, random),
        "many": _table("many", ("f",), ("x", "t"), TableKind.REPLICATED, random),
        "pair": _table("pair", ("t", "f"), ("x",), TableKind.REPLICATED, random),
        "fixed": _table("fixed", ("x",), ("y",), TableKind.STATIC, random),
    }
    others = [name for name in tables if name != "base"]
    views: tuple[DrawnView, ...] = ()
    for number in range(random.randint(1, max_views)):
        views += (_view(f"v{number}", key, tables, others, random),)
        # Views that join the same tables share more: what one finds in a table, another one may need.
        if random.random() < 0.7:
            others = [join.table for join in views[0].view.joins] or others
    names = {"base", *(join.table for drawn in views for join in drawn.view.joins)}
    tables = {name: table for name, table in tables.items() if name in names}
    text = "\n".join(drawn.text for drawn in views)
    rules, problems = check_sources([Source("drawn.cep", text)], tables)
    errors = [problem for problem in problems if problem.is_error]
    assert not errors, render(errors)
    return with_versions(ViewCase(views, rules, tables, (), (), ()), random)


def _without(key: Sequence[str], *names: str) -> list[str]:
    return [name for name in names if name not in key]


def _view(
    name: str, key: tuple[str, ...], tables: Mapping[str, Stream], others: Sequence[str], random: Random
) -> DrawnView:
    clauses, joins = [], []
    for joined in random.sample(others, min(random.choice((0, 1, 1, 1, 2, 3)), len(others))):
        settings = tables[joined].table
        assert settings is not None
        columns = random.choice(_WAYS.get(joined, (settings.key,)))
        of_key = joined not in _WAYS
        kind = random.choice(KINDS if of_key and settings.kind is TableKind.CHANGELOG else KINDS[:2])
        # The key of a row may be that of a row of this table alone: it is written without a table.
        pairs = [
            column
            if column == of_table and (of_key or random.random() < 0.5)
            else f"base.{column} = {joined}.{of_table}"
            for column, of_table in zip(columns, settings.key, strict=True)
        ]
        clauses.append(f"{kind} JOIN {joined} ON {' AND '.join(random.sample(pairs, len(pairs)))}")
        joins.append(Joined(joined, columns, kind))
    names = ["base", *(join.table for join in joins)]
    condition, where = _condition(names, random)
    items = [_item(names, random) for _ in range(random.randint(1, 3))]
    selected = ", ".join(f"{text} AS {name}_{number}" for number, (text, _) in enumerate(items))
    text = [f"VIEW {name} KEY {', '.join(key)} FROM base", *clauses, condition, f"SELECT {selected}"]
    view = View("base", key, tuple(joins), where, lambda rows: tuple(value(rows) for _, value in items))
    return DrawnView(name, "\n".join(filter(None, text)), view)


_Value: TypeAlias = Callable[[Mapping[str, Row]], Any]


def _condition(names: Sequence[str], random: Random) -> tuple[str, Callable[[Mapping[str, Row]], bool]]:
    """Return a WHERE, or nothing, and whether it is TRUE of rows."""
    (one, of_one), (other, of_other) = (_number(random.choice(names)) for _ in range(2))

    def is_positive(value: Any) -> bool:
        return value is not None and value > 0

    return random.choice(
        [
            ("", lambda rows: True),
            ("", lambda rows: True),
            (f"WHERE {one} > 0", lambda rows: is_positive(of_one(rows))),
            (f"WHERE {one} IS NULL", lambda rows: of_one(rows) is None),
            (
                f"WHERE {one} = {other}",
                lambda rows: of_one(rows) is not None and of_one(rows) == of_other(rows),
            ),
            (
                f"WHERE {one} > 0 OR {other} > 0",
                lambda rows: is_positive(of_one(rows)) or is_positive(of_other(rows)),
            ),
        ]
    )


def _item(names: Sequence[str], random: Random) -> tuple[str, _Value]:
    """Return a column of SELECT, and its value of rows."""
    name = random.choice(names)
    (one, of_one), (other, of_other) = _number(name), _number(random.choice(names))

    def total(rows: Mapping[str, Row]) -> Any:
        values = (of_one(rows), of_other(rows))
        return None if None in values else sum(values)

    def or_else(rows: Mapping[str, Row]) -> Any:
        return -9 if of_one(rows) is None else of_one(rows)

    of_key = {"many": "f", "pair": "t", "fixed": "x"}.get(name, "x")
    return random.choice(
        [
            (one, of_one),
            (one, of_one),
            ("base.d", lambda rows: plain(rows["base"].get("d"))),
            ("base.t", lambda rows: rows["base"].get("t")),
            (f"{name}.{of_key}", lambda rows: rows[name].get(of_key)),
            (f"{one} + {other}", total),
            (f"COALESCE({one}, -9)", or_else),
            ("7", lambda rows: 7),
        ]
    )


def _number(name: str) -> tuple[str, _Value]:
    column = _NUMBER.get(name, "x")
    return f"{name}.{column}", lambda rows: rows[name].get(column)


def plain(value: Any) -> Any:
    """Make NaN equal to itself."""
    return "NaN" if isinstance(value, float) and value != value else value


def with_versions(drawn: ViewCase, random: Random) -> ViewCase:
    """Return a case of the views of `drawn` with other versions in another delivery."""
    reached = tuple(sorted(random.sample(range(LAST_US + 1), random.randint(0, 4))))
    versions = []
    for name, table in drawn.tables.items():
        assert table.table is not None
        for _ in range(random.choice((0, 3, 4, 6, 8, 9))):
            row = {field.name: random.choice(_VALUES[field.name]) for field in table.fields}
            row |= {column: random.choice(_KEYS[column]) for column in table.table.key}
            in_time = sum(us < row["at"] for us in reached)
            step = random.randint(0, in_time if random.random() < 0.9 else len(reached))
            versions.append(Version(name, 0 if table.is_static else step, row))
    random.shuffle(versions)
    versions.sort(key=lambda version: version.step)
    static = {(version.table, version.row["x"]): version for version in versions if version.table == "fixed"}
    versions = [version for version in versions if version.table != "fixed"]
    restores = tuple(random.random() < 0.4 for _ in reached)
    return replace(drawn, versions=(*static.values(), *versions), reached=reached, restores=restores)


# ---------------------------------------------------------------- other deliveries


def in_time(case: ViewCase) -> ViewCase:
    """Return `case` with all versions at once, without the late ones."""
    versions = tuple(replace(version, step=0) for version in case.versions if not case.is_late(version))
    return replace(case, versions=versions, reached=(), restores=())


def by_instant(case: ViewCase) -> ViewCase:
    """Return `case` with the versions of one instant in each step, without the late ones."""
    times = range(LAST_US + 1)
    kept = (version for version in case.versions if not case.is_late(version))
    versions = [
        replace(version, step=0 if case.tables[version.table].is_static else version.at_us)
        for version in kept
    ]
    versions.sort(key=lambda version: version.step)
    return replace(case, versions=tuple(versions), reached=tuple(times), restores=(False,) * len(times))


def without_ties(case: ViewCase) -> ViewCase:
    """Return `case` with one version for each key, time and tie breakers: Spark keeps no arrival order."""
    first: dict[tuple[Any, ...], Version] = {}
    for version in case.versions:
        table = case.tables[version.table]
        assert table.table is not None
        time = () if table.is_static else (table.event_time, *table.tie_break)
        place = (version.table, *(version.row[name] for name in (*table.table.key, *time)))
        first.setdefault(place, version)
    return replace(case, versions=tuple(first.values()))


def smaller(case: ViewCase, fails: Callable[[ViewCase], bool]) -> ViewCase:
    """Return a smaller `case` that still fails, with fewer versions and a simpler delivery."""
    for less in (in_time(case), by_instant(case)):
        if fails(less):
            case = less
            break
    for number in reversed(range(len(case.versions))):
        versions = case.versions[:number] + case.versions[number + 1 :]
        if fails(less := replace(case, versions=versions)):
            case = less
    return case


# ---------------------------------------------------------------- both sides


def oracle_rows(case: ViewCase) -> list[Change]:
    """Return the changes that the oracle reports."""
    tables = {name: (table, case.rows(name)) for name, table in case.tables.items()}
    rows: list[Change] = []
    for drawn in case.views:
        for change in changes(drawn.view, tables):
            owner = (drawn.name, change.key)
            rows.append((drawn.name, change.at_us, change.key, change.is_there, change.values, owner, True))
    return sorted(rows, key=repr)


def programs_of(case: ViewCase, *, optimize: bool = True) -> tuple[Program, ...]:
    """Return the compiled views."""
    return compile_rules(case.rules, case.tables, optimize=optimize)


def given_tables(case: ViewCase) -> Mapping[str, GivenTable]:
    """Return the static tables."""
    return {
        name: GivenTable(table, event_table(table, case.rows(name)))
        for name, table in case.tables.items()
        if table.is_static
    }


def rows_of(case: ViewCase, tables: Sequence[pa.Table]) -> list[Change]:
    """Return rows of views as the oracle has them."""
    rows: list[Change] = []
    owners: dict[str, tuple[Any, ...]] = {}
    ids: dict[tuple[Any, ...], str] = {}
    views = {drawn.name: drawn for drawn in case.views}
    for row in (row for table in tables for row in table.to_pylist()):
        assert row["match_start"] == row["match_end"]
        drawn = views[row["rule"]]
        key = tuple(row[name] for name in drawn.view.key)
        names = [name for name in row if name.startswith(f"{drawn.name}_")]
        values = tuple(plain(row[name]) for name in sorted(names))
        owner = (drawn.name, key)
        first = owners.setdefault(row["match_id"], owner)
        is_same = ids.setdefault(owner, row["match_id"]) == row["match_id"]
        rows.append((drawn.name, row["revision"], key, row["kind"] == "match", values, first, is_same))
    return sorted(rows, key=repr)


def deliver(program: Program, case: ViewCase) -> pa.Table:
    """Push the versions of `case` in its steps, finish, and return the rows of the views.

    In half of the cases versions are pushed one by one, in half of them rows of tables are moved together
    whenever most are not there any more, and in three of four a block has only a few changes.
    """
    n = len(case.versions)
    with (
        mock.patch("cep.engine.keys.kept_rows._FEW", 0 if n % 2 else 64),
        mock.patch("cep.engine.matching.matcher.BLOCK_ROWS", (1, 2, 5, BLOCK_ROWS)[n % 4]),
    ):
        return _delivered(program, case, one_by_one=n % 8 < 4)


def _delivered(program: Program, case: ViewCase, *, one_by_one: bool) -> pa.Table:
    given = given_tables(case)
    matcher = Matcher(program, given)
    found = []
    for step in range(len(case.reached) + 1):
        for part in _pushed(case, step, one_by_one=one_by_one):
            table = case.tables[part[0].table]
            n_late = sum(map(case.is_late, part))
            rows = event_table(table, [version.row for version in part])
            for versions in prepared_versions(program, table, rows):
                assert matcher.push(versions).num_rows == n_late
        if step < len(case.reached):
            found.append(advanced(matcher, case.reached[step]))
            if case.restores[step]:
                matcher = Matcher.restore(program, matcher.snapshot(), given)
    found.append(matcher.finish())
    return pa.concat_tables(found)


def _pushed(case: ViewCase, step: int, *, one_by_one: bool) -> Iterator[list[Version]]:
    """Yield the versions that arrive in a step, each by itself, or those of a table together."""
    arrived = [
        version
        for version in case.versions
        if version.step == step and not case.tables[version.table].is_static
    ]
    if one_by_one:
        yield from ([version] for version in arrived)
        return
    for name in case.tables:
        if part := [version for version in arrived if version.table == name]:
            yield part


def engine_rows(case: ViewCase, programs: Sequence[Program]) -> list[Change]:
    """Return the changes that the engine reports."""
    return rows_of(case, [deliver(program, case) for program in programs])
