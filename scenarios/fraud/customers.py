"""The changelog of customers: each card holder's limit for transfers, and the time from which it is valid."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from scenarios.fraud.events import DAY_US, END_US, I64, MILLISECOND_US, START_US
from scenarios.fraud.pen import Stories
from scenarios.fraud.traffic import Cards

LIMITS = np.array([500.0, 2_000.0, 5_000.0])
"""Limits that holders request, in euros. Other holders have the default limit."""

_SHARES = np.array([0.2, 0.5, 0.3])
_ASKING_SHARE = 0.2
_CHANGED_SHARE = 0.05

_SCHEMA = pa.schema(
    [
        pa.field("card_id", pa.string()),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("op", pa.string()),
        pa.field("transfer_limit", pa.float64()),
    ]
)


def draw_customers(rng: np.random.Generator, cards: Cards, stories: Stories) -> pa.Table:
    """Return the versions of customers who requested a limit, in order of time.

    Some requested it before the first day. Some change their limit, or request the first one, later.
    """
    n_cards = len(cards)
    asked = np.flatnonzero(rng.random(n_cards) < _ASKING_SHARE)
    asked_us = START_US - rng.integers(DAY_US, 300 * DAY_US, len(asked))
    changed: I64 = np.setdiff1d(
        np.flatnonzero(rng.random(n_cards) < _CHANGED_SHARE), stories.cards_with_limits()
    )
    card = np.concatenate([asked, changed, [change.card for change in stories.limits]])
    ts_us = np.concatenate(
        [
            asked_us,
            rng.integers(START_US, END_US, len(changed)),
            [change.ts_us for change in stories.limits],
        ]
    )
    limit = np.concatenate(
        [
            rng.choice(LIMITS, len(asked) + len(changed), p=_SHARES),
            [change.limit for change in stories.limits],
        ]
    )
    op = np.where(np.arange(len(card)) < len(asked), "c", "u")
    order = np.argsort(ts_us, kind="stable")
    ts_us = ts_us.astype(np.int64)[order] // MILLISECOND_US * MILLISECOND_US
    return pa.table(
        [
            pa.array([f"card-{number}" for number in card.astype(np.int64)[order].tolist()]),
            pa.array(ts_us).cast(_SCHEMA.field("ts").type),
            pa.array(op[order].tolist()),
            pa.array(limit[order]),
        ],
        schema=_SCHEMA,
    )
