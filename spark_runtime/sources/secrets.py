"""Strings in a pipeline file that contain `${NAME}`: environment variables, whose values are never shown.

They are looked up where a client is created. So neither the checkpoint nor a task that Spark stores contains
them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress

from cep.errors import InputError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET = re.compile(r"password|secret|\.pem$|token|jaas")
"""Names of settings whose values no message shows, even if the file contains them."""

_HIDDEN = "***"

Named = tuple[str, str]
"""The name of a setting, and its text."""


def replaced(setting: str, text: str) -> str:
    """Return `text` with the values of its variables.

    Raises InputError: the environment lacks one of them (E0853).
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


def all_replaced(given: Iterable[Named]) -> dict[str, str]:
    """Return strings by name, with the values of their variables; raise InputError (E0853) as `replaced`."""
    return {name: replaced(name, text) for name, text in given}


def variables_of(text: str) -> list[str]:
    """Return the variables in a text, each as `${NAME}`."""
    return [found[0] for found in _VARIABLE.finditer(text)]


def without_secrets(said: object, texts: Iterable[str] = (), named: Iterable[Named] = ()) -> str:
    """Return a message of another program, on one line, without secrets.

    `texts`: strings that contain variables, whose values are secrets. `named`: such strings with the names of
    their settings, some of which name a secret (`password`).
    """
    hidden = []
    for name, text in (*(("", text) for text in texts), *named):
        variables = _VARIABLE.findall(text)
        hidden += [os.environ.get(variable, "") for variable in variables]
        if variables or _SECRET.search(name):
            with suppress(InputError):
                hidden.append(replaced(name, text))
    shown = str(said)
    for secret in sorted(filter(None, hidden), key=len, reverse=True):
        shown = shown.replace(secret, _HIDDEN)
    return " ".join(shown.split())
