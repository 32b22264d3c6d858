"""Nfa + typed rule -> Program: predicates split into local bits and bytecode, aggregates put into registers.

What a run must remember is decided here, once: every aggregate of the rule becomes one or a few registers of
64 bits that each take updates in constant time. Local parts of predicates become bits, computed for a
whole batch before matching; equal ones of different rules share a bit.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np

from cep.compiler import ir, nfa
from cep.compiler.limits import (
    MAX_REGISTERS,
    too_many_choices,
    too_many_predicates,
    too_many_registers,
)
from cep.compiler.relevance import reasons_for_every_event
from cep.compiler.remembered import remember_strings
from cep.errors import Diagnostic, RuleError
from cep.expression import Aggregate, Call, Column, Expression, Literal, Type, children, is_local
from cep.program import (
    ACCEPT,
    MAX_BITS,
    Code,
    Mode,
    OverflowCode,
    Program,
    Register,
    RuleProgram,
    RuleTables,
    SelectionCode,
    SkipCode,
    Update,
    computation_of,
    is_list,
    name_hash,
    role_column,
)
from cep.schema import Role, Stream

_MODES = {
    ir.Contiguity.STRICT: Mode.STRICT,
    ir.Contiguity.NEXT: Mode.NEXT,
    ir.Contiguity.ANY: Mode.ANY,
}
_SELECTIONS = {
    ir.Selection.EARLIEST: SelectionCode.EARLIEST,
    ir.Selection.ALL: SelectionCode.ALL,
    ir.Selection.PREFERRED: SelectionCode.PREFERRED,
}
_SKIPS = {
    ir.SkipKind.NO_SKIP: SkipCode.NO_SKIP,
    ir.SkipKind.PAST_LAST: SkipCode.PAST_LAST,
    ir.SkipKind.TO_NEXT: SkipCode.TO_NEXT,
    ir.SkipKind.TO_FIRST: SkipCode.TO_FIRST,
    ir.SkipKind.TO_LAST: SkipCode.TO_LAST,
}
_OVERFLOWS = {
    ir.Overflow.DROP_OLDEST: OverflowCode.DROP_OLDEST,
    ir.Overflow.DROP_NEWEST: OverflowCode.DROP_NEWEST,
    ir.Overflow.FAIL: OverflowCode.FAIL,
}


@dataclass(frozen=True, slots=True)
class PredicateParts:
    """A predicate as a conjunction: what one event decides, and what needs the run's registers."""

    local: Expression | None
    correlated: Expression | None


def split_predicate(predicate: Expression | None) -> PredicateParts:
    """Split `predicate` at its top-level ANDs. A conjunction is TRUE exactly when both parts are."""
    if predicate is None:
        return PredicateParts(None, None)
    parts = list(conjuncts(predicate))
    return PredicateParts(
        _conjunction([part for part in parts if is_local(part)]),
        _conjunction([part for part in parts if not is_local(part)]),
    )


def _parts_in_role(variable: ir.Variable, optimize: bool) -> PredicateParts:
    """Return the parts of a variable's predicate; its role, if it has one, is asked for by the local part."""
    parts = split_predicate(variable.predicate) if optimize else PredicateParts(None, variable.predicate)
    if variable.role < 0:
        return parts
    has_role = Column(role_column(variable.role), Type.BOOLEAN)
    local = has_role if parts.local is None else Call("and", (has_role, parts.local), Type.BOOLEAN)
    return PredicateParts(local, parts.correlated)


def conjuncts(expression: Expression) -> Iterable[Expression]:
    """Yield what the top-level ANDs of `expression` connect."""
    if isinstance(expression, Call) and expression.function == "and":
        for arg in expression.args:
            yield from conjuncts(arg)
    else:
        yield expression


def _conjunction(parts: list[Expression]) -> Expression | None:
    if len(parts) > 1:
        return Call("and", tuple(parts), Type.BOOLEAN)
    return parts[0] if parts else None


