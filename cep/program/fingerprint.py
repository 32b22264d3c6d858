"""The identity of a program: fingerprints, registers and states of each of its rules.

A rule's identity does not depend on the other rules of its program. Numbers that do depend on them (bits of
predicate words, indices of columns, names of derived columns) are replaced by what they represent.

It does not include descriptions of a rule (title, severity, tags, status), limits of accepted events
(lateness, bounds of event time), the form of CSV files, or columns that no rule reads.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise, permutations, product
from typing import TYPE_CHECKING, TypeAlias, assert_never

import numpy as np

from cep.expression import (
    Aggregate,
    Call,
    Column,
    Expression,
    Joined,
    Literal,
    RegisterRef,
    RoleTest,
    Window,
    Windowed,
    column_names,
)
from cep.program.identity import (
    FINGERPRINT_BYTES,
    ProgramIdentity,
    RuleIdentity,
    SharedIdentity,
    StoredRegister,
    StreamOrder,
    TableIdentity,
)
from cep.program.match_stream import MatchStream
from cep.program.opcodes import Code, Update
from cep.program.tables import JoinedTable, table_name
from cep.schema.stream import Field, Stream

if TYPE_CHECKING:
    from cep.program.program import Program, RuleProgram
    from cep.program.windows import WindowColumn, WindowRule

_Value: TypeAlias = "str | bytes | int | bool | Field | Iterable[_Value]"

_ONLY_SAID = frozenset(("name", "title", "severity", "tags", "is_shadow"))

_FOLLOWS = frozenset(
    (
        *("word", "event_mask", "variable_mask", "state_trigger_mask"),  # bits
        *("needs_every_event", "state_always"),
    )
)
"""Fields that follow from the pattern and from the conditions, which are told in full."""

_PART_OF = {
    **dict.fromkeys(
        (
            *("span_us", "span_events", "close_us", "has_closing", "is_timed"),
            *("max_runs", "overflow", "timeouts", "suppress_us", "n_per_day"),
        ),
        "limits",
    ),
    "variable_after_take": "conditions",
    **dict.fromkeys(("all_rows", "subsets"), "measures"),
}
"""Field of `RuleProgram` or `RuleTables` -> part of the rule; any other field belongs to the pattern."""

_ONLY_IF_SET = frozenset(("n_per_day",))
"""Fields that earlier versions did not have: without them, rules keep their fingerprints."""

_TOLD_BY_MEANING = frozenset(
    (
        *("tables", "registers", "measures", "skip_register", "node_register", "windowed"),
        *("code_ptr", "code_op", "code_arg"),
        *("update_ptr", "update_op", "update_register", "update_column", "update_arg", "update_arg2"),
    )
)
"""Fields that `_RuleIdentifier` looks into."""

_ARG_IS_REGISTER = frozenset(
    (Update.FIRST, Update.SHIFT, Update.POSITION_FIRST, Update.MEAN_F, Update.SQUARES_F)
)
_ARG2_IS_REGISTER = frozenset((Update.SQUARES_F,))


def window_meanings(program: Program) -> dict[str, bytes]:
    """Return the meaning of each windowed column of `program`, in 16 bytes, by its name."""
    digests = _Expressions(program, ())
    return {window.name: digests.of_column(window.name)[:FINGERPRINT_BYTES] for window in program.windows}


def rule_meaning(program: Program, name: str) -> bytes:
    """Return the meaning of the matches of rule `name` of `program` for rules that read them, in 16 bytes."""
    identity = program.identity
    rule = next(rule for rule in identity.rules if rule.name == name)
    return _rule_meaning(identity.shared.fingerprint, rule)


def _rule_meaning(shared: bytes, rule: RuleIdentity) -> bytes:
    return _digest([shared, rule.fingerprint])[:FINGERPRINT_BYTES]


def window_rule_meanings(program: Program) -> tuple[bytes, ...]:
    """Return, for each window rule of `program`, the meaning of its windows and their events, in 16 bytes."""
    digests = _Expressions(program, ())
    found = [rule.windowed for rule in program.rules if rule.windowed is not None]
    return tuple(
        _digest(
            [_told_window(rule.window), digests.of_bit(rule.where), *_told_table(rule, digests.versions)]
        )[:FINGERPRINT_BYTES]
        for rule in found
    )


def windows_together(program: Program) -> frozenset[tuple[bytes, frozenset[bytes]]]:
    """Return the windowed columns that may share their state, by `window_meanings`.

    In a program of window rules the meaning of the rule's windows (`window_rule_meanings`) precedes them.
    There is also a group without columns for these windows.
    """
    digests = _Expressions(program, ())
    columns_of: dict[bytes, set[str]] = {}
    for rule, meaning in zip(program.rules, program.window_rule_meanings, strict=False):
        assert rule.windowed is not None
        having = () if rule.windowed.having is None else column_names(rule.windowed.having)
        columns_of.setdefault(meaning, set()).update(rule.windowed.columns, having)
    groups: dict[tuple[bytes, bytes], set[bytes]] = {(meaning, b""): set() for meaning in columns_of}
    for meaning, names in (columns_of or {b"": set(program.window_meanings)}).items():
        for column in program.windows:
            if column.name in names:
                of = digests.state_of_window(column)
                groups.setdefault((meaning, of), set()).add(program.window_meanings[column.name])
    return frozenset((meaning, frozenset(columns)) for (meaning, _), columns in groups.items())


def windows_read(program: Program) -> tuple[frozenset[bytes], ...]:
    """Return, for each rule, the windowed columns that it reads, by `window_meanings`."""
    found = program.window_meanings
    if not found:
        return (frozenset(),) * len(program.rules)
    read = [_RuleIdentifier(program, rule).columns_read() for rule in program.rules]
    return tuple(frozenset(found[name] for name in names & found.keys()) for names in read)


def columns_that_decide(program: Program, rule: RuleProgram) -> dict[str, Field]:
    """Return the declared columns that a rule does not only report: those of conditions and of windows."""
    names = _RuleIdentifier(program, rule).columns_that_decide()
    found = {name: program.source_of(name) for name in sorted(names)}
    return {name: source[1] for name, source in found.items() if source is not None}


def identity_of(program: Program) -> ProgramIdentity:
    """Return the meaning of the stored state of `program`."""
    digests = _Expressions(program, ())
    shared = SharedIdentity(
        fingerprint=_shared_fingerprint(program),
        key=tuple(
            (name, str(program.type_of(column)))
            for name, column in zip(program.key, program.key_columns, strict=True)
        ),
        roles=tuple((role.stream, role.key) for role in program.roles),
        orders=tuple(
            StreamOrder(
                stream.name,
                stream.event_time,
                stream.tie_break,
                stream.deduplicate,
                stream.meaning if isinstance(stream, MatchStream) else b"",
            )
            for stream in program.streams
        ),
        predicates=tuple(
            tuple(digests.of(predicate).hex()[:16] for predicate in word) for word in program.predicates
        ),
        derived=tuple((name, digests.of_column(name).hex()[:16]) for name in _made_columns(program)),
    )
    return ProgramIdentity(shared, tuple(_rule_identity(program, rule) for rule in program.rules))


def _rule_identity(program: Program, rule: RuleProgram) -> RuleIdentity:
    identity = _RuleIdentifier(program, rule).identity()
    if not program.joins.tables:
        return identity
    told = _RuleIdentifier(program, rule, names_tables=True)
    return dataclasses.replace(told.identity(), fingerprint=identity.fingerprint, tables=told.tables_read())


def _made_columns(program: Program) -> list[str]:
    """Return the names of columns that no stream has."""
    named = [name for name, _ in (*program.derived, *program.computed)]
    named += [window.name for window in program.windows]
    return [*named, *program.joins.late_types, *joined_meanings(program)]


def _shared_fingerprint(program: Program) -> bytes:
    """Return a description of the streams, the key and the order of the events."""
    return _told_shared(program, [_ordering_fields(program, stream) for stream in program.streams], {})


def _ordering_fields(program: Program, stream: Stream) -> tuple[Field, ...]:
    """Return the columns of a stream that are its event time, a tie breaker or part of the key."""
    key = {column for role in program.roles if role.stream == stream.name for column in role.key}
    names = {stream.event_time, *stream.tie_break, *key}
    return tuple(field for field in stream.fields if field.name in names)


def _told_shared(
    program: Program, fields: Iterable[tuple[Field, ...]], meanings: Mapping[str, bytes]
) -> bytes:
    """Return the shared fingerprint of a program with these `_ordering_fields`.

    `meanings`: other meanings of rules whose matches the program reads.
    """
    streams: list[_Value] = [
        [
            *(stream.name, stream.event_time, stream.tie_break, stream.deduplicate),
            of_stream,
            *([meanings.get(stream.name, stream.meaning)] if isinstance(stream, MatchStream) else []),
        ]
        for stream, of_stream in zip(program.streams, fields, strict=True)
    ]
    roles = [[role.stream, role.key] for role in program.roles]
    return _digest([program.key, roles, streams])[:FINGERPRINT_BYTES]


_MOST_ORDERS = 5040
"""All orders of seven columns: of the key, the event time and the tie breakers."""


def programs_of(stored: Collection[bytes], programs: Sequence[Program]) -> dict[bytes, Program]:
    """Return, by its fingerprint in `stored`, each program that is the same but for the order of columns.

    Fingerprints depend on the order in which streams declare the columns of the key and of the order of
    events, but stored state does not. `programs` come after those whose matches they read.
    """
    found: dict[bytes, Program] = {}
    meanings: dict[str, bytes] = {}
    for program in programs:
        if program.fingerprint in stored:
            found[program.fingerprint] = program
            continue
        orders = (
            # The columns of matches always have the same order.
            islice(permutations(of), 1 if isinstance(stream, MatchStream) else _MOST_ORDERS)
            for stream, of in ((stream, _ordering_fields(program, stream)) for stream in program.streams)
        )
        for fields in islice(product(*orders), _MOST_ORDERS):
            shared = _told_shared(program, fields, meanings)
            then = program.identity.with_shared(shared)
            if then.fingerprint in stored:
                found[then.fingerprint] = program
                meanings |= {rule.name: _rule_meaning(shared, rule) for rule in then.rules}
                break
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class _Update:
    """One update of `RuleTables`: the effect on a register of taking an event as `variable`."""

    variable: str
    op: Update
    register: int
    column: int
    arg: int
    arg2: int


def _updates(rule: RuleProgram) -> Iterator[_Update]:
    tables = rule.tables
    for variable, (first, end) in zip(rule.variables, pairwise(tables.update_ptr.tolist()), strict=True):
        for at in range(first, end):
            yield _Update(
                variable,
                Update(int(tables.update_op[at])),
                int(tables.update_register[at]),
                int(tables.update_column[at]),
                int(tables.update_arg[at]),
                int(tables.update_arg2[at]),
            )


class _RuleIdentifier:
    """Describes one rule of a program; with `names_tables` a table is only its name."""

    def __init__(self, program: Program, rule: RuleProgram, *, names_tables: bool = False) -> None:
        self.program = program
        self.rule = rule
        self.updates = list(_updates(rule))
        self.columns = _Expressions(program, (), names_tables=names_tables)
        self.known: dict[int, bytes] = {}  # what registers hold
        held = [self._held(number) for number in range(len(rule.registers))]
        self.measures = _Expressions(program, held, names_tables=names_tables)

    def identity(self) -> RuleIdentity:
        """Return the identity of the rule."""
        rule = self.rule
        held = [self._held(number) for number in range(len(rule.registers))]
        parts: dict[str, list[_Value]] = {
            "pattern": [self._held(rule.skip_register)],
            "conditions": list(self._conditions()),
            "registers": [held, [[update.variable, self._held(update.register)] for update in self.updates]],
            "measures": [
                self._held(rule.node_register),
                [[name, self.measures.of(expression)] for name, expression in rule.measures],
            ],
            "limits": [],
            "columns": [[stream.name, field] for stream, field in self._fields_read()],
        }
        if rule.windowed is not None:
            parts["limits"].append(_told_window(rule.windowed.window))
            parts["limits"] += _told_table(rule.windowed, self.columns.versions)
            having = [] if rule.windowed.having is None else [self.columns.of(rule.windowed.having)]
            parts["conditions"].append([self.columns.of_bit(rule.windowed.where), having])
        for name, value in self._fields():
            parts[_PART_OF.get(name, "pattern")].append([name, value])
        digests = {name: _digest(values) for name, values in parts.items()}
        return RuleIdentity(
            name=rule.name,
            fingerprint=_digest([[name, digest] for name, digest in digests.items()])[:FINGERPRINT_BYTES],
            registers=tuple(
                StoredRegister(register.label, str(register.type), digest.hex()[:16])
                for register, digest in zip(rule.registers, held, strict=True)
            ),
            states=tuple(_state_names(rule)),
            parts=tuple((name, digest.hex()[:8]) for name, digest in digests.items()),
        )

    def _fields(self) -> Iterator[tuple[str, _Value]]:
        """Yield the fields of the rule and of its tables whose values have a meaning by themselves."""
        left_out = _ONLY_SAID | _FOLLOWS | _TOLD_BY_MEANING
        for field in dataclasses.fields(self.rule):
            value = getattr(self.rule, field.name)
            if field.name not in left_out and (value or field.name not in _ONLY_IF_SET):
                yield field.name, value
        for name, table in self.rule.tables._asdict().items():
            if name not in left_out:
                yield name, [str(table.dtype), np.ascontiguousarray(table).tobytes()]

    def _column(self, number: int) -> bytes:
        """Return what a column of `Program.columns` holds; -1: none."""
        return b"" if number < 0 else self.columns.of_column(self.program.columns[number])

    def _held(self, number: int) -> bytes:
        """Return what register `number` holds; -1: none."""
        if number < 0:
            return b""
        if number not in self.known:
            register = self.rule.registers[number]
            updates = [self._told(update) for update in self.updates if update.register == number]
            of: _Value = updates or register.label  # no update: the kernels keep the register
            if self.rule.windowed is not None:
                of = self.columns.of_column(self.rule.windowed.columns[number])
            self.known[number] = _digest([str(register.type), register.starts_at_zero, of])
        return self.known[number]

    def _told(self, update: _Update) -> _Value:
        return [
            update.variable,
            update.op.name,
            self._column(update.column),
            self._held(update.arg) if update.op in _ARG_IS_REGISTER else update.arg,
            self._held(update.arg2) if update.op in _ARG2_IS_REGISTER else update.arg2,
        ]

    def _conditions(self) -> Iterator[_Value]:
        """Yield the condition of each variable: the local predicate, then the bytecode."""
        tables = self.rule.tables
        for number, variable in enumerate(self.rule.variables):
            first, end = tables.code_ptr[number : number + 2]
            code: list[_Value] = []
            ops, args = tables.code_op[first:end].tolist(), tables.code_arg[first:end].tolist()
            for op, arg in zip(ops, args, strict=True):
                match Code(op):
                    case Code.COLUMN:
                        code.append([op, self._column(arg)])
                    case Code.REGISTER | Code.IN_SET_I | Code.IN_SET_F:
                        code.append([op, self._held(arg)])
                    case _:
                        code.append([op, arg])
            yield [variable, [self.columns.of_bit(place) for place in self._local(number)], code]

    def _local(self, variable: int) -> list[tuple[int, int]]:
        """Return word and bit of the local predicate of a variable, or nothing."""
        mask = int(self.rule.tables.variable_mask[variable])
        return [] if mask == 0 else [(self.rule.word, mask.bit_length() - 1)]

    def _expressions_of(self, place: tuple[int, int]) -> list[Expression]:
        """Return the parts of a predicate."""
        word, bit = place
        return [self.program.predicates[word][bit], *_rests(self.program, place)]

    def _fields_read(self) -> list[tuple[Stream, Field]]:
        """Return the declared columns that the rule reads."""
        names = self.columns_read()
        found = {
            name: source for name in sorted(names) if (source := self.program.source_of(name)) is not None
        }
        return list(found.values())

    def tables_read(self) -> tuple[TableIdentity, ...]:
        """Return how the tables that the rule joins are declared."""
        names = self.columns_read()
        windowed = self.rule.windowed
        read: dict[int, dict[str, None]] = {
            number: {} for number in range(len(self.program.joins.tables)) if self.rule.is_view
        }
        if windowed is not None and windowed.table is not None:
            read[windowed.table] = {}
        for column in self.program.joins.columns:
            if column.name in names:
                read.setdefault(column.table, {})[column.column] = None
        return tuple(
            _table_identity(self.program.joins.tables[number], list(columns))
            for number, columns in sorted(read.items())
        )

    def columns_read(self) -> set[str]:
        """Return the columns that the rule reads, and those from which they are computed."""
        program = self.program
        names = {program.columns[update.column] for update in self.updates if update.column >= 0}
        names |= self._columns_of_code()
        if self.rule.all_rows:
            names |= set(program.kept_columns)
        expressions = self._local_expressions()
        expressions += [expression for _, expression in self.rule.measures]
        if self.rule.windowed is not None:
            windowed = self.rule.windowed
            names |= set(windowed.columns)
            expressions += [] if windowed.having is None else [windowed.having]
            expressions += [] if windowed.where is None else self._expressions_of(windowed.where)
        names |= {name for expression in expressions for name in column_names(expression)}
        return self._and_what_they_are_made_of(names)

    def columns_that_decide(self) -> set[str]:
        """Return the columns that the rule does not only report, and those from which they are computed."""
        program, read = self.program, self.columns_read()
        if self.rule.windowed is not None:
            return read
        tested = {Code.REGISTER, Code.IN_SET_I, Code.IN_SET_F}
        registers = {self.rule.skip_register, *(arg for op, arg in self._code() if op in tested)}
        pending = set(registers)
        while pending:
            of_pending = [update for update in self.updates if update.register in pending]
            args = {update.arg for update in of_pending if update.op in _ARG_IS_REGISTER}
            args |= {update.arg2 for update in of_pending if update.op in _ARG2_IS_REGISTER}
            pending = args - registers
            registers |= pending
        held = {update.column for update in self.updates if update.register in registers}
        names = {program.columns[number] for number in held if number >= 0} | self._columns_of_code()
        names |= {name for expression in self._local_expressions() for name in column_names(expression)}
        names |= read & {window.name for window in program.windows}
        return self._and_what_they_are_made_of(names)

    def _code(self) -> list[tuple[int, int]]:
        tables = self.rule.tables
        return list(zip(tables.code_op.tolist(), tables.code_arg.tolist(), strict=True))

    def _columns_of_code(self) -> set[str]:
        return {self.program.columns[arg] for op, arg in self._code() if op == Code.COLUMN}

    def _local_expressions(self) -> list[Expression]:
        """Return the parts of all local predicates."""
        places = [place for number in range(len(self.rule.variables)) for place in self._local(number)]
        return [expression for place in places for expression in self._expressions_of(place)]

    def _and_what_they_are_made_of(self, names: set[str]) -> set[str]:
        """Return `names` and the columns that derived, computed and windowed ones among them read."""
        derived = dict((*self.program.derived, *self.program.computed, *self.program.joins.derived))
        windows = {window.name: window for window in self.program.windows}
        joined = {column.name: column for column in self.program.joins.columns}
        found, pending = set(names), list(names)
        while pending:
            name = pending.pop()
            expressions: list[Expression] = [derived[name]] if name in derived else []
            inner = set(joined[name].keys if name in joined else ())
            if name in windows:
                window = windows[name]
                inner |= {window.argument} if window.argument is not None else set()
                for place in (window.within, window.counts):
                    expressions += [] if place is None else self._expressions_of(place)
            inner |= {column for expression in expressions for column in column_names(expression)}
            pending += inner - found
            found |= inner
        return found


def _state_names(rule: RuleProgram) -> Iterator[str]:
    """Yield a name for each state: what it takes or how it ends, with a number after a repeated name."""
    tables = rule.tables
    known: dict[str, int] = {}
    for state, (first, end) in enumerate(pairwise(tables.take_ptr.tolist())):
        taken = dict.fromkeys(rule.variables[at] for at in tables.take_variable[first:end].tolist())
        if taken:
            name = " | ".join(taken)
        elif tables.state_absence[state] >= 0:
            name = "timed absence"
        else:
            name = "end of the window" if tables.state_closes[state] else "end"
        known[name] = known.get(name, 0) + 1
        yield name if known[name] == 1 else f"{name} ({known[name]})"


# ---------------------------------------------------------------- digests


class _Expressions:
    """Digests of expressions in which derived columns and registers are replaced by their contents.

    Each node is examined once, however often it occurs.
    """

    def __init__(self, program: Program, registers: Sequence[bytes], *, names_tables: bool = False) -> None:
        self.program = program
        self.registers = registers
        self.names_tables = names_tables
        self.derived = dict((*program.derived, *program.computed, *program.joins.derived))
        self.windows = {window.name: window for window in program.windows}
        self.joined = {column.name: column for column in program.joins.columns}
        self.versions = joined_meanings(program, names_tables=names_tables)
        self.known: dict[int, tuple[Expression, bytes]] = {}  # by identity; this dictionary keeps them alive

    def of(self, expression: Expression) -> bytes:
        """Return the digest of `expression`."""
        if id(expression) not in self.known:
            self.known[id(expression)] = (expression, self._of(expression))
        return self.known[id(expression)][1]

    def of_column(self, name: str) -> bytes:
        """Return the digest of a column of the program's events."""
        if name in self.windows:
            return _digest(["window", *self._of_window(self.windows[name])])
        if name in self.joined:
            column = self.joined[name]
            of = self.program.joins.tables[column.table].table.fields
            fields: list[_Value] = [field for field in of if field.name == column.column]
            if self.names_tables:
                fields = [column.column]
            keys = [self.of_column(key) for key in column.keys]
            before = ["before"] if column.is_before else []
            return _digest(["joined", self.versions[table_name(column.table)], fields, keys, *before])
        if name in self.versions:
            return self.versions[name]
        return self.of(self.derived[name]) if name in self.derived else _digest(["column", name])

    def _of_window(self, column: WindowColumn) -> list[_Value]:
        """Return the description of a windowed column, without its place in the program."""
        function = [column.function.name, repr(column.parameter), str(column.type), str(column.argument_type)]
        return [function, *self._events_of_window(column)]

    def state_of_window(self, column: WindowColumn) -> bytes:
        """Return a digest that columns with the same window over the same values have in common."""
        return _digest(self._events_of_window(column))

    def _events_of_window(self, column: WindowColumn) -> list[_Value]:
        return [
            _told_window(column.window),
            b"" if column.argument is None else self.of_column(column.argument),
            *(self.of_bit(place) for place in (column.within, column.counts)),
        ]

    def of_bit(self, place: tuple[int, int] | None) -> bytes:
        """Return the digest of a predicate by its word and bit, with its windowed part; None: always TRUE."""
        if place is None:
            return b""
        word, bit = place
        early = self.of(self.program.predicates[word][bit])
        late = [self.of(rest) for rest in _rests(self.program, place)]
        return _digest(["refined", early, late]) if late else early

    def _of(self, expression: Expression) -> bytes:
        match expression:
            case RegisterRef(number=number):
                return self.registers[number]
            case RoleTest(number=number):
                role = self.program.roles[number]
                return _digest(["role", role.stream, list(role.key)])
            case Column(name=name):
                return self.of_column(name)
            case Literal(value=value, type=kind):
                return _digest(["literal", repr(value), str(kind)])
            case Aggregate(kind=kind, variable=variable, argument=argument, offset=offset):
                of = [] if argument is None else [self.of(argument)]
                return _digest(["aggregate", kind, variable, of, offset])
            case Windowed() | Joined():
                raise AssertionError("what is not of the event alone is a column of a program")
            case Call(function=function, args=args, type=kind):
                return _digest(["call", function, [self.of(arg) for arg in args], str(kind)])
            case _:
                assert_never(expression)


