"""True event times of a stream whose devices have wrong clocks (`kernels.columns.device_clocks`)."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I32, I64
from cep.engine.kernels.columns.device_clocks import WIDTH, estimate_times
from cep.engine.prepare.columns import whole
from cep.errors import StateError
from cep.formats.ahead import AheadGuard
from cep.schema.stream import Stream

MOST_DEVICES = 100_000
"""Devices of one source partition whose clocks are kept. The times of others are told record by record."""

_FORMAT = b"CLK1"


class DeviceClocks:
    """What is known about the clocks of the devices in one source partition; each event updates it.

    The estimate for an event depends only on the events before it, in the order given, not on how they are
    divided into portions.

    `stream`: a stream with a `device_clock`.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._names = pa.array([], pa.string())  # of the devices
        self._clocks: I64 = np.zeros((0, WIDTH), np.int64)

    def true_times(self, events: pa.Table) -> pa.Array:
        """Return the estimated time of each event; learn from the events.

        Parameters
        ----------
        events
            n events in the order in which they were received, with the columns of the `device_clock`.

        Returns
        -------
        pa.Array
            int64[n], microseconds since 1970; NULL where one of the columns is NULL.
        """
        clock = self.stream.device_clock
        assert clock is not None
        columns = [whole(events.column(name)) for name in clock.columns]
        is_known = np.ones(events.num_rows, np.bool_)
        for column in columns:
            if column.null_count:
                is_known &= np.asarray(pc.is_valid(column))
        if not is_known.all():
            columns = [column.filter(pa.array(is_known)) for column in columns]
        device, *times = columns
        found = self._estimated(device, *(np.asarray(column) for column in times))
        if is_known.all():
            return pa.array(found)
        true_us = np.zeros(events.num_rows, np.int64)
        true_us[is_known] = found
        return pa.array(true_us, mask=~is_known)

    def _estimated(self, device: pa.Array, event_us: I64, sent_us: I64, received_us: I64) -> I64:
        codes = self._codes(device)
        is_kept = codes < MOST_DEVICES
        if is_kept.all():
            true_us = np.empty(len(codes), np.int64)
            estimate_times(codes, event_us, sent_us, received_us, self._clocks, true_us)
            return true_us
        # For a device beyond the limit only the record itself is known: its delay counts as a clock error.
        true_us = np.minimum(event_us + (received_us - sent_us), received_us)
        kept_us = np.empty(int(is_kept.sum()), np.int64)
        times = event_us[is_kept], sent_us[is_kept], received_us[is_kept]
        estimate_times(codes[is_kept], *times, self._clocks, kept_us)
        true_us[is_kept] = kept_us
        return true_us

    def _codes(self, device: pa.Array) -> I32:
        """Return the number of each event's device; make room for new devices."""
        if pa.types.is_dictionary(device.type):
            device = device.dictionary_decode()
        encoded = pc.cast(device, pa.string()).dictionary_encode()
        here = encoded.dictionary
        known = pc.index_in(here, value_set=self._names)
        is_new = pc.is_null(known)
        numbers = np.asarray(pc.fill_null(known, 0)).astype(np.int32)
        n_known = len(self._names)
        n_new = int(pc.sum(is_new).as_py() or 0)
        numbers[np.asarray(is_new)] = np.arange(n_known, n_known + n_new, dtype=np.int32)
        room = min(n_new, MOST_DEVICES - n_known)
        if room:
            self._names = pa.concat_arrays([self._names, here.filter(is_new)[:room]])
            self._clocks = np.concatenate([self._clocks, np.zeros((room, WIDTH), np.int64)])
        codes: I32 = numbers[np.asarray(encoded.indices)]
        return codes

    def copy(self) -> DeviceClocks:
        """Return an independent copy of the clocks."""
        other = DeviceClocks(self.stream)
        other._names, other._clocks = self._names, self._clocks.copy()
        return other

    def to_text(self) -> str:
        """Return, as text, what is known about the clocks."""
        names = pa.RecordBatch.from_arrays([self._names], names=["device"]).serialize()
        parts = [len(names).to_bytes(8, "little"), bytes(names), self._clocks.tobytes()]
        return base64.b64encode(_FORMAT + zlib.compress(b"".join(parts), 1)).decode()

    @classmethod
    def of_text(cls, stream: Stream, text: str) -> DeviceClocks:
        """Return the clocks from the text that `to_text` wrote.

        Raises StateError: the text is damaged, or of a different version.
        """
        clocks = cls(stream)
        try:
            data = base64.b64decode(text, validate=True)
            if data[:4] != _FORMAT:
                raise ValueError(data[:4])
            data = zlib.decompress(data[4:])
            end = 8 + int.from_bytes(data[:8], "little")
            schema = pa.schema([("device", pa.string())])
            clocks._names = pa.ipc.read_record_batch(pa.py_buffer(data[8:end]), schema).column(0)
            clocks._clocks = np.frombuffer(data[end:], np.int64).reshape(-1, WIDTH).copy()
        except (ValueError, zlib.error, pa.ArrowException) as error:
            raise StateError("E0702", "what is known of the clocks of devices is damaged") from error
        if len(clocks._names) != len(clocks._clocks):
            raise StateError("E0702", "what is known of the clocks of devices is damaged")
        return clocks


def first_guard(stream: Stream) -> AheadGuard:
    """Return the clocks of a source partition before its first event."""
    clocks = None if stream.device_clock is None else DeviceClocks(stream)
    return AheadGuard(stream.max_ahead_us, clocks=clocks)
