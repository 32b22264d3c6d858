"""One rule, lowered so that its runs can be watched: the parts of its conditions and the values they read.

The engine decides with bits and bytecode whether a condition holds. To say which part of it did not, each
part is also an expression over the columns of one event and the registers of one run, which
`cep.engine.prepare.predicates.evaluate` computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from cep.compiler import ir
from cep.compiler.aggregates import before_take, replace_aggregates, sets_before_take
from cep.compiler.automaton.build import Built
from cep.compiler.automaton.nfa import Nfa
from cep.compiler.limits import MAX_REGISTERS
from cep.compiler.lowering.lower import lower
from cep.compiler.lowering.registers import Registers
from cep.compiler.lowering.shared import conjuncts
from cep.errors import RuleError
from cep.expression import (
    Aggregate,
    Call,
    Column,
    Expression,
    Joined,
    Literal,
    RegisterRef,
    RoleTest,
    Windowed,
)
from cep.program.program import Program
from cep.schema.stream import Stream

COMPARISONS = frozenset(("=", "<>", "<", "<=", ">", ">="))


@dataclass(frozen=True, slots=True)
class Lowered:
    """An expression as it was written, and over columns and registers.

    `written`: with aggregates, windowed values and columns of tables. `expression`: with registers and
    columns in their place. `after_take`: whether it reads the registers as they are after the event is taken;
    otherwise, before.
    """

    written: Expression
    expression: Expression
    after_take: bool


@dataclass(frozen=True, slots=True)
class ConditionPart:
    """One of the parts that the top-level ANDs of a condition connect, and the values that the part reads.

    `sides` are the two sides of a comparison; empty: it is none, or a side needs too many registers.
    """

    condition: Lowered
    sides: tuple[Lowered, ...]
    values: tuple[Lowered, ...]


@dataclass(frozen=True, slots=True)
class WatchedRule:
    """A rule whose runs can be watched.

    `rule`: the typed rule. It reports each event of a match, suppresses nothing and has no measures.
    `program`: only this rule. No event is dropped before matching. `parts`: the parts of the condition of
    each variable; none: it always holds.
    """

    rule: ir.Rule
    automaton: Nfa
    program: Program
    parts: Mapping[str, tuple[ConditionPart, ...]]


def lower_watched(built: Sequence[Built], name: str, streams: Mapping[str, Stream]) -> WatchedRule:
    """Return rule `name` of `built`, which also has the rules whose matches it reads.

    Raises RuleError: the rule with the registers of the events that it takes does not fit into a program.
    """
    automaton = next(one.automaton for one in built if one.rule.name == name)
    parts: dict[str, tuple[ConditionPart, ...]] = {}
    watched = [_watched(one.rule) if one.rule.name == name else one.rule for one in built]

    def watch(rule: ir.Rule, registers: Registers) -> None:
        if rule.name == name:
            for variable in rule.variables:
                parts[variable.name] = tuple(_parts(variable, registers))

    rebuilt = [Built(rule, one.automaton) for rule, one in zip(watched, built, strict=True)]
    programs, problems = lower(rebuilt, streams, watch=watch)
    if problems:
        raise RuleError(problems)
    program = next(program for program in programs if name in [rule.name for rule in program.rules])
    lowered = next(rule for rule in program.rules if rule.name == name)
    alone = replace(program, rules=(replace(lowered, needs_every_event=True),))
    rule = next(rule for rule in watched if rule.name == name)
    return WatchedRule(rule, automaton, alone, parts)


def _watched(rule: ir.Rule) -> ir.Rule:
    return replace(rule, measures=(), report=replace(rule.report, all_rows=True, suppress_us=0, n_per_day=0))


def _parts(variable: ir.Variable, registers: Registers) -> Iterator[ConditionPart]:
    for part in () if variable.predicate is None else conjuncts(variable.predicate):
        condition = _lowered(part, variable.name, registers)
        assert condition is not None, "its registers exist: the condition reads them"
        is_comparison = isinstance(part, Call) and part.function in COMPARISONS
        sides = [_lowered(side, variable.name, registers) for side in part.args] if is_comparison else []  # type: ignore[union-attr]
        values = [_lowered(value, variable.name, registers) for value in dict.fromkeys(values_read(part))]
        yield ConditionPart(
            condition,
            tuple(side for side in sides if side is not None) if None not in sides else (),
            tuple(value for value in values if value is not None),
        )


def values_read(part: Expression) -> Iterator[Expression]:
    """Yield what `part` reads: columns, aggregates, windowed values and columns of tables."""
    match part:
        case Call(args=args):
            for arg in args:
                yield from values_read(arg)
        case Aggregate(kind="VALUES") | Literal() | RegisterRef() | RoleTest():
            return
        case Column() | Aggregate() | Windowed() | Joined():
            yield part
        case _:
            assert_never(part)


def _lowered(written: Expression, variable: str, registers: Registers) -> Lowered | None:
    """Return an expression of the condition of `variable`, lowered; None: there is no room for registers."""
    pushed = sets_before_take(written, variable, registers.members)
    before = before_take(pushed, variable, registers.members)
    expression = pushed if before is None else before
    missing = MAX_REGISTERS - len(registers.registers)
    wanted = [part for part in values_read(expression) if isinstance(part, Aggregate)]
    if missing < _MOST_OF_AGGREGATE * len(wanted) and not _is_known(expression, registers):
        return None
    over = registers.shared.over_columns(replace_aggregates(expression, registers))
    return Lowered(written, over, after_take=before is None)


_MOST_OF_AGGREGATE = 3
"""Most registers of an aggregate without an offset: STDDEV has a count, a mean and squares."""


def _is_known(expression: Expression, registers: Registers) -> bool:
    """Return whether all registers of `expression` exist."""
    trial = Registers(registers.shared, registers.members)
    trial.registers, trial.known = list(registers.registers), dict(registers.known)
    replace_aggregates(expression, trial)
    return len(trial.registers) == len(registers.registers)
