"""COUNT, SUM, AVG, VARIANCE and STDDEV of windows that move in steps: sums of panes instead of events.

The entries of a key are groups: the panes, oldest first, then the whole window. The last entry says how many
entries the newest pane and the window have. So a batch reads only the last entries of a key and the panes
that leave, never all of them.

A group is a header and words. A pane of one value is only a header::

    WORD               VALUE
    2 * pane + 1       the value
    2 * pane           the number of values, the first chunk, the number of words of each kind
    two words each     of the sum, of the sum of squares, of the counts of NaN, Infinity, -Infinity

Two digits make a word. The last word of a sum has its sign, in two's complement.
"""

from __future__ import annotations

from typing import NamedTuple

from cep.arrays import I64, U8
from cep.engine.windows.kernels import layout as at
from cep.engine.windows.kernels.compiled import inlined, kernel
from cep.engine.windows.kernels.exact import carry_over
from cep.engine.windows.kernels.frames import AHEAD, counts
from cep.engine.windows.kernels.layout import KeyedBatch, Reads, Results, Ring, Sums
from cep.engine.windows.kernels.sums import add_value, add_within, clear_sums, reads_double, write_results
from cep.jit.memory import prefetch

_DIGIT = 0xFFFF_FFFF

MOST_OF_GROUP = 2 + (at.N_TOTALS + at.N_SQUARES) // 4
"""Entries of a group, at most: four digits each."""

MOST_TIMES, MOST_MORE = 4, 12 * MOST_OF_GROUP
"""A key takes at most this many times the room of its entries, and this much more, before room is sought
again.

That is a pane, the end of the key, and twice what is given up where they do not fit at their place.
"""

_MOST_CHUNK = at.N_TOTALS - 2


class PaneSums(NamedTuple):
    """Room for the sums of one key."""

    window: Sums
    others: Sums  # minus those of all panes except the newest


class Chunks(NamedTuple):
    """The chunks in which a sum has digits."""

    low: int  # the first chunk
    high: int  # the last one; negative: the sum is 0


class Pane(NamedTuple):
    """The newest pane of a key."""

    begin: int
    n: int  # the number of its values
    value: int  # of a pane of one value


@inlined
def _word(entries: I64, header: int, number: int) -> int:
    """Return a word of a group."""
    return entries[header + 1 + (number >> 1), number & 1]


@inlined
def _put_word(entries: I64, header: int, number: int, word: int) -> None:
    entries[header + 1 + (number >> 1), number & 1] = word
    if number & 1 == 0:
        entries[header + 1 + (number >> 1), 1] = 0


@inlined
def _n_words(shape: int) -> int:
    """Return the number of words of a group, from the VALUE of its header."""
    return (shape >> 11 & 63) + (shape >> 4 & 127) + 3 * (shape & 1)


@inlined
def _n_entries(entries: I64, header: int) -> int:
    """Return the number of entries of a group."""
    if entries[header, at.WORD] & 1 != 0:
        return 1
    return 1 + ((_n_words(entries[header, at.VALUE]) + 1) >> 1)


@inlined
def _add_words(entries: I64, header: int, first: int, n: int, step: int, chunks: I64, chunk: int) -> None:
    """Add words of a group to a sum, or remove them."""
    for number in range(n):
        word = _word(entries, header, first + number)
        upper = word >> 32
        if number < n - 1:
            upper &= _DIGIT
        chunks[chunk + 2 * number] += step * (word & _DIGIT)
        chunks[chunk + 2 * number + 1] += step * upper


@inlined
def _add_group(
    ring: Ring, header: int, sums: Sums, kinds: int, step: int, low: int, high: int
) -> tuple[int, int, int]:
    """Add a group (`step` is 1) or remove it (-1); return its number of values, first and last chunk."""
    entries = ring.entries
    value = entries[header, at.VALUE]
    if entries[header, at.WORD] & 1 != 0:
        chunk = add_value(sums, value, ring.spec[at.IS_DOUBLE] != 0, kinds == at.SQUARES, step)
        if chunk >= 0:
            low, high = min(low, chunk), max(high, chunk + 2)
        return 1, low, high
    first, n_totals, n_squares = value >> 17 & 127, value >> 11 & 63, value >> 4 & 127
    if n_totals + n_squares > 0:
        _add_words(entries, header, 0, n_totals, step, sums.totals, first)
        _add_words(entries, header, n_totals, n_squares, step, sums.squares, 2 * first)
        low, high = min(low, first), max(high, first + 2 * n_totals - 1, first + n_squares - 1)
    if value & 1 != 0:
        for kind in range(3):
            sums.special[kind] += step * _word(entries, header, n_totals + n_squares + kind)
    return value >> 24, low, high


