"""Arguments that a program gives: what is wrong with them is said at once, with the name of the argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from cep.errors import InputError

_Choice = TypeVar("_Choice", bound=StrEnum)


def wrong_argument(name: str, value: object, wanted: str) -> InputError:
    """Return the error for an argument that is not what was `wanted` (E0827)."""
    shown = repr(value)
    fact = f"{name} is {shown}" if len(shown) <= 60 else f"{name} is of type {type_name(value)}"
    return InputError("E0827", fact, f"give {wanted}")


def require_current_folder() -> None:
    """Raise InputError if the current folder was removed: relative paths lead nowhere, and no Java starts."""
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise InputError(
            "E0601", "the current folder does not exist any more", "go to another folder: cd FOLDER"
        ) from error


def type_name(value: object) -> str:
    """Return the type of a value as it is imported."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def several_texts(name: str, value: Any, wanted: str) -> tuple[str, ...]:
    """Return an argument that has several texts. A single string is one text, not its characters.

    Raises InputError: it is neither (E0827).
    """
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, Sequence | set | frozenset) or not all(isinstance(text, str) for text in value):
        raise wrong_argument(name, value, wanted)
    return tuple(value)


def rule_names(name: str, value: Any) -> tuple[str, ...]:
    """Return an argument that names rules. Raises InputError: it is of another type (E0827)."""
    return several_texts(name, value, "the name of a rule, or several in a list")


def parameters_of(value: Any) -> Mapping[str, str]:
    """Return the argument `parameters`. Raises InputError: it is not a dictionary of texts (E0827)."""
    given = {} if value is None else value
    if not isinstance(given, Mapping) or not all(
        isinstance(text, str) for pair in given.items() for text in pair
    ):
        wanted = 'values as they are written in rules, by the names of the parameters: {"small": "4"}'
        raise wrong_argument("parameters", value, wanted)
    return given


def flag_of(name: str, value: Any) -> bool:
    """Return an argument that is True or False. Raises InputError: it is neither (E0827)."""
    if not isinstance(value, bool):
        raise wrong_argument(name, value, "True or False")
    return value


def count_of(name: str, value: Any) -> int:
    """Return an argument that is a whole number above 0. Raises InputError: it is none (E0827)."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise wrong_argument(name, value, "a whole number above 0")
    return value


def choice_of(name: str, value: Any, choices: type[_Choice]) -> _Choice:
    """Return an argument that is one of `choices`, or its text. Raises InputError: it is none (E0827)."""
    try:
        return choices(value)
    except ValueError:
        raise wrong_argument(name, value, " or ".join(f'"{choice}"' for choice in choices)) from None


def path_of(name: str, value: Any) -> Path:
    """Return an argument that is a path. Raises InputError: it is none (E0827)."""
    if not isinstance(value, str | Path):
        raise wrong_argument(name, value, "a path")
    return Path(value)
