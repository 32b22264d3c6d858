"""The estimate of true times against devices whose true times are known."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from cep.engine.prepare import device_clocks
from cep.engine.prepare.device_clocks import DeviceClocks
from cep.errors import StateError
from tests.unit.engine.simulated_clocks import HOUR, SECOND, START, STREAM, Device, records

LEAST, FIRST_HOUR = 0.03, 0.36
"""Seconds: the delay that no record is faster than, and how far 100 ppm take a clock in an hour."""

Seconds = npt.NDArray[np.float64]


def errors(device: Device, seed: int = 1) -> tuple[Seconds, pa.Table]:
    """Return by how many seconds each estimate is later than the truth, and the records."""
    table, true_us = records([device], seed)
    found = np.asarray(DeviceClocks(STREAM).true_times(table))
    return (found - true_us) / SECOND, table


def after(table: pa.Table, hours: float) -> npt.NDArray[np.bool_]:
    received: npt.NDArray[np.bool_] = np.asarray(table.column("received")) > START + hours * HOUR
    return received


# A clock that is slow seems to lose offset: what is known of it lags behind by its drift. So the error lies
# between what it drifts in the first hour, before the drift is known, and the least delay.
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("retried", [0, 0.2, 0.5])
@pytest.mark.parametrize("drift_ppm", [-100, 0, 100])
@pytest.mark.parametrize("offset", [-2 * 3600, 0, 5 * 3600])
def test_the_error_stays_below_the_drift_of_an_hour_and_the_delay(
    offset: float, drift_ppm: float, retried: float, seed: int
) -> None:
    found, table = errors(Device("d", offset, drift_ppm, retried=retried), seed)
    begun = after(table, 0.05)  # the first records have no others to tell their delay by
    assert found[begun].min() >= -FIRST_HOUR
    assert found[begun].max() <= LEAST + 0.1
    known = after(table, 2.5)
    assert found[known].min() >= -0.1
    assert found[known].max() <= LEAST + 0.05


@pytest.mark.parametrize("retried", [0, 0.2, 0.5])
@pytest.mark.parametrize("drift_ppm", [-100, 100])
def test_the_first_hour_ends_when_the_page_says(drift_ppm: float, retried: float) -> None:
    minutes = 65
    for seed in range(10):
        found, table = errors(Device("d", 3600, drift_ppm, retried=retried, hours=3), seed)
        assert np.abs(found[after(table, minutes / 60)]).max() <= 0.1
        if drift_ppm < 0:  # the clock falls behind what is known of it
            assert found[after(table, 0.5)].min() < -0.1
    page = (Path(__file__).parents[4] / "docs" / "operate" / "time.md").read_text()
    assert f"Errors above 0.1 s end after {minutes} minutes at most" in page


@pytest.mark.parametrize("drift_ppm", [-100, 100])
def test_an_event_that_a_device_held_for_a_day_is_told_by_the_drift_of_its_clock(drift_ppm: float) -> None:
    found, table = errors(Device("d", 3600, drift_ppm, held=86_400, retried=0.2))
    assert np.abs(found).max() > 8  # at first nothing is known of the drift: 100 ppm of a day are 8.6 seconds
    assert np.abs(found[after(table, 3)]).max() < 0.1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("forward", [2, 30, 3600, 86_400])
def test_a_clock_that_is_set_forward_is_known_at_once(forward: float, seed: int) -> None:
    device = Device("d", drift_ppm=50, retried=0.3, hours=8, jumps=[(4 * 3600, forward)])
    found, _ = errors(device, seed)
    # Before that nothing shows of which clock a record is: those that the network held up just then.
    assert (np.abs(found) > 1).sum() <= (1 if forward == 2 else 0)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("back", [2, 30, 3600, 86_400])
def test_a_clock_that_is_set_back_is_known_after_a_few_records(back: float, seed: int) -> None:
    device = Device("d", drift_ppm=50, hours=8, jumps=[(4 * 3600, -back)])
    found, _ = errors(device, seed)
    assert (np.abs(found) > 1).sum() == 4  # the fifth one tells that it is not the network
    found, table = errors(replace(device, retried=0.1), seed)
    wrong = np.abs(found) > 1
    assert wrong.sum() <= 40
    assert np.abs(found).max() <= back + 0.1
    # One that was sent just before, and delayed by more than the clock was set back, may be of either.
    assert wrong[after(table, 4.5)].sum() <= 1


@pytest.mark.parametrize(("retried", "most"), [(0.1, 32), (0.5, 208)])
def test_how_long_a_clock_set_back_is_not_known_is_what_the_page_says(retried: float, most: int) -> None:
    device = Device("d", drift_ppm=50, retried=retried, hours=8, jumps=[(4 * 3600, -3600)])
    wrong = [int((np.abs(errors(device, seed)[0]) > 1).sum()) for seed in range(40)]
    assert 4 <= max(wrong) <= most
    page = (Path(__file__).parents[4] / "docs" / "operate" / "time.md").read_text()
    assert f"up to {most} " in page


@pytest.mark.parametrize("drift_ppm", [-100, 100])
@pytest.mark.parametrize("retried", [0, 0.2, 0.5])
def test_a_held_event_is_told_as_well_as_the_page_says(drift_ppm: float, retried: float) -> None:
    for seed in range(10):
        found, table = errors(Device("d", 3600, drift_ppm, held=86_400, retried=retried), seed)
        assert np.abs(found[after(table, 1.2)]).max() < 0.3
        assert np.abs(found[after(table, 3)]).max() < 0.1


def test_a_clock_set_back_by_less_than_the_tolerance_is_followed_by_the_drift() -> None:
    found, table = errors(Device("d", hours=30, every=30, jumps=[(4 * 3600, -0.5)]))
    assert np.abs(found).max() < 0.6
    assert np.abs(found[after(table, 29)]).max() < 0.1  # after 24 hours nothing is known of the time before


def test_a_delay_that_rises_and_falls_is_not_taken_for_the_clock_for_ever() -> None:
    table, true_us = records([Device("d", hours=6)])
    received = np.asarray(table.column("received")).copy()
    slow = (true_us > START + 2 * HOUR) & (true_us < START + 3 * HOUR)
    received[slow] += 20 * SECOND  # the network is slow for an hour
    table = table.set_column(3, "received", pa.array(received)).sort_by("received")
    true_us = np.asarray(table.column("measured"))  # this clock is right
    found = (np.asarray(DeviceClocks(STREAM).true_times(table)) - true_us) / SECOND
    assert found.max() < 20.5
    assert np.abs(found[after(table, 3.1)]).max() < 0.2


def test_no_event_happens_after_its_receipt() -> None:
    table, _ = records([Device("d", offset=100, retried=0.3)])
    ahead = np.asarray(table.column("measured")) + 500 * SECOND  # it happens after it is sent
    table = table.set_column(1, "measured", pa.array(ahead))
    found = np.asarray(DeviceClocks(STREAM).true_times(table))
    assert (found <= np.asarray(table.column("received"))).all()


def test_devices_do_not_know_of_each_other() -> None:
    devices = [Device(f"d{n}", offset=1000.0 * n, drift_ppm=20 * n - 50, hours=2) for n in range(5)]
    together, _ = records(devices)
    found = np.asarray(DeviceClocks(STREAM).true_times(together))
    for device in devices:
        mine = np.asarray(pa.compute.equal(together.column("device"), device.name))
        alone = np.asarray(DeviceClocks(STREAM).true_times(together.filter(pa.array(mine))))
        assert (alone == found[mine]).all()


@pytest.mark.parametrize("seed", range(5))
def test_how_events_are_cut_and_where_clocks_travel_changes_nothing(seed: int) -> None:
    jumps = [(3600.0, -40.0), (7000.0, 90.0)]
    devices = [Device(f"d{n}", 60.0 * n, 30, 60, 3, retried=0.2, jumps=jumps) for n in range(4)]
    table, _ = records(devices, seed)
    whole = np.asarray(DeviceClocks(STREAM).true_times(table))
    random = np.random.default_rng(seed)
    cuts = np.sort(random.integers(0, table.num_rows, 20)).tolist()
    clocks, parts = DeviceClocks(STREAM), []
    for begin, end in zip([0, *cuts], [*cuts, table.num_rows], strict=True):
        ahead = clocks.copy()
        ahead.true_times(table.slice(end))  # a look at what comes is not learnt
        parts.append(np.asarray(clocks.true_times(table.slice(begin, end - begin))))
        clocks = DeviceClocks.of_text(STREAM, clocks.to_text())
    assert (np.concatenate(parts) == whole).all()


def test_a_missing_time_or_device_gives_no_time_and_teaches_nothing() -> None:
    table, _ = records([Device("d", hours=1)])
    n = table.num_rows
    whole = np.asarray(DeviceClocks(STREAM).true_times(table))
    for at, name in enumerate(("device", "measured", "sent", "received")):
        column = table.column(name).to_pylist()
        holed = [None if number % 3 == 0 else value for number, value in enumerate(column)]
        kind = table.schema.field(name).type
        found = DeviceClocks(STREAM).true_times(table.set_column(at, name, pa.array(holed, kind)))
        kept = table.filter(pa.array(np.arange(n) % 3 != 0))
        assert found.drop_null().equals(DeviceClocks(STREAM).true_times(kept))
        assert found.null_count == math.ceil(n / 3)
    assert len(whole) == n


def test_texts_that_are_dictionaries_are_read_as_texts() -> None:
    table, _ = records([Device("a", hours=1), Device("b", 50, hours=1)])
    found = DeviceClocks(STREAM).true_times(table)
    coded = table.set_column(0, "device", table.column("device").dictionary_encode())
    assert DeviceClocks(STREAM).true_times(coded).equals(found)


def test_devices_beyond_the_limit_are_told_record_by_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_clocks, "MOST_DEVICES", 2)
    devices = [Device(f"d{n}", offset=100.0 * n, retried=0.5, hours=1) for n in range(4)]
    table, _ = records(devices)
    limited, clocks = np.asarray(DeviceClocks(STREAM).true_times(table)), DeviceClocks(STREAM)
    known = pa.compute.is_in(table.column("device"), table.column("device").unique()[:2])
    kept = np.asarray(known)
    assert (limited[kept] == np.asarray(clocks.true_times(table.filter(known)))).all()
    beyond = table.filter(pa.compute.invert(known))
    measured, sent, received = (np.asarray(beyond.column(name)) for name in ("measured", "sent", "received"))
    assert (limited[~kept] == np.minimum(measured + received - sent, received)).all()


@pytest.mark.parametrize("text", ["", "no base 64!", "QUJDRA==", "Q0xLMQ=="])
def test_a_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(StateError) as caught:
        DeviceClocks.of_text(STREAM, text)
    assert caught.value.code == "E0702"
