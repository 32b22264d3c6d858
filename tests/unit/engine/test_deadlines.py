"""Deadlines that are known for blocks of keys: the same matches and times as if all keys were visited."""

from __future__ import annotations

import random

import pytest

from cep.engine.kernels.layout import BLOCK
from cep.engine.matching.matcher import Matcher
from cep.program.program import Program
from tests.unit.engine.events import SECOND, prepared, program

N_KEYS = 5 * BLOCK + 7
DEFINE = "a AS letter = 'a', b AS letter = 'b'"
PROGRAMS = {
    "window": program("a -> b", "WITHIN 40 SECONDS", define=DEFINE),
    "preferred": program(
        "a -> b->+",
        "WITHIN 40 SECONDS",
        define=DEFINE,
        after="MATCH PREFERRED AFTER MATCH SKIP PAST LAST EVENT",
    ),
    "absence": program("a -> !b", "WITHIN 40 SECONDS", define=DEFINE),
    "timed": program("a -> !b FOR 25 SECONDS", "", define=DEFINE),
    "limit": program("a ->[<= 30 SECONDS] b", "WITHIN 50 SECONDS", define=DEFINE, after="ON TIMEOUT"),
    "none": program("a -> b", "WITHIN 3 EVENTS", define=DEFINE),
}


def forget(matcher: Matcher) -> None:
    """Let the matcher visit all keys when it next needs a deadline."""
    for state in matcher._rules:
        state.deadlines.forget()


@pytest.mark.parametrize("name", PROGRAMS)
def test_few_events_of_many_keys_have_the_deadlines_of_all(name: str) -> None:
    compiled: Program = PROGRAMS[name]
    draw = random.Random(name)
    usual, forgetful = Matcher(compiled), Matcher(compiled)
    now, n_ends, n_matches = 0, 0, 0
    first = [(f"k{key}", key % 30, "a") for key in range(N_KEYS)]
    for step in range(120):
        events = first if step == 0 else []
        for _ in range(0 if step == 0 else draw.randrange(12)):
            # Also keys that are new, after which there is one more block.
            key = draw.randrange(N_KEYS + step)
            events.append((f"k{key}", now + draw.randrange(4), draw.choice("aab")))
        now += 30 if step == 0 else draw.randrange(4)
        tables = []
        for matcher in (usual, forgetful):
            if events:
                matcher.push(prepared(compiled, *events))
            if matcher is forgetful:
                forget(matcher)
            tables.append(matcher.advance(now * SECOND))
        assert tables[0].equals(tables[1])
        expected = forgetful.next_deadline_us()
        assert usual.next_deadline_us() == expected
        n_ends += expected is not None
        n_matches += tables[0].num_rows
        if draw.random() < 0.05:
            usual = Matcher.restore(compiled, usual.snapshot())
            forgetful = Matcher.restore(compiled, forgetful.snapshot())
    assert usual.finish().equals(forgetful.finish())
    assert n_matches
    assert n_ends
