"""A small project for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

STREAMS = """\
streams:
  payments:
    event_time: ts
    schema: {card: string, ts: timestamp, amount: double, kind: string}
tables:
  cards:
    key: [card]
    event_time: ts
    schema: {card: string, ts: timestamp, country: string}
"""

RULE = """\
RULE drain
PARAM small = 5, least = 2, wait = 10 MINUTES
FROM payments
PARTITION BY card
PATTERN probe->{least,} -> cashout
WITHIN wait
DEFINE
  probe   AS amount < small,
  cashout AS amount > 100 * AVG(probe.amount)
MEASURES
  COUNT(probe.*) AS probes,
  cashout.amount AS loss
"""

READER = """\
RULE twice
FROM MATCHES OF drain
PARTITION BY card
PATTERN a -> b
WITHIN 1 DAY
DEFINE a AS loss > 10, b AS loss > a.loss
MEASURES b.loss AS last
"""

TESTS = """\
parameters: {small: 6}
cases:
  two probes, then a cashout:
    events: |
      at, card, amount, kind
      0s, c1,   5.5,    buy
      1m, c1,   1,      buy
      2m, c1,   900,    buy
    expect:
      - {probes: 2, loss: 900}
"""


def project(folder: Path) -> Path:
    """Write the project into a folder; return its rule file."""
    for name, text in (("streams.yaml", STREAMS), ("drain.cep", RULE), ("drain.test.yaml", TESTS)):
        (folder / name).write_text(text)
    (folder / "twice.cep").write_text(READER)
    return folder / "drain.cep"
