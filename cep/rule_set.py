"""The rules that run together, and what a runner must know about all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from cep.errors import InputError
from cep.program.chains import Chains
from cep.program.match_stream import inputs_of
from cep.program.program import (
    EVENT_COLUMNS,
    EVENT_NUMBER,
    OUTCOME,
    Program,
    RuleProgram,
    missing_column,
    widened,
)
from cep.program.views import KIND, REVISION
from cep.program.windows import Window
from cep.schema.html_table import html_table
from cep.schema.stream import Stream
from cep.schema.time_literals import parse_duration

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = (
    "BY_CLOCK",
    "BY_EVENT",
    "ENDED_BY",
    "KIND",
    "MATCH_COLUMNS",
    "MAX_RETAINED",
    "RETRACT",
    "REVISION",
    "RULE_VERSION",
    "Corrections",
    "RuleSet",
)

MATCH_COLUMNS = ("match_id", "match_start", "match_end")
"""What every match has between its key and its measures."""

RETRACT = "retract"
"""The `KIND` of a row that withdraws a row; the kind of the others is `MATCH`."""

ENDED_BY = "ended_by"
"""An additional column of matches if the wall clock may end waits: `BY_EVENT` or `BY_CLOCK`."""

RULE_VERSION = "rule_version"
"""An additional column of matches, on request: the version of their rule (`ProgramIdentity.versions`)."""

BY_EVENT, BY_CLOCK = "event", "clock"
"""Whether events or the wall clock moved the watermark that let a row out."""

MAX_RETAINED = 1_000_000
"""Events and rows that are retained for corrections, by default."""


@dataclass(frozen=True, slots=True)
class Corrections:
    """How late an event may come and still be counted: reported matches that it changes are corrected.

    `within_us`: the event may be late by less than this many microseconds. `max_retained`: events and rows
    that a key group retains for each program; what exceeds this becomes final earlier.
    """

    within_us: int
    max_retained: int = MAX_RETAINED

    @classmethod
    def of_text(cls, text: str) -> Corrections | None:
        """Return the bound in ``correct within 1 hour``; None if `text` has a different form.

        Raises InputError: no duration above 0 follows.
        """
        words = text.split(maxsplit=2)
        if words[:2] != ["correct", "within"]:
            return None
        length_us = parse_duration(words[2]) if len(words) == 3 else None
        if not length_us:
            raise InputError(
                "E0647", f"`{text}` says no time", "write a duration above 0: correct within 1 hour"
            )
        return cls(length_us)


_MAX_SHOWN = 8
"""Rules that the text of a rule set shows."""


@dataclass(frozen=True, eq=False, repr=False)
class RuleSet:
    """Compiled rules that run together: a program for each set of streams and key.

    It is sent to executors by value and has no state. A rule set is equal only to itself: to compare rules,
    compare their `versions`.

    Parameters
    ----------
    programs
        The rules.
    corrections
        How late events are counted; None: they are not counted.
    tells_end
        Whether rows of matches say what released them (`ENDED_BY`).
    tells_version
        Whether rows of matches have the version of their rule (`RULE_VERSION`).
    """

    programs: tuple[Program, ...]
    corrections: Corrections | None = None
    tells_end: bool = False
    tells_version: bool = False

    def __repr__(self) -> str:
        names = [rule.name for rule in self.rules]
        more = f", and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
        return f"RuleSet({', '.join(names[:_MAX_SHOWN])}{more}; over {', '.join(self.inputs)})"

    def _repr_html_(self) -> str:
        """Return the rules for a notebook."""
        rows = [
            (
                rule.name,
                rule.title,
                rule.severity,
                ", ".join(stream.name for stream in program.streams),
                ", ".join(program.key),
                ", ".join(name for name, _ in rule.measures),
            )
            for program in self.programs
            for rule in program.rules
        ]
        return html_table("rules", ("rule", "title", "severity", "reads", "key", "measures"), rows)

    @cached_property
    def rules(self) -> tuple[RuleProgram, ...]:
        """The rules of all programs."""
        return tuple(rule for program in self.programs for rule in program.rules)

    @cached_property
    def shadow(self) -> frozenset[str]:
        """The names of the rules whose matches alert nobody (`STATUS shadow`)."""
        return frozenset(rule.name for rule in self.rules if rule.is_shadow)

    def names(self, *, shadow: bool) -> frozenset[str]:
        """Return the names of the rules that are shadow rules, or of those that are not."""
        return self.shadow if shadow else frozenset(rule.name for rule in self.rules) - self.shadow

    def without_shadow(self) -> RuleSet:
        """Return the rules, all of them live."""
        live = (
            replace(program, rules=tuple(replace(rule, is_shadow=False) for rule in program.rules))
            for program in self.programs
        )
        return replace(self, programs=tuple(live)) if self.shadow else self

    @cached_property
    def streams(self) -> dict[str, Stream]:
        """The streams that the rules read, by name, without matches that rules read."""
        return {stream.name: stream for program in self.programs for stream in inputs_of(program.streams)}

    @cached_property
    def chains(self) -> Chains:
        """Which programs read the matches of which rules."""
        return Chains(self.programs)

    @cached_property
    def tables(self) -> dict[str, Stream]:
        """The tables that the rules join, by name."""
        return {table.name: table for program in self.programs for table in program.joins.declared}

    @cached_property
    def inputs(self) -> dict[str, Stream]:
        """The streams and the tables, by name."""
        return self.streams | self.tables

    @cached_property
    def read_columns(self) -> frozenset[tuple[str, str]]:
        """Names of streams and tables, and of their columns, that rules read."""
        return frozenset().union(*(program.read_columns for program in self.programs))

    @cached_property
    def has_kinds(self) -> bool:
        """Whether rows of matches have `REVISION` and `KIND`: with corrections, and with views."""
        return self.corrections is not None or any(rule.is_view for rule in self.rules)

    @cached_property
    def lateness_us(self) -> int:
        """How far the watermark lags behind the latest event of any stream or table, in microseconds."""
        return max(stream.lateness_us for stream in self.inputs.values())

    @cached_property
    def has_silent_windows(self) -> bool:
        """Whether a program has windows without events (`Program.has_silent_windows`)."""
        return any(program.has_silent_windows for program in self.programs)

    @property
    def silent_windows(self) -> frozenset[Window]:
        """The windows that also exist without events."""
        return frozenset(
            rule.windowed.window
            for program in self.programs
            for rule in program.rules
            if rule.windowed is not None and rule.windowed.table is not None
        )

    @property
    def counted_us(self) -> int:
        """How late an event may be and still be counted, because it corrects matches; else 0."""
        return 0 if self.corrections is None else self.corrections.within_us

    def with_corrections(self, corrections: Corrections | None) -> RuleSet:
        """Return the rules with corrections.

        Raises InputError: the bound is not a duration, or the rules have a column that corrections need.
        """
        if corrections is None:
            return replace(self, corrections=None)
        if corrections.within_us <= 0:
            raise InputError(
                "E0647", "corrections within no time", "write a duration above 0: correct within 1 hour"
            )
        for rule in self.rules:
            if rule.is_view:
                raise InputError(
                    "E0896",
                    f"`{rule.name}` is a view, its rows are not corrected",
                    "give its tables a larger `lateness`, or run it without corrections: "
                    "late versions then go where late events go",
                )
            for name in {REVISION, KIND} & {name for name, _ in rule.measures}:
                raise InputError(
                    "E0648",
                    f"rule `{rule.name}` has a measure `{name}`, corrections have a column of this name",
                    "rename the measure, or run the rule without corrections",
                )
        for name in self._keys & {REVISION, KIND}:
            raise InputError(
                "E0648",
                f"the key column `{name}` has the name of a column of corrections",
                "rename the column, or run the rules without corrections",
            )
        return replace(self, corrections=corrections)

    def telling_end(self) -> RuleSet:
        """Return the rules with the column `ENDED_BY`.

        Raises InputError: the rules have a column of this name.
        """
        self._require_no_column(ENDED_BY, "end_waits_after")
        return replace(self, tells_end=True)

    def telling_version(self) -> RuleSet:
        """Return the rules with the column `RULE_VERSION`.

        Raises InputError: the rules have a column of this name.
        """
        self._require_no_column(RULE_VERSION, RULE_VERSION)
        return replace(self, tells_version=True)

    @cached_property
    def versions(self) -> dict[str, str]:
        """The version of each rule by its name: a hash of its meaning (`ProgramIdentity.versions`)."""
        return {name: of for program in self.programs for name, of in program.identity.versions.items()}

    def versions_in(self, rules: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return the version of each rule in a column of names."""
        import pyarrow as pa
        from pyarrow.compute import index_in

        names = pa.array(list(self.versions), pa.string())
        places = index_in(rules, names)
        return pa.chunked_array([pa.array(list(self.versions.values()), pa.string())]).take(places)

    def _require_no_column(self, name: str, setting: str) -> None:
        """Raise InputError if the rules have a column that a setting adds."""
        for rule in self.rules:
            if name in dict(rule.measures):
                raise InputError(
                    "E0650",
                    f"rule `{rule.name}` has a measure `{name}`, "
                    f"with `{setting}` matches have a column of this name",
                    f"rename the measure, or run the rule without `{setting}`",
                )
        if name in self._keys:
            raise InputError(
                "E0650",
                f"the key column `{name}` has the name of a column that matches have with `{setting}`",
                f"rename the column, or run the rules without `{setting}`",
            )

    def only_stream(self) -> Stream:
        """Return the one stream that all rules read. Raises InputError: the rules read several streams."""
        if len(self.inputs) != 1:
            names = ", ".join(self.inputs)
            inputs = "streams and tables" if self.tables else "streams"
            raise InputError(
                "E0607",
                f"the rules read {len(self.inputs)} {inputs}, the input has the events of one: {names}",
                "name the stream of each input, or choose the rules of one stream",
            )
        return next(iter(self.inputs.values()))

    def require_streams(self, given: Iterable[str]) -> None:
        """Raise InputError unless the streams and tables `given` are those that the rules read."""
        given = list(given)
        for name in given:
            if name not in self.inputs:
                known = ", ".join(self.inputs)
                tables = "" if not self.tables else " or a table"
                raise InputError(
                    "E0610", f"no rule reads a stream{tables} `{name}`", f"streams of these rules: {known}"
                )
        for program in self.programs:
            for table in program.joins.declared:
                if table.name not in given:
                    raise InputError(
                        "E0621",
                        f"a rule joins table `{table.name}`, there is no input for it",
                        f"give its versions, too: {table.name}=FILE",
                    )
            for stream in inputs_of(program.streams):
                if stream.name not in given:
                    raise InputError(
                        "E0607",
                        f"rule `{program.rules[0].name}` reads stream `{stream.name}`, "
                        "there is no input for it",
                        f"give the events of `{stream.name}`, too, or leave the rule out",
                    )

    @property
    def read_from(self) -> frozenset[str]:
        """The names in FROM: streams, and the tables of views."""
        of_views = (program.stream.name for program in self.programs if program.has_views)
        return frozenset((*self.streams, *of_views))

    def of_streams(self, names: Iterable[str]) -> RuleSet:
        """Return the rules that read only these streams; a view if its table in FROM is one of them."""
        known = set(names) & self.read_from
        programs: list[Program] = []
        for program in self.programs:  # after those whose matches it reads
            if known.issuperset(stream.name for stream in program.streams):
                programs.append(program)
                known |= {rule.name for rule in program.rules}
        return replace(self, programs=tuple(programs))

    def keys_of(self, stream: Stream) -> tuple[tuple[str, ...], ...]:
        """Return all columns by which the rules partition the events of `stream`; for a table its key."""
        if stream.table is not None:
            return (stream.table.key,)
        return tuple(role.key for program in self.programs for role in program.roles_of(stream).values())

    def events_met(self, numbers: Sequence[Sequence[int]]) -> dict[str, int]:
        """Return the number of events of each stream if program p received `numbers[p][s]` of its stream s.

        The programs of one stream receive the same events, and a single program a part of them.
        """
        most: dict[str, int] = {}
        for program, of_streams in zip(self.programs, numbers, strict=True):
            for stream, number in zip(program.streams, of_streams, strict=True):
                most[stream.name] = max(most.get(stream.name, 0), number)
        return most

    def met_by_program(self, numbers: Sequence[Sequence[int]]) -> dict[str, int]:
        """Return the numbers above 0 of `events_met` unchanged, by ``stream: first rule of the program``.

        They add up over key groups. An event may be in different groups for different programs.
        """
        return {
            f"{stream.name}: {program.rules[0].name}": number
            for program, of_streams in zip(self.programs, numbers, strict=True)
            for stream, number in zip(program.streams, of_streams, strict=True)
            if number
        }

    @cached_property
    def match_schema(self) -> pa.Schema:
        """The columns of the matches of all rules: rule, keys, id, start, end, measures.

        Raises InputError: the rules give a column different types.
        """
        return self._schema_of(self.programs)

    def _schema_of(self, programs: Sequence[Program]) -> pa.Schema:
        """Return the columns of the matches of some programs, with those that the rule set adds to all."""
        import pyarrow as pa

        fields = {item.name: item for item in programs[0].match_schema}
        for program in programs[1:]:
            for item in program.match_schema:
                known = fields.setdefault(item.name, item)
                if known.type == item.type:
                    continue
                if {known.type, item.type} != {pa.int64(), pa.float64()}:
                    raise InputError(
                        "E0615",
                        f"the rules give the column `{item.name}` different types",
                        "run the rules of different streams one after the other, or rename a measure",
                    )
                fields[item.name] = pa.field(item.name, pa.float64())
        outcome = [OUTCOME] if OUTCOME in fields else []
        of_event = [name for name in EVENT_COLUMNS if name in fields]
        fields |= {name: fields.pop(name) for name in of_event}  # the last
        if self.has_kinds:
            is_there = self.corrections is None  # with views a row of a rule has them, too
            fields[REVISION] = pa.field(REVISION, pa.int64(), nullable=not is_there)
            fields[KIND] = pa.field(KIND, pa.string(), nullable=not is_there)
            outcome += [REVISION, KIND]
        if self.tells_end:
            fields[ENDED_BY] = pa.field(ENDED_BY, pa.string())
            outcome.append(ENDED_BY)
        if self.tells_version:
            fields[RULE_VERSION] = pa.field(RULE_VERSION, pa.string(), nullable=False)
            outcome.append(RULE_VERSION)
        keys = {name for program in programs for name in program.key}
        first = ["rule", *(name for name in fields if name in keys), *MATCH_COLUMNS, *outcome]
        return pa.schema([fields[name] for name in dict.fromkeys((*first, *fields))])

    def schema_of(self, *, shadow: bool) -> pa.Schema:
        """Return the columns of the matches of shadow rules, or of the others; of all if there are none."""
        names = self.names(shadow=shadow)
        chosen = tuple(
            replace(program, rules=rules)
            for program in self.programs
            if (rules := tuple(rule for rule in program.rules if rule.name in names))
        )
        return self._schema_of(chosen) if chosen else self.match_schema

    def matches_of(self, matches: pa.Table, *, shadow: bool) -> pa.Table:
        """Return the rows (`match_schema`) of shadow rules, or of the others, in `schema_of`."""
        if not self.shadow:
            return matches.slice(0, 0) if shadow else matches
        return of_rules(matches, self.names(shadow=shadow), self.schema_of(shadow=shadow))

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(name for program in self.programs for name in program.key)

    def together(self, tables: Iterable[pa.Table]) -> pa.Table:
        """Return all matches as one table (`match_schema`), in the given order."""
        import pyarrow as pa

        schema = self.match_schema

        def column(table: pa.Table, item: pa.Field) -> pa.ChunkedArray:
            if item.name in table.column_names:
                return widened(table.column(item.name), item.type)
            if item.name == RULE_VERSION and self.tells_version:
                return self.versions_in(table.column("rule"))
            return missing_column(item, len(table))

        of_all = [
            pa.Table.from_arrays([column(table, item) for item in schema], schema=schema)
            for table in tables
            if len(table)
        ]
        return pa.concat_tables(of_all) if of_all else schema.empty_table()

    def in_order(self, tables: Iterable[pa.Table]) -> pa.Table:
        """Return all matches as one table (`match_schema`), ordered by end, start, rule, key and id."""
        table = self.together(tables)
        schema = table.schema
        if not len(table):
            return table
        keys = [name for name in schema.names[1:] if name in self._keys]
        order = ["match_end", "match_start", "rule", *keys, "match_id"]
        order += [REVISION] if self.has_kinds else []
        order += [EVENT_NUMBER] if EVENT_NUMBER in schema.names else []
        # Loaded here: it takes 20 ms, and `cep check` does not need it.
        from pyarrow.compute import sort_indices

        return table.take(sort_indices(table, [(name, "ascending") for name in order]))


def of_rules(matches: pa.Table, names: Collection[str], schema: pa.Schema) -> pa.Table:
    """Return the rows of some rules, with the columns of `schema`, each as it is."""
    import pyarrow as pa
    from pyarrow.compute import is_in

    rows = matches.filter(is_in(matches.column("rule"), pa.array(sorted(names), pa.string())))
    return rows.select(schema.names)
