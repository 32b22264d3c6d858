"""What a spool has done since it started."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class SpoolCounts:
    """Counts of messages and connections.

    - `taken`: messages that arrived, whatever happened to them.
    - `written`: messages on disk.
    - `acknowledged`: messages on disk whose sender has received the acknowledgement.
    - `refused`: messages that were refused because of a limit, and may come again.
    - `dropped`: messages that were dropped because of a limit, or by the system before they were taken.
    - `gaps`: messages that are missing according to the sequence numbers of their senders.
    - `removed_unread`: messages that were removed from the disk before every reader had read them.
    - `refused_connections`: connections that were refused because a client had too many, or because there was
      no room.
    - `slow_connections`: connections that were closed because their clients sent too little.
    - `broken_connections`: connections that broke, such as those that a client reset.
    """

    taken: int = 0
    written: int = 0
    acknowledged: int = 0
    refused: int = 0
    dropped: int = 0
    gaps: int = 0
    removed_unread: int = 0
    refused_connections: int = 0
    slow_connections: int = 0
    broken_connections: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the counts by name."""
        return asdict(self)

    def line(self) -> str:
        """Return the counts as one line; rare counts are left out if they are 0."""
        always = ("taken", "written")
        shown = [(name, n) for name, n in asdict(self).items() if n or name in always]
        return ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in shown)
