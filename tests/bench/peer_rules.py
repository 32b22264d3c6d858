"""The stream and the four rules by which engines are compared here, with the matches they must give.

Event i is a hash of i (SplitMix64), so every machine makes the same events and nothing has to be stored. The
counts and sums were found in four independent ways for n = 2,000,000.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cep.schema.stream import Field, Stream

STREAM = Stream(
    "e",
    (Field("key", "bigint"), Field("ts", "timestamp"), Field("type", "bigint"), Field("amount", "double")),
    "ts",
)

N_EXPECTED = 2_000_000
SPARSE_KEYS, DENSE_KEYS = 10_000, 100

RULES = {
    "R1": """
RULE R1 FROM e PARTITION BY key PATTERN a -> b WITHIN < 10 SECONDS
DEFINE a AS type = 0, b AS type = 1 AND amount > 90
MEASURES b.ts AS last_ts
""",
    "R2": """
RULE R2 FROM e PARTITION BY key PATTERN s->{3,} -> l WITHIN < 60 SECONDS
DEFINE s AS type = 2 AND amount < 5, l AS amount > 80
MEASURES l.ts AS last_ts
""",
    "R3": """
RULE R3 FROM e PARTITION BY key PATTERN a b+ c WITHIN < 30 SECONDS
DEFINE b AS amount > COALESCE(LAST(b.amount, 1), a.amount), c AS amount < b.amount
MEASURES c.ts AS last_ts
""",
    "R4": """
RULE R4 FROM e PARTITION BY key PATTERN a -> !b WITHIN < 5 SECONDS
DEFINE a AS type = 3, b AS type = 4
MEASURES a.ts AS last_ts
AFTER MATCH NO SKIP
""",
}


@dataclass(frozen=True, slots=True)
class Found:
    """How many matches, and the sums of their first and last event times in milliseconds."""

    matches: int
    first_ms: int
    last_ms: int


EXPECTED = {
    ("R1", SPARSE_KEYS): Found(1_847, 1_846_361_290, 1_855_503_282),
    ("R1", DENSE_KEYS): Found(18_070, 17_795_672_196, 17_903_249_789),
    ("R2", SPARSE_KEYS): Found(1, 805_886, 855_527),
    ("R2", DENSE_KEYS): Found(2_953, 2_886_139_677, 2_975_627_567),
    ("R3", SPARSE_KEYS): Found(402_581, 398_312_348_238, 404_836_652_222),
    ("R3", DENSE_KEYS): Found(476_523, 476_674_442_280, 476_792_370_143),
    ("R4", SPARSE_KEYS): Found(190_236, 190_105_281_042, 190_105_281_042),
    ("R4", DENSE_KEYS): Found(1_405, 1_442_286_169, 1_442_286_169),
}


def events(n: int, n_keys: int, first: int = 0) -> pa.Table:
    """Return events ``first : first + n`` of the stream over `n_keys` keys, one a millisecond."""
    index = np.arange(first, first + n, dtype=np.uint64)
    z = (index + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    h = z ^ (z >> np.uint64(31))
    low = np.uint64(0xFFFFF)
    return pa.table(
        {
            "key": ((h & low) % np.uint64(n_keys)).astype(np.int64),
            "ts": index.astype(np.int64) * 1000,
            "type": ((h >> np.uint64(20) & low) % np.uint64(10)).astype(np.int64),
            "amount": ((h >> np.uint64(40) & np.uint64(0xFFFFFF)) % np.uint64(10_000)).astype(np.float64)
            / 100.0,
        }
    )


def found(matches: pa.Table) -> Found:
    """Return the count and the sums of a table of matches."""
    first = np.asarray(matches.column("match_start").cast(pa.int64()))
    last = np.asarray(matches.column("last_ts").cast(pa.int64()))
    return Found(len(matches), int(first.sum()) // 1000, int(last.sum()) // 1000)
