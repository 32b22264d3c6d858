"""What a spool has done since it began."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class SpoolCounts:
    """Messages and connections, counted.

    Parameters
    ----------
    taken
        Came in, whatever became of them.
    written
        Are on disk.
    acknowledged
        Are on disk, and their sender was told so.
    refused
        Were sent back because of a limit, and may come again.
    dropped
        Were given up because of a limit, or by the system before they were taken.
    gaps
        Are missing, as the sequence numbers of their senders say.
    removed_unread
        Were on disk and removed before every reader had read them.
    refused_connections
        Connections of clients that had too many, or for which there was no room.
    slow_connections
        Connections that were closed because their clients sent too little.
    broken_connections
        Connections that broke, such as those that a client reset.
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
        """Return them as one line; what is 0 and seldom is left out."""
        always = ("taken", "written")
        shown = [(name, n) for name, n in asdict(self).items() if n or name in always]
        return ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in shown)
