"""From when on there are windows without events: what key groups are told of a stream with late events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cep.counts import Counts
from cep.engine.chains.chain import Chain
from cep.formats.chunks import Chunk
from cep.formats.dead_letter import DEAD_LETTER_SCHEMA
from cep.local.given_events import event_table
from cep.rule_set import RuleSet
from cep.schema.stream import Stream
from spark_runtime.operator.call import Call
from spark_runtime.wire.packer import Packer
from spark_runtime.wire.parcels import GROUP, of_batch
from tests.unit.engine.window_rules.test_silent_windows import DEVICES, HOUR_US, READINGS, program_of

LATENESS_US = 3 * HOUR_US
Rows = list[dict[str, Any]]


class Groups:
    """Two key groups of a stream of readings that is three hours behind."""

    def __init__(self) -> None:
        program = program_of()
        late = replace(READINGS, lateness_us=LATENESS_US)
        self.rules = RuleSet((program,))
        self.stream = late
        self.packer = Packer(self.rules, (0, 1))
        self.chains = [Chain(self.rules) for _ in self.packer.labels]
        self.watermark_us: int | None = None

    def take(self, *chunks: tuple[Stream, Rows]) -> set[tuple[int, int]]:
        """Take in what the tasks of a micro-batch read; return keys and ends of windows without events."""
        parcels = [
            parcel
            for stream, rows in chunks
            for parcel in self.packer.chunk(
                Chunk(event_table(stream, rows), DEAD_LETTER_SCHEMA.empty_table()), stream, None, Counts()
            )
        ]
        found = set()
        for label, chain in enumerate(self.chains):
            call = Call(chain, gets_whole=False, by_own_events=False)
            for batch in parcels:
                for group, parcel in zip(batch.column(GROUP).to_pylist(), of_batch(batch), strict=True):
                    if group == label:
                        call.push(parcel)
            call.advance(self.watermark_us, None)
            for table in call.found.matches:
                found |= {(row["d"], row["match_end"]) for row in table.to_pylist()}
        return found


def _readings(*hours: float) -> tuple[Stream, Rows]:
    return READINGS, [{"ts": int(hour * HOUR_US), "d": 1} for hour in hours]


def _ends(groups: Groups, *chunks: tuple[Stream, Rows]) -> set[int]:
    """Return the hours at whose end silent devices are reported when event time has reached six o'clock."""
    devices = [{"id": device, "at": 0, "op": "c"} for device in range(2, 10)]
    assert groups.take(_readings(5), (DEVICES, devices)) == set()
    groups.watermark_us = 2 * HOUR_US
    assert groups.take((DEVICES, [{"id": 99, "at": 3 * HOUR_US, "op": "d"}])) == set()
    assert groups.take(*chunks) == set()
    groups.watermark_us = 6 * HOUR_US
    found = groups.take(_readings(9))
    assert {device for device, _ in found} == set(range(2, 10)), "in both key groups"
    ends = {end // HOUR_US for _, end in found}
    assert found == {(device, end * HOUR_US) for device in range(2, 10) for end in ends}
    return ends


def test_the_first_event_that_is_not_late_is_the_first_one_in_every_key_group() -> None:
    assert _ends(Groups(), _readings(3.5)) == {4, 5, 6}
    assert _ends(Groups(), _readings(4)) == {5, 6}


def test_so_it_is_beside_late_events_of_its_chunk_or_of_others() -> None:
    assert _ends(Groups(), _readings(1, 3.5)) == {4, 5, 6}
    assert _ends(Groups(), _readings(1), _readings(3.5)) == {4, 5, 6}
    assert _ends(Groups(), _readings(1, 2, 2.5), _readings(0)) == {3, 4, 5, 6}
    assert _ends(Groups(), _readings(1, 2)) == {6}
