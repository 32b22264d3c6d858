"""What becomes of stored state when rules change: a verdict for each rule, before anything is touched.

    changes = changes_of(before.programs, now.programs)

A program takes over the state of the program that had the same streams, key and rules
(`Changes.taken_from`). Within it each rule is judged by its identity (`cep.program.identity`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from cep.expression import column_names
from cep.program.fingerprint import columns_that_decide, joined_meanings
from cep.program.identity import PARTS, RuleIdentity, held_value, rule_differences, shared_differences
from cep.program.match_stream import MatchStream, inputs_of
from cep.program.opcodes import Code
from cep.program.program import Program, RuleProgram, is_list
from cep.schema.stream import Field, Stream


class Verdict(StrEnum):
    """What a change of rules does to the state of one rule."""

    SAME = "same"
    WORDS = "words"  # only its title, severity, tags or status changed
    MEASURES = "measures"  # only what it reports changed: its open runs continue
    CHANGED = "changed"  # its open runs end, and it begins again
    NEW = "new"
    GONE = "gone"  # its open runs end


KEPT = frozenset((Verdict.SAME, Verdict.WORDS, Verdict.MEASURES))
"""Verdicts under which open runs continue."""

BEGINNING = frozenset((Verdict.CHANGED, Verdict.NEW))
"""Verdicts of rules that begin."""

ENDING = frozenset((Verdict.CHANGED, Verdict.GONE))
"""Verdicts of rules whose open runs end."""


@dataclass(frozen=True, slots=True)
class RuleChange:
    """The verdict about one rule, with reasons in words."""

    rule: str
    verdict: Verdict
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InputChange:
    """A stream or a table that only the rules before (`GONE`) or only the rules now (`NEW`) read."""

    name: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why stored state cannot be taken over, and the way out."""

    fact: str
    help: str


@dataclass(frozen=True)
class Changes:
    """The verdict about a change of rules.

    - `rules`: each of the new rules, in order, then those that are gone.
    - `inputs`: the streams and tables that are new or gone.
    - `refusals`: if there are any, nothing of the state can be taken over.
    - `taken_from`: for each program of the new rules, the number of the program whose state it takes over;
      None: it takes over no state.
    - `other_having`: the window rules that continue, but have another HAVING.
    - `has_corrections`: whether late events correct matches.
    - `window_rules`: the rules before that have windows in place of open runs.
    """

    rules: tuple[RuleChange, ...]
    inputs: tuple[InputChange, ...]
    refusals: tuple[Refusal, ...]
    taken_from: tuple[int | None, ...]
    other_having: frozenset[str] = frozenset()
    has_corrections: bool = False
    window_rules: frozenset[str] = frozenset()

    @cached_property
    def verdicts(self) -> Mapping[str, Verdict]:
        """The verdict about each rule by its name."""
        return {change.rule: change.verdict for change in self.rules}

    @property
    def final(self) -> Mapping[str, str]:
        """The rules whose earlier matches are not corrected by late events; which matches, in words."""
        if not self.has_corrections:
            return {}
        ended = dict.fromkeys(self.other_having, "rows of windows that have ended are final")
        ends = (name for name, verdict in self.verdicts.items() if verdict in (Verdict.CHANGED, Verdict.GONE))
        return ended | dict.fromkeys(ends, "its matches are final")

    def remembered(self, rule: str) -> str:
        """Return what a rule has open, in words."""
        return "open windows" if rule in self.window_rules else "open runs"

    @property
    def keeps_fingerprints(self) -> bool:
        """Whether no state changes its meaning."""
        return not self.refusals and {Verdict.SAME, Verdict.WORDS}.issuperset(self.verdicts.values())

    @property
    def keeps_all(self) -> bool:
        """Whether all state continues: nothing ends, and nothing begins."""
        return not self.refusals and not self.inputs and KEPT.issuperset(self.verdicts.values())


