"""Card events as columns of numbers. The stages of the generator pass them on."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

MILLISECOND_US = 1_000
"""Event times are whole milliseconds, because the JSON lines of this scenario have milliseconds."""

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US

START_US = 1_740_787_200_000_000
"""First instant of the generated time: 2025-03-01T00:00Z."""

N_DAYS = 60
"""Days of traffic."""

END_US = START_US + N_DAYS * DAY_US

LATENESS_US = 10 * MINUTE_US
"""The lateness in rules/fraud/streams.yaml. All events but the stragglers arrive sooner."""

KINDS = (
    "purchase",
    "withdrawal",
    "transfer",
    "login",
    "credential_change",
    "otp_sent",
    "otp_used",
    "statement",
    "balance",
)
PURCHASE, WITHDRAWAL, TRANSFER, LOGIN, CREDENTIAL_CHANGE, OTP_SENT, OTP_USED, STATEMENT, BALANCE = range(9)

COUNTRIES = (
    *("DE", "FR", "NL", "BE", "AT", "CH", "IT", "ES", "PL", "CZ"),
    *("DK", "SE", "GB", "US", "TR", "TH", "BR", "NG", "CN", "AE"),
)

CANNOT_BE_CALLED_BACK = frozenset(("US", "TR", "TH", "BR", "NG", "CN", "AE"))
"""Countries outside the payments area of the issuer: money that was sent there is not returned."""

RISKY = tuple(number for number, name in enumerate(COUNTRIES) if name in CANNOT_BE_CALLED_BACK)
"""The same as numbers."""

NOTHING = -1
"""NULL in a column of integers; NaN in `amount`."""

STRANGE_DEVICE = 1_000_000_000
"""Device numbers from this one on belong to no holder of a card."""

STRANGE_PAYEE = 1_000_000_000
"""Payees from this number on are in no ordinary transfer."""


@dataclass(frozen=True, slots=True)
class Events:
    """Columns of equal length. `case` is the number of the planted story that an event belongs to."""

    ts_us: I64
    card: I64
    kind: I64
    amount: F64
    country: I64
    merchant: I64
    card_present: I64
    approved: I64
    device: I64
    payee: I64
    payee_country: I64
    case: I64

    def __len__(self) -> int:
        return len(self.ts_us)

    def take(self, rows: I64 | Mask) -> Events:
        """Return the given rows, in their order."""
        return Events(*(getattr(self, column.name)[rows] for column in fields(self)))


def concat(parts: list[Events]) -> Events:
    """Return all rows of `parts`."""
    return Events(
        *(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(Events))
    )


def blank(ts_us: I64, card: I64, kind: I64) -> Events:
    """Return events with a time, a card and a kind. All other columns are NULL."""

    def nothing() -> I64:
        return np.full(len(ts_us), NOTHING, dtype=np.int64)

    return Events(
        ts_us,
        card,
        kind,
        amount=np.full(len(ts_us), np.nan),
        country=nothing(),
        merchant=nothing(),
        card_present=nothing(),
        approved=nothing(),
        device=nothing(),
        payee=nothing(),
        payee_country=nothing(),
        case=nothing(),
    )


@dataclass(slots=True)
class EventList:
    """Events that are written one at a time. Stories use it, because their events are few."""

    rows: list[tuple[float, ...]] = field(default_factory=list)

    def add(  # noqa: PLR0913 - a column of the event is an argument
        self,
        case: int,
        ts_us: int,
        card: int,
        kind: int,
        *,
        amount: float = np.nan,
        country: int = NOTHING,
        merchant: int = NOTHING,
        card_present: int = NOTHING,
        approved: int = NOTHING,
        device: int = NOTHING,
        payee: int = NOTHING,
        payee_country: int = NOTHING,
    ) -> None:
        """Write one event."""
        # Times in microseconds since 1970 fit into the 53 bits of a float until the year 2255.
        self.rows.append(
            (
                ts_us // MILLISECOND_US * MILLISECOND_US,
                card,
                kind,
                round(amount, 2),
                country,
                merchant,
                card_present,
                approved,
                device,
                payee,
                payee_country,
                case,
            )
        )

    def to_events(self) -> Events:
        """Return the events as columns."""
        table = np.array(self.rows, dtype=np.float64).reshape(len(self.rows), len(fields(Events)))
        columns: dict[str, Any] = {
            column.name: table[:, idx] if column.name == "amount" else table[:, idx].astype(np.int64)
            for idx, column in enumerate(fields(Events))
        }
        return Events(**columns)