@inlined
def _add_sums(sums: Sums, added: Sums, kinds: int, step: int, low: int, high: int) -> None:
    """Add sums to others (`step` is 1) or subtract them (-1), from the first chunk to the last."""
    for chunk in range(low, high + 1):
        sums.totals[chunk] += step * added.totals[chunk]
    if kinds == at.SQUARES:
        for chunk in range(2 * low, 2 * high + 2):
            sums.squares[chunk] += step * added.squares[chunk]
    for kind in range(3):
        sums.special[kind] += step * added.special[kind]


@inlined
def _put_sum(entries: I64, header: int, number: int, chunks: I64, low: int, high: int) -> int:
    """Write a sum, whose chunks except the last are digits, as words; return their number."""
    n = 0
    for chunk in range(low, high, 2):
        _put_word(entries, header, number + n, chunks[chunk] | chunks[chunk + 1] << 32)
        n += 1
    if (high - low) & 1 == 0:
        _put_word(entries, header, number + n, chunks[high])
    else:  # the last chunk may have more bits than a digit
        _put_word(entries, header, number + n, chunks[high] >> 32)
    n += 1
    while n > 1 and _word(entries, header, number + n - 1) == _word(entries, header, number + n - 2) >> 63:
        n -= 1
    return 0 if n == 1 and _word(entries, header, number) == 0 else n


@inlined
def _put_group(ring: Ring, header: int, pane: int, n: int, sums: Sums, kinds: int, chunks: Chunks) -> int:
    """Write a group; return its number of entries."""
    low, high = chunks.low, chunks.high
    entries, totals, squares, special = ring.entries, sums.totals, sums.squares, sums.special
    n_totals = n_squares = has_special = 0
    if high >= 0:
        carry_over(totals, low, high)
        if kinds == at.SQUARES:
            carry_over(squares, 2 * low, 2 * high + 1)
        while low < high and totals[low] == 0 and squares[2 * low] == 0 and squares[2 * low + 1] == 0:
            low += 1
        n_totals = _put_sum(entries, header, 0, totals, low, high)
        if kinds == at.SQUARES:
            n_squares = _put_sum(entries, header, n_totals, squares, 2 * low, 2 * high + 1)
    if n_totals + n_squares == 0:
        low = 0
    if special[0] != 0 or special[1] != 0 or special[2] != 0:
        has_special = 1
        for kind in range(3):
            _put_word(entries, header, n_totals + n_squares + kind, special[kind])
    entries[header, at.WORD] = 2 * pane
    shape = low << 17 | n_totals << 11 | n_squares << 4 | has_special
    entries[header, at.VALUE] = n << 24 | shape
    return 1 + ((_n_words(shape) + 1) >> 1)


@inlined
def _put_pane(ring: Ring, header: int, pane: Pane, sums: Sums, kinds: int, chunks: Chunks) -> int:
    """Write the group of a pane; return its number of entries."""
    if kinds == at.NO_VALUES:
        ring.entries[header, at.WORD], ring.entries[header, at.VALUE] = 2 * pane.begin, pane.n << 24
        return 1
    if pane.n == 1:
        ring.entries[header, at.WORD], ring.entries[header, at.VALUE] = 2 * pane.begin + 1, pane.value
        return 1
    return _put_group(ring, header, pane.begin, pane.n, sums, kinds, chunks)


@inlined
def _append(ring: Ring, slot: int, n: int) -> None:
    """Append to the entries of a key those that were written after all assigned rows."""
    keys, entries = ring.keys, ring.entries
    start, length, free = keys[slot, at.START], keys[slot, at.LENGTH], ring.meta[0]
    if length + n > keys[slot, at.CAPACITY]:
        target = free + n
        for entry in range(length):
            entries[target + entry, 0] = entries[start + entry, 0]
            entries[target + entry, 1] = entries[start + entry, 1]
        start = target
        keys[slot, at.START], keys[slot, at.CAPACITY] = target, length + n + (length + n >> 1)
        ring.meta[0] = target + keys[slot, at.CAPACITY]
    for entry in range(n):
        entries[start + length + entry, 0] = entries[free + entry, 0]
        entries[start + length + entry, 1] = entries[free + entry, 1]
    keys[slot, at.LENGTH] = length + n


@inlined
def _drop(ring: Ring, slot: int, n: int) -> None:
    """Drop the first entries of a key."""
    ring.keys[slot, at.START] += n
    ring.keys[slot, at.LENGTH] -= n
    ring.keys[slot, at.CAPACITY] -= n


