"""The address to which rows are posted, and a connection to it."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from cep.errors import InputError
from spark_runtime.sources.answers import TimedResponse
from spark_runtime.sources.secrets import replaced_within, without_secrets

_CHECK_SECONDS = 5.0
_MOST_READ = 4 * 1024 * 1024
_READ_OF_MESSAGE = 4 * 1024
"""Bytes of a response that are read, and those for each message of the request in addition."""

_MOST_TOLD = 500
_MOST_SEARCHED = 8_000
"""Characters of a response in a message, and those that are searched for secrets, in case one is cut."""

OF_URL = re.compile(r"[!\"$-~]*")
OF_HEADER = re.compile(r"[ -~]*")
NAME_OF_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""What the parts of a request may contain. `#` would end the address that the server gets."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address.

    Where its variables are replaced, InputError is raised if one is missing, or has a wrong character.

    - `url`: the URL. In it and in the values of headers, `${NAME}` is an environment variable.
    - `timeout_s`: seconds that the server may take to accept a connection, and to answer a request.
    - `ca_file`: the trusted certificates; empty: those of the system.
    - `other_texts`: other strings that contain variables; no message shows their values.
    """

    url: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    timeout_s: float = 10.0
    ca_file: str = ""
    is_verified: bool = True
    other_texts: tuple[str, ...] = field(default=(), repr=False)

    @property
    def shown(self) -> str:
        """Scheme, host and port, for messages: a path may be a secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    def told(self, said: object) -> str:
        """Return the start of a message from another program, without secrets."""
        texts = self.url, *(value for _, value in self.headers), *self.other_texts
        return without_secrets(said, texts)[:_MOST_TOLD]

    def replaced_headers(self) -> dict[str, str]:
        """Return the headers."""
        return {name: replaced_within(name, value, OF_HEADER) for name, value in self.headers}

    def check(self) -> None:
        """Connect without sending anything; raise InputError if that fails."""
        _ = self.replaced_headers(), self.target  # raises for a wrong variable
        connection = self.connection(min(self.timeout_s, _CHECK_SECONDS))
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            raise self.unreachable(error) from error
        finally:
            connection.close()

    def connection(self, timeout_s: float | None = None) -> http.client.HTTPConnection:
        """Return a connection that is not open yet."""
        parts = urlsplit(self.url)  # host and port contain no variables
        host, port = parts.hostname or "", parts.port
        seconds = self.timeout_s if timeout_s is None else timeout_s
        if parts.scheme == "http":
            return _timed(http.client.HTTPConnection(host, port, timeout=seconds))
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
        except (OSError, ssl.SSLError) as error:
            raise InputError("E0874", f"`ca_file` cannot be read: {self.ca_file}: {error}") from error
        if not self.is_verified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return _timed(http.client.HTTPSConnection(host, port, timeout=seconds, context=context))

    @property
    def target(self) -> str:
        """Path and query of the address, with secrets."""
        parts = urlsplit(replaced_within("url", self.url, OF_URL))
        return f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"

    def unreachable(self, error: object) -> InputError:
        """Return the error for a server that does not answer."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return InputError(
                "E0874",
                f"the certificate of `{self.shown}` is refused: {self.told(error.verify_message)}",
                "name the file of its authority in `ca_file`",
            )
        why = "no answer in time" if isinstance(error, socket.timeout) else self.told(error)
        return InputError(
            "E0874",
            f"the webhook `{self.shown}` does not answer: {why}",
            "start it, or correct `url`; the next run continues with this micro-batch",
        )


def _timed(connection: http.client.HTTPConnection) -> http.client.HTTPConnection:
    connection.response_class = TimedResponse
    return connection


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: the status, headers by lower-case name, and the start of the body.

    `is_cut`: whether the connection ended before the body.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_cut: bool = False

    @property
    def is_good(self) -> bool:
        """Whether the request was accepted."""
        return 200 <= self.status < 300

    @property
    def reason(self) -> str:
        """The status in words, and the text of the body. It may contain secrets: see `Endpoint.told`."""
        word = http.client.responses.get(self.status, "")
        text = " ".join(self.body[:_MOST_SEARCHED].decode(errors="replace").split())
        return f"{self.status} {word}{': ' if text else ''}{text}".strip()


class Client:
    """A connection that is kept, and reopened if the server has closed it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._headers = endpoint.replaced_headers()
        self._target = endpoint.target
        self._connection = endpoint.connection()
        self._is_used = False  # the server may have closed a used connection

    def post(self, body: bytes, headers: Mapping[str, str], n_messages: int = 1) -> Answer:
        """Return the response to a request; raise OSError or HTTPException if there is none."""
        most = _MOST_READ + n_messages * _READ_OF_MESSAGE
        if self._is_used:
            try:
                return self._post(body, headers, most)
            except (ConnectionError, http.client.HTTPException):
                self.close()
        return self._post(body, headers, most)

    def _post(self, body: bytes, headers: Mapping[str, str], most: int) -> Answer:
        try:
            if self._connection.sock is not None:
                self._connection.sock.settimeout(self.endpoint.timeout_s)  # the last response has changed it
            self._connection.request("POST", self._target, body, {**self._headers, **headers})
            response = self._connection.getresponse()
            found = response.read(most)
            has_more = bool(response.read(1))
            is_cut = not has_more and bool(response.length)
            if has_more or is_cut:
                self._connection.close()
        except BaseException:
            self.close()
            raise
        self._is_used = True
        names = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, names, found, is_cut)

    def close(self) -> None:
        """End the connection."""
        self._connection.close()
        self._is_used = False
