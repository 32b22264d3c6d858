"""Who is connected: limits by address, so that one client leaves room for all others."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address


def origin_of(address: str) -> str:
    """Return what counts as one address: of IPv6 the network of 64 bits, in which a host takes any number."""
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
    """What clients may have at one time.

    Parameters
    ----------
    connections, connections_of_one
        Connections of all addresses, and of one.
    n_bytes
        Bytes of all bodies that are being read. One address has the same share of them as of the connections.
    body_bytes
        Of one body. A share is never smaller.
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
        """Bytes of all bodies: one address never has them all, unless it may have all connections."""
        n_shares = max(self.connections // min(self.connections_of_one, self.connections), 1)
        return max(self.n_bytes, self.bytes_of_one * n_shares)


@dataclass(slots=True, eq=False)
class Body:
    """A body that is being read: what of it has come."""

    origin: str
    n_bytes: int = 0


@dataclass(slots=True)
class Clients:
    """The connections that are there and the bodies that are being read. Used by one thread."""

    limits: ClientLimits
    _connections: Counter[str] = field(default_factory=Counter)
    _n_connections: int = 0
    _bodies: dict[str, list[Body]] = field(default_factory=dict)
    _bytes: Counter[str] = field(default_factory=Counter)
    _n_bytes: int = 0

    def admit(self, origin: str) -> str:
        """Take a connection, and return ""; or return why there is no room for it."""
        if self._connections[origin] >= self.limits.connections_of_one:
            return "too many connections from this address"
        if self._n_connections >= self.limits.connections:
            return "too many connections"
        self._connections[origin] += 1
        self._n_connections += 1
        return ""

    def leave(self, origin: str) -> None:
        """Note that a connection that was taken has ended."""
        self._n_connections -= 1
        self._connections[origin] -= 1
        if not self._connections[origin]:
            del self._connections[origin]

    def begin(self, origin: str) -> Body:
        """Return a body of which nothing has come yet; `end` must follow."""
        body = Body(origin)
        self._bodies.setdefault(origin, []).append(body)
        return body

    def has_room(self, body: Body, n_bytes: int) -> bool:
        """Say whether so many bytes more of a body may come.

        The oldest body of an address may always go on, within the limit of all. So of many that come together
        one is read to its end.
        """
        if self._n_bytes + n_bytes > self.limits.bytes_of_all:
            return False
        is_oldest = self._bodies[body.origin][0] is body
        return is_oldest or self._bytes[body.origin] + n_bytes <= self.limits.bytes_of_one

    def hold(self, body: Body, n_bytes: int) -> None:
        """Note that so many bytes of a body have come."""
        body.n_bytes += n_bytes
        self._bytes[body.origin] += n_bytes
        self._n_bytes += n_bytes

    def end(self, body: Body) -> None:
        """Note that nobody holds the bytes of a body any more."""
        self._n_bytes -= body.n_bytes
        self._bytes[body.origin] -= body.n_bytes
        self._bodies[body.origin].remove(body)
        if not self._bodies[body.origin]:
            del self._bodies[body.origin], self._bytes[body.origin]
