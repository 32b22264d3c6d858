"""The approval of a change of rules, in the checkpoint:

    <checkpoint>/approved.json

It is valid for exactly one change: from the rules of the checkpoint to others, each identified by a version.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.storage.checkpoint_files import CheckpointFiles

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
    files.write(FILE, json.dumps(asdict(approval)))


def approval_of(files: CheckpointFiles, before: StoredRules, now: StoredRules) -> Approval | None:
    """Return the approval of a change of rules, or None."""
    try:
        found = Approval(**json.loads(files.read(FILE) or "null"))
    except (ValueError, TypeError):
        return None
    return found if (found.before, found.now) == (before.version, now.version) else None
