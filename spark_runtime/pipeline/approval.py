"""The approval of a change of rules, in the checkpoint:

    <checkpoint>/approved.json

It is valid for exactly one change: from the rules of the checkpoint to others, each identified by a version.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.storage.checkpoint_files import CheckpointFiles
from spark_runtime.storage.sealed import unsealed, write_sealed

FILE = "approved.json"


@dataclass(frozen=True, slots=True)
class Approval:
    """Who approved a change, and when (UTC); `before` and `now` are versions of rules."""

    before: str
    now: str
    by: str
    time: str


def approve(files: CheckpointFiles, approval: Approval) -> None:
    """Record an approval, which replaces an earlier one."""
    write_sealed(files, FILE, json.dumps(asdict(approval)))


def approval_of(files: CheckpointFiles, before: StoredRules, now: StoredRules) -> Approval | None:
    """Return the approval of a change of rules, or None. Raises StateError: it cannot be read (E0702)."""
    try:
        found = Approval(**json.loads(unsealed(files.read_bytes(FILE) or b"null")))
    except (ValueError, TypeError, RecursionError):
        return None
    return found if (found.before, found.now) == (before.version, now.version) else None
