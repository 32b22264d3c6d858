"""Who may read and write the files that a command creates: only the user, unless a setting says otherwise."""

from __future__ import annotations

import re
from dataclasses import dataclass

_MODE = re.compile(r"0?(6[046][046])")

HELP = 'write for example "0640": the user reads and writes, the group reads'


@dataclass(frozen=True, slots=True)
class FileMode:
    """The mode of created files. Folders have the same mode; whoever may read a folder may also enter it."""

    bits: int = 0o600

    @property
    def umask(self) -> int:
        """The bits that the system removes from the modes of new files and folders."""
        return 0o777 & ~(self.bits | (self.bits & 0o444) >> 2)


PRIVATE = FileMode()


def parse_file_mode(text: str) -> FileMode | None:
    """Return the mode that octal digits mean, or None if files cannot have such a mode here."""
    found = _MODE.fullmatch(text)
    return None if found is None else FileMode(int(found[1], 8))
