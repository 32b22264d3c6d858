"""Window rules, rules over matches and joined tables in one set of rules, restored at any moment."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from cep.compiler.compile import compile_sources
from cep.engine.chains.chain import Chain
from cep.engine.matching.matcher import Matcher
from cep.errors import Source
from cep.local.find_matches import find_matches
from cep.local.given_events import event_table
from cep.rule_set import RuleSet
from cep.settings.schema_file import parse_streams

STREAMS, _ = parse_streams(
    Source(
        "streams.yaml",
        """
streams:
  requests:
    event_time: ts
    tie_break: [id]
    schema: {id: bigint, ts: timestamp, ip: string, path: bigint}
  logins:
    event_time: ts
    tie_break: [id]
    schema: {id: bigint, ts: timestamp, ip: string, who: string}
tables:
  hosts:
    key: [ip]
    event_time: ts
    tie_break: [id]
    op: op
    schema: {id: bigint, ip: string, ts: timestamp, op: string, zone: string}
""",
    )
)
RULES = """
RULE scan
FROM requests
PARTITION BY ip
WINDOW HOPPING 10 SECONDS EVERY 5 SECONDS
HAVING COUNT(DISTINCT path) >= 3
MEASURES COUNT(*) AS requests

RULE entered
FROM MATCHES OF scan, logins
JOIN hosts ON scan.ip = hosts.ip
PARTITION BY scan.ip = logins.ip
PATTERN found -> entry WITHIN 20 SECONDS
DEFINE found ON scan AS hosts.zone = 'z1', entry ON logins
MEASURES found.requests AS n_requests, found.hosts.zone AS zone, entry.who AS who

RULE many
FROM MATCHES OF entered
PARTITION BY zone
WINDOW TUMBLING 30 SECONDS
MEASURES COUNT(*) AS entries, COUNT(DISTINCT who) AS people
"""


def rules() -> RuleSet:
    return compile_sources([Source("rules", RULES)], STREAMS).rule_set


def drawn(seed: int) -> dict[str, list[dict[str, Any]]]:
    draw = random.Random(seed)
    start = datetime(2024, 5, 1, tzinfo=UTC)

    def at() -> datetime:
        return start + timedelta(seconds=draw.randrange(240) / 2)

    def ip() -> str:
        return draw.choice("ab")

    return {
        "requests": [{"id": n, "ts": at(), "ip": ip(), "path": draw.randrange(6)} for n in range(120)],
        "logins": [{"id": n, "ts": at(), "ip": ip(), "who": draw.choice("xyz")} for n in range(20)],
        "hosts": [
            {
                "id": n,
                "ip": ip(),
                "ts": at(),
                "op": draw.choice("ccd"),
                "zone": draw.choice(("z1", "z1", "z2")),
            }
            for n in range(12)
        ],
    }


def recomputed(rows: dict[str, list[dict[str, Any]]]) -> list[tuple[Any, ...]]:
    """Return the rows of `entered` in plain Python: entry, requests, who."""
    second = timedelta(seconds=1)
    day = datetime(2024, 5, 1, tzinfo=UTC)
    found = []
    for ip in "ab":
        events: list[tuple[datetime, int, Any]] = []
        for number in range(-2, 60):
            begin = day + number * 5 * second
            inside = [r for r in rows["requests"] if r["ip"] == ip and begin <= r["ts"] < begin + 10 * second]
            if len({r["path"] for r in inside}) >= 3:
                events.append((begin + 10 * second, 1, len(inside)))
        of_ip = sorted((r for r in rows["logins"] if r["ip"] == ip), key=lambda r: (r["ts"], r["id"]))
        events += [(r["ts"], 0, r["who"]) for r in of_ip]
        open_: list[tuple[datetime, int]] = []
        for at, is_scan, what in sorted(events, key=lambda event: (event[0], event[1])):
            if is_scan:
                versions = [v for v in rows["hosts"] if v["ip"] == ip and v["ts"] <= at]
                last = max(versions, key=lambda v: (v["ts"], v["id"]), default=None)
                if last is not None and last["op"] != "d" and last["zone"] == "z1":
                    open_.append((at, what))
            elif still := [(since, n) for since, n in open_ if at - since < 20 * second]:
                found.append((ip, at, still[0][1], what))
                open_ = []
    return sorted(found)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_found_is_what_python_finds_whatever_the_cuts(seed: int) -> None:
    rows = drawn(seed)
    whole = find_matches(Source("rules", RULES), STREAMS, rows)
    found = [
        (row["ip"], row["match_end"], row["n_requests"], row["who"])
        for row in whole
        if row["rule"] == "entered"
    ]
    assert sorted(found) == recomputed(rows)
    assert sum(row["entries"] for row in whole if row["rule"] == "many") == len(found)

    draw = random.Random(seed)
    compiled = rules()
    inputs = [(row["ts"], name, row) for name, of_name in rows.items() for row in of_name]
    inputs.sort(key=lambda item: item[0] + timedelta(seconds=draw.randrange(8)))
    chain = Chain(compiled)
    tables: list[pa.Table] = []
    for number, (ts, name, row) in enumerate(inputs):
        chain.push_events(compiled.inputs[name], event_table(compiled.inputs[name], [row]))
        later = min((item[0] for item in inputs[number + 1 :]), default=ts)
        chain.advance(int(later.timestamp() * 1_000_000) - 1, tables.append)
        if number % 7 == 0:
            matchers = [of for of in chain.matchers if isinstance(of, Matcher)]
            chain = Chain(compiled, [Matcher.restore(of.program, of.snapshot()) for of in matchers])
    chain.finish(tables.append)
    assert compiled.in_order(tables).to_pylist() == whole
