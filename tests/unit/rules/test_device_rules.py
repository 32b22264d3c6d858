"""The rules of the library about devices: who is silent, and who is not there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cep.local.find_matches import find_matches
from cep.settings.schema_file import load_streams

FOLDER = Path(__file__).parents[3] / "rules" / "devices"
STREAMS = load_streams(FOLDER / "streams.yaml")
START = datetime(2025, 3, 1, tzinfo=UTC)


def silent(
    readings: list[tuple[str, float]], versions: list[tuple[str, float, str]]
) -> list[tuple[str, int]]:
    """Return each device that is reported, and the hour."""
    rows: dict[str, list[dict[str, Any]]] = {
        "readings": [
            {"device_id": device, "ts": START + timedelta(hours=hour), "sequence": number, "value": 1.0}
            for number, (device, hour) in enumerate(readings)
        ],
        "devices": [
            {"device_id": device, "updated_at": START + timedelta(hours=hour), "op": op}
            for device, hour, op in versions
        ],
    }
    found = find_matches((FOLDER / "silent_device.cep").read_text(), STREAMS, rows)
    return [(row["device_id"], int((row["match_start"] - START).total_seconds() // 3600)) for row in found]


def hourly(device: str, *hours: float) -> list[tuple[str, float]]:
    return [(device, hour) for hour in hours]


def test_a_device_that_falls_silent_and_one_that_never_reported_are_found() -> None:
    readings = [*hourly("a", 0, 1, 2, 3, 4), *hourly("b", 0.5, 1.999)]
    registered = [(device, -5000.0, "c") for device in "abc"]
    assert silent(readings, registered) == [("c", 0), ("b", 2)]


def test_a_device_that_comes_or_goes_within_the_hour_is_not_found() -> None:
    beats = hourly("a", 0, 1, 2, 3)
    assert silent(beats, [("a", -1, "c"), ("b", 0.001, "c"), ("b", 1.999, "d")]) == []
    assert silent(beats, [("b", 0.001, "c"), ("b", 2, "d")]) == [("b", 1)]
    assert silent(beats, [("b", 1, "c"), ("b", 1.5, "d"), ("b", 1.5, "c")]) == [("b", 1)]
    assert silent(beats, [("b", 1, "c"), ("b", 1.5, "d"), ("b", 1.6, "c")]) == [("b", 2)]


def test_a_silent_device_is_reported_once_a_day() -> None:
    beats = hourly("a", *range(30))
    assert silent(beats, [("b", -1, "c")]) == [("b", 0), ("b", 24)]
