"""Nfa + typed rule -> Program: predicates split into local bits and bytecode, aggregates put into registers.

This decides what a run must remember: every aggregate of the rule becomes one or a few 64-bit registers,
which each take updates in constant time. Local parts of predicates become bits, computed for a whole batch
before matching; equal ones of different rules share a bit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from cep.compiler import ir
from cep.compiler.aggregates import before_take, is_list, replace_aggregates, sets_before_take
from cep.compiler.automaton import nfa
from cep.compiler.automaton.build import Built
from cep.compiler.limits import (
    MAX_REGISTERS,
    MAX_WINDOWS,
    too_many_predicates,
    too_many_registers,
    too_many_windows,
)
from cep.compiler.lowering.bytecode import Assembler
from cep.compiler.lowering.chains import exact_measures, in_reading_order, with_meaning
from cep.compiler.lowering.registers import Registers
from cep.compiler.lowering.relevance import reasons_for_every_event
from cep.compiler.lowering.remembered import remember_strings
from cep.compiler.lowering.shared import Shared, conjunction, conjuncts
from cep.compiler.lowering.window_rules import lower_window_rule
from cep.errors import Diagnostic
from cep.expression import Aggregate, Call, Expression, RoleTest, Type, Windowed, is_local, walk
from cep.program.opcodes import Code, Mode, OverflowCode, SelectionCode, SkipCode
from cep.program.program import MAX_BITS, Program, RuleProgram, key_columns_of, name_hash
from cep.program.records import ACCEPT, RuleTables
from cep.schema.stream import Role, Stream

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
    """Return `predicate` split at its top-level ANDs. A conjunction is TRUE exactly when both parts are."""
    if predicate is None:
        return PredicateParts(None, None)
    parts = list(conjuncts(predicate))
    return PredicateParts(
        conjunction([part for part in parts if is_local(part)]),
        conjunction([part for part in parts if not is_local(part)]),
    )


def _parts_in_role(variable: ir.Variable, optimize: bool) -> PredicateParts:
    """Return the parts of a variable's predicate; the local part tests its role, if it has one."""
    parts = split_predicate(variable.predicate) if optimize else PredicateParts(None, variable.predicate)
    if variable.role < 0:
        return parts
    has_role = RoleTest(variable.role)
    local = has_role if parts.local is None else Call("and", (has_role, parts.local), Type.BOOLEAN)
    return PredicateParts(local, parts.correlated)


_Kind = tuple[bool, bool, bool, frozenset[str]]
_Group = tuple[tuple[str, ...], tuple[str, ...], tuple[Role, ...], _Kind]
"""Streams, key and roles; whether they are window rules, join tables, are views, and what must stay exact."""


Watch = Callable[[ir.Rule, Registers], None]
"""Receives a rule and its registers before they are complete: it may request more of them."""


def lower(
    built: Iterable[Built],
    streams: Mapping[str, Stream],
    *,
    optimize: bool = True,
    watch: Watch | None = None,
) -> tuple[tuple[Program, ...], tuple[Diagnostic, ...]]:
    """Return one program for each distinct (streams, partition key, roles), rules in the order given.

    A program that reads the matches of rules comes after the programs of these. Window rules have separate
    programs: the ends of their windows are not events for other rules. So do rules that join tables: the
    events of all others need no columns of tables. A rule that others read is separate from those that widen
    one of its measures (`exact_measures`).

    A rule with more local predicates or registers than a run can hold is a problem and is in no program.

    Without `optimize` every predicate is bytecode that is run with the event taken, no event is dropped
    before matching, and the matches are the same. (A bit remains if a key remembers an event: then there is
    no run.)
    """
    groups: dict[_Group, list[Built]] = {}
    ordered = in_reading_order(built, lambda one: one.rule)
    exact = exact_measures(one.rule for one in ordered)
    for one in ordered:
        rule = one.rule
        roles = rule.roles or (Role(rule.streams[0], rule.key),)
        kind = (
            rule.windowing is not None,
            bool(rule.tables),
            rule.viewing is not None,
            exact.get(rule.name, frozenset()),
        )
        groups.setdefault((rule.streams, rule.key, roles, kind), []).append(one)
    programs: list[Program] = []
    problems: list[Diagnostic] = []
    for (names, key, roles, _), members in groups.items():
        known = {**streams, **with_meaning(members[0].rule.matches, programs)}
        viewing = members[0].rule.viewing
        known |= {} if viewing is None else {viewing.changes.name: viewing.changes}
        shared = Shared(tuple(known[name] for name in names), roles, optimize)
        compiled = []
        for rule, automaton in members:
            shared.joins.declare(rule.tables)
            match _lower_rule(rule, automaton, shared, watch):
                case Diagnostic() as problem:
                    problems.append(problem)
                case RuleProgram() as lowered:
                    compiled.append(lowered)
        programs.append(
            Program(
                streams=shared.streams,
                key=key,
                roles=roles,
                predicates=shared.early_predicates(),
                derived=tuple((name, expression) for expression, name in shared.derived.items()),
                columns=tuple(shared.columns),
                rules=tuple(compiled),
                listed=tuple(shared.listed),
                windows=tuple(shared.windows.values()),
                computed=tuple((name, expression) for expression, name in shared.computed.items()),
                refined=shared.refined(),
                context_columns=shared.context_columns(),
                joins=shared.joins.lowered(
                    key_columns_of(shared.streams, key, roles), shared.refined_by_joins()
                ),
            )
        )
    return tuple(programs), tuple(problems)


