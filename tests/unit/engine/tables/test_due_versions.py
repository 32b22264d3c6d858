"""Versions that are due, found for events: beside a search through all of them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from cep.engine.keys.kernel import DueVersions, find_due, group_versions


@pytest.mark.parametrize("has_codes", [False, True])
@pytest.mark.parametrize("n_rows", [1, 5, 64, 200])
@pytest.mark.parametrize("is_ordered", [False, True])
def test_the_latest_version_at_or_before_an_event_is_found(
    n_rows: int, is_ordered: bool, has_codes: bool
) -> None:
    draw = np.random.default_rng(n_rows)
    groups, marks = np.full(n_rows, -1, np.int32), np.zeros(n_rows // 64 + 1, np.int64)
    for m in (0, 1, 7, 300):
        rows_of_versions, times = draw.integers(0, n_rows, m), np.arange(m)
        by_time = np.flatnonzero(draw.random(m) < 0.8)  # some are left out
        order, starts = np.full(len(by_time), -1), np.zeros(len(by_time) + 1, np.int64)
        of_version = np.zeros(m, np.int32)
        n_groups = group_versions(by_time, rows_of_versions, groups, marks, of_version, starts, order)
        starts = starts[: n_groups + 1]
        assert sorted(order.tolist()) == by_time.tolist()
        assert n_groups == len(set(rows_of_versions[by_time].tolist()))
        for group, (first, end) in enumerate(pairwise(starts)):
            assert first < end
            assert (np.diff(order[first:end]) > 0).all()
            assert set(of_version[order[first:end]].tolist()) == {group}
        n = 400
        rows = draw.integers(-2 - n_rows, n_rows, 100 if has_codes else n)
        codes = draw.integers(0, 100, n if has_codes else 0).astype(np.int32)
        at, places, found = draw.integers(-2, m + 2, n), np.full(2 * n, -9), np.full((2, n), -9)
        event_of = draw.permutation(2 * n)[:n] if is_ordered else np.zeros(0, np.int64)
        due = DueVersions(groups, marks, starts, times[order], order)
        n_due = find_due(rows, codes, at, event_of, due, places, found)
        expected, expected_places = [], np.full(2 * n, -9)
        for number, row in enumerate((rows[codes] if has_codes else rows).tolist()):
            place, event = -2 - row if row < -1 else row, event_of[number] if is_ordered else number
            before = [v for v in by_time.tolist() if rows_of_versions[v] == place and times[v] <= at[number]]
            expected += [(event, max(before))] if before else []
            expected_places[event] = -1 if before else max(row, -1)
        assert places.tolist() == expected_places.tolist()
        assert list(zip(*found[:, :n_due], strict=True)) == expected
        groups[rows_of_versions[by_time]], marks[:] = -1, 0
