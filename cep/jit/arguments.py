"""Which machine code fits given arguments: a key of their types that is quick to build and to compare.

numba finds the types of arguments in C, after an import that takes longer than a small run. A key describes
the arguments of kernels in the same way: arrays, numbers, and tuples of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Key = tuple[Any, ...]
"""For each array its dtype, and a number of its dimensions, layout and flags; for a number its type; for a
tuple its class and size, and then its members."""

C_ORDER, F_ORDER, WRITEABLE, DIMENSION = 1, 2, 0x400, 0x10000
"""Bits of the number of an array. The first three are those of `numpy.ndarray.flags.num`.

numba does not ask whether an array is aligned.
"""

_ANY_LAYOUT = WRITEABLE | F_ORDER
_OF_C_ORDER = WRITEABLE | C_ORDER
_MAX_INT = 1 << 63


class UnknownArgumentError(TypeError):
    """An argument of a type that no kernel takes."""


def key_of(arguments: tuple[Any, ...]) -> Key:
    """Return the key of the arguments of a call. Equal keys mean equal types for numba.

    Raises UnknownArgumentError: an argument is neither an array nor a number nor a tuple.
    """
    key: list[Any] = []
    _append(key, arguments)
    return tuple(key)


def _append(key: list[Any], arguments: tuple[Any, ...]) -> None:
    append = key.append
    for argument in arguments:
        kind = type(argument)
        if kind is np.ndarray:
            flags = argument.flags.num
            append(argument.dtype)
            append(argument.ndim * DIMENSION + (flags & (_OF_C_ORDER if flags & C_ORDER else _ANY_LAYOUT)))
        elif kind is int:
            if not -_MAX_INT <= argument < _MAX_INT:
                raise UnknownArgumentError(argument)
            append("int64")
        elif kind is bool:
            append("bool")
        elif kind is float:
            append("float64")
        elif isinstance(argument, tuple):
            append(f"{kind.__module__}:{kind.__qualname__}")
            append(len(argument))
            _append(key, argument)
        elif isinstance(argument, np.number | np.bool_):
            append(argument.dtype.name)
        else:
            raise UnknownArgumentError(f"{kind.__module__}.{kind.__qualname__}")


def as_json(key: Key) -> list[Any]:
    """Return a key as JSON values."""
    return [[part.str] if isinstance(part, np.dtype) else part for part in key]


def of_json(values: list[Any]) -> Key:
    """Return the key from the values that `as_json` returned."""
    return tuple(np.dtype(part[0]) if isinstance(part, list) else part for part in values)
