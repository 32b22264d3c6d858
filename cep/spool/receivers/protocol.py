"""What a receiver is: it takes messages of one protocol and offers them to the intake."""

from __future__ import annotations

import threading
from typing import Protocol

from cep.spool.intake import Intake


class Receiver(Protocol):
    """Takes messages of one protocol.

    A message that its sender can send again is acknowledged only when the intake says `Outcome.WRITTEN`, or
    `Outcome.DROPPED`.
    """

    def check(self) -> None:
        """Raise InputError within 10 seconds if nothing can come: no server, no such queue, no access."""
        ...

    def run(self, intake: Intake, stopped: threading.Event) -> None:
        """Take messages until `stopped` is set, then acknowledge what is written; raises InputError."""
        ...
