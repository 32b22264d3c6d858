"""The rules over several streams, and with keys that differ per variable, on small stories."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cep.commands.cli import main
from cep.local.find_matches import find_matches
from cep.settings.schema_file import load_streams

FOLDER = Path(__file__).parents[3] / "rules" / "security"
STREAMS = load_streams(FOLDER / "streams.yaml")
TAKEOVER = FOLDER / "takeover_then_drain.cep"
LATERAL = FOLDER / "lateral_movement.cep"
SCAN = FOLDER / "scan.cep"
HIJACK = FOLDER / "session_hijack.cep"


def at(minute: float) -> datetime:
    return datetime(2025, 3, 1, tzinfo=UTC) + timedelta(minutes=minute)


def login(number: int, minute: float, success: bool, device: str = "stranger") -> dict[str, Any]:
    return {"login_id": number, "at": at(minute), "account": "a7", "device": device, "success": success}


def payment(number: int, minute: float, amount: float, device: str | None = None) -> dict[str, Any]:
    return {
        "transaction_id": number, "ts": at(minute), "card_id": "a7", "amount": amount, "device": device
    }  # fmt: skip


GUESSED = [login(number, number, success=False) for number in range(3)]
ENTERED = login(3, 4, success=True)


def takeovers(logins: list[dict[str, Any]], transactions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return find_matches(TAKEOVER.read_text(), STREAMS, {"logins": logins, "transactions": transactions})


def test_a_takeover_is_seen_across_both_streams() -> None:
    (match,) = takeovers(
        [*GUESSED, ENTERED], [payment(1, 3, 950.0), payment(2, 6, 20.0), payment(3, 7, 990.0)]
    )
    assert match["account"] == "a7"
    assert (match["failures"], match["device"], match["loss"]) == (3, "stranger", 990.0)
    assert match["apart"] == 3 * 60_000_000


def test_an_owner_who_comes_back_is_no_takeover() -> None:
    back = login(4, 5, success=True, device="phone")
    assert takeovers([*GUESSED, ENTERED, back], [payment(3, 7, 990.0)]) == []
    assert takeovers([*GUESSED, ENTERED], [payment(3, 7, 990.0, device="phone")]) == []


def test_the_command_takes_an_input_for_each_stream(tmp_path: Path) -> None:
    inputs = []
    for name, rows in (("logins", [*GUESSED, ENTERED]), ("transactions", [payment(3, 7, 990.0)] * 2)):
        lines = [json.dumps(row, default=datetime.isoformat) for row in rows]
        (tmp_path / f"{name}.jsonl").write_text("\n".join([*lines, "broken"]) + "\n")
        inputs += ["-i", f"{name}={tmp_path / name}.jsonl"]
    found = CliRunner().invoke(main, ["match", str(TAKEOVER), *inputs])
    assert found.exit_code == 0, found.stderr
    (row,) = map(json.loads, found.stdout.splitlines())
    assert (row["account"], row["transaction_id"]) == ("a7", 3)
    counts = {
        name: int(number) for name, number in re.findall(r"^(\w+) +(\d+)(?!\.)\b", found.stderr, re.MULTILINE)
    }
    assert (counts["events"], counts["malformed"], counts["duplicates"]) == (6, 2, 1)
    alone = CliRunner().invoke(main, ["match", str(TAKEOVER), *inputs[:2]])
    assert alone.exit_code == 1
    assert "reads stream `transactions`, there is no input for it" in alone.stderr
    unnamed = CliRunner().invoke(main, ["match", str(TAKEOVER), "-i", str(tmp_path / "logins.jsonl")])
    assert unnamed.exit_code == 1
    assert "the rules read 2 streams" in unnamed.stderr


GUESSING = FOLDER / "slow_guessing.cep"


def burst(first: int, minute: float, device: str = "stranger") -> list[dict[str, Any]]:
    return [login(first + at, minute + at / 10, success=False, device=device) for at in range(5)]


def test_bursts_of_guesses_over_a_day_and_then_a_login_are_found() -> None:
    bursts = [row for number in range(3) for row in burst(10 * number, 120 * number)]
    own = login(90, 300, success=True, device="phone")
    entered = login(91, 400, success=True)
    found = find_matches(GUESSING.read_text(), STREAMS, [*bursts, own, entered])
    assert [match["rule"] for match in found] == ["guessing"] * 3 + ["slow_guessing"]
    assert (found[-1]["account"], found[-1]["bursts"], found[-1]["guesses"]) == ("a7", 3, 15)
    assert (found[-1]["match_end"], found[-1]["entered_from"]) == (at(400), "stranger")
    two = find_matches(GUESSING.read_text(), STREAMS, [*bursts[:10], entered])
    assert [match["rule"] for match in two] == ["guessing"] * 2
    late = login(92, 24 * 60 + 1, success=True)
    assert len(find_matches(GUESSING.read_text(), STREAMS, [*bursts, late])) == 3


def connection(number: int, minute: float, src: str, dst: str, port: int = 22) -> dict[str, Any]:
    ends = {"src_host": src, "dst_host": dst}
    return {"connection_id": number, "ts": at(minute), **ends, "port": port, "bytes_sent": 10}


def test_lateral_movement_is_seen_from_the_machine_in_the_middle() -> None:
    rows = [
        connection(1, 0, "outside", "web"),
        connection(2, 1, "web", "db"),
        connection(3, 2, "other", "db"),
        connection(4, 3, "web", "outside"),  # back to where it came from
        connection(5, 4, "web", "mail", 3389),
        connection(6, 5, "web", "files"),
        connection(7, 6, "web", "web", 80),
    ]
    (match,) = find_matches(LATERAL.read_text(), STREAMS, rows)
    assert match["machine"] == "web"
    assert (match["came_from"], match["first_target"], match["last_target"]) == ("outside", "db", "files")
    assert match["bytes_sent"] == 30
    assert find_matches(LATERAL.read_text(), STREAMS, rows[1:]) == []


def scans(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return find_matches(SCAN.read_text(), STREAMS, rows)


def test_a_scan_of_51_hosts_in_ten_minutes_is_found_once() -> None:
    rows = [connection(number, number / 6, "web", f"host{number}") for number in range(51)]
    (match,) = scans(rows)
    assert (match["src_host"], match["hosts"], match["ports"], match["bytes_sent"]) == ("web", 51, 1, 510)
    assert (match["match_start"], match["match_end"]) == (at(-1), at(9))


def test_a_scan_of_101_ports_is_found() -> None:
    (match,) = scans([connection(number, 0.5, "web", "db", number) for number in range(101)])
    assert (match["connections"], match["hosts"], match["ports"]) == (101, 1, 101)
    assert (match["match_start"], match["match_end"]) == (at(-9), at(1))


def test_what_is_slower_or_of_few_hosts_is_no_scan() -> None:
    slow = [connection(number, number / 5, "web", f"host{number}") for number in range(120)]
    assert max(sum(0 <= row["ts"].minute - start < 10 for row in slow) for start in range(60)) == 50
    assert scans(slow) == []
    assert (
        scans([connection(number, 0, "web", f"host{number % 50}", number % 100) for number in range(999)])
        == []
    )
    assert scans([connection(number, 0, f"src{number}", f"host{number}") for number in range(200)]) == []


HOME, CAFE, FAR = ("10.1.0.1", "DE"), ("10.2.0.2", "DE"), ("10.9.0.9", "NG")


def request(
    number: int, minute: float, device: str | None, place: tuple[str | None, str | None], session: str = "s1"
) -> dict[str, Any]:
    """Return a request of the session from a device at a place: its address and its country."""
    address, country = place
    row = {"request_id": number, "ts": at(minute), "session_id": session, "account": "a7"}
    return row | {"device": device, "address": address, "country": country}


def asked(*parts: tuple[float, str | None, tuple[str | None, str | None]]) -> list[dict[str, Any]]:
    return [request(number, *part) for number, part in enumerate(parts)]


def hijacks(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return find_matches(HIJACK.read_text(), STREAMS, rows)


def test_a_session_that_goes_on_from_another_device_and_address_is_found_once() -> None:
    rows = asked(
        (0, "phone", HOME), (5, "phone", CAFE), (20, "linux", FAR), (21, "phone", CAFE), (22, "x", FAR)
    )
    (match,) = hijacks(rows)
    assert (match["session_id"], match["account"], match["match_end"]) == ("s1", "a7", at(20))
    assert (match["owner"], match["device"]) == ("phone", "linux")
    assert (match["owner_address"], match["address"], match["is_abroad"]) == (CAFE[0], FAR[0], True)


def test_a_thief_in_the_same_country_is_found() -> None:
    (match,) = hijacks(asked((0, "phone", HOME), (15, "linux", CAFE)))
    assert match["is_abroad"] is False


@pytest.mark.parametrize(
    "rows",
    [
        asked((0, "phone", HOME), (1, "phone", CAFE), (2, "phone", FAR)),
        asked((0, "phone", HOME), (1, "phone 2", HOME)),
        asked((0, "phone", HOME), (1, "phone 2", HOME), (2, "phone 2", FAR)),
        asked((0, "phone", HOME), (15.001, "linux", FAR)),
        [request(1, 0, "phone", HOME), request(2, 1, "linux", FAR, session="s2")],
        asked((0, None, HOME), (1, "linux", FAR)),
        asked((0, "phone", HOME), (1, None, FAR)),
        asked((0, "phone", (None, None)), (1, "linux", FAR)),
    ],
    ids=[
        *("the owner travels", "an update of the browser", "an update, then travel", "the owner is gone"),
        *("another session", "no device before", "no device", "no address before"),
    ],
)
def test_what_an_owner_does_is_no_hijack(rows: list[dict[str, Any]]) -> None:
    assert hijacks(rows) == []
