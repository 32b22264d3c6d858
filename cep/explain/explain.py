"""A rule as text: what its predicates need, its automaton, what bounds it, what it remembers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import assert_never

from cep.compiler import ir
from cep.compiler.automaton import nfa
from cep.compiler.compile import CompiledRule
from cep.compiler.lowering.relevance import reasons_for_every_event
from cep.compiler.lowering.shared import conjuncts
from cep.expression import (
    ALL_EVENTS,
    Aggregate,
    Call,
    Column,
    Expression,
    Frame,
    Literal,
    RegisterRef,
    RoleTest,
    Type,
    Window,
    Windowed,
    is_local,
    is_windowed,
    walk,
)
from cep.program.program import RuleProgram
from cep.program.windows import COUNT_ALL
from cep.schema.stream import Role

_INFIX = frozenset(["=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "and", "or"])
_ARROWS = {ir.Contiguity.STRICT: " ", ir.Contiguity.NEXT: " -> ", ir.Contiguity.ANY: " ->> "}


def explain(compiled: CompiledRule) -> str:
    """Return a description of a rule and of what it compiled to, in lines."""
    return "\n".join(_lines(compiled)) + "\n"


def _lines(compiled: CompiledRule) -> Iterator[str]:
    rule, lowered = compiled.typed, compiled.lowered
    yield f"rule {rule.name}"
    yield from _streams(rule)
    yield f"  pattern    {show_node(rule.pattern)}"
    yield f"  window     {_window(rule.window)}"
    yield f"  matches    {rule.selection.value}, after a match {_skip(rule.skip)}"
    for line in _reported(rule.report):
        yield f"  reports    {line}"
    yield f"  runs       {_bound(compiled)}"
    first, *more = _filter(compiled)
    yield f"  events     {first}"
    yield from (f"             {line}" for line in more)
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
        yield f"  #{number:<3} {register.type.value:<10} {register.label}"
    if lowered.is_timed:
        yield f"  {_clocks(lowered)}"
    elif not lowered.registers:
        yield "  nothing but where it stands"
    if len(lowered.tables.last_variable):
        yield "a key remembers"
        yield f"  {', '.join(_remembered(rule, lowered))}"
    yield "measures"
    for name, expression in lowered.measures:
        yield f"  {name} = {show_expression(expression)}"


def _streams(rule: ir.Rule) -> Iterator[str]:
    """Yield which streams the rule reads and by which of their columns events belong together."""
    if not rule.roles:
        yield f"  stream     {rule.streams[0]}, partitioned by {', '.join(rule.key)}"
        return
    word = "stream     " if len(rule.streams) == 1 else "streams    "
    yield f"  {word}{', '.join(rule.streams)}, partitioned by {', '.join(rule.key)}"
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


def _bound(compiled: CompiledRule) -> str:
    rule = compiled.typed
    limit = f"at most {compiled.lowered.max_runs:,} per key, beyond that {_OVERFLOWS[rule.report.overflow]}"
    if isinstance(rule.window, ir.EventWindow):
        return f"end with the window, which a key that falls silent leaves open; {limit}"
    if rule.window is not None:
        return f"end with the window; {limit}"
    states = list(enumerate(compiled.automaton.states))[1:]
    endless = [number for number, state in states if _has_no_limit(state)]
    if not endless:
        return f"each state has a limit of its own; {limit}"
    if len(endless) == len(states):
        return f"nothing ends a run (no WITHIN); {limit}"
    return f"nothing ends a run in state {_ranges(endless)} (no WITHIN); {limit}"


def _ranges(numbers: Sequence[int]) -> str:
    """Return rising numbers as text; those in a row are a range."""
    parts = []
    for _, row in groupby(enumerate(numbers), lambda item: item[1] - item[0]):
        found = [number for _, number in row]
        parts.append(str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}")
    if len(parts) > _MAX_RANGES:
        parts[_MAX_RANGES // 2 : -1] = ["..."]
    return ", ".join(parts)


_MAX_RANGES = 8


def _clocks(lowered: RuleProgram) -> str:
    """Return which times (or numbers of events) a run carries for its limits."""
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


def _counted_by_windows(compiled: CompiledRule) -> Iterator[str]:
    """Yield the windows for which no event may be dropped."""
    for windowed in _windows_of(compiled.typed):
        if not windowed.stream and (windowed.condition is None or windowed.window.frame in COUNT_ALL):
            yield f"{show_expression(windowed)} looks at all"
    for variable in compiled.typed.variables:
        parts = [] if variable.predicate is None else list(conjuncts(variable.predicate))
        if parts and all(is_windowed(part) for part in parts) and any(map(is_local, parts)):
            yield f"no condition of {variable.name} is on the event alone"


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
    is_set = windowed.function in ("DISTINCT", "SEEN")
    events = "each value's last event" if is_set else "events"
    if frame in (Frame.ALL, Frame.TUMBLING, Frame.SESSION) and windowed.function != "PERCENTILE":
        kept = "each value" if is_set else "a few numbers"
        ends = {Frame.TUMBLING: " of the open window", Frame.SESSION: " of the open session"}
        return f"{kept}{ends.get(frame, ', for ever')}"
    match frame:
        case Frame.EVENTS:
            return f"{events} of the last {length:,}, 16 bytes each, for ever"
        case Frame.TIME:
            return f"{events} of {show_duration(length)}, 16 bytes each"
        case Frame.TUMBLING:
            return "events of the open window, 16 bytes each"
        case Frame.SESSION:
            return "events of the open session, 16 bytes each"
        case Frame.ALL:
            raise ValueError("percentiles have no OVER ALL")
        case _:
            assert_never(frame)


def _predicate(variable: ir.Variable, rule: ir.Rule) -> Iterator[str]:
    """Yield for each part of a condition that the event alone decides it (local), or what else it reads."""
    lines = []
    if variable.role >= 0:
        role = rule.roles[variable.role]
        lines.append(f"local       an event of {role.stream}, by {_role(role)}")
    elif variable.predicate is None:
        lines.append("any event")
    parts = [] if variable.predicate is None else list(conjuncts(variable.predicate))
    lines += [
        f"{'windowed' if is_windowed(part) else 'local':<12}{show_expression(part)}"
        for part in parts
        if is_local(part)
    ]
    for part in parts:
        if not is_local(part):
            lines.append(f"correlated  {show_expression(part)}")
            lines.append(f"            reads {_needs(part, variable, rule)}")
    heads = [f"{variable.name}: ", *[" " * len(f"{variable.name}: ")] * (len(lines) - 1)]
    yield from (f"  {head}{line}" for head, line in zip(heads, lines, strict=True))


def _needs(part: Expression, variable: ir.Variable, rule: ir.Rule) -> str:
    """Return what of a run a correlated part reads."""
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
    """Return of how many states a row of equal ones from `first` on consists, and the last of the row."""
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
    """Return which numbers of `later` are `period` more than in `state`; None: they differ otherwise."""
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
    """Yield what a state does, its own number left out."""
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
            f"       after {_bound_of(state.timed_absence.period)} -> ",
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
            parts.append(f"{look_behind.variable} in the {_bound_of(look_behind.period)} before")
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
        notes.append(f"{_gap(state.gap)} after the event before")
    notes += [f"ends with the group {show_node(groups[group])}" for group in state.limits]
    return "; ".join(notes)


def _excluded(exclusions: Iterable[nfa.Exclusion]) -> str:
    return ", ".join(
        name if exclusion.until is None else f"{name} without {exclusion.until}"
        for exclusion in exclusions
        for name in exclusion.variables
    )


def show_node(node: ir.Node) -> str:
    """Return a pattern as text, with every group in parentheses."""
    match node:
        case ir.Take(variable=variable):
            return variable
        case ir.Absent(variable=variable):
            return f"!{variable}"
        case ir.TimedAbsence(variables=(variable,), period=period):
            return f"!{variable} FOR {_bound_of(period)}"
        case ir.TimedAbsence(variables=variables, period=period):
            return f"!({' | '.join(variables)}) FOR {_bound_of(period)}"
        case ir.Sequence(items=items):
            parts = [_group(item.node, ir.Sequence, ir.Alternation, ir.Permutation) for item in items]
            joints = ["", *(_joint(item) for item in items[1:])]
            return "".join(joint + part for joint, part in zip(joints, parts, strict=True))
        case ir.Alternation(branches=branches):
            return " | ".join(_group(branch, ir.Alternation) for branch in branches)
        case ir.Permutation(parts=members, contiguity=ir.Contiguity.STRICT):
            return f"PERMUTE({', '.join(show_node(member) for member in members)})"
        case ir.Permutation(parts=members):
            return " & ".join(_group(member, ir.Alternation, ir.Permutation) for member in members)
        case ir.Repeat(body=body, contiguity=contiguity, greed=greed):
            bounds = f"{{{node.min},{'' if node.max is None else node.max}}}"
            sign = {ir.Greed.GREEDY: "", ir.Greed.RELUCTANT: "?", ir.Greed.POSSESSIVE: "+"}[greed]
            until = "" if node.until is None else f" UNTIL {node.until}"
            inner = _group(body, ir.Sequence, ir.Alternation, ir.Permutation, ir.Repeat)
            return f"{inner}{_ARROWS[contiguity].strip()}{_gap(node.gap)}{bounds}{sign}{until}"
        case ir.Group(body=body, window=window):
            return f"({show_node(body)} WITHIN {_bound_of(window)})"
        case _:
            assert_never(node)


def _joint(item: ir.Item) -> str:
    arrow = _ARROWS[item.contiguity]
    return arrow if item.gap is None else f" {arrow.strip()}{_gap(item.gap)} "


def _gap(gap: ir.Gap | None) -> str:
    match gap:
        case None:
            return ""
        case ir.Gap(low_us=0, limit_us=limit_us, inclusive=inclusive) if limit_us is not None:
            return f"[{'<=' if inclusive else '<'} {show_duration(limit_us)}]"
        case ir.Gap(low_us=low_us, high_us=None):
            is_open = (low_us - 1) % 1000 == 0
            return f"[> {show_duration(low_us - 1)}]" if is_open else f"[>= {show_duration(low_us)}]"
        case ir.Gap(low_us=low_us, high_us=high_us):
            assert high_us is not None
            return f"[{show_duration(low_us)}, {show_duration(high_us)}]"


def _bound_of(window: ir.Window | ir.EventWindow) -> str:
    if isinstance(window, ir.EventWindow):
        return f"{window.count} EVENTS"
    return f"{'' if window.inclusive else '< '}{show_duration(window.length_us)}"


def _group(node: ir.Node, *kinds: type) -> str:
    text = show_node(node)
    return f"({text})" if isinstance(node, kinds) else text


def show_expression(expression: Expression) -> str:  # noqa: C901, PLR0912 - a case for each kind of node
    """Return an expression as text in the rule language's words."""
    match expression:
        case Literal(value=value, type=kind):
            return _literal(value, kind)
        case Column(name=name):
            return name
        case RegisterRef(number=number):
            return f"#{number}"
        case RoleTest(number=number):
            return f"role {number}"
        case Aggregate(kind="LAST", variable=variable, argument=Column(name=name), offset=0):
            return f"{variable}.{name}"
        case Aggregate(variable=variable, argument=None) if variable == ALL_EVENTS:
            return "COUNT(*)"
        case Aggregate(variable=variable, argument=None):
            return f"COUNT({variable}.*)"
        case Aggregate(kind=kind, variable=variable, argument=argument, offset=offset):
            assert argument is not None
            inner = f"{variable}.{show_expression(argument)}"
            return f"{kind}({inner}, {offset})" if offset else f"{kind}({inner})"
        case Windowed():
            return _windowed(expression)
        case Call(function=function, args=args) if function in _INFIX:
            word = function.upper()
            return f" {word} ".join(
                f"({show_expression(arg)})" if _is_infix(arg) else show_expression(arg) for arg in args
            )
        case Call() if (shown := _shown(expression)) is not expression:
            return show_expression(shown)
        case Call(function=function, args=args):
            return f"{function.upper()}({', '.join(show_expression(arg) for arg in args)})"
        case _:
            assert_never(expression)


