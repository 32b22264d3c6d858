"""The state with which a restored checkpoint begins, until Spark stores it.

    <checkpoint>/restored/<key group>    one or more parts, each with its length before it

A part is state as Spark's store contains it (`snapshots`). Parts of one group come from different groups of
the checkpoint that was saved, which may have reached different event times.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from cep.errors import StateError

FOLDER = "restored"

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Restored:
    """The place of the state of key groups.

    `folder`: a folder that the driver and all executors see. `groups`: the labels of the groups that have
    state. The others begin without state.
    """

    folder: str
    groups: frozenset[int]

    def parts(self, group: int) -> list[bytes]:
        """Return the parts of the state of a group; an empty list if it has none.

        Raises StateError: the file is missing or cut off (E0702).
        """
        if group not in self.groups:
            return []
        place = Path(self.folder) / str(group)
        try:
            data = place.read_bytes()
        except OSError as error:
            raise _damaged(place, f"cannot be read: {error.strerror}") from error
        parts, at = [], 0
        while at < len(data):
            end = at + _LENGTH.size
            length = _LENGTH.unpack_from(data, at)[0] if end <= len(data) else len(data)
            if end + length > len(data):
                raise _damaged(place, "is cut off")
            parts.append(data[end : end + length])
            at = end + length
        return parts


def add_part(folder: Path, group: int, part: bytes) -> None:
    """Append a part to the state of a group."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / str(group)).open("ab") as file:
        file.write(_LENGTH.pack(len(part)))
        file.write(part)


def _damaged(place: Path, fact: str) -> StateError:
    return StateError(
        "E0702",
        f"the restored state `{place}` {fact}",
        "restore the savepoint again, into another folder",
    )
