"""What a receiver is: it takes messages of one protocol and offers them to the intake."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from cep.spool.intake import Intake


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The address of a server that sends messages, and how to log in.

    `ca_file`: a PEM file of trusted authorities; "": those of the system.
    """

    host: str = "127.0.0.1"
    port: int
    user: str = ""
    password: str = field(default="", repr=False)
    tls: bool = False
    ca_file: str = ""

    @property
    def where(self) -> str:
        """The server, for messages."""
        return f"{self.host}:{self.port}"


S = TypeVar("S", bound=ServerSettings)


@dataclass(eq=False)
class ServerReceiver(Generic[S]):
    """The common settings of all receivers that connect to a server.

    `now_us`: the wall clock: microseconds since 1970. `say`: receives a sentence when the connection is lost
    or works again.
    """

    settings: S
    now_us: Callable[[], int]
    say: Callable[[str], None] = lambda text: None

    def __post_init__(self) -> None:
        """Prepare what the receiver keeps. Without it, the constructor ignores a subclass's."""


class Receiver(Protocol):
    """Takes messages of one protocol.

    A message that its sender can send again is acknowledged only when the intake says `Outcome.WRITTEN`, or
    `Outcome.DROPPED`.
    """

    def check(self) -> None:
        """Raise InputError within 10 seconds if nothing can arrive: no server, queue or access."""

    def run(self, intake: Intake, stopped: threading.Event) -> None:
        """Take messages until `stopped` is set, then acknowledge the written ones; raises InputError."""