def joined_meanings(program: Program, *, names_tables: bool = False) -> dict[str, bytes]:
    """Return the meaning of each joined table, by `table_name`, and of each column of versions, in 16 bytes.

    Their numbers change when rules are added. With `names_tables`, the meaning of a table is only its name.
    """
    found: dict[str, bytes] = {}
    for number, joined in enumerate(program.joins.tables):
        table, settings = joined.table, joined.table.table
        assert settings is not None
        keys: list[_Value] = [field for name in joined.key for field in table.fields if field.name == name]
        order: list[_Value] = [table.event_time, table.tie_break, settings.kind.value, settings.op or ""]
        told: list[_Value] = ["table", table.name, joined.key, keys, order]
        meaning = _digest(told[:2] if names_tables else told)[:FINGERPRINT_BYTES]
        found[table_name(number)] = meaning
        columns = [*joined.values, *zip(joined.key, joined.key_columns, strict=True)]
        for name, prepared in columns:
            if prepared in program.joins.version_types:
                found[prepared] = _digest(["version", meaning, name])[:FINGERPRINT_BYTES]
    return found


def _table_identity(joined: JoinedTable, columns: Iterable[str]) -> TableIdentity:
    """Return the declaration of a table, and of its columns."""
    table, settings = joined.table, joined.table.table
    assert settings is not None
    fields = {field.name: field for field in table.fields}
    parts: dict[str, _Value] = {
        "kind": settings.kind.value,
        "key": [joined.key, [fields[name] for name in joined.key]],
        "event_time": table.event_time,
        "tie_break": table.tie_break,
        "op": settings.op or "",
    }
    parts |= {f".{name}": fields[name] for name in sorted(columns) if name in fields}
    return TableIdentity(
        table.name, tuple((name, _digest([value]).hex()[:8]) for name, value in parts.items())
    )


