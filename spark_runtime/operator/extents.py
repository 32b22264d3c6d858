"""The first and last times of the input of streams, which windows without events need.

Executors import this module: it imports nothing of the compiler.
"""

from __future__ import annotations

import json

from cep.engine.chains.chain import Chain
from cep.engine.prepare.versions import extent_rows


class Extents:
    """The first and last times of events that all key groups get, in one call of the operator."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[list[int], int]] = {}  # by stream: when events may start, the last time

    def take_in(self, text: str) -> None:
        """Add the text of a parcel with the contents `EXTENT`."""
        name, begins_us, latest_us = json.loads(text)
        known = self._of.get(name, ([], latest_us))
        self._of[name] = known[0] + begins_us, max(known[1], latest_us)

    def push(self, chain: Chain) -> None:
        """Give rules with windows without events the times of the input, without late events."""
        final_us = chain.watermark_us - chain.rules.counted_us
        for number, program in enumerate(chain.rules.programs):
            if program.has_silent_windows:
                for name, (begins_us, latest_us) in self._of.items():
                    first_us = min((begin_us for begin_us in begins_us if begin_us > final_us), default=None)
                    stream = chain.rules.inputs[name]
                    chain.push(number, extent_rows(program, stream, first_us, latest_us))