def changes_of(
    before: Sequence[Program], now: Sequence[Program], *, has_corrections: bool = False
) -> Changes:
    """Return what becomes of the state of the rules `before` when it is continued with the rules `now`."""
    judged = _Judged(before, now)
    inputs_then, inputs_now = _inputs(before), _inputs(now)
    inputs = [InputChange(name, Verdict.NEW) for name in inputs_now if name not in inputs_then]
    inputs += [InputChange(name, Verdict.GONE) for name in inputs_then if name not in inputs_now]
    refusals = [*_other_inputs(before, now), *judged.refusals()]
    rules = tuple(judged.rules())
    return Changes(
        rules,
        tuple(inputs),
        tuple(refusals),
        judged.taken_from,
        frozenset(change.rule for change in rules if judged.has_other_having(change)),
        has_corrections,
        frozenset(rule.name for program in before for rule in program.rules if rule.windowed is not None),
    )


@dataclass(frozen=True, slots=True)
class _Placed:
    """A rule, its identity, and where it is."""

    program: Program
    number: int
    rule: RuleProgram
    identity: RuleIdentity


def _placed(programs: Sequence[Program]) -> dict[str, _Placed]:
    return {
        rule.name: _Placed(program, number, rule, identity)
        for number, program in enumerate(programs)
        for rule, identity in zip(program.rules, program.identity.rules, strict=True)
    }


_WORDS = {"title": "title", "severity": "severity", "tags": "tags", "status": "is_shadow"}


class _Judged:
    """The rules of two sets, and which programs take over which state."""

    def __init__(self, before: Sequence[Program], now: Sequence[Program]) -> None:
        self.before, self.now = before, now
        self.then_by_name, self.now_by_name = _placed(before), _placed(now)
        taken: list[int | None] = []
        for number in range(len(now)):
            taken.append(self._source(number, taken))
        self.taken_from = tuple(taken)

    def _source(self, number: int, taken: Sequence[int | None]) -> int | None:
        """Return the earlier program whose state program `number` takes over: it has most of its rules."""
        n_kept = {
            source: sum(
                then.number == source and self._verdict(then, self.now_by_name[rule.name])[0] in KEPT
                for rule in self.now[number].rules
                if (then := self.then_by_name.get(rule.name)) is not None
            )
            for source, program in enumerate(self.before)
            if source not in taken and _kind(program) == _kind(self.now[number])
        }
        best = max(n_kept, key=lambda source: n_kept[source], default=None)
        if best is None or not (n_kept[best] or _has_rows_of(self.before[best], self.now[number])):
            return None
        return best

    def rules(self) -> Iterator[RuleChange]:
        """Yield the verdict about each rule."""
        gone = {name: then for name, then in self.then_by_name.items() if name not in self.now_by_name}
        renamed: dict[str, str] = {}
        for name, now in self.now_by_name.items():
            if name in self.then_by_name:
                yield RuleChange(name, *self._judged(name))
                continue
            same = (of for of, then in gone.items() if of not in renamed and _has_same_meaning(then, now))
            before = next(same, None)
            if before is not None:
                renamed[before] = name
            of_ids = () if before is None else (f"it was called `{before}`, and match ids contain the name",)
            yield RuleChange(name, Verdict.NEW, of_ids)
        for name in gone:
            is_called = (f"it is called `{renamed[name]}` now",) if name in renamed else ()
            yield RuleChange(name, Verdict.GONE, is_called)

    def _judged(self, name: str) -> tuple[Verdict, tuple[str, ...]]:
        """Return the verdict about a rule that both sets have; it may read the matches of other rules."""
        now = self.now_by_name[name]
        verdict, reasons = self._in_its_program(self.then_by_name[name], now)
        if verdict in KEPT:
            read = (of.name for of in now.program.streams if isinstance(of, MatchStream))
            # A rule may begin although its meaning is the same. Its next matches are not those of its past.
            begins = [of for of in read if of in self.then_by_name and self._judged(of)[0] not in KEPT]
            if begins:
                return Verdict.CHANGED, tuple(
                    f"`{of}`, whose matches it reads, begins again" for of in begins
                )
        return verdict, reasons

    def _in_its_program(self, then: _Placed, now: _Placed) -> tuple[Verdict, tuple[str, ...]]:
        """Return the verdict about a rule that both sets have."""
        if self.taken_from[now.number] == then.number:
            return self._verdict(then, now)
        shared = shared_differences(then.program.identity.shared, now.program.identity.shared)
        reasons = (*shared, *_read_otherwise(then, now), *rule_differences(then.identity, now.identity))
        return Verdict.CHANGED, reasons or ("it is evaluated with other rules",)

    def _verdict(self, then: _Placed, now: _Placed) -> tuple[Verdict, tuple[str, ...]]:
        """Return the verdict about a rule whose program takes over the state of its program."""
        shared = [
            of for of in _windows_together(now.program, now.rule) if of not in then.program.windows_together
        ]
        if shared:
            told = tuple(rule_differences(then.identity, now.identity))
            return Verdict.CHANGED, told or ("the windows that it shares with other rules",)
        if then.identity.fingerprint == now.identity.fingerprint:
            words = [
                f"its {word}"
                for word, name in _WORDS.items()
                if getattr(then.rule, name) != getattr(now.rule, name)
            ]
            return Verdict.WORDS if words else Verdict.SAME, tuple(words)
        obstacles = list(_obstacles(then, now))
        differences = rule_differences(then.identity, now.identity)
        others = (told for told in differences if f"{told}{_NOT_HELD}" not in obstacles)
        reasons = tuple(dict.fromkeys((*obstacles, *others)))
        return (Verdict.CHANGED if obstacles else Verdict.MEASURES), reasons

    def has_other_having(self, change: RuleChange) -> bool:
        """Return whether a window rule continues with a different HAVING."""
        if change.verdict is not Verdict.MEASURES or self.now_by_name[change.rule].rule.windowed is None:
            return False
        placed = self.then_by_name[change.rule], self.now_by_name[change.rule]
        then, now = (dict(of.identity.parts).get("conditions") for of in placed)
        return then != now

    def refusals(self) -> Iterator[Refusal]:
        """Yield why windows and tables cannot be taken over."""
        read = {table.name for program in self.before for table in program.joins.declared}
        for number, source in enumerate(self.taken_from):
            program = self.now[number]
            names = ", ".join(f"`{rule.name}`" for rule in program.rules)
            if source is not None:
                fact = _other_context(self.before[source], program)
                if fact:
                    yield Refusal(f"{fact} of the rules {names}", _WAY_OUT)
                continue
            for joined in program.joins.tables:
                if joined.table.name in read and not joined.table.is_static:
                    fact = f"{names} would begin without the rows of table `{joined.table.name}` so far"
                    yield Refusal(fact, _WAY_OUT)