def _windowed(windowed: Windowed) -> str:
    argument = "*" if windowed.argument is None else show_expression(windowed.argument)
    name = windowed.function
    match name:
        case "DISTINCT":
            text = f"COUNT(DISTINCT {argument})"
        case "LAG":
            text = f"LAG({argument}, {windowed.parameter:g})"
        case "PERCENTILE":
            text = f"PERCENTILE({argument}, {windowed.parameter:g})"
        case _:
            text = f"{name}({argument})"
    if windowed.condition is not None:
        text += f" FILTER (WHERE {show_expression(windowed.condition)})"
    return f"{text} OVER {show_over(windowed.window)}"


def show_over(window: Window) -> str:
    """Return a window in the rule language's words."""
    match window.frame:
        case Frame.ALL:
            return "ALL"
        case Frame.SESSION:
            return f"SESSION {show_duration(window.length)}"
        case Frame.TUMBLING:
            offset = f" OFFSET {show_duration(window.offset_us)}" if window.offset_us else ""
            zone = f" ZONE '{window.zone}'" if window.zone else ""
            return f"TUMBLING {show_duration(window.length)}{offset}{zone}"
        case Frame.EVENTS:
            length = f"{window.length} EVENTS" if window.length > 1 else "1 EVENT"
        case Frame.TIME:
            length = show_duration(window.length)
        case _:
            assert_never(window.frame)
    return f"{'PREVIOUS' if window.previous else 'LAST'} {length}"