@inlined
def _load_key(ring: Ring, slot: int, sums: PaneSums, kinds: int) -> tuple[int, int, int, int, int, int]:
    """Remove the window and the newest pane from what a key kept. Return the number of values in the window,
    the first and the last chunk; the newest pane, the number of its values, and its value if it has one.
    Without such a pane it is NEVER.
    """
    slots, entries = ring.keys, ring.entries
    n, low, high = 0, at.N_TOTALS, -1
    pane, n_of_pane, value_of_pane = at.NEVER, 0, 0
    if slots[slot, at.LENGTH] > 0:
        last = slots[slot, at.START] + slots[slot, at.LENGTH] - 1
        header = last - entries[last, at.VALUE]
        n, low, high = _add_group(ring, header, sums.window, kinds, 1, low, high)
        slots[slot, at.LENGTH] -= 1 + entries[last, at.VALUE] + entries[last, at.WORD]
        if entries[last, at.WORD] > 0:
            header -= entries[last, at.WORD]
            pane = entries[header, at.WORD] >> 1
            if entries[header, at.WORD] & 1 != 0:
                n_of_pane, value_of_pane = 1, entries[header, at.VALUE]
            else:
                n_of_pane, low, high = _add_group(ring, header, sums.others, kinds, 1, low, high)
                _add_sums(sums.others, sums.window, kinds, -1, low, high)
    return n, low, high, pane, n_of_pane, value_of_pane


@inlined
def _end_pane(ring: Ring, slot: int, pane: Pane, sums: PaneSums, kinds: int, chunks: Chunks) -> None:
    """Append the newest pane, if it has values, to the entries of a key: another pane follows it."""
    if pane.n == 0:
        return
    length = ring.keys[slot, at.LENGTH]
    is_one = (kinds == at.NO_VALUES or pane.n == 1) and length < ring.keys[slot, at.CAPACITY]
    header = ring.keys[slot, at.START] + length if is_one else ring.meta[0]
    if kinds != at.NO_VALUES and pane.n > 1:
        _add_sums(sums.others, sums.window, kinds, 1, chunks.low, chunks.high)
    added = _put_pane(ring, header, pane, sums.others, kinds, chunks)
    if is_one:
        ring.keys[slot, at.LENGTH] = length + 1
    else:
        _append(ring, slot, added)
    if kinds != at.NO_VALUES and pane.n > 1:
        clear_sums(sums.others, chunks.low, chunks.high)


@inlined
def _leave(
    ring: Ring, slot: int, window: Sums, kinds: int, bound: int, chunks: Chunks
) -> tuple[int, int, int]:
    """Remove the panes before `bound` from the window; return its number of values, first and last chunk."""
    n_gone, low, high = 0, chunks.low, chunks.high
    while ring.keys[slot, at.LENGTH] > 0 and ring.entries[ring.keys[slot, at.START], at.WORD] >> 1 < bound:
        header = ring.keys[slot, at.START]
        n, low, high = _add_group(ring, header, window, kinds, -1, low, high)
        n_gone += n
        _drop(ring, slot, _n_entries(ring.entries, header))
    return n_gone, low, high


@inlined
def _add_event(
    ring: Ring, sums: PaneSums, kinds: int, value: int, pane: Pane, chunks: Chunks
) -> tuple[int, int]:
    """Add the value of an event; return the first and the last chunk. `pane` already contains the event.

    A value is added only to the window: the newest pane is the window without the other panes. Adding it to
    both took a tenth more time.
    """
    is_double = ring.spec[at.IS_DOUBLE] != 0
    if pane.n == 2:  # the window has the first one
        _add_sums(sums.others, sums.window, kinds, -1, chunks.low, chunks.high)
        add_value(sums.others, pane.value, is_double, kinds == at.SQUARES, 1)
    return add_within(sums.window, value, is_double, kinds == at.SQUARES, chunks.low, chunks.high)


@inlined
def _store_key(ring: Ring, slot: int, pane: Pane, sums: PaneSums, kinds: int, n: int, chunks: Chunks) -> None:
    """Keep the newest pane and the window, which has `n` values."""
    free, n_of_newest, low, high = ring.meta[0], 0, chunks.low, chunks.high
    if pane.n > 0:
        if kinds != at.NO_VALUES and pane.n > 1:
            _add_sums(sums.others, sums.window, kinds, 1, low, high)
        n_of_newest = _put_pane(ring, free, pane, sums.others, kinds, chunks)
    if n > 0:
        n_of_window = _put_group(ring, free + n_of_newest, pane.begin, n, sums.window, kinds, chunks)
        last = free + n_of_newest + n_of_window
        ring.entries[last, at.WORD], ring.entries[last, at.VALUE] = n_of_newest, n_of_window
        _append(ring, slot, n_of_newest + n_of_window + 1)
    clear_sums(sums.window, low, high)
    clear_sums(sums.others, low, high)