def _windows_together(program: Program, rule: RuleProgram) -> set[tuple[bytes, frozenset[bytes]]]:
    """Return the windowed columns that share their state with those of a rule with a pattern."""
    if program.has_window_rules:
        return set()
    read = program.windows_read[program.rules.index(rule)]
    return {of for of in program.windows_together if of[1] & read}


_WAY_OUT = "restore these rules as they were, or start from a new checkpoint"


def _kind(program: Program) -> tuple[object, ...]:
    """Return what two programs must have in common for one to take over the state of the other."""
    of_rules = (program.has_window_rules, bool(program.joins.declared), program.has_views)
    return (_shared(program), *of_rules)


def _shared(program: Program) -> tuple[object, ...]:
    """Return the key and the order of the events; columns may be declared in another order."""
    fields = []
    for stream in program.streams:
        key = {name for role in program.roles_of(stream).values() for name in role.key}
        names = {stream.event_time, *stream.tie_break, *key}
        fields.append(frozenset(field for field in stream.fields if field.name in names))
    return (program.key, program.roles, program.identity.shared.orders, tuple(fields))


def _has_rows_of(before: Program, now: Program) -> bool:
    """Return whether rules that all begin can use the rows of tables that the rules `before` had."""
    is_of_patterns = not now.has_window_rules and not now.has_views
    same = set(joined_meanings(before).values()) == set(joined_meanings(now).values())
    return is_of_patterns and now.joins.takes_versions and same