def _n_windows(rule: ir.Rule) -> int:
    """Return the number of different windowed values in conditions and measures."""
    expressions = [variable.predicate for variable in rule.variables if variable.predicate is not None]
    expressions += [measure.expression for measure in rule.measures]
    return len({part for whole in expressions for part in walk(whole) if isinstance(part, Windowed)})


def _lower_rule(
    rule: ir.Rule, automaton: nfa.Nfa, shared: Shared, watch: Watch | None = None
) -> RuleProgram | Diagnostic:
    if rule.windowing is not None:
        plain = _lower_rule(dataclasses.replace(rule, measures=(), windowing=None), automaton, shared)
        return plain if isinstance(plain, Diagnostic) else lower_window_rule(rule, plain, shared)
    look_behinds = _look_behinds(automaton, rule.window)
    parts = {
        variable.name: _parts_in_role(
            variable, shared.optimize or variable.name in look_behinds.last_variables
        )
        for variable in rule.variables
    }
    local = {part.local: None for part in parts.values() if part.local is not None}
    if len(local) > MAX_BITS:
        return too_many_predicates(rule, len(local))
    n_windows = _n_windows(rule)
    if n_windows > MAX_WINDOWS:
        return too_many_windows(rule, n_windows)
    # All predicates of a rule are in one word, so the kernel tests a state against an event with one AND.
    word = shared.word_for(local)
    bits = {predicate: 1 << bit for bit, predicate in enumerate(shared.words[word])}
    masks = {name: 0 if part.local is None else bits[part.local] for name, part in parts.items()}

    registers = Registers(shared, rule.members)
    codes = {name: _predicate_code(name, part.correlated, registers, shared) for name, part in parts.items()}
    measures = tuple((m.name, _measure(m.expression, registers)) for m in rule.measures)
    reports_events = rule.report.all_rows or any(
        isinstance(expression, Aggregate) for _, expression in measures
    )
    node_register = registers.last_event() if reports_events else -1
    skip_register = -1
    if rule.skip.variable is not None:
        first = rule.skip.kind is ir.SkipKind.TO_FIRST
        skip_register = registers.position(rule.skip.variable, first=first)
    if watch is not None:
        watch(rule, registers)
    if len(registers.registers) > MAX_REGISTERS:
        return too_many_registers(rule, len(registers.registers))

    undecided = [name for name, mask in masks.items() if mask == 0]
    return RuleProgram(
        name=rule.name,
        title=rule.title,
        severity=rule.severity,
        tags=rule.tags,
        is_shadow=rule.is_shadow,
        word=word,
        event_mask=_or(masks.values()),
        needs_every_event=bool(reasons_for_every_event(rule, automaton, undecided)),
        tables=_tables(automaton, masks, codes, registers, look_behinds),
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
        n_per_day=rule.report.n_per_day,
        is_view=rule.viewing is not None,
    )


def _measure(expression: Expression, registers: Registers) -> Expression:
    """Return a measure over registers, or a list of the values of a column in the events of a variable."""
    if isinstance(expression, Aggregate) and is_list(expression.kind):
        assert expression.argument is not None
        return dataclasses.replace(expression, argument=registers.shared.listed_column(expression.argument))
    return replace_aggregates(expression, registers)


