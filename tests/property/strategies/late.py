"""Rules and input for corrections: late events and late versions change much of what was reported.

Everything is a function of a `Random`, so a case is known by its seed. Rules are text: several of them over
one stream and its tables, window rules, and rules over the matches of those before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from cep.compiler.compile import compile_sources
from cep.errors import CepError, Source
from cep.rule_set import Corrections, RuleSet
from cep.schema.stream import Field, Stream, TableKind, TableSettings
from tests.property.strategies.events import FIELDS, SECOND_US, copies_agree

NAN = float("nan")
DOUBLES = (0.0, -0.0, 0.5, 1.5, -2.0, 0.1, 3.25, 1e12, NAN, None)

TABLES = {
    "lim": Stream(
        "lim",
        (
            *(Field("k", "bigint"), Field("at", "timestamp"), Field("n", "bigint"), Field("op", "string")),
            *(Field("p", "double"), Field("q", "string")),
        ),
        "at",
        ("n",),
        table=TableSettings(("k",), TableKind.CHANGELOG, "op"),
    ),
    "codes": Stream(
        "codes",
        (Field("i", "bigint"), Field("at", "timestamp"), Field("p", "double"), Field("q", "string")),
        "at",
        (),
        table=TableSettings(("i",), TableKind.REPLICATED, None),
    ),
}
"""Tables: one by the key of most rules, one that all keys share."""

STATIC = Stream(
    "codes",
    (Field("i", "bigint"), Field("p", "double"), Field("q", "string")),
    "",
    table=TableSettings(("i",), TableKind.STATIC),
)
"""The latter without event time, for cases that read it as a whole."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event of the stream, or a version of a table, by the name of its input."""

    name: str
    row: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cut:
    """`n` more arrivals; then event time goes on, what stands is compared, the state is stored, or not."""

    n: int
    advances: bool
    compares: bool
    restores: bool


@dataclass(frozen=True, slots=True)
class Late:
    """Rules, their input in an order of arrival, where it is cut, and what is corrected."""

    texts: tuple[str, ...]
    stream: Stream
    arrivals: tuple[Arrival, ...]
    cuts: tuple[Cut, ...]
    bound: Corrections
    is_static: bool = False

    @property
    def inputs(self) -> dict[str, Stream]:
        static = {STATIC.name: STATIC} if self.is_static else {}
        return {self.stream.name: self.stream, **TABLES, **static}

    def rule_set(self) -> RuleSet:
        """Return the compiled rules. Raises RuleError or InputError: they are refused."""
        rules = compile_sources([Source("late.cep", "\n".join(self.texts))], self.inputs).rule_set
        rules.match_schema  # noqa: B018 - raises
        return rules.with_corrections(self.bound)


FOREVER_US = 10**12
PLENTY = 1000
"""More than there is to retain."""


def drawn(random: Random) -> Late:
    """Return a case whose rules are accepted."""
    while True:
        case = _case(random)
        try:
            case.rule_set()
        except CepError:
            continue
        return case


def _case(random: Random) -> Late:
    tie_break = random.choice([(), ("t",), ("w",)])
    stream = Stream(
        "events", FIELDS, "ts", tie_break, random.randrange(3) * SECOND_US,
        bool(tie_break) and random.random() < 0.3,
    )  # fmt: skip
    within_us = random.choice([1, 3, 8, 20, 20]) * SECOND_US if random.random() < 0.6 else FOREVER_US
    bound = Corrections(within_us, random.choice([0, 10, 40, *[PLENTY] * 7]))
    arrivals = tuple(_arrivals(random, stream))
    return Late(tuple(_texts(random)), stream, arrivals, tuple(_cuts(random, len(arrivals))), bound)


# ---------------------------------------------------------------- input