@inlined
def _has_room(ring: Ring, slot: int) -> bool:
    """Return whether there is room for all that a key can need before the next check."""
    needed = MOST_TIMES * ring.keys[slot, at.LENGTH] + MOST_MORE
    return ring.meta[0] + needed <= ring.entries.shape[0]


@inlined
def _fetch_ahead(ring: Ring, batch: KeyedBatch, key: int) -> None:
    """Fetch what the next keys kept."""
    slots = ring.keys
    if key + 2 * AHEAD < batch.slots.shape[0]:
        prefetch(slots, batch.slots[key + 2 * AHEAD])
        later = batch.slots[key + AHEAD]
        prefetch(ring.entries, slots[later, at.START])
        prefetch(ring.entries, slots[later, at.START] + max(slots[later, at.LENGTH] - 3, 0))


@kernel
def pane_windows(
    ring: Ring,
    batch: KeyedBatch,
    reads: Reads,
    sums: PaneSums,
    functions: I64,
    out: I64,
    known: U8,
    keys: I64,
) -> None:
    """Write the functions of the sums of windows that move in steps, and keep their panes.

    Parameters
    ----------
    ring : Ring
        The state that earlier events left; changed.
    batch : KeyedBatch
        The events. Their times are the starts of their panes.
    sums : PaneSums
        Room.
    functions : (columns,) int64
        What each column is: COUNT, SUM, AVG, VARIANCE, STDDEV.
    keys : (2,) int64
        The key and its event to continue with. Written: where `ring` has no room to continue; the key after
        the last if everything is done.
    """
    is_double, is_previous = ring.spec[at.IS_DOUBLE] != 0, ring.spec[at.PREVIOUS] != 0
    span, kinds = ring.spec[at.SPAN], ring.spec[at.SUMMED]
    results = Results(functions, out, known, is_double, reads_double(functions, is_double))
    resumed, n_keys = keys[1], batch.slots.shape[0]
    for key in range(keys[0], n_keys):
        _fetch_ahead(ring, batch, key)
        slot = batch.slots[key]
        place, behind = max(batch.starts[key], resumed), batch.starts[key + 1]
        keys[0], keys[1] = key, place
        if not _has_room(ring, slot):
            return
        n, low, high, pane, n_of_pane, value = _load_key(ring, slot, sums, kinds)
        while place < behind:
            if batch.time_us[place] != pane:
                _end_pane(ring, slot, Pane(pane, n_of_pane, value), sums, kinds, Chunks(low, high))
                n_of_pane = 0
                if not _has_room(ring, slot):
                    break
                pane = batch.time_us[place]
                n_gone, low, high = _leave(ring, slot, sums.window, kinds, pane - span, Chunks(low, high))
                n -= n_gone
                if n == 0:
                    clear_sums(sums.window, low, high)
                    low, high = at.N_TOTALS, -1
            is_added = counts(reads, place)
            for half in range(2):
                if half != is_previous:
                    write_results(results, place, sums.window, n, low, high)
                elif is_added:
                    n += 1
                    n_of_pane += 1
                    ring.keys[slot, at.MARK] = pane
                    if kinds != at.NO_VALUES:
                        newest = Pane(pane, n_of_pane, value)
                        value = reads.values[place]
                        low, high = _add_event(ring, sums, kinds, value, newest, Chunks(low, high))
            place += 1
        _store_key(ring, slot, Pane(pane, n_of_pane, value), sums, kinds, n, Chunks(low, high))
        if place < behind:
            keys[1] = place
            return
        resumed = 0
    keys[0] = n_keys


@kernel
def are_panes(lengths: I64, entries: I64) -> bool:
    """Return whether the entries of all keys are groups, which `pane_windows` can read.

    Parameters
    ----------
    lengths : (keys,) int64
        The number of entries of each key; their sum is the number of all entries.
    entries : (entries, 2) int64
        Key by key.
    """
    start = 0
    for key in range(lengths.shape[0]):
        if lengths[key] == 0:
            continue
        last = start + lengths[key] - 1
        n_of_newest, n_of_window = entries[last, at.WORD], entries[last, at.VALUE]
        if not (0 <= n_of_newest < lengths[key] and 1 <= n_of_window < lengths[key]):
            return False
        window = last - n_of_window
        newest = window - n_of_newest
        if newest < start:
            return False
        header = start
        while header < last:
            shape = entries[header, at.VALUE]
            if entries[header, at.WORD] & 1 == 0:
                first, n_totals, n_squares = shape >> 17 & 127, shape >> 11 & 63, shape >> 4 & 127
                if first + max(2 * n_totals, n_squares) > _MOST_CHUNK or shape >> 24 <= 0:
                    return False
            following = header + _n_entries(entries, header)
            if header < newest < following or header < window < following or following > last:
                return False
            header = following
        start = last + 1
    return True