def _has_same_meaning(then: _Placed, now: _Placed) -> bool:
    return (
        _shared(then.program) == _shared(now.program)
        and then.identity.fingerprint == now.identity.fingerprint
    )


# ---------------------------------------------------------------- whether open runs continue


_NOT_HELD = ", which its open runs do not hold"

_REPORTED = frozenset(("measures", "registers", "columns"))
"""Parts of a rule that do not change which events its runs take."""


def _obstacles(then: _Placed, now: _Placed) -> Iterator[str]:
    """Yield the reasons why the open runs of a rule that has changed cannot continue; none: they can."""
    before, after = dict(then.identity.parts), dict(now.identity.parts)
    parts = {name for name in PARTS if before.get(name) != after.get(name)}
    yield from _read_otherwise(then, now)
    if then.identity.tables != now.identity.tables:
        yield "a table that it joins"
    if (then.rule.windowed is None) != (now.rule.windowed is None) or then.rule.is_view or now.rule.is_view:
        yield "its pattern"
    elif now.rule.windowed is not None:
        # The window's values do not depend on HAVING, which is evaluated at its end.
        if _windows_of(then) != _windows_of(now) or not parts <= _REPORTED | {"conditions"}:
            yield "its windows"
    elif not parts <= _REPORTED:
        yield from (PARTS[name] for name in PARTS if name in parts - _REPORTED)
    else:
        yield from _missing(then, now)


def _read_otherwise(then: _Placed, now: _Placed) -> Iterator[str]:
    """Yield which columns that the rule does not only report are read from the data in another way.

    What its open runs and windows contain of such a column comes from other data than the next events.
    """
    before = columns_that_decide(then.program, then.rule)
    for name, field in columns_that_decide(now.program, now.rule).items():
        yield from _column_differences(name, before.get(name, field), field)


def _column_differences(name: str, then: Field, now: Field) -> Iterator[str]:
    """Yield how the declaration of a column differs, if it does."""
    if then != now:
        yield f"column `{name}` is {_declaration(now)} instead of {_declaration(then)}"


def _declaration(field: Field) -> str:
    """Return the type of a column, and how it is read."""
    place = field.column if field.path or field.element else ""
    settings = {"unit": field.unit, "format": field.format, "zone": field.zone, "field": place}
    told = ", ".join(f"{setting}: {value}" for setting, value in settings.items() if value)
    return f"{field.ddl} ({told})" if told else field.ddl


def _windows_of(placed: _Placed) -> bytes:
    return placed.program.window_rule_meanings[placed.program.rules.index(placed.rule)]


def _missing(then: _Placed, now: _Placed) -> Iterator[str]:
    """Yield what open runs would have to hold, but do not."""
    held = registers_then(then.identity, now.rule, now.identity)
    for register, place in zip(now.rule.registers, held, strict=True):
        if place < 0 and register.values is None:
            yield f"it needs `{held_value(register.label)}`{_NOT_HELD}"
    if (then.rule.node_register < 0) != (
        now.rule.node_register < 0
    ) or then.rule.all_rows != now.rule.all_rows:
        yield "which events its matches report"
    elif now.rule.all_rows and dict(then.identity.parts)["columns"] != dict(now.identity.parts)["columns"]:
        yield "the columns of the events that its matches report"
    elif not _listed(now) <= _listed(then):
        yield "the columns of its lists"
    if not _tests_the_same_sets(then.rule, now.rule, held):
        yield PARTS["conditions"]


def registers_then(then: RuleIdentity, now: RuleProgram, identity_now: RuleIdentity) -> tuple[int, ...]:
    """Return for each register of the rule `now` the register of the same contents `then`, or -1."""
    places = {(item.type, item.meaning): place for place, item in enumerate(then.registers)}
    found: list[int] = []
    for number, (register, item) in enumerate(zip(now.registers, identity_now.registers, strict=True)):
        if register.values is None:
            found.append(places.get((item.type, item.meaning), -1))
        else:  # the meaning of a set is that of the register before it, which counts its values
            found.append(found[number - 1] + 1 if found[number - 1] >= 0 else -1)
    return tuple(found)


