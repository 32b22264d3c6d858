"""A short run of `tests.property.source_partitions`."""

from collections import Counter
from pathlib import Path

import pytest

from spark_runtime.event_time.watermarks import Follows, WatermarkRule
from tests.property.source_partitions import check


def test_streams_over_partitions_equal_batches(tmp_path_factory: pytest.TempPathFactory) -> None:
    found: Counter[str] = Counter()
    for seed in range(40):
        found += check(seed, tmp_path_factory.mktemp("case"))
    # Matches come as soon as the watermark allows, not only at the end of the input.
    early = {name for name, n in found.items() if name.startswith("before the end") and n}
    assert {f"before the end, {mode}" for mode in ("source", "file", "g", "d")} <= early


def test_events_are_late_where_the_fastest_partition_decides(tmp_path: Path) -> None:
    def fastest(lateness_us: int) -> WatermarkRule:
        return WatermarkRule(lateness_us, Follows.FASTEST)

    with pytest.raises(AssertionError, match="late"):
        check(0, tmp_path, fastest)
