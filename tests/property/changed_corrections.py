"""Rules that change while late events correct matches: what continues is as if the new rules had always run.

The cases are those of `strategies.late`. Each rule is as it was, or other words, measures, a window or a
HAVING have changed, or it is new, or one is gone. Then every row after the change, also those that withdraw,
is compared with what rules report that never changed. Rules that begin are compared with rules that get only
the events after the change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from random import Random
from typing import Any

import pyarrow as pa

from cep.engine.chains.chain import Chain
from cep.engine.event_time.watermark import END_OF_TIME_US, START_OF_TIME_US
from cep.engine.prepare.predicates import prepare
from cep.engine.prepare.versions import extents, prepared_versions
from cep.errors import CepError, StateError
from cep.program.changes import BEGINNING, KEPT, Changes, changes_of
from cep.program.match_stream import MatchStream
from cep.program.program import Program
from cep.rule_set import KIND, RETRACT, Corrections, RuleSet
from cep.schema.stream import Stream
from spark_runtime.state.snapshots import (
    changed_state,
    decode_state,
    divided_state,
    encode_state,
    joined_state,
)
from spark_runtime.wire.packer import groups_of
from tests.property.differential import stream_table
from tests.property.late_arrivals import exact
from tests.property.strategies.late import PLENTY, Arrival, Late, drawn

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Changing:
    """Rules that replace each other: `texts[n + 1]` follow `texts[n]` before cut `at[n]` of a case."""

    case: Late
    texts: tuple[tuple[str, ...], ...]
    at: tuple[int, ...]

    def rule_sets(self) -> list[RuleSet]:
        """Return the compiled rules. Raises RuleError or InputError: they are refused."""
        return [replace(self.case, texts=texts).rule_set() for texts in self.texts]


def changing(random: Random) -> Changing:
    """Return a case whose rules are accepted."""
    while True:
        case = drawn(random)
        if len(case.cuts) < 4:
            continue
        case = replace(case, bound=Corrections(case.bound.within_us, PLENTY))
        texts = [case.texts]
        for _ in range(random.choice([1, 1, 2])):
            texts.insert(0, tuple(_other_rules(random, texts[0])))
        early = range(1, max(len(texts), 2 * len(case.cuts) // 3))
        at = sorted(random.sample(early, len(texts) - 1))
        found = Changing(case, tuple(texts[-len(at) - 1 :]), tuple(at))
        try:
            found.rule_sets()
        except CepError:
            continue
        return found


def _other_rules(random: Random, texts: Sequence[str]) -> Iterator[str]:
    """Yield the rules as they may have been before."""
    found = [text for text in (_other_rule(random, text) for text in texts) if text] or list(texts)
    if random.random() < 0.3:
        found.append(random.choice(texts).replace("RULE ", f"RULE gone{random.randrange(9)}_", 1))
    if random.random() < 0.3:
        random.shuffle(found)
    yield from found


def _other_rule(random: Random, text: str) -> str:
    """Return a rule as it may have been before; an empty text: it is new."""
    match random.choice(["same", "same", "words", "measures", "measures", "more", "changed", "new"]):
        case "words":
            return text.replace(" FROM ", f" TITLE 'title {random.randrange(99)}' FROM ", 1)
        case "measures":
            return text.replace("LAST(a.i) AS i", "LAST(a.i) + 1 AS i").replace(
                "COUNT(*) AS y", "COUNT(*) * 2 AS y"
            )
        case "more":
            if " HAVING " in text:
                return text.replace("COUNT(*) > 1", "COUNT(*) > 2").replace("SUM(w) > 3", "SUM(w) > 40")
            return text.replace("MEASURES ", "MEASURES COUNT(*) AS more, ", 1)
        case "changed":
            return (
                text.replace(" SECONDS", " SECONDS ", 1)
                .replace("WITHIN 4", "WITHIN 5")
                .replace("WITHIN 9", "WITHIN 8")
            )
        case "new":
            return ""
        case _:
            return text


def check(changing: Changing, tally: Counter[str] | None = None) -> None:
    """Compare every row after each change."""
    _Comparison(changing, Counter() if tally is None else tally).run()


@dataclass
class _Expected:
    """Rules that report what some of the changed rules must report, from some event time on."""

    chain: Chain
    names: set[str]
    after_us: int = START_OF_TIME_US
    ended_after_us: dict[str, int] = field(default_factory=dict)

    def rows(self, rows: Sequence[dict[str, Any]]) -> Counter[Row]:
        """Return those of the rows that count."""
        return Counter(
            _comparable(row)
            for row in rows
            if row["rule"] in self.names
            and _us(row["match_end"]) > self.ended_after_us.get(row["rule"], START_OF_TIME_US)
        )


class _Comparison:
    """Rules that change beside such that do not."""

    def __init__(self, changing: Changing, tally: Counter[str]) -> None:
        self.case, self.at, self.tally = changing.case, changing.at, tally
        self.inputs = self.case.inputs
        self.sets = changing.rule_sets()
        self.rules = self.sets[0]
        self.chain = Chain(self.rules)
        final = self.sets[-1]
        self.always = _Expected(Chain(final), {rule.name for rule in final.rules})
        self.anew: list[_Expected] = []
        self.begun: dict[str, tuple[str, int]] = {}  # by rule a time of its rows, and what it must be after
        self.newest_us = START_OF_TIME_US
        self.reached_us = START_OF_TIME_US
        self.n_changes = 0

    def run(self) -> None:
        """Deliver all arrivals."""
        at = 0
        for number, cut in enumerate(self.case.cuts):
            if number in self.at and not self.change():
                return
            self.take_in(self.case.arrivals[at : at + cut.n])
            at += cut.n
            if cut.restores:
                self.restore(in_parts=bool(at % 2))
            if cut.advances:
                self.advance(self.newest_us - self.rules.lateness_us)
        self.advance(END_OF_TIME_US)

    def take_in(self, arrivals: Sequence[Arrival]) -> None:
        """Give arrivals to all rules, without those that come too late."""
        final_us = self.reached_us - self.case.bound.within_us
        for name, stream in self.inputs.items():
            rows = [arrival.row for arrival in arrivals if arrival.name == name]
            rows = [row for row in rows if row[stream.event_time] > final_us]
            self.newest_us = max(self.newest_us, *(row[stream.event_time] for row in rows), START_OF_TIME_US)
            for chain, after_us in self.chains():
                seen = [row for row in rows if row[stream.event_time] > after_us]
                if seen:
                    _push(chain, stream, seen)

    def chains(self) -> Iterator[tuple[Chain, int]]:
        """Yield all rules, and after which event time they see events."""
        yield self.chain, START_OF_TIME_US
        for expected in (self.always, *self.anew):
            yield expected.chain, expected.after_us

    def advance(self, until_us: int) -> None:
        """Let event time go on, and compare."""
        self.reached_us = max(self.reached_us, until_us)
        found = _advanced(self.chain, until_us)
        right = [(expected, _advanced(expected.chain, until_us)) for expected in (self.always, *self.anew)]
        if self.n_changes < len(self.at):
            return
        for expected, rows in right:
            wanted = expected.rows(rows)
            assert expected.rows(found) == wanted
            kind = "going on" if expected is self.always else "anew"
            self.tally[f"rows {kind}"] += wanted.total()
            withdrawn = sum(dict(row)[KIND] == repr(RETRACT) for row in wanted.elements())
            self.tally[f"rows withdrawn {kind}"] += withdrawn
            self.tally["rows withdrawn"] += withdrawn
        for row in found:
            name, after_us = self.begun.get(row["rule"], ("match_end", START_OF_TIME_US))
            assert _us(row[name]) > after_us, "a new rule finds what was before it began"
        assert {row["rule"] for row in found} <= {rule.name for rule in self.rules.rules}

    def restore(self, *, in_parts: bool) -> None:
        """Store the state, and continue from it, or from its parts by key."""
        data = encode_state(self.chain.matchers, 2)
        matchers = [decode_state(data, self.rules, 2)]
        if in_parts:
            parts = divided_state(data, self.rules, groups_of(self.rules, 2), 2)
            matchers = [decode_state(part.data, self.rules, 2) for part in parts]
            matchers = [decode_state(joined_state(matchers, 2), self.rules, 2)]
        self.chain = Chain(self.rules, matchers[0])

    def change(self) -> bool:
        """Let the next rules follow; return whether they may."""
        self.advance(self.newest_us - self.rules.lateness_us)
        now = self.sets[self.n_changes + 1]
        changes = changes_of(self.rules.programs, now.programs)
        data = encode_state(self.chain.matchers, 2)
        begins_us = max(self.newest_us, self.reached_us)
        try:
            data = changed_state(data, self.rules, now, 2, begins_us)
        except StateError:
            assert changes.refusals
            self.tally["refused"] += 1
            return False
        self.tally.update(f"rules {verdict}" for verdict in changes.verdicts.values())
        self.judge(changes, now, begins_us)
        self.rules, self.chain = now, Chain(now, decode_state(data, now, 2))
        self.n_changes += 1
        return True

    def judge(self, changes: Changes, now: RuleSet, begins_us: int) -> None:
        """Say what is expected of each rule from now on."""
        self.always.names &= {name for name, verdict in changes.verdicts.items() if verdict in KEPT}
        for program, source in zip(now.programs, changes.taken_from, strict=True):
            names = {rule.name for rule in program.rules if changes.verdicts[rule.name] in BEGINNING}
            if source is not None:
                other = changes.other_having & {rule.name for rule in program.rules}
                self.always.ended_after_us |= dict.fromkeys(other, self.reached_us)
                self.tally["rules with another HAVING"] += len(other)
            if self.n_changes < len(self.at) - 1:
                continue
            if not program.has_window_rules:
                self.begun |= dict.fromkeys(names, ("match_start", begins_us))
            elif not _reads_matches(program):  # these come later than the events
                self.begun |= dict.fromkeys(names, ("match_end", self.reached_us))
            if names and _is_plain(program):
                alone = RuleSet((program,), corrections=self.case.bound)
                self.anew.append(_Expected(Chain(alone), names, begins_us))


def _is_plain(program: Program) -> bool:
    """Return whether a new rule knows nothing but the events that it sees."""
    knows_more = program.windows or program.has_window_rules or program.joins.tables
    return not knows_more and not _reads_matches(program)


def _reads_matches(program: Program) -> bool:
    return any(isinstance(stream, MatchStream) for stream in program.streams)


def _push(chain: Chain, stream: Stream, rows: Sequence[dict[str, Any]]) -> None:
    table = stream_table(stream, rows)
    for number, program in enumerate(chain.rules.programs):
        found = [prepare(program, table, stream)] if stream in program.streams else []
        found += prepared_versions(program, stream, table)
        for events in (*found, *extents(program, stream, table)):
            assert chain.push(number, events).num_rows == 0


def _advanced(chain: Chain, until_us: int) -> list[dict[str, Any]]:
    found: list[pa.Table] = []
    chain.advance(until_us, found.append)
    return [row for table in found for row in table.to_pylist()]


def _comparable(row: dict[str, Any]) -> Row:
    """Return a row without the columns that only other rules have."""
    return tuple((name, exact(value)) for name, value in sorted(row.items()) if value is not None)


def _us(time: datetime) -> int:
    return round(time.timestamp() * 1e6)
