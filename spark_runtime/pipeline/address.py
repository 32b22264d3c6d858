"""An address at which this machine listens: `127.0.0.1:9464`."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import NamedTuple

from cep.settings.declared import Wrong
from cep.settings.settings import Settings

_ADDRESS = re.compile(r"(?:(?P<host>[^\s:\[\]\0]+|\[[0-9A-Fa-f:.]+\]):)?(?P<port>[0-9]{1,5})")
_LOOPBACK = "127.0.0.1"
_NO_ADDRESS = Wrong(
    "`{}` is not an address",
    "expected a host and a port",
    "write for example: metrics: 127.0.0.1:9464",
)


class Address(NamedTuple):
    """A host and a port; port 0: the system chooses one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can connect."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def address_of(text: str) -> Address | None:
    """Return the address in a string, or None. Without a host, it is that of the loopback interface."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65_535:
        return None
    host = (found["host"] or _LOOPBACK).strip("[]")
    try:
        host.encode("idna")  # as a socket does
    except UnicodeError:
        return None
    return Address(host, int(found["port"]))


def read_address(settings: Settings, name: str) -> Address | None:
    """Return the address in a setting; None after a report."""
    text = settings.text(name)
    address = None if text is None else address_of(text)
    if text is not None and address is None:
        _NO_ADDRESS.note(settings, name, text)
    return address
