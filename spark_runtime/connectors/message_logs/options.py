"""Options of a client, whose values may be secrets of the environment: ``${NAME}``."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from cep.errors import InputError
from spark_runtime.sources.secrets import replaced, without_secrets


@dataclass(frozen=True, slots=True)
class Options:
    """Options by name, as written in the pipeline file.

    `given`: name and text. In the text, `${NAME}` is an environment variable.
    """

    given: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def value(self, name: str) -> str | None:
        """Return the value of an option, or None if it is not set.

        Raises InputError: an environment variable is missing (E0853).
        """
        return next((replaced(name, text) for found, text in self.given if found == name), None)

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context for `tls_ca`, `tls_cert` and `tls_key`; None without TLS.

        Raises InputError: a file cannot be read (E0883).
        """
        ca, cert, key = (self.value(name) for name in ("tls_ca", "tls_cert", "tls_key"))
        if key is not None and cert is None:
            raise InputError(
                "E0883", "`tls_key` without `tls_cert`: a key belongs to a certificate", "add `tls_cert`"
            )
        if ca is None and cert is None:
            return None
        try:
            context = ssl.create_default_context(cafile=ca)
            if cert is not None:
                context.load_cert_chain(cert, key)
        except OSError as error:  # of files and their contents
            raise InputError(
                "E0883",
                f"the files of TLS cannot be read: {self.shown(error)}",
                "check `tls_ca`, `tls_cert` and `tls_key`",
            ) from error
        return context

    def shown(self, error: object) -> str:
        """Return the message of an error, on one line and without secrets."""
        return without_secrets(str(error) or type(error).__name__, named=self.given)
