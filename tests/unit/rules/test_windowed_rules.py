"""The rules of the library that read windowed values, on a few events at the edges of their windows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cep.compiler.compile import compile_sources
from cep.errors import Source
from cep.explain.explain import explain
from cep.local.find_matches import find_matches
from cep.settings.schema_file import load_streams

FOLDER = Path(__file__).parents[3] / "rules" / "fraud"
STREAMS = load_streams(FOLDER / "streams.yaml")
START = datetime(2025, 3, 1, tzinfo=UTC)
MINUTE, DAY = 60.0, 86_400.0


def event(second: float, kind: str, amount: float | None = None, **more: Any) -> dict[str, Any]:
    """Return an event of the one card, so many seconds after the start."""
    ts = START + timedelta(seconds=second)
    row = {"ts": ts, "card_id": "c1", "kind": kind, "amount": amount, "approved": True, "card_present": False}
    return row | more


def found(rule: str, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    numbered = [row | {"event_id": number} for number, row in enumerate(rows)]
    return find_matches((FOLDER / f"{rule}.cep").read_text(), STREAMS, numbered)


def ends(matches: list[dict[str, Any]]) -> list[float]:
    return [(match["match_end"] - START).total_seconds() for match in matches]


def payments(
    seconds: list[float], merchants: str, amount: float = 100.0, **more: Any
) -> list[dict[str, Any]]:
    pairs = zip(seconds, merchants, strict=True)
    return [event(second, "purchase", amount, merchant_id=shop, **more) for second, shop in pairs]


def test_five_payments_at_three_merchants_within_a_minute_are_found() -> None:
    (match,) = found("velocity", *payments([0, 15, 30, 45, 60, 61], "abcaab"))
    assert ends([match]) == [60]
    assert (match["payments"], match["merchants"], match["loss"]) == (5, 3, 500.0)


@pytest.mark.parametrize(
    "rows",
    [
        payments([0, 15, 30, 45, 60.001], "abcde"),
        payments([0, 1, 2, 3, 4, 5], "ababab"),
        payments([0, 1, 2, 3, 4], "abcde", amount=49.99),
        payments([0, 1, 2, 3, 4], "abcde", approved=False),
        payments([0, 1, 2, 3, 4], "abcde", card_present=True),
        [*payments([0, 1, 2, 3], "abcd"), event(4, "transfer", 100.0, merchant_id="e")],
    ],
    ids=["a minute and a bit", "two merchants", "small", "refused", "in shops", "four, and a transfer"],
)
def test_fewer_or_other_payments_are_no_velocity(rows: list[dict[str, Any]]) -> None:
    assert found("velocity", *rows) == []


def test_velocity_is_reported_once_in_ten_minutes() -> None:
    burst = [payments([start + k for k in range(7)], "abcdefg") for start in (0, 300, 700)]
    assert ends(found("velocity", *(row for part in burst for row in part))) == [4, 704]


def taken(*pairs: tuple[float, float], **more: Any) -> list[dict[str, Any]]:
    return [event(minute * MINUTE, "withdrawal", amount, **more) for minute, amount in pairs]


def test_a_drain_is_found_when_the_sum_of_an_hour_passes_the_limit() -> None:
    (match,) = found("rapid_drain", *taken((0, 900), (10, 900), (20, 900), (60, 301), (61, 500)))
    assert ends([match]) == [60 * MINUTE]
    assert (match["steps"], match["loss"]) == (4, 3001.0)


@pytest.mark.parametrize(
    "rows",
    [
        taken((0, 1000), (10, 1000), (20, 1000)),
        taken((0, 1000), (10, 1000), (60.001, 1001)),
        taken((0, 2500), (10, 2500)),
        taken((0, 2000), (10, 2000), (20, 99)),
        taken((0, 1500), (10, 1500), (20, 1500), approved=False),
    ],
    ids=["at the limit", "longer than an hour", "two steps", "a small third step", "refused"],
)
def test_smaller_slower_or_refused_withdrawals_are_no_drain(rows: list[dict[str, Any]]) -> None:
    assert found("rapid_drain", *rows) == []


def test_a_drain_that_goes_on_is_reported_once_in_an_hour() -> None:
    rows = taken(*((10.0 * step, 1100.0) for step in range(12)))
    assert ends(found("rapid_drain", *rows)) == [20 * MINUTE, 80 * MINUTE]


def transfers(*pairs: tuple[float, float], **more: Any) -> list[dict[str, Any]]:
    return [event(day * DAY, "transfer", amount, **more) for day, amount in pairs]


USUAL = [(1.0, 90.0), (2.0, 110.0), (3.0, 100.0), (4.0, 3000.0), (5.0, 100.0)]


def test_a_transfer_is_unusual_beside_the_median_of_the_month_before_it() -> None:
    (match,) = found("unusual_amount", *transfers(*USUAL, (31, 2000.01)))  # a single large one hides nothing
    assert (match["usual"], match["loss"]) == (100.0, 2000.01)


@pytest.mark.parametrize(
    "rows",
    [
        transfers(*USUAL, (31, 2000.0)),
        transfers(*USUAL, (31.001, 9000.0)),
        transfers(*USUAL[:4], (31, 9000.0)),
        [*transfers(*USUAL), *transfers((31, 9000.0), approved=False)],
        [*transfers(*USUAL[:4]), *transfers((5, 100.0), approved=False), *transfers((31, 9000.0))],
        transfers(*((day, amount / 10) for day, amount in USUAL), (31, 1999.0)),
    ],
    ids=[
        "20 times",
        "31 days and more",
        "four before",
        "refused",
        "one of five refused",
        "below 2,000 euros",
    ],
)
def test_what_is_usual_enough_or_not_known_is_not_reported(rows: list[dict[str, Any]]) -> None:
    assert found("unusual_amount", *rows) == []


def login(second: float, device: str, **more: Any) -> dict[str, Any]:
    return event(second, "login", device=device, **more)


def moved(second: float, device: str, amount: float = 500.0, **more: Any) -> dict[str, Any]:
    return event(second, "transfer", amount, device=device, **more)


def test_a_transfer_from_a_device_that_never_logged_in_before_is_found() -> None:
    rows = [login(0, "own"), login(DAY, "new"), moved(DAY + 30 * MINUTE, "new")]
    (match,) = found("new_device", *rows)
    assert (match["device"], match["known_devices"], match["loss"]) == ("new", 1, 500.0)
    assert match["apart"] == 30 * 60_000_000


@pytest.mark.parametrize(
    "rows",
    [
        [login(0, "own"), login(DAY, "own"), moved(DAY + 60, "own")],
        [login(0, "new"), moved(60, "new")],
        [login(0, "own"), login(60, "new"), login(DAY, "new"), moved(DAY + 60, "new")],
        [login(0, "own"), login(DAY, "new"), moved(DAY + 30 * MINUTE + 0.001, "new")],
        [login(0, "own"), login(DAY, "new"), moved(DAY + 60, "own")],
        [login(0, "own"), login(DAY, "new", approved=False), moved(DAY + 60, "new")],
        [login(0, "own"), login(DAY, "new"), moved(DAY + 60, "new", 499.0)],
        [login(0, "own", approved=False), login(DAY, "new"), moved(DAY + 60, "new")],
    ],
    ids=[
        *(
            "a known device",
            "the first login of all",
            "known for a day",
            "31 minutes",
            "from the other device",
        ),
        *("login refused", "a small amount", "no past but a refused login"),
    ],
)
def test_a_known_device_or_no_transfer_from_it_is_not_reported(rows: list[dict[str, Any]]) -> None:
    assert found("new_device", *rows) == []


def test_a_device_is_new_again_after_90_days() -> None:
    def once_more(apart_s: float) -> list[dict[str, Any]]:
        later = login(10 + apart_s, "phone")
        middle = login(50 * DAY, "own")
        return found("new_device", login(10, "phone"), middle, later, moved(70 + apart_s, "phone"))

    assert once_more(90 * DAY) == []
    assert len(once_more(90 * DAY + 0.001)) == 1


@pytest.mark.parametrize("name", ["rapid_drain", "velocity", "unusual_amount", "new_device"])
def test_events_of_other_kinds_are_dropped_before_they_are_brought_together(name: str) -> None:
    path = FOLDER / f"{name}.cep"
    (rule,) = compile_sources([Source(str(path), path.read_text())], STREAMS).rules
    assert "only those for which some local predicate holds; all others are dropped" in explain(rule)
