"""When and by whom the rules of a checkpoint were changed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from cep.errors import Source
from spark_runtime.pipeline.approval import Approval
from spark_runtime.pipeline.generations import Cause


def cause_of(texts: Sequence[Source], approval: Approval | None = None) -> Cause:
    """Return when and by whom rules were changed: now, and by the author of the files according to git."""
    time = datetime.now(UTC).isoformat(timespec="seconds")
    author, commit = _known_to_git([Path(text.name) for text in texts])
    return Cause(time, author, commit, "" if approval is None else approval.by)


def _known_to_git(files: Sequence[Path]) -> tuple[str, str]:
    """Return the author and the commit of files that are as committed; otherwise empty texts."""
    git = shutil.which("git")
    if git is None or not files or not all(file.is_file() for file in files):
        return "", ""
    names = [str(file.resolve()) for file in files]

    def said(*words: str) -> str | None:
        command = [git, "-C", str(files[0].resolve().parent), *words, "--", *names]
        try:
            done = subprocess.run(  # noqa: S603 - the user's own git
                command, capture_output=True, text=True, timeout=5, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if said("status", "--porcelain") != "":
        return "", ""
    author, _, commit = (said("log", "-1", "--format=%an%n%H") or "").partition("\n")
    return author, commit
