"""Limits by address: what one client does leaves room for all others."""

import pytest

from cep.spool.receivers.http_clients import ClientLimits, Clients, origin_of


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::1", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("", ""),
        ("no address", "no address"),
    ],
)
def test_an_address_of_ipv6_is_its_network(address: str, origin: str) -> None:
    assert origin_of(address) == origin


def test_one_address_never_has_all_connections() -> None:
    clients = Clients(ClientLimits(connections=4, connections_of_one=2, n_bytes=100, body_bytes=10))
    assert [clients.admit("a") for _ in range(3)] == ["", "", "too many connections from this address"]
    assert [clients.admit("b"), clients.admit("c")] == ["", ""]
    assert clients.admit("d") == "too many connections"
    clients.leave("a")
    assert clients.admit("d") == ""
    assert clients.admit("a") == "too many connections"


@pytest.mark.parametrize(
    ("limits", "of_one", "of_all"),
    [
        (ClientLimits(1000, 250, 256, 16), 64, 256),
        (ClientLimits(1000, 250, 256, 100), 100, 400),  # a body always fits into a share
        (ClientLimits(1000, 1000, 256, 16), 256, 256),  # behind a proxy
        (ClientLimits(1000, 5000, 256, 16), 256, 256),
        (ClientLimits(1, 250, 256, 16), 256, 256),
    ],
)
def test_an_address_has_the_same_share_of_the_memory(limits: ClientLimits, of_one: int, of_all: int) -> None:
    assert (limits.bytes_of_one, limits.bytes_of_all) == (of_one, of_all)


def test_bytes_count_when_they_have_come_and_the_oldest_body_goes_on() -> None:
    clients = Clients(ClientLimits(connections=4, connections_of_one=2, n_bytes=200, body_bytes=50))
    first, second, other = clients.begin("a"), clients.begin("a"), clients.begin("b")
    assert clients.has_room(first, 50)  # announced: nothing is held yet
    clients.hold(first, 40)
    clients.hold(second, 60)
    assert not clients.has_room(second, 1)
    assert clients.has_room(first, 10)
    assert clients.has_room(other, 50)
    clients.end(first)
    assert clients.has_room(second, 1)  # now it is the oldest one
    clients.hold(other, 50)
    assert clients.has_room(second, 90)
    assert not clients.has_room(second, 91)  # the limit of all holds for everybody
    clients.end(second)
    clients.end(other)
    assert clients == Clients(clients.limits)