@dataclass(frozen=True, slots=True)
class _PredicateCode:
    """Bytecode of a correlated predicate (empty: none) and which registers it reads."""

    code: tuple[tuple[Code, int], ...] = ()
    after_take: bool = False  # as they are after the event is taken; else before


def _predicate_code(
    variable: str, correlated: Expression | None, registers: Registers, shared: Shared
) -> _PredicateCode:
    if correlated is None:
        return _PredicateCode()
    # The form before the take is tried first: a test then needs no copy of the run, and most tests fail.
    pushed = sets_before_take(remember_strings(correlated), variable, registers.members)
    before = before_take(pushed, variable, registers.members) if shared.optimize else None
    assembler = Assembler(shared)
    assembler.write(replace_aggregates(pushed if before is None else before, registers))
    return _PredicateCode(tuple(assembler.code), after_take=before is None)


def _or(masks: Iterable[int]) -> int:
    result = 0
    for mask in masks:
        result |= mask
    return result


def is_timed(rule: ir.Rule, automaton: nfa.Nfa) -> bool:
    """Return whether runs need more clocks than the time of their first event, or report their end."""
    return (
        rule.report.timeouts
        or isinstance(rule.window, ir.EventWindow)
        or bool(automaton.groups)
        or any(state.gap is not None or state.timed_absence is not None for state in automaton.states)
        or any(edge.look_behinds for edge in automaton.states[0].takes)
    )


_FOR_EVER_US = np.iinfo(np.int64).max // 4
_ALL_EVENTS = np.iinfo(np.int64).max // 4


@dataclass(frozen=True, slots=True)
class _LookBehinds:
    """What keys remember for absences before the first event, and how far back each of them reaches."""

    last_variables: dict[str, int]  # variable -> place
    reach: Mapping[nfa.LookBehind, tuple[int, int]]  # microseconds, events


def _look_behinds(automaton: nfa.Nfa, window: ir.Window | ir.EventWindow | None) -> _LookBehinds:
    look_behinds = dict.fromkeys(
        look_behind for edge in automaton.states[0].takes for look_behind in edge.look_behinds
    )
    reach = {}
    for look_behind in look_behinds:
        within = look_behind.period or window
        span_us = within.span_us if isinstance(within, ir.Window) else _FOR_EVER_US
        n_events = within.count - 1 if isinstance(within, ir.EventWindow) else _ALL_EVENTS
        reach[look_behind] = (span_us, min(n_events, 1) if look_behind.adjacent else n_events)
    names = dict.fromkeys(look_behind.variable for look_behind in look_behinds)
    return _LookBehinds({name: place for place, name in enumerate(names)}, reach)


