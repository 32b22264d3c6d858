"""Strings in a pipeline file that contain `${NAME}`: environment variables, whose values are never shown.

They are looked up where a client is created. So neither the checkpoint nor a task that Spark stores contains
them.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from urllib.parse import quote, quote_plus

from cep.errors import InputError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET = re.compile(r"password|secret|\.pem$|token|jaas")
"""Names of settings whose values no message shows, even if the file contains them."""

_HIDDEN = "***"

_LEAST_OF_A_LINE = 8
"""A shorter line of a secret of several lines may be a word that says nothing."""

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


def replaced_within(setting: str, text: str, allowed: re.Pattern[str]) -> str:
    """Return `text` with the values of its variables, which `allowed` must match.

    Raises InputError: the environment lacks a variable, or its value has another character (E0853).
    """
    for name in _VARIABLE.findall(text):
        if not allowed.fullmatch(replaced(setting, f"${{{name}}}")):
            # The error of a library would contain the value, which may be a secret.
            raise InputError(
                "E0853",
                f"the value of the variable `{name}` has a character that `{setting}` cannot contain",
                "remove it, for example a line feed at the end; in a URL, a blank is %20 and # is %23",
            )
    return replaced(setting, text)


def all_replaced(given: Iterable[Named]) -> dict[str, str]:
    """Return strings by name, with the values of their variables; raise InputError (E0853) as `replaced`."""
    return {name: replaced(name, text) for name, text in given}


def variables_of(text: str) -> list[str]:
    """Return the variables in a text, each as `${NAME}`."""
    return [found[0] for found in _VARIABLE.finditer(text)]


def without_variables(text: str) -> str:
    """Return the characters of a text that are not in a `${NAME}`."""
    return _VARIABLE.sub("", text)


def without_secrets(said: object, texts: Iterable[str] = (), named: Iterable[Named] = ()) -> str:
    """Return a message of another program, on one line, without secrets.

    `texts`: strings that contain variables, whose values are secrets. `named`: such strings with the names of
    their settings, some of which name a secret (`password`). A secret is also found in the forms of
    `_forms`.
    """
    hidden = []
    for name, text in (*(("", text) for text in texts), *named):
        variables = _VARIABLE.findall(text)
        hidden += [os.environ.get(variable, "") for variable in variables]
        if variables or _SECRET.search(name):
            with suppress(InputError):
                hidden.append(replaced(name, text))
    shown = str(said)
    forms = {form for secret in hidden for form in _forms(secret)}
    for secret in sorted(filter(None, forms), key=len, reverse=True):
        shown = shown.replace(secret, _HIDDEN)
    return " ".join(shown.split())


def _forms(secret: str) -> set[str]:
    """Return how other programs may write a secret in a message."""
    texts = {secret, secret.strip(), " ".join(secret.split()), re.sub(r"[\t\r\n]", "", secret)}
    texts |= {line.strip() for line in secret.splitlines() if len(line.strip()) >= _LEAST_OF_A_LINE}
    as_bytes = secret.encode(errors="surrogatepass")
    codes = {base64.b64encode(as_bytes), base64.urlsafe_b64encode(as_bytes)}
    forms = texts | {code.decode().rstrip("=") for code in codes}
    for text in texts:
        literals = (repr(text), ascii(text), json.dumps(text), json.dumps(text, ensure_ascii=False))
        forms |= {literal[1:-1] for literal in literals}
        data = text.encode(errors="surrogatepass")
        forms |= {repr(data)[2:-1], quote(data), quote(data, safe=""), quote_plus(data)}
    return forms
