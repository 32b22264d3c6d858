"""A rule as text: what its predicates need, its automaton, its limits, and what it remembers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import assert_never

from cep.compiler import ir
from cep.compiler.automaton import nfa
from cep.compiler.compile import CompiledRule
from cep.compiler.lowering.relevance import reasons_for_every_event
from cep.compiler.lowering.shared import conjuncts
from cep.explain.feeds import feeds
from cep.explain.shown import show_bound, show_duration, show_expression, show_gap, show_node
from cep.explain.tables import joined_tables, view_lines
from cep.explain.window_rules import window_rule_lines
from cep.expression import Aggregate, Expression, Frame, Windowed, is_joined, is_local, is_windowed, walk
from cep.language.printer import print_expression
from cep.program.program import RuleProgram
from cep.program.window_functions import Function, Kept, KeptState, Parameter
from cep.program.windows import COUNT_ALL
from cep.schema.stream import Role


def explain(compiled: CompiledRule) -> str:
    """Return a description of a rule and of what it compiled to, in lines."""
    return "\n".join(_lines(compiled)) + "\n"


def _lines(compiled: CompiledRule) -> Iterator[str]:
    rule, lowered = compiled.typed, compiled.lowered
    yield f"rule {rule.name}"
    parameters = compiled.tree.parameters
    if parameters:
        shown = (f"{one.name.text} = {print_expression(one.value)}" for one in parameters)
        yield f"  parameters {', '.join(shown)}"
    if rule.viewing is not None:
        yield from view_lines(rule)
        return
    yield from _streams(rule)
    yield from feeds(compiled)
    if rule.windowing is not None:
        yield from window_rule_lines(compiled, _kept)
        yield from joined_tables(rule)
        return
    yield f"  pattern    {show_node(rule.pattern)}"
    yield f"  window     {_window(rule.window)}"
    yield f"  matches    {rule.selection.value}, after a match {_skip(rule.skip)}"
    for line in _reported(rule.report):
        yield f"  reports    {line}"
    yield f"  runs       {_bound(compiled)}"
    first, *more = _filter(compiled)
    yield f"  events     {first}"
    yield from (f"             {line}" for line in more)
    yield from joined_tables(rule)
    yield from _windows(rule)
    yield "predicates"
    for variable in rule.variables:
        yield from _predicate(variable, rule)
    for subset in rule.subsets:
        yield f"  {subset.name}: every event taken as {', '.join(subset.members)}"
    yield "automaton"
    yield from _automaton(compiled.automaton)
    yield "a run remembers"
    for number, register in enumerate(lowered.registers):
        of_set = "" if register.values is None else ": each once, in 24 bytes; a test reads them one by one"
        yield f"  #{number:<3} {register.type.value:<10} {register.label}{of_set}"
    if lowered.is_timed:
        yield f"  {_clocks(lowered)}"
    elif not lowered.registers:
        yield "  nothing but its state"
    if len(lowered.tables.last_variable):
        yield "a key remembers"
        yield f"  {', '.join(_remembered(rule, lowered))}"
    yield "measures"
    for name, expression in lowered.measures:
        yield f"  {name} = {show_expression(expression)}"


def _streams(rule: ir.Rule) -> Iterator[str]:
    """Yield the streams that the rule reads, and the columns that partition their events."""
    read = {stream.name for stream in rule.matches}
    names = ", ".join(f"matches of {name}" if name in read else name for name in rule.streams)
    if not rule.roles:
        yield f"  stream     {names}, partitioned by {', '.join(rule.key)}"
        return
    word = "stream     " if len(rule.streams) == 1 else "streams    "
    yield f"  {word}{names}, partitioned by {', '.join(rule.key)}"
    for role in rule.roles:
        yield f"  {'':<11}{', '.join(rule.key)} = {_role(role)}"


def _role(role: Role) -> str:
    return ", ".join(f"{role.stream}.{column}" for column in role.key)


def _window(window: ir.Window | ir.EventWindow | None) -> str:
    if window is None:
        return "none"
    if isinstance(window, ir.EventWindow):
        return f"{window.count} events of the key from first to last event, taken or not"
    bound = "up to and including" if window.inclusive else "less than"
    return f"{bound} {show_duration(window.length_us)} from first to last event"


def _skip(skip: ir.Skip) -> str:
    return f"skip {skip.kind.value} {skip.variable}" if skip.variable else skip.kind.value


_OVERFLOWS = {
    ir.Overflow.DROP_OLDEST: "the oldest is dropped and counted",
    ir.Overflow.DROP_NEWEST: "the newest is dropped and counted",
    ir.Overflow.FAIL: "matching ends with an error",
}


def _reported(report: ir.Report) -> Iterator[str]:
    if report.timeouts:
        yield "also what a run took that a limit ended"
    if report.suppress_us:
        yield f"no other match of a key for {show_duration(report.suppress_us)} after one; they are counted"
    if report.n_per_day:
        yield f"at most {report.n_per_day:,} matches of a key that end in one day (UTC); others are counted"


def _bound(compiled: CompiledRule) -> str:
    rule = compiled.typed
    limit = f"at most {compiled.lowered.max_runs:,} per key, beyond that {_OVERFLOWS[rule.report.overflow]}"
    if isinstance(rule.window, ir.EventWindow):
        return f"end with the window, which a key that falls silent leaves open; {limit}"
    if rule.window is not None:
        return f"end with the window; {limit}"
    states = list(enumerate(compiled.automaton.states))[1:]
    if not states:
        return "none stays open: a match is complete with its first event"
    endless = [number for number, state in states if _has_no_limit(state)]
    if not endless:
        return f"each state has a limit of its own; {limit}"
    if len(endless) == len(states):
        return f"nothing ends a run (no WITHIN); {limit}"
    return f"nothing ends a run in state {_ranges(endless)} (no WITHIN); {limit}"


def _ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as text; consecutive numbers become a range."""
    parts = []
    for _, row in groupby(enumerate(numbers), lambda item: item[1] - item[0]):
        found = [number for _, number in row]
        parts.append(str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}")
    if len(parts) > _MAX_RANGES:
        parts[_MAX_RANGES // 2 : -1] = ["..."]
    return ", ".join(parts)


_MAX_RANGES = 8


def _clocks(lowered: RuleProgram) -> str:
    """Return which times (or numbers of events) a run stores for its limits."""
    n_groups = len(lowered.tables.group_us)
    entered = f", when it entered {n_groups} group{'s' if n_groups > 1 else ''}" if n_groups else ""
    return f"clocks: when it took its last event{entered}, until when it waits"


def _remembered(rule: ir.Rule, lowered: RuleProgram) -> Iterator[str]:
    """Yield which events a key remembers for absences at the start."""
    for variable in lowered.tables.last_variable:
        yield f"when {rule.variables[variable].name} came last"


def _has_no_limit(state: nfa.State) -> bool:
    """Return whether a run can wait here for any number of events."""
    one_event = state.contiguity is ir.Contiguity.STRICT or state.accepts_after_ignore
    has_gap = state.gap is not None and state.gap.high_us is not None
    return not (one_event or has_gap or state.timed_absence is not None or state.limits)


def _filter(compiled: CompiledRule) -> Iterator[str]:
    """Yield which events take part in the shuffle, and why others cannot be dropped before it."""
    rule, program = compiled.typed, compiled.program
    undecided = [
        variable.name
        for variable, mask in zip(rule.variables, compiled.lowered.tables.variable_mask, strict=True)
        if not mask
    ]
    reasons = [*reasons_for_every_event(rule, compiled.automaton, undecided), *_counted_by_windows(compiled)]
    if reasons:
        yield "all are needed, none is dropped before events are brought together by key:"
        yield from (f"  {reason}" for reason in reasons)
    elif program.needs_every_event:
        others = [other.name for other in program.rules if other.needs_every_event]
        yield "only those for which some local predicate holds; all the same none is dropped before"
        yield f"  events are brought together by key: {', '.join(others)} on this key needs all"
    else:
        yield "only those for which some local predicate holds; all others are dropped at the source"
    if not reasons and any(windowed.condition is not None for windowed in _windows_of(rule)):
        yield "  the FILTER of a window is a predicate here, too"


def _counted_by_windows(compiled: CompiledRule) -> Iterator[str]:
    """Yield the windows for which no event may be dropped."""
    for windowed in _windows_of(compiled.typed):
        parts = [] if windowed.condition is None else list(conjuncts(windowed.condition))
        is_of_all = windowed.window.frame in COUNT_ALL or not any(_kind(part) == "local" for part in parts)
        if not windowed.stream and is_of_all:
            yield f"{show_expression(windowed)} looks at all"
    for variable in compiled.typed.variables:
        parts = [] if variable.predicate is None else list(conjuncts(variable.predicate))
        if parts and any(map(is_local, parts)) and not any(_kind(part) == "local" for part in parts):
            yield f"no condition of {variable.name} is on the event alone"


def _kind(part: Expression) -> str:
    """Return what a part of a condition reads apart from the event; also for a correlated part."""
    return "windowed" if is_windowed(part) else "joined" if is_joined(part) else "local"


def _windows_of(rule: ir.Rule) -> list[Windowed]:
    expressions = [variable.predicate for variable in rule.variables if variable.predicate is not None]
    expressions += [measure.expression for measure in rule.measures]
    found = (node for expression in expressions for node in walk(expression) if isinstance(node, Windowed))
    return list(dict.fromkeys(found))


def _windows(rule: ir.Rule) -> Iterator[str]:
    """Yield the windows of the rule, and what a key keeps for each."""
    windows = _windows_of(rule)
    if windows:
        yield "windows, computed once events are in order"
        yield from (f"  {show_expression(windowed)}: a key keeps {_kept(windowed)}" for windowed in windows)


def _kept(windowed: Windowed) -> str:
    frame, length = windowed.window.frame, windowed.window.length
    function = Function[windowed.function]
    kept = function.kept
    n_back = windowed.parameter if function.value.parameter is Parameter.EVENTS else 1
    if windowed.window.step_us:
        if kept is Kept.LAST.value and n_back == 1:
            return "the last value, 16 bytes"
        panes = f"{length // windowed.window.step_us + 1:,} panes of {show_duration(windowed.window.step_us)}"
        return kept.in_steps.format(panes=panes, function=function.name, n=f"{n_back:,.0f}")
    if frame is Frame.ALL and n_back > 1:
        return f"the values of {n_back:,.0f} events, for ever"
    match frame:
        case Frame.EVENTS:
            return f"{kept.of_events} of the last {length:,}, 16 bytes each, for ever"
        case Frame.TIME | Frame.HOPPING:
            return f"{kept.of_events} of {show_duration(length)}, 16 bytes each"
        case Frame.TUMBLING:
            return _kept_of_whole(kept, " of the open window")
        case Frame.SESSION:
            return _kept_of_whole(kept, " of the open session")
        case Frame.ALL:
            return _kept_of_whole(kept, ", for ever")
        case _:
            assert_never(frame)


def _kept_of_whole(kept: KeptState, of: str) -> str:
    return f"{kept.of_whole}{of}" if kept.of_whole else f"{kept.of_events}{of}, 16 bytes each"


def _predicate(variable: ir.Variable, rule: ir.Rule) -> Iterator[str]:
    """Yield for each part of a condition whether only the event decides it (local), or what else it reads."""
    lines = []
    if variable.role >= 0:
        role = rule.roles[variable.role]
        lines.append(f"local       an event of {role.stream}, by {_role(role)}")
    elif variable.predicate is None:
        lines.append("any event")
    parts = [] if variable.predicate is None else list(conjuncts(variable.predicate))
    lines += [f"{_kind(part):<12}{show_expression(part)}" for part in parts if is_local(part)]
    for part in parts:
        if not is_local(part):
            lines.append(f"correlated  {show_expression(part)}")
            lines.append(f"            reads {_needs(part, variable, rule)}")
    heads = [f"{variable.name}: ", *[" " * len(f"{variable.name}: ")] * (len(lines) - 1)]
    yield from (f"  {head}{line}" for head, line in zip(heads, lines, strict=True))


def _needs(part: Expression, variable: ir.Variable, rule: ir.Rule) -> str:
    """Return what a correlated part reads of a run."""
    reads = {node.variable: None for node in walk(part) if isinstance(node, Aggregate)}
    names = [name or "all variables" for name in reads]
    others = [name for name in reads if variable.name not in rule.members(name)]
    if others:
        return f"what the run holds of {', '.join(names)}"
    return f"what the run holds of {', '.join(names)}, this event included"


def _automaton(automaton: nfa.Nfa) -> Iterator[str]:
    """Describe each state; many that only count the repetitions of a loop are one line."""
    states = [tuple(_state(number, state, automaton)) for number, state in enumerate(automaton.states)]
    number = 0
    while number < len(states):
        period, last = _repeated(states, number)
        for shown in range(number, number + period):
            first, *more = ("".join(map(str, line)) for line in states[shown])
            yield f"  {shown}: {first}"
            yield from more
        number += period
        if last >= number:
            again = "the same" if period == 1 else f"the same as {number - period} to {number - 1}, in turn"
            yield f"  {number} to {last}: {again}, each a step further"
            number = last + 1


_Line = tuple[str | int, ...]
"""A line of text, the numbers of states in it as numbers."""

_MAX_PERIOD = 6
_MIN_FOLDED = 4
"""Repeated states from which on they are one line."""


def _repeated(states: list[tuple[_Line, ...]], first: int) -> tuple[int, int]:
    """Return the number of equal consecutive states from `first` on, and the last of them."""
    for period in range(1, _MAX_PERIOD + 1):
        last = first + period - 1
        moved: dict[int, list[bool]] = {}
        while last + 1 < len(states):
            found = _moved(states[last + 1 - period], states[last + 1], period)
            if found is None or moved.setdefault((last + 1 - first) % period, found) != found:
                break
            last += 1
        last -= (last + 1 - first) % period
        if last - first + 1 >= (_MIN_FOLDED + 1) * period:
            return period, last
    return 1, first


def _moved(state: tuple[_Line, ...], later: tuple[_Line, ...], period: int) -> list[bool] | None:
    """Return which numbers of `later` are `period` more than in `state`; None: they differ in other ways."""
    if [len(line) for line in state] != [len(line) for line in later]:
        return None
    moved = []
    for piece, other in zip(chain(*state), chain(*later), strict=True):
        if isinstance(piece, int) and isinstance(other, int):
            moved.append(other == piece + period)
            if other not in (piece, piece + period):
                return None
        elif piece != other:
            return None
    return moved


def _state(number: int, state: nfa.State, automaton: nfa.Nfa) -> Iterator[_Line]:
    """Yield what a state does, without its own number."""
    yield ("start" if number == 0 else _wait(state, automaton.groups),)
    for name, target in state.releases:
        yield (f"       {name} holds -> ", *_targets((target,)), ", with the same event")
    for take in state.takes:
        exclusions = f", if not {_excluded(take.exclusions)}" if take.exclusions else ""
        yield (
            f"       take {take.variable}{exclusions} -> ",
            *_targets(take.after),
            _unless(take.look_behinds),
        )
    if state.timed_absence is not None:
        yield (
            f"       after {show_bound(state.timed_absence.period)} -> ",
            *_targets(state.timed_absence.after),
        )
    if number and state.contiguity is not ir.Contiguity.STRICT and state.next != number:
        yield ("       ignore -> ", *_targets((state.next,)))
    if state.accepts_after_ignore:
        yield ("       any other event -> match",)
    if state.closes:
        yield ("       window closes -> match",)


def _targets(after: tuple[int, ...]) -> _Line:
    """Return the numbers of states with commas between them."""
    named: list[str | int] = ["match" if state == nfa.ACCEPT else state for state in after]
    return tuple(piece for state in named for piece in (", ", state))[1:]


def _unless(look_behinds: tuple[nfa.LookBehind, ...]) -> str:
    if not look_behinds:
        return ""
    parts = []
    for look_behind in look_behinds:
        if look_behind.adjacent:
            parts.append(f"{look_behind.variable} right before")
        elif look_behind.period is not None:
            parts.append(f"{look_behind.variable} in the {show_bound(look_behind.period)} before")
        else:
            parts.append(f"{look_behind.variable} in the window before")
    return f", unless {', '.join(parts)}"


def _wait(state: nfa.State, groups: tuple[ir.Group, ...]) -> str:
    kinds = {
        ir.Contiguity.STRICT: "the very next event",
        ir.Contiguity.NEXT: "ignores events it cannot take",
        ir.Contiguity.ANY: "ignores any event",
    }
    notes = [kinds[state.contiguity]]
    if state.begins:
        notes.append(f"never ignores {', '.join(state.begins)}")
    if state.not_followed_by:
        notes.append(f"ends at {', '.join(state.not_followed_by)}")
    if state.not_next:
        notes.append(f"not if the next event is {', '.join(state.not_next)}")
    if state.exclusions:
        notes.append(f"over at {_excluded(state.exclusions)}")
    if state.gap is not None:
        notes.append(f"{show_gap(state.gap)} after the event before")
    notes += [f"ends with the group {show_node(groups[group])}" for group in state.limits]
    return "; ".join(notes)


def _excluded(exclusions: Iterable[nfa.Exclusion]) -> str:
    return ", ".join(
        name if exclusion.until is None else f"{name} without {exclusion.until}"
        for exclusion in exclusions
        for name in exclusion.variables
    )