@dataclass
class _Shared:
    """What the rules of one program have in common."""

    streams: tuple[Stream, ...]
    optimize: bool = True
    words: list[dict[Expression, None]] = field(default_factory=list)
    derived: dict[Expression, str] = field(default_factory=dict)
    columns: dict[str, int] = field(default_factory=dict)
    listed: dict[str, None] = field(default_factory=dict)

    def word_for(self, predicates: dict[Expression, None]) -> int:
        """Return the first word that can take `predicates`; equal ones share a bit."""
        for number, word in enumerate(self.words):
            if len(word | predicates) <= MAX_BITS:
                word.update(predicates)
                return number
        self.words.append(dict(predicates))
        return len(self.words) - 1

    def column(self, expression: Expression) -> int:
        """Return the index of the column that holds `expression` for each event."""
        return self.columns.setdefault(self._name(expression), len(self.columns))

    def listed_column(self, expression: Expression) -> Column:
        """Return the column that holds `expression` for each event that is reported."""
        name = self._name(expression)
        self.listed[name] = None
        return Column(name, expression.type)

    def _name(self, expression: Expression) -> str:
        if isinstance(expression, Column):
            return expression.name
        return self.derived.setdefault(expression, f"_d{len(self.derived)}")


@dataclass(frozen=True, slots=True)
class _UpdateStep:
    """One register update; `phase` orders the updates of one take (readers before what they read)."""

    phase: int
    op: Update
    register: int
    column: int = -1
    arg: int = 0
    arg2: int = 0


_Members = Callable[[str], tuple[str, ...]]
"""The variables that a name stands for: itself, or the members of a subset."""

_MakeUpdates = Callable[[int], list[_UpdateStep]]


