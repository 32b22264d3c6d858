"""Which rows have other values than before under the same id; what follows: `test_corrections`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cep.compiler.compile import compile_sources
from cep.engine.corrections.row_differences import changed_ids, may_differ
from cep.errors import Source
from cep.schema.stream import Stream, TableKind, TableSettings
from tests.unit.engine.events import STREAM

NAN = float("nan")
POINT = pa.struct([("x", pa.float64()), ("names", pa.list_(pa.string()))])


@pytest.mark.parametrize(
    ("kind", "then", "now", "is_other"),
    [
        (pa.int64(), 1, 1, False),
        (pa.int64(), 1, 2, True),
        (pa.int64(), None, None, False),
        (pa.int64(), None, 0, True),
        (pa.int64(), 2**60, 2**60 + 1, True),
        (pa.float64(), NAN, NAN, False),
        (pa.float64(), NAN, None, True),
        (pa.float64(), NAN, 0.0, True),
        (pa.float64(), 0.0, -0.0, True),
        (pa.float64(), None, 0.0, True),
        (pa.string(), "", None, True),
        (pa.string(), "a", "a", False),
        (pa.bool_(), True, False, True),
        (pa.list_(pa.float64()), [1.0, NAN, None], [1.0, NAN, None], False),
        (pa.list_(pa.float64()), [1.0, 2.0], [1.0, 3.0], True),
        (pa.list_(pa.float64()), [1.0], [1.0, None], True),
        (pa.list_(pa.float64()), [], None, True),
        (pa.list_(pa.float64()), None, None, False),
        (POINT, {"x": NAN, "names": ["a"]}, {"x": NAN, "names": ["a"]}, False),
        (POINT, {"x": 1.0, "names": ["a"]}, {"x": 1.0, "names": ["b"]}, True),
        (POINT, {"x": None, "names": None}, None, True),
        (POINT, None, None, False),
    ],
)
def test_a_value_is_another_one(kind: pa.DataType, then: Any, now: Any, is_other: bool) -> None:
    """Rows around it keep their values."""
    same = [item for item in (then, now) if item is not None][:1] or [None]
    old, new = (pa.table({"m": pa.array([*same, value, *same, None], kind)}) for value in (then, now))
    ids = np.array([2, 0, 1, 3])
    assert changed_ids(old, new, ids, ids, 4).tolist() == [is_other, False, False, False]


def test_rows_of_an_id_are_compared_in_their_order_wherever_they_are() -> None:
    old = pa.table({"m": pa.array([1, 2, 3, 4, 9, 5])})
    new = pa.table({"m": pa.array([5, 1, 8, 2, 3, 7])})
    of_old, of_new = np.array([0, 0, 1, 1, 3, 2]), np.array([2, 0, 1, 0, 1, 4])
    # 0: 1, 2 and 1, 2; 1: 3, 4 and 8, 3; 2: 5 and 5; 3 and 4 are in one table only
    assert changed_ids(old, new, of_old, of_new, 5).tolist() == [False, True, False, False, False]
    assert changed_ids(old[:0], new[:0], of_old[:0], of_new[:0], 0).tolist() == []


LIMITS = Stream(
    "limits", STREAM.fields, "ts", lateness_us=0, table=TableSettings(("k",), TableKind.CHANGELOG, None)
)


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("RULE r FROM events PARTITION BY k PATTERN a b DEFINE a AS x > 1 MEASURES a.x AS m", ()),
        ("RULE r FROM events PARTITION BY k PATTERN a MEASURES SUM(x) OVER ALL AS m", ("r",)),
        ("RULE r FROM events PARTITION BY k PATTERN a DEFINE a AS TRUE MEASURES PREV(a.x) AS m", ("r",)),
        (
            "RULE r FROM events JOIN limits ON k PARTITION BY k PATTERN a DEFINE a AS TRUE "
            "MEASURES a.limits.x AS m",
            ("r",),
        ),
        ("RULE r FROM events PARTITION BY k WINDOW TUMBLING 1 DAY MEASURES SUM(x) AS m", ("r",)),
        (
            "RULE r FROM events PARTITION BY k PATTERN a DEFINE a AS TRUE "
            "RULE s FROM MATCHES OF r PARTITION BY k PATTERN a DEFINE a AS TRUE",
            ("s",),
        ),
    ],
)
def test_rules_whose_values_are_no_function_of_the_id(text: str, rules: tuple[str, ...]) -> None:
    compiled = compile_sources([Source("r.cep", text)], {"events": STREAM, "limits": LIMITS})
    assert may_differ(compiled.programs) == rules