def _rests(program: Program, place: tuple[int, int]) -> list[Expression]:
    """Return what a predicate says about windows and tables."""
    refined = (*program.refined, *program.joins.refined)
    return [rest for *at, rest in refined if tuple(at) == place]


def _told_window(window: Window) -> list[_Value]:
    """Return the description of a window."""
    told: list[_Value] = [window.frame.name, window.length, window.previous, window.offset_us, window.zone]
    if window.step_us:
        told += ["by", window.step_us]
    return [*told, "whole", window.every_us, window.most_us] if window.is_whole else told


def _told_table(rule: WindowRule, meanings: Mapping[str, bytes]) -> list[_Value]:
    """Return the meaning of the table whose keys have windows without events; empty: there is none."""
    return [] if rule.table is None else [meanings[table_name(rule.table)]]


def _digest(value: _Value) -> bytes:
    parts: list[bytes] = []
    _collect(parts, value)
    return hashlib.sha256(b"".join(parts)).digest()


def _collect(parts: list[bytes], value: _Value) -> None:
    """Append the description of a tree of lists, records and scalars, with its structure."""
    match value:
        case bytes():
            parts.append(b"b%d:%b" % (len(value), value))
        case str():
            parts.append(b"s%d:%b" % (len(value), value.encode()))
        case int():  # numbers of enumerations and truth values, too
            parts.append(b"i%d;" % value)
        case Field():
            _collect(parts, dataclasses.astuple(value))
        case _:
            items = list(value)
            parts.append(b"(%d:" % len(items))
            for item in items:
                _collect(parts, item)
