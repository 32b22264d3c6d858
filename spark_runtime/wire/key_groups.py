"""Key groups: groups of keys, so that one Python call serves many keys.

A group has a label, an integer that Spark's shuffle sends to the intended partition. Spark hashes the label
with Murmur3 and takes the remainder. So consecutive small integers would go to only a few partitions.
"""

from __future__ import annotations

from functools import cache

from cep.errors import InputError

MOST = 10_000
"""The most key groups: each has a label, a place in the operator and, in a stream, a state store."""

_SEED = 42
_MASK = 0xFFFFFFFF


def require_few(n_groups: int, name: str) -> int:
    """Return a number of key groups. Raises InputError: it is below 1, or too large; `name`: what it is."""
    if not 1 <= n_groups <= MOST:
        raise InputError("E0827", f"{name} is {n_groups}", f"give a number of key groups from 1 to {MOST:,}")
    return n_groups


@cache
def labels(n_groups: int, n_partitions: int) -> tuple[int, ...]:
    """Return a label for each group, so that group g goes to partition g modulo `n_partitions`."""
    wanted: dict[int, list[int]] = {}
    for group in range(n_groups):
        wanted.setdefault(group % n_partitions, []).append(group)
    result = [0] * n_groups
    missing, label = n_groups, 0
    while missing:
        groups = wanted.get(spark_hash(label) % n_partitions)
        if groups:
            result[groups.pop()] = label
            missing -= 1
        label += 1
    return tuple(result)


def spark_hash(value: int) -> int:
    """Return Spark's ``hash(value)`` of a 32-bit integer: Murmur3 x86 32 with seed 42, signed."""
    k = value * 0xCC9E2D51 & _MASK
    k = (k << 15 | k >> 17) & _MASK
    k = k * 0x1B873593 & _MASK
    h = _SEED ^ k
    h = (h << 13 | h >> 19) & _MASK
    h = h * 5 + 0xE6546B64 & _MASK
    h ^= 4  # the number of bytes hashed
    h ^= h >> 16
    h = h * 0x85EBCA6B & _MASK
    h ^= h >> 13
    h = h * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h