class _Registers:
    """Hands out the registers of one rule: the same aggregate, the same register."""

    def __init__(self, shared: _Shared, members: _Members) -> None:
        self.shared = shared
        self.members = members
        self.registers: list[Register] = []
        self.known: dict[object, int] = {}
        self.updates: dict[str, list[_UpdateStep]] = {}

    def read(self, aggregate: Aggregate) -> Expression:
        """Return an expression over registers that has the value of `aggregate`."""
        kind, variable, argument = aggregate.kind, aggregate.variable, aggregate.argument
        if argument is None:
            return self._of(self.count(variable))
        match kind:
            case "LAST":
                return self._of(self.last(variable, argument, aggregate.offset))
            case "FIRST":
                return self._of(self.first(variable, argument, aggregate.offset))
            case "COUNT":
                return self._of(self.count_values(variable, argument))
            case "SUM":
                return self._of(self.accumulate("SUM", variable, argument))
            case "MIN" | "MAX":
                return self._of(self.accumulate(kind, variable, argument))
            case "AVG":
                value = _as_double(argument)
                total = self._of(self.accumulate("SUM", variable, value))
                count = self._of(self.count_values(variable, argument))
                return Call("/", (total, _as_double(count)), Type.DOUBLE)
            case "STDDEV":
                return self._stddev(variable, _as_double(argument))
            case _:
                raise AssertionError(kind)

    def count(self, variable: str) -> int:
        return self._new(
            ("COUNT", variable),
            Register(Type.BIGINT, f"COUNT({variable}.*)" if variable else "COUNT(*)", starts_at_zero=True),
            variable,
            lambda register: [_UpdateStep(2, Update.COUNT, register)],
        )

    def count_values(self, variable: str, argument: Expression) -> int:
        return self._new(
            ("COUNT", variable, argument),
            Register(Type.BIGINT, f"COUNT({_label(variable, argument)})", starts_at_zero=True),
            variable,
            lambda register: [_UpdateStep(2, Update.COUNT_VALUE, register, self.shared.column(argument))],
        )

    def last(self, variable: str, argument: Expression, offset: int) -> int:
        """Offsets shift along a chain of registers, the oldest first, before the newest is set."""
        chain = [
            self._new(
                ("LAST", variable, argument, back),
                Register(argument.type, f"LAST({_label(variable, argument)}, {back})"),
                variable,
                lambda register: [],
            )
            for back in range(offset + 1)
        ]
        for back, register in enumerate(chain):
            step = (
                _UpdateStep(1, Update.LAST, register, self.shared.column(argument))
                if back == 0
                else _UpdateStep(-back, Update.SHIFT, register, arg=chain[back - 1])
            )
            for member in self.members(variable):
                steps = self.updates.setdefault(member, [])
                if step not in steps:
                    steps.append(step)
        return chain[offset]

    def first(self, variable: str, argument: Expression, offset: int) -> int:
        count = self.count(variable)
        return self._new(
            ("FIRST", variable, argument, offset),
            Register(argument.type, f"FIRST({_label(variable, argument)}, {offset})"),
            variable,
            lambda register: [
                _UpdateStep(1, Update.FIRST, register, self.shared.column(argument), count, offset)
            ],
        )

    def accumulate(self, kind: str, variable: str, argument: Expression) -> int:
        suffix = "F" if argument.type is Type.DOUBLE else "I"
        return self._new(
            (kind, variable, argument),
            Register(argument.type, f"{kind}({_label(variable, argument)})"),
            variable,
            lambda register: [
                _UpdateStep(3, Update[f"{kind}_{suffix}"], register, self.shared.column(argument))
            ],
        )

    def position(self, variable: str, *, first: bool) -> int:
        """Return the register that holds which event was taken first or last as `variable`."""
        count = self.count(variable) if first else 0
        op = Update.POSITION_FIRST if first else Update.POSITION
        return self._new(
            (op, variable),
            Register(Type.BIGINT, f"position of the {'first' if first else 'last'} {variable}"),
            variable,
            lambda register: [_UpdateStep(1, op, register, arg=count)],
        )

    def last_event(self) -> int:
        """Return the register that leads to the events taken; kernels keep it up to date themselves."""
        label = Register(Type.BIGINT, "the events taken")
        return self._new("EVENTS", label, "", lambda register: [])

    def _stddev(self, variable: str, value: Expression) -> Expression:
        """Sample standard deviation by Welford's update (Technometrics 4(3), 1962)."""
        count = self.count_values(variable, value)
        column = self.shared.column(value)
        mean = self._new(
            ("MEAN", variable, value),
            Register(Type.DOUBLE, f"mean of {_label(variable, value)}"),
            variable,
            lambda register: [_UpdateStep(4, Update.MEAN_F, register, column, count)],
        )
        squares = self._new(
            ("SQUARES", variable, value),
            Register(Type.DOUBLE, f"squares of {_label(variable, value)}"),
            variable,
            lambda register: [_UpdateStep(3, Update.SQUARES_F, register, column, count, mean)],
        )
        degrees = Call("-", (self._of(count), Literal(1, Type.BIGINT)), Type.BIGINT)
        variance = Call("/", (self._of(squares), _as_double(degrees)), Type.DOUBLE)  # by zero: NULL
        return Call("sqrt", (variance,), Type.DOUBLE)

    def _new(self, key: object, register: Register, variable: str, updates: _MakeUpdates) -> int:
        if key not in self.known:
            self.known[key] = len(self.registers)
            self.registers.append(register)
            for member in self.members(variable):
                self.updates.setdefault(member, []).extend(updates(self.known[key]))
        return self.known[key]

    def _of(self, register: int) -> Column:
        return Column(f"#{register}", self.registers[register].type)


def _as_double(expression: Expression) -> Expression:
    return expression if expression.type is Type.DOUBLE else Call("double", (expression,), Type.DOUBLE)


def _label(variable: str, argument: Expression) -> str:
    return f"{variable}.{argument.name}" if isinstance(argument, Column) else f"expression of {variable}"


def replace_aggregates(expression: Expression, registers: _Registers) -> Expression:
    """Return `expression` with every aggregate read from registers."""
    match expression:
        case Aggregate():
            return registers.read(expression)
        case Call(function=function, args=args, type=kind):
            return Call(function, tuple(replace_aggregates(arg, registers) for arg in args), kind)
        case Literal() | Column():
            return expression
        case _:
            assert_never(expression)


