"""`cep savepoint` and `cep restore` in a process of their own, which is killed at a point."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.kills.points import Call, plant

_SECONDS = 300
_LOOK_SECONDS = 0.002


@dataclass(frozen=True, slots=True)
class Save:
    """How a command is run.

    Parameters
    ----------
    at, nth
        Where it kills itself; None: nowhere.
    when_planned_ms
        It begins so many milliseconds after the next plan of the checkpoint; None: at once.
    """

    at: Call | None = None
    nth: int = 1
    when_planned_ms: int | None = None


@dataclass
class Command:
    """A command that runs, such as ``savepoint CHECKPOINT DIR``."""

    words: list[str]
    save: Save = field(default_factory=Save)

    def __post_init__(self) -> None:
        at = None if self.save.at is None else asdict(self.save.at)
        how = json.dumps({**asdict(self.save), "at": at})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kills.saves", how, *self.words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if self.save.when_planned_ms is not None:  # a plan that was written before it watches would be missed
            assert self._process.stdout is not None
            assert self._process.stdout.readline() == "ready\n"

    def waited(self) -> str | None:
        """Wait for its end; return why it was refused, an empty text: it is done. None: it was killed."""
        said, _ = self._process.communicate(timeout=_SECONDS)
        if self._process.returncode == -signal.SIGKILL:
            return None
        assert not self._process.returncode or "error[" in said, said
        return said if self._process.returncode else ""

    def end(self) -> None:
        """End it, if it still runs."""
        self._process.kill()
        self._process.communicate()


def _run(how: dict[str, Any], words: list[str]) -> None:
    from cep.commands.cli import main

    checkpoint = Path(words[1])
    before = set(checkpoint.glob("plan/*"))
    if how["at"] is not None:
        plant(Call(**how["at"]), how["nth"])
    if how["when_planned_ms"] is not None:
        print("ready", flush=True)
        deadline = time.monotonic() + _SECONDS
        while not set(checkpoint.glob("plan/*")) - before and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        time.sleep(how["when_planned_ms"] / 1000)
    main(words)


if __name__ == "__main__":
    _run(json.loads(sys.argv[1]), sys.argv[2:])