def _shown(expression: Expression) -> Expression:
    """Return what is shown of `expression`: conversions that the compiler put in are left out."""
    inner: Expression | None = None
    if isinstance(expression, Call) and expression.function == "double":
        inner = expression.args[0]
    elif isinstance(expression, Call) and (expression.function, expression.type) == ("floor", Type.INTERVAL):
        rounded = expression.args[0]
        inner = rounded.args[0] if isinstance(rounded, Call) else None
    return expression if inner is None else _shown(inner)


def _is_infix(expression: Expression) -> bool:
    shown = _shown(expression)
    return isinstance(shown, Call) and shown.function in _INFIX


def _literal(value: bool | int | float | str | None, kind: Type) -> str:
    match value:
        case None:
            return "NULL"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case bool():
            return str(value).upper()
        case int() if kind is Type.INTERVAL:
            return show_duration(value)
        case _:
            return str(value)


_UNITS = [("DAYS", 86_400_000_000), ("HOURS", 3_600_000_000), ("MINUTES", 60_000_000), ("SECONDS", 1_000_000)]


def show_duration(length_us: int) -> str:
    """Return a duration in its largest whole unit."""
    for unit, size in _UNITS:
        if length_us and length_us % size == 0:
            count = length_us // size
            return f"{count} {unit}" if count > 1 else f"{count} {unit.removesuffix('S')}"
    return f"{length_us / 1000:g} MILLISECONDS" if length_us % 1000 == 0 else f"{length_us} MICROSECONDS"