def before_take(expression: Expression, variable: str, members: _Members) -> Expression | None:
    """Return `expression` with what it says of `variable` itself told from before the event is taken.

    The event under test counts as taken, so ``COUNT(v.*)`` becomes the count so far plus one and
    ``LAST(v.x, 1)`` the last so far. A predicate in this form can be tested without copying the run, and most
    tests fail. None: an aggregate has no such form (STDDEV; a sum of integers, which may have overflowed).
    """
    match expression:
        case Aggregate() if variable in members(expression.variable):
            return _before(expression)
        case Call(function=function, args=args, type=kind):
            rewritten = [before_take(arg, variable, members) for arg in args]
            parts = tuple(arg for arg in rewritten if arg is not None)
            return Call(function, parts, kind) if len(parts) == len(args) else None
        case _:
            return expression


def _before(aggregate: Aggregate) -> Expression | None:
    kind, variable, value = aggregate.kind, aggregate.variable, aggregate.argument
    counted = Aggregate("COUNT", variable, None, 0, Type.BIGINT)
    if value is None:
        return Call("+", (counted, Literal(1, Type.BIGINT)), Type.BIGINT)
    match kind:
        case "LAST" if aggregate.offset == 0:
            return value
        case "LAST":
            return dataclasses.replace(aggregate, offset=aggregate.offset - 1)
        case "FIRST":
            is_this = Call("=", (counted, Literal(aggregate.offset, Type.BIGINT)), Type.BOOLEAN)
            return Call("case", (is_this, value, aggregate), aggregate.type)
        case "COUNT":
            is_value = Call("is_not_null", (value,), Type.BOOLEAN)
            one, none = Literal(1, Type.BIGINT), Literal(0, Type.BIGINT)
            added = Call("case", (is_value, one, none), Type.BIGINT)
            return Call("+", (aggregate, added), Type.BIGINT)
        case "MIN" | "MAX":
            return Call("least" if kind == "MIN" else "greatest", (aggregate, value), aggregate.type)
        case "SUM" if aggregate.type is Type.DOUBLE:
            both = Call("+", (aggregate, value), Type.DOUBLE)
            return Call("coalesce", (both, aggregate, value), Type.DOUBLE)
        case "AVG":
            total = _before(Aggregate("SUM", variable, _as_double(value), 0, Type.DOUBLE))
            count = _before(Aggregate("COUNT", variable, value, 0, Type.BIGINT))
            assert total is not None
            assert count is not None
            return Call("/", (total, _as_double(count)), Type.DOUBLE)
        case _:
            return None


