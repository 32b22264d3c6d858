"""The plan of a micro-batch: its shares, and the order in which their records arrived."""

from __future__ import annotations

from cep.formats.files import Reading
from spark_runtime.connectors.files.source import FolderSource
from spark_runtime.wire.plan import Plan, shares
from tests.unit.engine.events import STREAM

SOURCES = {"events": FolderSource(STREAM, "in", "json", Reading())}


def test_shares_are_of_equal_size_and_the_order_of_arrival_is_known() -> None:
    ranges = [("events", n_bytes, (name,)) for name, n_bytes in (("a", 3), ("b", 9), ("c", 5), ("d", 1))]
    found, order = shares(ranges, 2, SOURCES)
    assert found == [[("events", ("b",))], [("events", (name,)) for name in "acd"]]
    assert order == [[1], [0, 2, 3]]
    assert shares(ranges, 9, SOURCES)[1] == [[1], [2], [0], [3]]
    assert shares([], 2, SOURCES) == ([], [])


def test_the_order_is_stored_and_may_be_missing() -> None:
    plan = Plan([[("events", ("a", 1))]], {"events": 1}, order=[[0]])
    assert Plan.of_json(plan.to_json()) == plan
    assert '"order"' not in Plan(()).to_json()  # the identities of plans depend on it
