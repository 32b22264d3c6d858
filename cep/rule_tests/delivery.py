"""The events of a case, delivered to the engine in several ways, which must all give the same matches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from cep.engine.chains.chain import Chain
from cep.engine.event_time.watermark import START_OF_TIME_US
from cep.engine.matching.matcher import Matcher
from cep.engine.tables.tables import GivenTable
from cep.output.rows import match_rows
from cep.rule_set import RuleSet
from cep.rule_tests.cases import Advance, Arrival, Case, Step
from cep.schema.text_values import event_table_schema

Row = dict[str, Any]
"""A match: the columns of its rule."""

N_ORDERS = 3
"""Other orders of arrival in which the events of a case are delivered, if there are so many."""


class Way(StrEnum):
    """How events are delivered."""

    WRITTEN = "one by one, as written"
    TOGETHER = "all at once"
    SNAPSHOTS = "one by one, with a snapshot after each"
    SHUFFLED = "in another order of arrival"


def matches_of(
    rules: RuleSet, names: Iterable[str], case: Case, way: Way = Way.TOGETHER, seed: int = 0
) -> list[Row]:
    """Return the matches of the rules `names` in the events of a case, in the order of the output.

    `rules` also contains the rules whose matches these read. `seed` chooses the order of arrival of
    `SHUFFLED`.
    """
    found: list[pa.Table] = []
    chain = _begun(rules, case)
    if way is Way.TOGETHER:
        for name, events in case.events.items():
            rows = [step.row for step in counted(case.steps) if step.stream == name]
            chain.push_events(rules.inputs[name], events.take(pa.array(rows, pa.int64())))
    lag_us, reached_us = lag_of(rules), START_OF_TIME_US
    for step in shuffled(case.steps, lag_us, seed) if way is Way.SHUFFLED else case.steps:
        if isinstance(step, Advance):
            reached_us = max(reached_us, step.time_us)
        elif step.is_late:
            continue
        else:
            reached_us = max(reached_us, step.time_us - lag_us)
        if way is not Way.TOGETHER:
            if isinstance(step, Arrival):
                chain.push_events(rules.inputs[step.stream], case.events[step.stream].slice(step.row, 1))
            chain.advance(reached_us, found.append)
        if way is Way.SNAPSHOTS:
            chain = _restored(chain, rules, case)
    if case.ends_early:
        chain.advance(reached_us, found.append)
    else:
        chain.finish(found.append)
    chosen = set(names)
    return [row for row in match_rows(rules, rules.in_order(found)) if row["rule"] in chosen]


def counted(steps: Iterable[Step]) -> Iterator[Arrival]:
    """Yield the events that are not late."""
    return (step for step in steps if isinstance(step, Arrival) and not step.is_late)


def lag_of(rules: RuleSet) -> int:
    """Return how far the watermark lags behind the latest event, in microseconds.

    It lags by at least one, because events of one time may arrive one by one.
    """
    return max(rules.lateness_us, 1)


def shuffled(steps: Sequence[Step], lag_us: int, seed: int) -> list[Step]:
    """Return the steps in an order of arrival that `seed` chooses, in which no other event is late.

    Each event is held back by less than the lateness. No event moves past an `Advance`.
    """
    found: list[Step] = []
    waiting: list[tuple[int, Step]] = []
    for number, step in enumerate((*steps, None)):
        if isinstance(step, Arrival):
            held = blake2b(f"{seed} {number}".encode(), digest_size=8).digest()
            waiting.append((step.time_us + int.from_bytes(held) % lag_us, step))
            continue
        found += [item for _, item in sorted(waiting, key=lambda pair: pair[0])]
        waiting.clear()
        found += [] if step is None else [step]
    return found


def all_ways(rules: RuleSet, case: Case) -> Iterator[tuple[Way, int]]:
    """Yield each way of delivery with its seed, the written one first, and each order of arrival once.

    If the events of a case are further apart than the lateness, there is only one order.
    """
    yield from ((way, 0) for way in Way if way is not Way.SHUFFLED)
    known = [list(case.steps)]
    for seed in range(N_ORDERS):
        order = shuffled(case.steps, lag_of(rules), seed)
        if order not in known:
            known.append(order)
            yield Way.SHUFFLED, seed


def all_tables(rules: RuleSet, case: Case) -> dict[str, pa.Table]:
    """Return the events that are counted and the rows of tables, by stream, as one table each."""
    found: dict[str, pa.Table] = {}
    for name, stream in rules.inputs.items():
        rows = [step.row for step in counted(case.steps) if step.stream == name]
        parts = [event_table_schema(stream).empty_table()]
        parts += [case.tables[name]] if name in case.tables else []
        parts += [case.events[name].take(pa.array(rows, pa.int64()))] if name in case.events else []
        found[name] = pa.concat_tables(parts)
    return found


def _begun(rules: RuleSet, case: Case) -> Chain:
    """Return the rules before the first event, with the rows of tables that exist."""
    chain = Chain(rules, tables=_static(rules, case))
    for name, table in case.tables.items():
        if not rules.inputs[name].is_static:
            chain.push_events(rules.inputs[name], table)
    return chain


def _restored(chain: Chain, rules: RuleSet, case: Case) -> Chain:
    """Return a chain that continues from a snapshot of another one."""
    static = _static(rules, case)
    matchers = [
        Matcher.restore(program, matcher.snapshot(), static)
        for program, matcher in zip(rules.programs, chain.matchers, strict=True)
    ]
    return Chain(rules, matchers, tables=static)


def _static(rules: RuleSet, case: Case) -> dict[str, GivenTable]:
    return {
        name: GivenTable(table, case.tables.get(name, event_table_schema(table).empty_table()))
        for name, table in rules.tables.items()
        if table.is_static
    }