class _Assembler:
    """Writes bytecode for one expression over registers (columns ``#r``) and event columns."""

    _BINARY: Mapping[str, tuple[Code, Code]] = {
        "+": (Code.ADD_I, Code.ADD_F),
        "-": (Code.SUB_I, Code.SUB_F),
        "*": (Code.MUL_I, Code.MUL_F),
        "/": (Code.DIV_F, Code.DIV_F),
        "%": (Code.MOD_I, Code.MOD_F),
        "=": (Code.EQ_I, Code.EQ_F),
        "<": (Code.LT_I, Code.LT_F),
        "<=": (Code.LE_I, Code.LE_F),
        "least": (Code.MIN_OF_I, Code.MIN_OF_F),
        "greatest": (Code.MAX_OF_I, Code.MAX_OF_F),
    }
    _UNARY: Mapping[str, tuple[Code, Code]] = {
        "negate": (Code.NEG_I, Code.NEG_F),
        "abs": (Code.ABS_I, Code.ABS_F),
        "sqrt": (Code.SQRT_F, Code.SQRT_F),
        "floor": (Code.FLOOR_F, Code.FLOOR_F),
        "ceil": (Code.CEIL_F, Code.CEIL_F),
        "not": (Code.NOT, Code.NOT),
        "is_null": (Code.IS_NULL, Code.IS_NULL),
        "double": (Code.I_TO_F, Code.I_TO_F),
    }

    def __init__(self, shared: _Shared) -> None:
        self.shared = shared
        self.code: list[tuple[Code, int]] = []
        self.known: dict[int, tuple[Expression, bool]] = {}  # by identity; kept alive by being in here

    def reads_registers(self, expression: Expression) -> bool:
        """Say whether `expression` is about what the run has taken; each part is looked at once."""
        if id(expression) not in self.known:
            match expression:
                case Column(name=name):
                    found = name.startswith("#")
                case _:
                    found = any(self.reads_registers(child) for child in children(expression))
            self.known[id(expression)] = (expression, found)
        return self.known[id(expression)][1]

    def emit(self, code: Code, arg: int = 0) -> None:
        self.code.append((code, arg))

    def write(self, expression: Expression) -> None:
        match expression:
            case Literal():
                self._literal(expression)
            case Column(name=name) if name.startswith("#"):
                self.emit(Code.REGISTER, int(name[1:]))
            case Column():
                self.emit(Code.COLUMN, self.shared.column(expression))
            case Call() if not self.reads_registers(expression):
                self.emit(Code.COLUMN, self.shared.column(expression))
            case Call() if computation := computation_of(expression):
                for operand in computation.operands:
                    self.write(operand)
                self.emit(computation.code, computation.arg)
            case Call(function=function, args=args):
                self._call(function, args)
            case Aggregate():
                raise AssertionError("aggregates are replaced before")
            case _:
                assert_never(expression)

    def _literal(self, literal: Literal) -> None:
        if literal.value is None:
            self.emit(Code.CONST_NULL)
        elif literal.type is Type.STRING:  # codes are given to columns
            self.emit(Code.COLUMN, self.shared.column(literal))
        elif literal.type is Type.DOUBLE:
            self.emit(Code.CONST_F, struct.unpack("<q", struct.pack("<d", float(literal.value)))[0])
        else:
            self.emit(Code.CONST_I, int(literal.value))

    def _call(self, function: str, args: tuple[Expression, ...]) -> None:
        is_float = args[0].type is Type.DOUBLE
        match function:
            case ">" | ">=":
                self._call(function.replace(">", "<"), (args[1], args[0]))
            case "<>":
                self._call("=", args)
                self.emit(Code.NOT)
            case "is_not_null":
                self._call("is_null", args)
                self.emit(Code.NOT)
            case "in":
                same = tuple(Call("=", (args[0], arg), Type.BOOLEAN) for arg in args[1:])
                self._chain(Code.OR, same)
            case "and" | "or" | "coalesce":
                self._chain(Code[function.upper()], args)
            case "case":
                self._case(args)
            case _ if function in self._BINARY:
                self._chain(self._BINARY[function][is_float], args)
            case _ if function in self._UNARY:
                self.write(args[0])
                self.emit(self._UNARY[function][is_float])
            case _:
                raise AssertionError(f"{function} has no bytecode")

    def _chain(self, code: Code, args: tuple[Expression, ...]) -> None:
        self.write(args[0])
        for arg in args[1:]:
            self.write(arg)
            self.emit(code)

    def _case(self, args: tuple[Expression, ...]) -> None:
        for arg in args:
            self.write(arg)
        for _ in args[1::2]:
            self.emit(Code.SELECT)


def lower(
    rules: Iterable[ir.Rule], streams: Mapping[str, Stream], *, optimize: bool = True
) -> tuple[Program, ...]:
    """Return one program for each distinct (streams, partition key, roles), rules in the order given.

    Without `optimize` every predicate is bytecode that is run with the event taken, no event is dropped
    before matching, and the matches are the same. (A bit remains where a key remembers an event: there is no
    run then.)

    Raises
    ------
    RuleError
        A rule has more local predicates or registers than a run can hold.
    """
    groups: dict[tuple[tuple[str, ...], tuple[str, ...], tuple[Role, ...]], list[ir.Rule]] = {}
    for rule in rules:
        roles = rule.roles or (Role(rule.streams[0], rule.key),)
        groups.setdefault((rule.streams, rule.key, roles), []).append(rule)
    programs = []
    problems: list[Diagnostic] = []
    for (names, key, roles), members in groups.items():
        shared = _Shared(tuple(streams[name] for name in names), optimize)
        compiled = []
        for rule in members:
            try:
                compiled.append(_lower_rule(rule, shared))
            except RuleError as error:
                problems += error.diagnostics
        programs.append(
            Program(
                streams=shared.streams,
                key=key,
                roles=roles,
                predicates=tuple(tuple(word) for word in shared.words),
                derived=tuple((name, expression) for expression, name in shared.derived.items()),
                columns=tuple(shared.columns),
                rules=tuple(compiled),
                listed=tuple(shared.listed),
            )
        )
    if problems:
        raise RuleError(problems)
    return tuple(programs)


