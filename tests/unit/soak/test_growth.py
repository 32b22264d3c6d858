"""What a stream keeps from micro-batch to micro-batch: its state, and nothing else that grows."""

from __future__ import annotations

from pathlib import Path

from tests.soak.in_process import InProcess, Kept

N = 15


def test_a_stream_keeps_no_objects_of_past_micro_batches(tmp_path: Path) -> None:
    stream = InProcess(tmp_path, rate=50)
    stream.run(N)  # until the longest window has filled
    before = Kept.now()
    n_before = stream.n_matches
    stream.run(N)
    after = Kept.now()
    assert stream.n_matches - n_before > 10 * N
    assert after.objects - before.objects < N, (before, after)
    assert after.bytes - before.bytes < 100 * N, (before, after)
    assert after.arrow_bytes - before.arrow_bytes < 100 * N, (before, after)
