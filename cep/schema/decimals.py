"""Decimals: the numbers that a type ``decimal(p,s)`` holds after they are rounded to `s` digits.

Rules compute with the nearest DOUBLE of a decimal. The nearest DOUBLE of the largest decimal of more than 15
digits can be greater than that decimal. It stands for it.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal
from functools import lru_cache

from cep.schema.column_types import MAX_DIGITS

Digits = tuple[int, ...]
"""How many digits the numbers of a type have, and how many of them are after the point."""

_EXACT = Context(prec=2 * MAX_DIGITS)
"""Python's own context rounds to 28 digits."""


def rounded(number: Decimal, digits: Digits) -> Decimal | None:
    """Return the decimal of a type that is nearest to a number; None: the type has too few digits."""
    largest, unit, _ = _limits(digits)
    if not number.is_finite() or number.adjusted() > largest.adjusted() + 1:
        return None
    found = number.quantize(unit, context=_EXACT)
    return found if found.copy_abs() <= largest else None


def decimal_of(number: float, digits: Digits) -> Decimal | None:
    """Return the decimal of a type that is nearest to a DOUBLE by its shortest digits; see `rounded`."""
    largest, _, limit = _limits(digits)
    if not abs(number) <= limit:
        return None
    found = rounded(Decimal(repr(number)), digits)
    return largest.copy_sign(Decimal(number)) if found is None else found


def largest_double(digits: Digits) -> float:
    """Return the greatest DOUBLE for which `decimal_of` has a decimal."""
    return _limits(digits)[2]


@lru_cache(maxsize=256)
def _limits(digits: Digits) -> tuple[Decimal, Decimal, float]:
    """Return the largest decimal of a type, the least one above 0, and `largest_double`."""
    n_digits, n_places = digits
    unit = Decimal(f"1e-{n_places}")
    largest = Decimal(f"{'9' * n_digits}e-{n_places}")
    # Half a unit more would be rounded up.
    below_half = math.nextafter(float(_EXACT.add(largest, unit / 2)), 0.0)
    return largest, unit, max(float(largest), below_half)
