"""Options of a client whose values may be secrets of the environment: ``${NAME}``.

They are looked up where a client is made, so neither the checkpoint nor a task that Spark writes down has
them.

Executors read this: it imports nothing of the compiler.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from cep.errors import InputError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_HIDDEN = "***"


@dataclass(frozen=True, slots=True)
class Options:
    """Options by name, as the pipeline file has them.

    Parameters
    ----------
    given
        Name and text. In the text `${NAME}` stands for a variable of the environment.
    secret
        The names of options whose values no message may show.
    """

    given: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    secret: tuple[str, ...] = ()

    def value(self, name: str) -> str | None:
        """Return the value of an option, None if it is not given.

        Raises
        ------
        InputError
            A variable of the environment is missing (E0883).
        """
        return next((_replaced(name, text) for found, text in self.given if found == name), None)

    def tls(self) -> ssl.SSLContext | None:
        """Return the context of TLS that `tls_ca`, `tls_cert` and `tls_key` make; None: without TLS.

        Raises
        ------
        InputError
            A file cannot be read (E0883).
        """
        ca, cert, key = (self.value(name) for name in ("tls_ca", "tls_cert", "tls_key"))
        if ca is None and cert is None:
            return None
        try:
            context = ssl.create_default_context(cafile=ca)
            if cert is not None:
                context.load_cert_chain(cert, key)
        except OSError as error:  # of files and of what is in them
            raise InputError(
                "E0883",
                f"the files of TLS cannot be read: {self.shown(error)}",
                "look at `tls_ca`, `tls_cert` and `tls_key`",
            ) from error
        return context

    def shown(self, error: object) -> str:
        """Return what an error says, on one line and without secrets."""
        text = str(error) or type(error).__name__
        for hidden in sorted(filter(None, self._secrets()), key=len, reverse=True):
            text = text.replace(hidden, _HIDDEN)
        return " ".join(text.split())

    def _secrets(self) -> Sequence[str]:
        found = []
        for name, text in self.given:
            if name in self.secret or _VARIABLE.search(text):
                with suppress(InputError):
                    found.append(_replaced(name, text))
        return found


def _replaced(option: str, text: str) -> str:
    def of_environment(found: re.Match[str]) -> str:
        try:
            return os.environ[found[1]]
        except KeyError:
            raise InputError(
                "E0883",
                f"option `{option}` needs the variable `{found[1]}`, which the environment does not have",
                f"set it where the pipeline is started: export {found[1]}=...",
            ) from None

    return _VARIABLE.sub(of_environment, text)
