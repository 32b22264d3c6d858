"""The rules of the library that limit times between events, on a few events each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cep.errors import Source
from cep.local.find_matches import find_matches
from cep.settings.schema_file import load_streams

RULES = Path(__file__).parents[3] / "rules"
MINUTE_US = 60_000_000


def matches_of(folder: str, name: str, rows: Any) -> list[dict[str, Any]]:
    path = RULES / folder / f"{name}.cep"
    return find_matches(
        Source(str(path), path.read_text()), load_streams(RULES / folder / "streams.yaml"), rows
    )


def host_events(*events: tuple[float, str], **more: str) -> list[dict[str, Any]]:
    """Events of one host, (minute, kind)."""
    return [
        {"host": "h1", "sequence": number, "ts": round(minute * MINUTE_US), "kind": kind, **more}
        for number, (minute, kind) in enumerate(events)
    ]


def test_a_host_is_missed_five_minutes_after_its_last_heartbeat() -> None:
    beats = [(minute, "heartbeat") for minute in (0, 1, 5.9, 10.9, 16, 17)]
    found = matches_of("operations", "no_heartbeat", host_events(*beats))
    last_seen = [match["last_seen"].minute + match["last_seen"].second / 60 for match in found]
    assert last_seen == [10.9, 17]  # a gap of exactly five minutes is none
    assert [(match["match_end"] - match["last_seen"]).total_seconds() for match in found] == [300, 300]


def test_a_host_that_was_shut_down_is_not_missed() -> None:
    assert matches_of("operations", "no_heartbeat", host_events((0, "heartbeat"), (1, "shutdown"))) == []


def outages(*times: tuple[float, float]) -> list[dict[str, Any]]:
    ends = [(minute, kind) for down, up in times for minute, kind in ((down, "link_down"), (up, "link_up"))]
    return host_events(*ends, link="eth0")


@pytest.mark.parametrize(
    ("times", "is_flapping"),
    [
        ([(0, 0.5), (10.5, 11.5), (21, 21.2)], True),
        ([(0, 0.5), (10.6, 11.5), (21, 21.2)], False),  # more than ten minutes after the link came back
        ([(0, 0.5), (10.5, 11.6), (21, 21.2)], False),  # down for more than a minute
        ([(0, 0.5), (10.5, 11.5)], False),
    ],
)
def test_a_link_flaps_if_its_outages_are_short_and_close(
    times: list[tuple[float, float]], is_flapping: bool
) -> None:
    found = matches_of("operations", "flapping_link", outages(*times))
    assert len(found) == is_flapping
    if is_flapping:
        assert found[0]["lasted_us"] == round(21.2 * MINUTE_US)


def orders(*events: tuple[int, str, str, int, int]) -> list[dict[str, Any]]:
    """Order events, (millisecond, kind, side, order, size)."""
    return [
        {
            "sequence": number, "ts": at * 1000, "account": "x", "symbol": "ACME", "order_id": order,
            "kind": kind, "side": side, "price": 10.0 + number, "size": size,
        }
        for number, (at, kind, side, order, size) in enumerate(events)
    ]  # fmt: skip


def test_fills_in_a_burst_are_each_within_200_milliseconds_of_the_one_before() -> None:
    fills = [(at, "filled", "buy", 1, 100) for at in (0, 200, 400, 601, 800, 1000)]
    found = matches_of("trading", "fill_burst", orders(*fills))
    assert [(match["size"], match["average_price"]) for match in found] == [(300, 11.0), (300, 14.0)]
    slow = [(at, "filled", "buy", 1, 100) for at in (0, 200, 401, 601, 802)]
    assert matches_of("trading", "fill_burst", orders(*slow)) == []


def with_instrument(
    *events: tuple[int, str, str, int, int], typical_size: int = 100, phase: str = "continuous"
) -> dict[str, list[dict[str, Any]]]:
    known = {"symbol": "ACME", "ts": 0, "op": "c", "typical_size": typical_size, "phase": phase}
    return {"orders": orders(*events), "instruments": [known]}


def shown_and_withdrawn(at: int, order: int, after: int = 500) -> list[tuple[int, str, str, int, int]]:
    return [(at, "placed", "buy", order, 1000), (at + after, "cancelled", "buy", order, 1000)]


def test_orders_withdrawn_at_once_before_a_trade_on_the_other_side() -> None:
    shown = [*shown_and_withdrawn(0, 1), *shown_and_withdrawn(2500, 2), *shown_and_withdrawn(4000, 3, 100)]
    trade = (6100, "filled", "sell", 9, 50)
    (match,) = matches_of("trading", "spoofing", with_instrument(*shown, trade))
    assert (match["shown"], match["traded"]) == (3000, 50)
    for harmless in (
        [*shown, (6101, "filled", "sell", 9, 50)],  # too late
        [*shown, (6100, "filled", "buy", 9, 50)],  # on the same side
        [*shown[:4], *shown_and_withdrawn(4000, 3, 501), trade],  # left long enough to be taken
        [*shown[:4], trade],
    ):
        assert matches_of("trading", "spoofing", with_instrument(*harmless)) == []
    assert matches_of("trading", "spoofing", with_instrument(*shown, trade, typical_size=101)) == []
    assert matches_of("trading", "spoofing", with_instrument(*shown, trade, phase="closing")) == []
