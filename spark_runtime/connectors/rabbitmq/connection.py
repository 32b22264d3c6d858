"""The connection to a RabbitMQ broker: its address, and its errors."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass, field
from typing import Any

from cep.errors import InputError
from spark_runtime.sources.secrets import replaced, without_secrets

PORT, TLS_PORT = 5672, 5671

_WAIT_SECONDS = 5.0
"""How many seconds a broker may take to answer a new connection."""

_BLOCKED_SECONDS = 60.0
"""How many seconds the sink waits for a broker that is out of memory or disk space."""

_NOT_FOUND, _REFUSED = 404, 403


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a broker, and the credentials.

    - `user`, `password`: the credentials, in which `${NAME}` is an environment variable.
    - `virtual_host`: the part of the broker that contains the queue.
    - `has_tls`: whether the connection is encrypted; if so, the broker's certificate is verified.
    - `ca_file`: the trusted certificates; empty: those of the system.
    """

    host: str
    port: int = PORT
    user: str = field(default="guest", repr=False)
    password: str = field(default="guest", repr=False)
    virtual_host: str = "/"
    has_tls: bool = False
    ca_file: str = ""

    @property
    def shown(self) -> str:
        """Host, port and virtual host, for messages."""
        return f"{self.host}:{self.port}{'' if self.virtual_host == '/' else '/' + self.virtual_host}"

    def connect(self) -> Any:
        """Return a `pika.BlockingConnection`; raises InputError."""
        import pika

        # Without this, pika's warnings would interrupt the summary.
        logging.getLogger("pika").addHandler(logging.NullHandler())
        logging.getLogger("pika").propagate = False
        user, password = replaced("user", self.user), replaced("password", self.password)
        try:
            options = None
            if self.has_tls:
                context = ssl.create_default_context(cafile=self.ca_file or None)
                options = pika.SSLOptions(context, self.host)
            parameters = pika.ConnectionParameters(
                self.host,
                self.port,
                self.virtual_host,
                pika.PlainCredentials(user, password),
                ssl_options=options,
                socket_timeout=_WAIT_SECONDS,
                stack_timeout=_WAIT_SECONDS,
                blocked_connection_timeout=_BLOCKED_SECONDS,
                client_properties={"connection_name": "spark-cep"},
            )
            return pika.BlockingConnection(parameters)
        except (pika.exceptions.AMQPError, OSError) as error:
            raise self.failure(error, "its queues") from error

    def failure(self, error: Exception, doing: str) -> InputError:
        """Return the error that a user sees for an error of pika; `doing` names the failed action."""
        from pika import exceptions

        said = self._said(error)
        refusals = (
            exceptions.AuthenticationError,
            exceptions.ProbableAuthenticationError,
            exceptions.ProbableAccessDeniedError,
        )
        code = getattr(error, "reply_code", None)
        if isinstance(error, refusals) or code == _REFUSED:
            return InputError(
                "E0877",
                f"`{self.shown}` refuses access to {doing}: {said}",
                "check `user`, `password` and `virtual_host`, and the rights of this user",
            )
        if code == _NOT_FOUND:
            return InputError(
                "E0878", f"there is no {doing} at `{self.shown}`", "declare it, or correct its name"
            )
        lost = (exceptions.AMQPConnectionError, exceptions.ChannelWrongStateError, OSError)
        if isinstance(error, lost):
            return InputError(
                "E0876",
                f"no broker of RabbitMQ answers at `{self.shown}`: {said}",
                "start it, or correct `host` and `port`; the next run continues with this micro-batch",
            )
        return InputError("E0879", f"RabbitMQ failed at {doing}: {said}")

    def _said(self, error: Exception) -> str:
        # pika wraps the error of the system in several others.
        inside: BaseException = error
        while len(inside.args) == 1 and isinstance(inside.args[0], BaseException):
            inside = inside.args[0]
        text = str(getattr(inside, "exception", "") or inside) or type(inside).__name__
        return without_secrets(text, (self.user, self.password))
