"""The rules of the library that join tables, on a few events around the changes of their rows."""

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
DAY = 86_400.0
COUNTRIES = [{"iso": "DE", "risk": "low"}, {"iso": "NG", "risk": "high"}, {"iso": "TH", "risk": "high"}]


def sent(second: float, payee: str, country: str | None, amount: float, **more: Any) -> dict[str, Any]:
    row = {
        "ts": START + timedelta(seconds=second),
        "card_id": "c1",
        "kind": "transfer",
        "approved": True,
        "payee": payee,
        "payee_country": country,
        "amount": amount,
    }
    return row | more


def limit(second: float, amount: float | None, op: str = "u", card: str = "c1") -> dict[str, Any]:
    at = START + timedelta(seconds=second)
    return {"card_id": card, "ts": at, "op": op, "transfer_limit": amount}


def found(rows: list[dict[str, Any]], *limits: dict[str, Any]) -> list[dict[str, Any]]:
    events = [row | {"event_id": number} for number, row in enumerate(rows)]
    given = {"card_events": events, "customers": list(limits), "countries": COUNTRIES}
    return find_matches((FOLDER / "new_payee.cep").read_text(), STREAMS, given)


def test_a_transfer_above_the_limit_to_a_new_payee_in_a_new_and_risky_country_is_found() -> None:
    (match,) = found([sent(0, "aunt", "DE", 900), sent(DAY, "p9", "NG", 501)], limit(-DAY, 500, "c"))
    assert (match["payee"], match["country"], match["transfer_limit"], match["loss"]) == (
        "p9",
        "NG",
        500.0,
        501.0,
    )


@pytest.mark.parametrize(
    ("rows", "limits"),
    [
        ([sent(0, "p9", "NG", 500)], [limit(-1, 500)]),
        ([sent(0, "p9", "DE", 900)], [limit(-1, 500)]),
        ([sent(0, "p9", "XX", 900)], [limit(-1, 500)]),
        ([sent(0, "p9", None, 900)], [limit(-1, 500)]),
        ([sent(0, "p9", "NG", 900, approved=False)], [limit(-1, 500)]),
        ([sent(0, "p9", "NG", 900, kind="purchase")], [limit(-1, 500)]),
        ([sent(0, "p9", "NG", 100), sent(1, "p9", "NG", 900)], [limit(-1, 500)]),
        ([sent(0, "p8", "NG", 100), sent(1, "p9", "NG", 900)], [limit(-1, 500)]),
        ([sent(0, "p9", "TH", 100), sent(1, "p9", "NG", 900)], [limit(-1, 500)]),
        ([sent(0, "p9", "NG", 900)], [limit(-1, 500, card="c2")]),
    ],
    ids=[
        *("within the limit", "a country without risk", "a country of no row", "no country", "refused"),
        *("a purchase", "a known payee", "a known country", "a payee known elsewhere", "another card"),
    ],
)
def test_other_transfers_are_not_reported(rows: list[dict[str, Any]], limits: list[dict[str, Any]]) -> None:
    assert found(rows, *limits) == []


@pytest.mark.parametrize(
    ("limits", "is_found"),
    [
        ([], False),  # the house allows 1,000
        ([limit(-DAY, 500), limit(0, 2000)], False),  # raised at this instant
        ([limit(-DAY, 500), limit(0.001, 2000)], True),
        ([limit(-DAY, 2000), limit(0, 500)], True),
        ([limit(-DAY, 500), limit(0, None, "d")], False),  # the limit of the house again
        ([limit(0, 500), limit(-DAY, 2000)], True),  # in whatever order they arrive
    ],
)
def test_what_counts_is_the_limit_at_the_time_of_the_transfer(
    limits: list[dict[str, Any]], is_found: bool
) -> None:
    assert bool(found([sent(0, "p9", "NG", 900)], *limits)) is is_found


def test_the_house_allows_1000_where_nothing_was_agreed() -> None:
    (match,) = found([sent(0, "p9", "NG", 1001)])
    assert match.get("transfer_limit") is None


def test_a_payee_is_new_again_after_90_days() -> None:
    def once_more(apart_s: float) -> list[dict[str, Any]]:
        return found([sent(0, "p9", "NG", 10), sent(apart_s, "p9", "NG", 1001)])

    assert once_more(90 * DAY) == []
    assert len(once_more(90 * DAY + 0.001)) == 1


def test_events_of_other_kinds_are_dropped_before_they_are_brought_together() -> None:
    path = FOLDER / "new_payee.cep"
    (rule,) = compile_sources([Source(str(path), path.read_text())], STREAMS).rules
    assert "only those for which some local predicate holds; all others are dropped" in explain(rule)
