"""Who is connected: limits by address, so that one client leaves room for all others."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address


def origin_of(address: str) -> str:
    """Return what counts as one address. For IPv6 this is a network of 64 bits, because a host may use any
    address in it.
    """
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(IPv6Address(int(found) >> 64 << 64))


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits on what clients may have at one time.

    `connections` and `connections_of_one`: connections of all addresses, and of one. `n_bytes`: bytes of all
    bodies that are being read. An address gets the same share of these bytes as of the connections.
    `body_bytes`: bytes of one body; a share is at least as large.
    """

    connections: int
    connections_of_one: int
    n_bytes: int
    body_bytes: int

    @property
    def bytes_of_one(self) -> int:
        """Bytes of the bodies of one address."""
        share = self.n_bytes * min(self.connections_of_one, self.connections) // self.connections
        return max(share, self.body_bytes)

    @property
    def bytes_of_all(self) -> int:
        """Bytes of all bodies. One address never gets all of them unless it may have all connections."""
        n_shares = max(self.connections // min(self.connections_of_one, self.connections), 1)
        return max(self.n_bytes, self.bytes_of_one * n_shares)


@dataclass(slots=True, eq=False)
class Body:
    """A body that is being read: how much of it has arrived."""

    origin: str
    n_bytes: int = 0


@dataclass(slots=True)
class Clients:
    """The open connections and the bodies that are being read. For one thread."""

    limits: ClientLimits
    _connections: Counter[str] = field(default_factory=Counter)
    _n_connections: int = 0
    _bodies: dict[str, list[Body]] = field(default_factory=dict)
    _bytes: Counter[str] = field(default_factory=Counter)
    _n_bytes: int = 0

    def admit(self, origin: str) -> str:
        """Accept a connection and return "", or return why there is no room for it."""
        if self._connections[origin] >= self.limits.connections_of_one:
            return "too many connections from this address"
        if self._n_connections >= self.limits.connections:
            return "too many connections"
        self._connections[origin] += 1
        self._n_connections += 1
        return ""

    def leave(self, origin: str) -> None:
        """Record that an accepted connection has ended."""
        self._n_connections -= 1
        self._connections[origin] -= 1
        if not self._connections[origin]:
            del self._connections[origin]

    def begin(self, origin: str) -> Body:
        """Return a body of which nothing has arrived yet; `end` must follow."""
        body = Body(origin)
        self._bodies.setdefault(origin, []).append(body)
        return body

    def has_room(self, body: Body, n_bytes: int) -> bool:
        """Return whether this many more bytes of a body may arrive.

        The oldest body of an address may always continue, within the limit of all bodies. So one of many
        concurrent bodies is read to its end.
        """
        if self._n_bytes + n_bytes > self.limits.bytes_of_all:
            return False
        is_oldest = self._bodies[body.origin][0] is body
        return is_oldest or self._bytes[body.origin] + n_bytes <= self.limits.bytes_of_one

    def hold(self, body: Body, n_bytes: int) -> None:
        """Record that this many bytes of a body have arrived."""
        body.n_bytes += n_bytes
        self._bytes[body.origin] += n_bytes
        self._n_bytes += n_bytes

    def end(self, body: Body) -> None:
        """Record that the bytes of a body are no longer held."""
        self._n_bytes -= body.n_bytes
        self._bytes[body.origin] -= body.n_bytes
        self._bodies[body.origin].remove(body)
        if not self._bodies[body.origin]:
            del self._bodies[body.origin], self._bytes[body.origin]
