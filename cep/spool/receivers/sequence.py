"""Gaps in the numbers of a sender: messages that nobody sends again are at least counted."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MAX_SENDERS = 10_000
"""Senders whose last number is known; of more the one that was known first is forgotten."""

_RESTART = 1_000
"""A number that is lower than the last one by this much comes from a sender that began again; it is not a
late message.
"""

_NEW_START = 1_000_000_000
"""More numbers than these are not missing: the sender began with other numbers."""


@dataclass(slots=True)
class Sequences:
    """The last numbers of senders, and how many are missing."""

    last: dict[str, int] = field(default_factory=dict)

    def missing(self, sender: str, number: int) -> int:
        """Return how many numbers are missing between the last message of a sender and this one."""
        before = self.last.get(sender)
        if before is None and len(self.last) >= MAX_SENDERS:
            del self.last[next(iter(self.last))]
        if before is None or number > before or before - number >= _RESTART:
            self.last[sender] = number
        n = 0 if before is None else number - before - 1
        return n if 0 < n <= _NEW_START else 0


def json_number(name: str) -> re.Pattern[bytes]:
    """Return a pattern that finds a whole number under a name in JSON; its first group is the number."""
    return re.compile(rb'"' + re.escape(name.encode()) + rb'"\s*:\s*"?(\d{1,18})(?!\d)')


def number_of(part: bytes) -> int | None:
    """Return the number in a part of a message: decimal digits, or 4 or 8 bytes, big-endian."""
    if part.isdigit() and len(part) <= 18:
        return int(part)
    return int.from_bytes(part, "big") if len(part) in (4, 8) else None