def _lower_rule(rule: ir.Rule, shared: _Shared) -> RuleProgram:
    try:
        automaton = nfa.build(rule.pattern)
    except nfa.AutomatonTooLargeError:
        raise too_many_choices(rule) from None
    looks = _looks(automaton, rule.window)
    parts = {
        variable.name: _parts_in_role(variable, shared.optimize or variable.name in looks.memories)
        for variable in rule.variables
    }
    local = {part.local: None for part in parts.values() if part.local is not None}
    if len(local) > MAX_BITS:
        raise too_many_predicates(rule, len(local))
    word = shared.word_for(local)
    bits = {predicate: 1 << bit for bit, predicate in enumerate(shared.words[word])}
    masks = {name: 0 if part.local is None else bits[part.local] for name, part in parts.items()}

    registers = _Registers(shared, rule.members)
    codes = {name: _predicate_code(name, part.correlated, registers, shared) for name, part in parts.items()}
    measures = tuple((m.name, _measure(m.expression, registers)) for m in rule.measures)
    reports_events = rule.report.all_rows or any(is_list(expression) for _, expression in measures)
    node_register = registers.last_event() if reports_events else -1
    skip_register = -1
    if rule.skip.variable is not None:
        first = rule.skip.kind is ir.SkipKind.TO_FIRST
        skip_register = registers.position(rule.skip.variable, first=first)
    if len(registers.registers) > MAX_REGISTERS:
        raise too_many_registers(rule, len(registers.registers))

    undecided = [name for name, mask in masks.items() if mask == 0]
    return RuleProgram(
        name=rule.name,
        title=rule.title,
        severity=rule.severity,
        tags=rule.tags,
        word=word,
        event_mask=_or(masks.values()),
        needs_every_event=bool(reasons_for_every_event(rule, automaton, undecided)),
        tables=_tables(automaton, masks, codes, registers, looks),
        registers=tuple(registers.registers),
        measures=measures,
        is_timed=is_timed(rule, automaton),
        span_us=rule.window.span_us if isinstance(rule.window, ir.Window) else -1,
        span_events=rule.window.count - 1 if isinstance(rule.window, ir.EventWindow) else -1,
        close_us=rule.window.length_us if isinstance(rule.window, ir.Window) else -1,
        has_closing=rule.window is not None and any(state.closes for state in automaton.states),
        selection=_SELECTIONS[rule.selection],
        skip=_SKIPS[rule.skip.kind],
        skip_register=skip_register,
        max_runs=rule.report.max_runs,
        overflow=_OVERFLOWS[rule.report.overflow],
        timeouts=rule.report.timeouts,
        variables=tuple(masks),
        subsets=tuple((subset.name, subset.members) for subset in rule.subsets),
        node_register=node_register,
        all_rows=rule.report.all_rows,
        suppress_us=rule.report.suppress_us,
    )


def _measure(expression: Expression, registers: _Registers) -> Expression:
    """Return a measure over registers, or a list of what one column had in the events of a variable."""
    if isinstance(expression, Aggregate) and expression.kind == "ARRAY_AGG":
        assert expression.argument is not None
        return dataclasses.replace(expression, argument=registers.shared.listed_column(expression.argument))
    return replace_aggregates(expression, registers)


@dataclass(frozen=True, slots=True)
class _PredicateCode:
    """Bytecode of a correlated predicate (empty: none) and which registers it reads."""

    code: tuple[tuple[Code, int], ...] = ()
    after_take: bool = False  # as they are once the event is taken; else as they are before


