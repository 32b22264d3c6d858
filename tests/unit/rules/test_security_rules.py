"""The rules over several streams, and with keys that differ per variable, on small stories."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from cep.commands.cli import main
from cep.documents.schema_file import load_streams
from cep.testing import find_matches

FOLDER = Path(__file__).parents[3] / "rules" / "security"
STREAMS = load_streams(FOLDER / "streams.yaml")
TAKEOVER = FOLDER / "takeover_then_drain.cep"
LATERAL = FOLDER / "lateral_movement.cep"


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
