"""What a stream keeps from micro-batch to micro-batch: its state, and nothing else that grows."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tests.soak.in_process import InProcess, Kept

N = 15


def measured(folder: Path) -> tuple[Kept, Kept, int]:
    """Return what is kept before and after `N` micro-batches, and how many matches these report."""
    stream = InProcess(folder, rate=50)
    stream.run(N)  # until the longest window has filled
    before = Kept.now()
    n_before = stream.n_matches
    stream.run(N)
    return before, Kept.now(), stream.n_matches - n_before


def test_a_stream_keeps_no_objects_of_past_micro_batches(tmp_path: Path) -> None:
    # In a process of its own: to count the objects of all other tests, too, takes five times as long.
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        before, after, n_matches = process.submit(measured, tmp_path).result()
    assert n_matches > 10 * N
    assert after.objects - before.objects < N, (before, after)
    assert after.bytes - before.bytes < 100 * N, (before, after)
    assert after.arrow_bytes - before.arrow_bytes < 100 * N, (before, after)