def _predicate_code(
    variable: str, correlated: Expression | None, registers: _Registers, shared: _Shared
) -> _PredicateCode:
    if correlated is None:
        return _PredicateCode()
    pushed = remember_strings(correlated)
    before = before_take(pushed, variable, registers.members) if shared.optimize else None
    assembler = _Assembler(shared)
    assembler.write(replace_aggregates(pushed if before is None else before, registers))
    return _PredicateCode(tuple(assembler.code), after_take=before is None)


def _or(masks: Iterable[int]) -> int:
    result = 0
    for mask in masks:
        result |= mask
    return result


def is_timed(rule: ir.Rule, automaton: nfa.Nfa) -> bool:
    """Say whether runs need clocks besides the time of their first event, or to be looked at as they end."""
    return (
        rule.report.timeouts
        or isinstance(rule.window, ir.EventWindow)
        or bool(automaton.groups)
        or any(state.gap is not None or state.timer is not None for state in automaton.states)
        or any(edge.looks for edge in automaton.states[0].takes)
    )


_FOR_EVER_US = np.iinfo(np.int64).max // 4
_ALL_EVENTS = np.iinfo(np.int64).max // 4


@dataclass(frozen=True, slots=True)
class _Looks:
    """What keys remember for absences before the first event, and how far back each reaches."""

    memories: dict[str, int]  # variable -> place
    reach: Mapping[nfa.Look, tuple[int, int]]  # microseconds, events


def _looks(automaton: nfa.Nfa, window: ir.Window | ir.EventWindow | None) -> _Looks:
    looks = dict.fromkeys(look for edge in automaton.states[0].takes for look in edge.looks)
    reach = {}
    for look in looks:
        within = look.period or window
        span_us = within.span_us if isinstance(within, ir.Window) else _FOR_EVER_US
        n_events = within.count - 1 if isinstance(within, ir.EventWindow) else _ALL_EVENTS
        reach[look] = (span_us, min(n_events, 1) if look.adjacent else n_events)
    names = dict.fromkeys(look.variable for look in looks)
    return _Looks({name: place for place, name in enumerate(names)}, reach)