def _tables(
    automaton: nfa.Nfa,
    masks: Mapping[str, int],
    codes: Mapping[str, _PredicateCode],
    registers: Registers,
    look_behinds: _LookBehinds,
) -> RuleTables:
    numbers = {name: number for number, name in enumerate(masks)}
    states = automaton.states
    edges = [edge for state in states for edge in state.takes]
    reaches = [look_behinds.reach[look_behind] for edge in edges for look_behind in edge.look_behinds]
    windows = [group.window for group in automaton.groups]
    # Equal lists of successors are one row: many takes of a large automaton lead to the same states.
    after = {edge.after: None for edge in edges}
    after |= {state.timed_absence.after: None for state in states if state.timed_absence is not None}
    after_rows = {row: number for number, row in enumerate(after)}

    def watched(state: nfa.State) -> list[str]:
        names = [
            *(edge.variable for edge in state.takes),
            *state.begins,
            *state.not_followed_by,
            *state.not_next,
        ]
        names += [name for edge in state.takes for name, _ in _exclusions(edge.exclusions)]
        return [
            *names,
            *(name for name, _ in state.releases),
            *(name for name, _ in _exclusions(state.exclusions)),
        ]

    def always(state: nfa.State) -> bool:
        return (
            state.contiguity is ir.Contiguity.STRICT
            or bool(state.not_next)
            or any(masks[name] == 0 for name in watched(state))
        )

    # One list for the exclusions of states and of takes: the kernel checks both with the same loop.
    exclusions = [_exclusions(state.exclusions) for state in states]
    exclusions += [_exclusions(edge.exclusions) for state in states for edge in state.takes]
    exclusion_ptr = _pointers([len(row) for row in exclusions])
    updates = [sorted(registers.updates.get(name, []), key=lambda step: step.phase) for name in masks]
    steps = [step for row in updates for step in row]
    code_rows = [codes[name].code for name in masks]
    code = [instruction for row in code_rows for instruction in row]
    return RuleTables(
        state_mode=np.array([_MODES[state.contiguity] for state in states], np.uint8),
        state_trigger_mask=np.array(
            [_or(masks[name] for name in watched(state)) for state in states], np.uint64
        ),
        state_always=np.array([always(state) for state in states], np.uint8),
        state_next=np.array([state.next for state in states], np.int32),
        state_closes=np.array([state.closes for state in states], np.uint8),
        state_after_ignore=np.array(
            [ACCEPT if state.accepts_after_ignore else 0 for state in states], np.int32
        ),
        take_ptr=_pointers([len(state.takes) for state in states]),
        take_variable=_i32(numbers[edge.variable] for state in states for edge in state.takes),
        take_after=_i32(after_rows[edge.after] for state in states for edge in state.takes),
        begin_ptr=_pointers([len(state.begins) for state in states]),
        begin_variable=_i32(numbers[name] for state in states for name in state.begins),
        not_followed_by_ptr=_pointers([len(state.not_followed_by) for state in states]),
        not_followed_by_variable=_i32(numbers[name] for state in states for name in state.not_followed_by),
        not_next_ptr=_pointers([len(state.not_next) for state in states]),
        not_next_variable=_i32(numbers[name] for state in states for name in state.not_next),
        release_ptr=_pointers([len(state.releases) for state in states]),
        release_variable=_i32(numbers[name] for state in states for name, _ in state.releases),
        release_state=_i32(target for state in states for _, target in state.releases),
        state_exclusion_ptr=exclusion_ptr[: len(states) + 1],
        take_exclusion_ptr=exclusion_ptr[len(states) :],
        exclusion_variable=_i32(numbers[variable] for row in exclusions for variable, _ in row),
        exclusion_released_by=_i32(
            -1 if until is None else numbers[until] for row in exclusions for _, until in row
        ),
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
        state_absence=_i64(
            -1 if state.timed_absence is None else state.timed_absence.period.span_us for state in states
        ),
        state_absence_length=_i64(
            -1 if state.timed_absence is None else state.timed_absence.period.length_us for state in states
        ),
        state_absence_after=_i32(
            0 if state.timed_absence is None else after_rows[state.timed_absence.after] for state in states
        ),
        state_limit=_i64(
            -1 if state.gap is None or state.gap.limit_us is None else state.gap.limit_us for state in states
        ),
        limit_ptr=_pointers([len(state.limits) for state in states]),
        limit_group=_i32(group for state in states for group in state.limits),
        open_ptr=_pointers([len(edge.opens) for edge in edges]),
        open_group=_i32(group for edge in edges for group in edge.opens),
        look_behind_ptr=_pointers([len(edge.look_behinds) for edge in edges]),
        look_behind_last=_i32(
            look_behinds.last_variables[look_behind.variable]
            for edge in edges
            for look_behind in edge.look_behinds
        ),
        look_behind_us=_i64(span_us for span_us, _ in reaches),
        look_behind_events=_i64(n_events for _, n_events in reaches),
        group_us=_i64(window.span_us if isinstance(window, ir.Window) else -1 for window in windows),
        group_events=_i64(
            window.count - 1 if isinstance(window, ir.EventWindow) else -1 for window in windows
        ),
        group_limit=_i64(window.length_us if isinstance(window, ir.Window) else -1 for window in windows),
        last_variable=_i32(numbers[name] for name in look_behinds.last_variables),
    )


def _exclusions(exclusions: tuple[nfa.Exclusion, ...]) -> list[tuple[str, str | None]]:
    """Return each variable of `exclusions`, with the variable that releases it."""
    return [(variable, exclusion.until) for exclusion in exclusions for variable in exclusion.variables]


def _pointers(lengths: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))).astype(np.int32)


def _i64(values: Iterable[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(list(values), np.int64)


def _i32(values: Iterable[int]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(list(values), np.int32)
