"""Each line and row of any file of events is an event or a dead letter, whichever lines are around it.

The files are the same each time. ``make fuzz-readers`` draws new ones.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.property.hostile_events import draw_stream, hostile_json_line
from tests.property.readers import HarmError, compare, of_lines, try_examples

GATE = 4_000


def test_hostile_files_of_events_do_no_harm() -> None:
    tally = try_examples(first_seed=20, examples=GATE, minutes=0)
    assert tally["examples"] >= GATE
    kinds = (
        "JSON lines",
        "CSV lines",
        "Parquet rows",
        "damaged files",
        "events of hostile lines",
        "lines of many that the kernel took",
        "dead rows",
    )
    assert [kind for kind in kinds if tally[kind] < 10] == []


def test_examples_depend_on_the_seed_alone() -> None:
    def some(seed: int) -> list[bytes]:
        random = Random(seed)
        stream = draw_stream(random)
        return [hostile_json_line(stream, random) for _ in range(20)]

    assert some(1) == some(1)
    assert some(1) != some(2)


def test_a_difference_raises_an_error() -> None:
    with pytest.raises(HarmError, match=r"^in two ways: row 1 \(2,\), \(3,\)$"):
        compare(([(1,), (2,)], [], ""), ([(1,), (3,)], [], ""), "in two ways")
    with pytest.raises(HarmError, match="in two ways"):
        compare(([], [], "E0606"), ([], [], ""), "in two ways")
    with pytest.raises(HarmError, match="events of schema"):
        of_lines(*_nothing())


def _nothing() -> tuple[Any, Any, list[tuple[int, str]], Any]:
    import numpy as np
    import pyarrow as pa

    schema = pa.schema([("x", pa.int64())])
    return schema.empty_table(), np.zeros(1, np.int64), [], schema