def _tables(
    automaton: nfa.Nfa,
    masks: Mapping[str, int],
    codes: Mapping[str, _PredicateCode],
    registers: _Registers,
    looks: _Looks,
) -> RuleTables:
    numbers = {name: number for number, name in enumerate(masks)}
    states = automaton.states
    edges = [edge for state in states for edge in state.takes]
    reaches = [looks.reach[look] for edge in edges for look in edge.looks]
    windows = [group.window for group in automaton.groups]
    after = {edge.after: None for edge in edges}
    after |= {state.timer.after: None for state in states if state.timer is not None}
    after_rows = {row: number for number, row in enumerate(after)}

    def watched(state: nfa.State) -> list[str]:
        names = [*(edge.variable for edge in state.takes), *state.begins, *state.bars, *state.guards]
        names += [name for edge in state.takes for name, _ in _fences(edge.fences)]
        return [*names, *(name for name, _ in state.lifts), *(name for name, _ in _fences(state.fences))]

    def always(state: nfa.State) -> bool:
        return (
            state.contiguity is ir.Contiguity.STRICT
            or bool(state.guards)
            or any(masks[name] == 0 for name in watched(state))
        )

    fences = [_fences(state.fences) for state in states]
    fences += [_fences(edge.fences) for state in states for edge in state.takes]
    fence_ptr = _pointers([len(row) for row in fences])
    updates = [sorted(registers.updates.get(name, []), key=lambda step: step.phase) for name in masks]
    steps = [step for row in updates for step in row]
    code_rows = [codes[name].code for name in masks]
    code = [instruction for row in code_rows for instruction in row]
    return RuleTables(
        state_mode=np.array([_MODES[state.contiguity] for state in states], np.uint8),
        state_interest=np.array([_or(masks[name] for name in watched(state)) for state in states], np.uint64),
        state_always=np.array([always(state) for state in states], np.uint8),
        state_next=np.array([state.next for state in states], np.int32),
        state_closes=np.array([state.closes for state in states], np.uint8),
        state_after_skip=np.array([ACCEPT if state.accepts_after_skip else 0 for state in states], np.int32),
        take_ptr=_pointers([len(state.takes) for state in states]),
        take_variable=_i32(numbers[edge.variable] for state in states for edge in state.takes),
        take_after=_i32(after_rows[edge.after] for state in states for edge in state.takes),
        begin_ptr=_pointers([len(state.begins) for state in states]),
        begin_variable=_i32(numbers[name] for state in states for name in state.begins),
        bar_ptr=_pointers([len(state.bars) for state in states]),
        bar_variable=_i32(numbers[name] for state in states for name in state.bars),
        guard_ptr=_pointers([len(state.guards) for state in states]),
        guard_variable=_i32(numbers[name] for state in states for name in state.guards),
        lift_ptr=_pointers([len(state.lifts) for state in states]),
        lift_variable=_i32(numbers[name] for state in states for name, _ in state.lifts),
        lift_state=_i32(target for state in states for _, target in state.lifts),
        state_fence_ptr=fence_ptr[: len(states) + 1],
        take_fence_ptr=fence_ptr[len(states) :],
        fence_variable=_i32(numbers[claim] for row in fences for claim, _ in row),
        fence_until=_i32(-1 if until is None else numbers[until] for row in fences for _, until in row),
        after_ptr=_pointers([len(row) for row in after]),
        after_state=_i32(successor for row in after for successor in row),
        variable_mask=np.array(list(masks.values()), np.uint64),
        variable_hash=np.array([name_hash(name) for name in masks], np.uint64),
        variable_after_take=np.array([codes[name].after_take for name in masks], np.uint8),
        code_ptr=_pointers([len(row) for row in code_rows]),
        code_op=_i32(op for op, _ in code),
        code_arg=np.array([arg for _, arg in code], np.int64),
        update_ptr=_pointers([len(row) for row in updates]),
        update_op=_i32(step.op for step in steps),
        update_register=_i32(step.register for step in steps),
        update_column=_i32(step.column for step in steps),
        update_arg=_i32(step.arg for step in steps),
        update_arg2=_i32(step.arg2 for step in steps),
        state_low=_i64(0 if state.gap is None else state.gap.low_us for state in states),
        state_high=_i64(
            -1 if state.gap is None or state.gap.high_us is None else state.gap.high_us for state in states
        ),
        state_timer=_i64(-1 if state.timer is None else state.timer.period.span_us for state in states),
        state_timer_length=_i64(
            -1 if state.timer is None else state.timer.period.length_us for state in states
        ),
        state_timer_after=_i32(
            0 if state.timer is None else after_rows[state.timer.after] for state in states
        ),
        state_limit=_i64(
            -1 if state.gap is None or state.gap.limit_us is None else state.gap.limit_us for state in states
        ),
        limit_ptr=_pointers([len(state.limits) for state in states]),
        limit_group=_i32(group for state in states for group in state.limits),
        open_ptr=_pointers([len(edge.opens) for edge in edges]),
        open_group=_i32(group for edge in edges for group in edge.opens),
        look_ptr=_pointers([len(edge.looks) for edge in edges]),
        look_memory=_i32(looks.memories[look.variable] for edge in edges for look in edge.looks),
        look_us=_i64(span_us for span_us, _ in reaches),
        look_events=_i64(n_events for _, n_events in reaches),
        group_us=_i64(window.span_us if isinstance(window, ir.Window) else -1 for window in windows),
        group_events=_i64(
            window.count - 1 if isinstance(window, ir.EventWindow) else -1 for window in windows
        ),
        group_limit=_i64(window.length_us if isinstance(window, ir.Window) else -1 for window in windows),
        memory_variable=_i32(numbers[name] for name in looks.memories),
    )


def _fences(fences: tuple[nfa.Fence, ...]) -> list[tuple[str, str | None]]:
    """Return what `fences` claim, variable by variable, and what lifts each claim."""
    return [(claim, fence.until) for fence in fences for claim in fence.claims]


def _pointers(lengths: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))).astype(np.int32)


def _i64(values: Iterable[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(list(values), np.int64)


def _i32(values: Iterable[int]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(list(values), np.int32)
