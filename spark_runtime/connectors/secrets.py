"""Texts of a pipeline file with `${NAME}` in them: variables of the environment, which nothing shows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress

from cep.errors import InputError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_HIDDEN = "***"


def replaced(setting: str, text: str) -> str:
    """Return `text` with the values of its variables.

    Raises
    ------
    InputError
        The environment does not have one of them (E0853).
    """

    def of_environment(found: re.Match[str]) -> str:
        try:
            return os.environ[found[1]]
        except KeyError:
            raise InputError(
                "E0853",
                f"`{setting}` needs the variable `{found[1]}`, which the environment does not have",
                f"set it where the pipeline is started: export {found[1]}=...",
            ) from None

    return _VARIABLE.sub(of_environment, text)


def variables_of(text: str) -> list[str]:
    """Return the variables in a text, each as `${NAME}`."""
    return [found[0] for found in _VARIABLE.finditer(text)]


def without_secrets(said: object, texts: Iterable[str]) -> str:
    """Return what something said, on one line, without the values of variables in `texts`."""
    hidden = []
    for text in texts:
        names = _VARIABLE.findall(text)
        hidden += [os.environ.get(name, "") for name in names]
        with suppress(InputError):
            hidden += [replaced("", text)] if names else []
    shown = str(said)
    for secret in sorted(filter(None, hidden), key=len, reverse=True):
        shown = shown.replace(secret, _HIDDEN)
    return " ".join(shown.split())
