"""Devices with wrong clocks: what they send over a network that delays, and repeats.

The truth is known, so that the error of an estimate is.
"""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cep.arrays import I64
from cep.schema.stream import DeviceClock, Field, Stream

SECOND = 1_000_000
HOUR = 3600 * SECOND
START = 1_700_000_000 * SECOND

STREAM = Stream(
    "readings",
    (
        Field("device", "string"),
        Field("measured", "timestamp"),
        Field("sent", "timestamp"),
        Field("received", "timestamp"),
        Field("true_time", "timestamp"),
    ),
    "true_time",
    device_clock=DeviceClock("device", "measured", "sent", "received"),
)


@dataclass(frozen=True)
class Device:
    """A device and its network; times in seconds.

    `jumps` are pairs of a true time since the start and by how much the clock is set forward then. `retried`
    is the share of records that need further attempts; each takes up to `longest_retry`, and the send time
    stays that of the first attempt. An event happens up to `held` before its record is sent.
    """

    name: str
    offset: float = 0.0  # of the clock: what it shows more than the true time
    drift_ppm: float = 0.0
    every: float = 10.0
    hours: float = 12.0
    least_delay: float = 0.03
    delay: float = 0.05
    retried: float = 0.0
    longest_retry: float = 3600.0
    held: float = 0.0
    jumps: list[tuple[float, float]] = field(default_factory=list)


def records(devices: list[Device], seed: int = 1) -> tuple[pa.Table, I64]:
    """Return the records of devices in the order of receipt, and the true time of each event in it."""
    random = np.random.default_rng(seed)
    names: list[str] = []
    columns: list[I64] = []
    for device in devices:
        n = int(device.hours * 3600 / device.every)
        sent = np.sort(random.uniform(0, device.hours * 3600, n))
        happened = sent - random.uniform(0, device.held, n) if device.held else sent.copy()
        delay = device.least_delay + random.lognormal(np.log(device.delay), 1.0, n)
        is_retried = random.random(n) < device.retried
        delay += np.where(is_retried, random.uniform(0, device.longest_retry, n), 0)
        times = np.stack([shown(device, happened), shown(device, sent), sent + delay, happened])
        columns.append(np.rint(times * SECOND).astype(np.int64) + START)
        names += [device.name] * n
    measured, sent_us, received, true = np.concatenate(columns, axis=1)
    order = np.argsort(received, kind="stable")
    table = pa.table(
        {
            "device": pa.array(names).take(pa.array(order)),
            "measured": measured[order],
            "sent": sent_us[order],
            "received": received[order],
        }
    )
    return table, true[order]


def shown(
    device: Device, true_s: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return what the clock of a device shows at true times."""
    found = true_s * (1 + device.drift_ppm * 1e-6) + device.offset
    for at, forward in device.jumps:
        found = found + np.where(true_s >= at, forward, 0.0)
    return found
