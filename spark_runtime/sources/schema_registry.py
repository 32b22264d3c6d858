"""A schema registry such as Confluent's, which returns a schema by its number over HTTP.

A worker requests each number once, because its schema never changes. The password is read from the
environment where it is needed. So neither the checkpoint nor a task that Spark stores contains it.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode, urlsplit

from cep.errors import InputError
from spark_runtime.sources.answers import TimedResponse
from spark_runtime.sources.secrets import replaced

SECONDS = 5.0
"""How many seconds a registry may take to answer."""

_TRIES = 3
_PAUSE_SECONDS = 0.3
_UNKNOWN_SECONDS = 30.0
"""Seconds after which an unknown number is requested again: the registry may know it by then."""

_MOST_UNKNOWN = 100_000
_MOST_BYTES = 16 << 20

_NOT_FOUND = 404
_PASSING = frozenset((429, 500, 502, 503, 504))


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """The address of a registry and its credentials; see `SchemaSource`.

    `url`: such as ``https://registry:8081``, perhaps with a path. `user` and `password`: for basic
    authentication; `${NAME}` is an environment variable. Empty for none.
    """

    url: str
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    def check(self) -> None:
        """Raise InputError if the registry does not answer or refuses access."""
        self._get("/schemas/ids/1")

    def schema(self, number: int, form: str = "") -> str | None:
        """Return the text of a schema, or None if the number is unknown; see `SchemaSource`."""
        asked = self, number, form
        if asked in _known:
            return _known[asked]
        if _unknown.get(asked, 0.0) > time.monotonic():
            return None
        query = f"?{urlencode({'format': form})}" if form else ""
        text = self._get(f"/schemas/ids/{number}{query}")
        if text is None:
            if len(_unknown) >= _MOST_UNKNOWN:
                _unknown.clear()
            _unknown[asked] = time.monotonic() + _UNKNOWN_SECONDS
            return None
        try:
            found = json.loads(text)["schema"]
        except (ValueError, TypeError, KeyError):
            found = None
        if not isinstance(found, str):
            raise InputError(
                "E0894",
                f"`{self.url}` answers for schema {number} with something else than a schema",
                "name the address of a registry that answers as Confluent's does: GET /schemas/ids/1",
            )
        _known[asked] = found
        return found

    def _get(self, path: str) -> bytes | None:
        """Return the JSON at a path, or None if there is nothing."""
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if self.user:
            access = f"{replaced('user', self.user)}:{replaced('password', self.password)}"
            headers["Authorization"] = "Basic " + base64.b64encode(access.encode()).decode()
        for left in reversed(range(_TRIES)):
            try:
                status, body = self._answer(path, headers)
            except (OSError, http.client.HTTPException) as error:
                if left and not isinstance(error, ssl.SSLError | ConnectionRefusedError):
                    time.sleep(_PAUSE_SECONDS)
                    continue
                raise InputError(
                    "E0892",
                    f"no registry of schemas answers at `{self.url}`: {str(error) or type(error).__name__}",
                    "start it, or correct `registry`",
                ) from error
            if status in _PASSING and left:
                time.sleep(_PAUSE_SECONDS)
                continue
            break
        if status in (http.client.OK, _NOT_FOUND):
            return body if status == http.client.OK else None
        if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            raise InputError(
                "E0893",
                f"the registry `{self.url}` refuses access: HTTP status {status}",
                "check `user` and `password`, and the rights of this user",
            )
        raise InputError(
            "E0894",
            f"the registry `{self.url}` fails: HTTP status {status} for {path}",
            "check the log of the registry",
        )

    def _answer(self, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=SECONDS)
        connection.response_class = TimedResponse
        try:
            connection.request("GET", quote(parts.path.rstrip("/")) + path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read(_MOST_BYTES)
        finally:
            connection.close()


_known: dict[tuple[SchemaRegistry, int, str], str] = {}
_unknown: dict[tuple[SchemaRegistry, int, str], float] = {}
"""In a worker: schemas, which never change, and when unknown numbers are requested again."""


def is_address(url: str) -> bool:
    """Return whether a text is the address of a registry, without a user name and password."""
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and "@" not in url
        )
    except ValueError:
        return False
