"""What is written into a segment is read from it; what is damaged is not."""

from __future__ import annotations

import random

import numpy as np
import pytest

from cep.errors import StateError
from cep.spool.segments import (
    HEADER_BYTES,
    MAX_BLOCK_BYTES,
    MAX_BLOCK_MESSAGES,
    ReceivedBatch,
    batch_of,
    block_of,
    blocks,
    check_header,
    cut,
    is_sound,
    joined,
    segment_header,
    sound_end,
)


def batch(*values: bytes, received_us: int = 5, **columns: list[str | None]) -> ReceivedBatch:
    return ReceivedBatch(list(values), np.full(len(values), received_us, np.int64), columns)


def test_messages_come_back_as_they_were() -> None:
    given = batch(b"one", b"", b"\0\xff\n", topic=["a", None, "\u00e9"], id=[None, "", "7"])
    data = segment_header(40) + block_of(given, 40, 40)
    (block,) = blocks(data, HEADER_BYTES, len(data))
    assert (block.start, block.end, block.first, block.n) == (HEADER_BYTES, len(data), 40, 3)
    assert is_sound(data, block, 40)
    found = batch_of(data, block)
    assert found.values == [b"one", b"", b"\0\xff\n"]
    assert found.received_us.tolist() == [5, 5, 5]
    assert found.columns == {"topic": ["a", None, "\u00e9"], "id": [None, "", "7"]}
    assert batch_of(data, block, ["id", "gone"]).columns == {"id": [None, "", "7"]}
    assert batch_of(data, block, []).columns == {}


def test_a_text_that_is_no_unicode_is_stored_with_a_mark_in_its_place() -> None:
    data = block_of(batch(b"x", topic=["a\ud800"]), 0, 0)
    assert batch_of(data, next(blocks(data, 0, len(data)))).columns == {"topic": ["a?"]}


def test_batches_with_other_columns_are_joined() -> None:
    found = joined([batch(b"1", topic=["t"]), batch(b"2", id=["i"]), batch(b"3")])
    assert found.values == [b"1", b"2", b"3"]
    assert found.columns == {"topic": ["t", None, None], "id": [None, "i", None]}


def test_a_large_batch_is_cut_into_blocks_of_a_bounded_size() -> None:
    many = batch(*[b"x"] * (2 * MAX_BLOCK_MESSAGES + 1), topic=["t"] * (2 * MAX_BLOCK_MESSAGES + 1))
    assert [len(part) for part in cut(many)] == [MAX_BLOCK_MESSAGES, MAX_BLOCK_MESSAGES, 1]
    large = batch(b"a", b"b" * (MAX_BLOCK_BYTES + 1), b"c")
    assert [part.values[0][:1] for part in cut(large)] == [b"a", b"b", b"c"]
    small = batch(b"a", b"b")
    assert list(cut(small)) == [small]


def three_blocks() -> tuple[bytes, list[int]]:
    """Return a segment, and where it and its blocks end."""
    data = segment_header(10)
    ends, number = [len(data)], 10
    for n in (1, 3, 2):
        data += block_of(batch(*[b"value %d" % i for i in range(n)], topic=["t"] * n), 10, number)
        number += n
        ends.append(len(data))
    return data, ends


def test_a_segment_that_ends_anywhere_is_sound_up_to_its_last_whole_block() -> None:
    data, ends = three_blocks()
    numbers = dict(zip(ends, (10, 11, 14, 16), strict=True))
    for size in range(HEADER_BYTES, len(data) + 1):
        end = max(each for each in ends if each <= size)
        assert sound_end(data[:size], 10, size) == (end, numbers[end])
        # Pages that were never written are zeros.
        zeros = data[:size] + bytes(len(data) - size)
        if size not in ends[:-1] or size == len(data):
            assert sound_end(zeros, 10, len(zeros))[0] in (end, len(data))
        else:
            assert sound_end(zeros, 10, len(zeros)) == (end, numbers[end])


def test_a_block_with_any_wrong_bit_is_not_sound() -> None:
    data, ends = three_blocks()
    drawn = random.Random(1)
    for at in range(ends[1], ends[2]):
        wrong = bytearray(data)
        wrong[at] ^= 1 << drawn.randrange(8)
        assert sound_end(bytes(wrong), 10, len(wrong)) == (ends[1], 11)


def test_a_block_of_another_segment_is_not_sound() -> None:
    data, _ = three_blocks()
    assert sound_end(data, 11, len(data)) == (HEADER_BYTES, 11)


def test_a_file_that_is_no_segment_is_refused() -> None:
    check_header(segment_header(7), 7, "f")
    for data in (b"", segment_header(7)[:-1], segment_header(8), b"x" * 64):
        with pytest.raises(StateError, match="`f` is not a segment of a spool"):
            check_header(data, 7, "f")
    later = bytearray(segment_header(7))
    later[8] = 2
    with pytest.raises(StateError, match="`f` is a segment of version 2; this spark-cep knows version 1"):
        check_header(bytes(later), 7, "f")