def _listed(placed: _Placed) -> set[str]:
    """Return the columns whose values the rule lists: their names, or what derived ones mean."""
    derived = dict(placed.program.identity.shared.derived)
    lists = [of for _, of in placed.rule.measures if is_list(of)]
    return {derived.get(name, name) for of in lists for name in column_names(of)}


def _tests_the_same_sets(then: RuleProgram, now: RuleProgram, held: Sequence[int]) -> bool:
    """Return whether conditions test the same sets. The meaning of a set does not include its values."""

    def tested(rule: RuleProgram) -> list[int]:
        operations = zip(rule.tables.code_op.tolist(), rule.tables.code_arg.tolist(), strict=True)
        return [arg for op, arg in operations if op in (Code.IN_SET_I, Code.IN_SET_F)]

    return [held[place] for place in tested(now)] == tested(then)


# ---------------------------------------------------------------- windows, tables, inputs


def _other_context(before: Program, now: Program) -> str:
    """Return the difference for which stored windows and tables cannot be used; empty: none."""
    if set(joined_meanings(before).values()) != set(joined_meanings(now).values()):
        return "the state does not fit the joined tables"
    fingerprints = [{rule.fingerprint for rule in of.identity.rules} for of in (before, now)]
    if now.has_views and not fingerprints[1] <= fingerprints[0]:
        return "the state does not have the rows of the views"
    if now.has_silent_windows and fingerprints[0] != fingerprints[1]:
        return "the state does not have the windows without events"
    if now.has_window_rules and (
        not now.windows_together <= before.windows_together or _has_other_windows(before, now)
    ):
        return "the state does not have the windowed values"
    return ""


def _has_other_windows(before: Program, now: Program) -> bool:
    """Return whether window rules read a column from the data in another way."""
    then, read = (
        {name: field for rule in of.rules for name, field in columns_that_decide(of, rule).items()}
        for of in (before, now)
    )
    return any(then.get(name, field) != field for name, field in read.items())


def _inputs(programs: Sequence[Program]) -> dict[str, Stream]:
    """Return the streams and the tables that programs read."""
    streams = [stream for program in programs for stream in inputs_of(program.streams)]
    tables = [table for program in programs for table in program.joins.declared]
    return {stream.name: stream for stream in (*streams, *tables)}


def _other_inputs(before: Sequence[Program], now: Sequence[Program]) -> Iterator[Refusal]:
    """Yield how the declarations of streams and tables that both read differ."""
    read = [{column for program in programs for column in program.read_columns} for programs in (before, now)]
    then = _inputs(before)
    for name, stream in _inputs(now).items():
        if name in then:
            columns = {column for of, column in read[0] & read[1] if of == name}
            for what in _declared_otherwise(then[name], stream, columns):
                kind = "stream" if stream.table is None else "table"
                yield Refusal(
                    f"{kind} `{name}` has changed: {what}",
                    "restore its declaration, or start from a new checkpoint",
                )


def _declared_otherwise(then: Stream, now: Stream, columns: Iterable[str]) -> Iterator[str]:
    if (then.table is None) != (now.table is None):
        yield "it is a table on one side only"
        return
    for setting in ("event_time", "tie_break", "deduplicate"):
        if getattr(then, setting) != getattr(now, setting):
            yield f"`{setting}`"
    clocks = [() if of.device_clock is None else of.device_clock.columns for of in (then, now)]
    if clocks[0] != clocks[1]:
        yield "`device_clock`"
    if then.table is not None and now.table is not None:
        for setting in ("key", "kind", "op"):
            if getattr(then.table, setting) != getattr(now.table, setting):
                yield f"`{setting}`"
    exact = {now.event_time, *now.tie_break, *clocks[1]} & {then.event_time, *then.tie_break, *clocks[0]}
    if now.table is not None and not now.is_static:
        exact.update(columns)  # its rows are kept
    for name in sorted({*columns, *exact}):
        one, other = then.field(name), now.field(name)
        if one is not None and other is not None and (name in exact or one.ddl != other.ddl):
            yield from _column_differences(name, one, other)