def _arrivals(random: Random, stream: Stream) -> Iterator[Arrival]:
    events: list[dict[str, Any]] = []
    now_us, letter = 0, 0
    doubles = random.choice([DOUBLES, DOUBLES[:7], DOUBLES[:4]])
    for number in range(random.randrange(15, 50)):
        now_us += random.choice([0, 1, 1, 2]) * SECOND_US
        letter = (letter + random.choice([0, 1, 1, 1, 2, 3])) % 4
        event = {"k": random.choice([1, 1, 1, 2]), "g": random.choice("xxy"), "ts": now_us}
        event |= {"t": number % 3, "w": 1 << number, "i": letter, "d": random.choice(doubles)}
        events.append(event | {"s": random.choice(["p", "q", "", None]), "b": random.choice([True, None])})
    if stream.deduplicate:
        events = copies_agree(events, stream)
    found: list[tuple[int, Arrival]] = [(event["ts"], Arrival(stream.name, event)) for event in events]
    for number in range(random.choice([0, 8, 14])):
        at = random.randrange(0, now_us + 1, SECOND_US // 2)
        row = {"at": at, "p": random.choice(doubles), "q": random.choice(["low", "high", None])}
        lim = row | {"k": random.choice([1, 1, 2]), "n": number, "op": random.choice("ccd")}
        found.append((at, Arrival("lim", lim)))
        found.append((at, Arrival("codes", row | {"i": random.randrange(4)})))
    held = random.choice([[0, 0, 0, 2, 6], [0, 0, 0, 0, 0, 9], [0, 1, 2, 3, 12]])
    if random.random() < 0.15:
        random.shuffle(found)
    else:
        found.sort(key=lambda item: item[0] + random.choice(held) * SECOND_US)
    yield from (arrival for _, arrival in found)


def _cuts(random: Random, n: int) -> Iterator[Cut]:
    most = random.choice([2, 5, 8])
    while n:
        size = random.randint(1, min(n, most))
        yield Cut(size, random.random() < 0.85, random.random() < 0.3, random.random() < 0.15)
        n -= size


# ---------------------------------------------------------------- rules

_FRAMES = (
    *("LAST 4 SECONDS", "LAST 9 SECONDS", "PREVIOUS 4 SECONDS", "LAST 3 EVENTS", "PREVIOUS 2 EVENTS"),
    *("ALL", "TUMBLING 5 SECONDS", "SESSION 2 SECONDS", "LAST 6 SECONDS BY 2 SECONDS"),
)
_NUMBERS = (
    *("SUM(d)", "SUM(w)", "COUNT(*)", "COUNT(d)", "COUNT(DISTINCT s)", "AVG(d)", "MIN(d)", "MAX(d)"),
    *("STDDEV(d)", "FIRST_VALUE(d)", "LAST_VALUE(d)", "LAG(d, 2)", "MAX(w)"),
)
_EXACT = ("COUNT(*)", "COUNT(DISTINCT s)", "SUM(w)")


def _windowed(random: Random, functions: Sequence[str] = _NUMBERS) -> str:
    function, frame = random.choice(functions), random.choice(_FRAMES)
    if function == "AVG(d)" and "BY" not in frame and random.random() < 0.3:
        function = "MEDIAN(d)"
    condition = random.choice(["", "", " FILTER (WHERE i >= 1)"])
    return f"{function}{condition} OVER {frame}"


PATTERNS = (
    *("a", "a", "a", "a", "a | b", "a b", "a -> b", "a ->> b", "a b+ c", "a ->+", "a -> b->+ -> c"),
    *("a (b | c)+ d", "(a & b) -> c", "a -> !b -> c", "a -> !b", "a -> !c FOR 2 SECONDS", "a b?"),
    *("a -> b{2}", "a -> b->+ UNTIL (i = 3) -> c"),
)
_WITHIN = (*["WITHIN 4 SECONDS"] * 3, "WITHIN 9 SECONDS", "WITHIN 9 SECONDS", "WITHIN 5 EVENTS", "")
_SKIP = ("", "", "AFTER MATCH SKIP PAST LAST EVENT", "AFTER MATCH SKIP TO NEXT EVENT")
_RUNS = ("", "", "", "MAX RUNS 2 PER KEY", "MAX RUNS 2 PER KEY ON OVERFLOW DROP NEWEST")
_WHOLE = ("TUMBLING 4 SECONDS", "HOPPING 6 SECONDS EVERY 2 SECONDS", "SESSION GAP 2 SECONDS MAX 7 SECONDS")


def _texts(random: Random) -> Iterator[str]:
    """Yield rules, each behind those whose matches it reads."""
    joins = random.choice([(), (), ("lim",), ("codes",), ("lim", "codes")])
    readable: list[str] = []
    for number in range(random.randint(1, 3)):
        name = f"r{number}"
        text = (_window_rule if random.random() < 0.25 else _pattern_rule)(random, name, joins)
        readable.append(name)
        yield text
    level, key = readable, ""
    for depth in range(random.choice([0, 1, 1, 2])):
        name = f"over{depth}"
        # Mostly by the key that the one before has: it may have been a measure of another one.
        key = key if key and random.random() < 0.7 else random.choice("kkgiis")
        yield _over(random, name, random.choice(level), key)
        level = [name] * 4 + readable


def _joined(joins: Iterable[str]) -> str:
    return " ".join(f"JOIN {name} ON {TABLES[name].table.key[0]}" for name in joins)  # type: ignore[union-attr]


def _some_key(random: Random) -> str:
    return random.choice(["k", "k", "k", "k", "g"])


def _measured(random: Random, joins: Sequence[str], *, has_windows: bool) -> Iterator[str]:
    """Yield measures of variable `a`; those of windows and tables are no function of the id of a match."""
    yield "LAST(a.i) AS i, LAST(a.w) AS w, LAST(a.d) AS d, LAST(a.s) AS s"
    yield "LAST(a.x) AS x, LAST(a.y) AS y" if has_windows else "FIRST(a.d) AS x, FIRST(a.i) AS y"
    if has_windows and random.random() < 0.5:
        column = random.choice("ids")
        yield f"PREV(a.{column}) AS before_{column}"
    if random.random() < 0.3:
        yield "ARRAY_AGG(a.w) AS l"
    for table in joins:
        if random.random() < 0.9:
            yield f"LAST(a.{table}.p) AS {table}_p, FIRST(a.{table}.q) AS {table}_q"


def _report(random: Random) -> str:
    rows = "ALL ROWS PER MATCH" if random.random() < 0.15 else ""
    timeouts = random.choice(["", "", "", "ON TIMEOUT"])
    suppress = random.choice(["", "", "", "SUPPRESS FOR 3 SECONDS", "SUPPRESS AFTER 2 PER DAY"])
    return f"{rows} {timeouts} {suppress} {random.choice(_SKIP)} {random.choice(_RUNS)}"


def _pattern_rule(random: Random, name: str, joins: Sequence[str]) -> str:
    pattern = random.choice(PATTERNS)
    joins = joins if random.random() < 0.85 else ()
    key = "k" if "lim" in joins else _some_key(random)
    has_windows = random.random() < 0.6
    condition = random.choice(["", "", " AND (x IS NULL OR x <> 1.5)", " AND y < 3"]) if has_windows else ""
    if joins and random.random() < 0.4:
        condition += f" AND ({joins[-1]}.q IS NULL OR {joins[-1]}.q = 'low')"
    first = "i <= 2" if pattern == "a" else "i = 0"
    defined = ", ".join(
        f"{item} AS {first + condition if item == 'a' else f'i = {number}'}"
        for number, item in enumerate("abcd")
        if re.search(rf"\b{item}\b", pattern)
    )
    lets = f"LET x = {_windowed(random)}, y = {_windowed(random, _EXACT)}" if has_windows else ""
    measures = ", ".join(_measured(random, joins, has_windows=has_windows))
    return (
        f"RULE {name} FROM events {_joined(joins)} PARTITION BY {key}"
        f" MATCH {random.choice(['EARLIEST', 'EARLIEST', 'ALL', 'PREFERRED'])} PATTERN {pattern}"
        f" {random.choice(_WITHIN)} {lets} DEFINE {defined} MEASURES {measures} {_report(random)}"
    )


def _window_rule(random: Random, name: str, joins: Sequence[str]) -> str:
    joins = joins if random.random() < 0.7 else ()
    key = "k" if "lim" in joins else _some_key(random)
    window = random.choice(_WHOLE)
    if joins[:1] == ("lim",) and "SESSION" not in window and random.random() < 0.5:
        window += " FOR EACH lim"
    where = random.choice(["", "", "WHERE i >= 1"])
    measures = (
        "LAST_VALUE(i) AS i, MAX(w) AS w, SUM(d) AS d, FIRST_VALUE(s) AS s, STDDEV(d) AS x, COUNT(*) AS y"
    )
    if joins:
        measures += f", MAX({joins[0]}.p) AS {joins[0]}_p"
    return (
        f"RULE {name} FROM events {_joined(joins)} PARTITION BY {key} WINDOW {window} {where}"
        f" HAVING {random.choice(['COUNT(*) >= 0', 'COUNT(*) > 1', 'SUM(w) > 3'])} MEASURES {measures}"
    )


def _over(random: Random, name: str, inner: str, key: str) -> str:
    """Return a rule over the matches of `inner`: by its key, by a measure, with events of the stream."""
    values = random.choice(["d", "w"])
    if random.random() < 0.25:
        return (
            f"RULE {name} FROM MATCHES OF {inner} PARTITION BY {key} WINDOW {random.choice(_WHOLE)}"
            f" MEASURES COUNT(*) AS y, MAX(d) AS d, MAX(w) AS w, SUM(y) AS n, MIN(x) AS x"
        )
    if random.random() < 0.2:
        return (
            f"RULE {name} FROM MATCHES OF {inner}, events PARTITION BY {key}"
            f" PATTERN {random.choice(['m -> e', 'e -> m', 'm -> !e', 'm e', 'e -> m->+'])} WITHIN 9 SECONDS"
            f" DEFINE m ON {inner} AS {random.choice(['TRUE', 'y >= 2'])}, e ON events AS i = 2"
            f" MEASURES LAST(m.x) AS d, LAST(m.w) AS w, LAST(m.y) AS y"
        )
    pattern = random.choice(["m", "m", "m -> n", "m n", "m ->> n", "m->{2}", "m -> !n FOR 3 SECONDS"])
    conditions, lets = ["TRUE", "TRUE", "y >= 2", "y < 2", "d IS NOT NULL"], ""
    measures = "LAST(m.x) AS x, LAST(m.d) AS d, LAST(m.w) AS w, LAST(m.y) AS y, COUNT(*) AS n"
    if random.random() < 0.6:
        lets = (
            f"LET z = {random.choice(['SUM', 'MIN', 'LAST_VALUE'])}({values}) OVER {random.choice(_FRAMES)}"
        )
        measures += f", LAST(m.{name}_z) AS z, PREV(m.w) AS before_w"
        conditions.append(f"{name}_z > 1")
    defined = ", ".join(
        f"{item} AS {random.choice(conditions)}" for item in "mn" if re.search(rf"\b{item}\b", pattern)
    )
    return (
        f"RULE {name} FROM MATCHES OF {inner} PARTITION BY {key} PATTERN {pattern} WITHIN 9 SECONDS {lets}"
        f" DEFINE {defined} MEASURES {measures} {random.choice(['', '', 'SUPPRESS FOR 3 SECONDS'])}"
    )


# ---------------------------------------------------------------- smaller


def smaller(case: Late) -> Iterator[Late]:
    """Yield cases with a rule, an arrival, a cut or a restore less."""
    for number in range(len(case.texts)):
        yield replace(case, texts=case.texts[:number] + case.texts[number + 1 :])
    at = 0
    for place, cut in enumerate(case.cuts):
        rest = case.cuts[place + 1 :]
        if rest and not cut.restores:
            yield replace(case, cuts=(*case.cuts[:place], replace(rest[0], n=rest[0].n + cut.n), *rest[1:]))
        if cut.restores:
            yield replace(case, cuts=(*case.cuts[:place], replace(cut, restores=False), *rest))
        for number in range(at, at + cut.n):
            less = (replace(cut, n=cut.n - 1),) if cut.n > 1 else ()
            yield replace(
                case,
                arrivals=case.arrivals[:number] + case.arrivals[number + 1 :],
                cuts=(*case.cuts[:place], *less, *rest),
            )
        at += cut.n
