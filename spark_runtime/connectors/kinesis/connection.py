"""The connection to Amazon Kinesis: calls, which are repeated if they are throttled, and errors.

boto3 finds the credentials: environment variables, its files, the role of the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cep.errors import InputError

_CONNECT_SECONDS, _READ_SECONDS = 3, 30
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
PATIENCE_SECONDS = 60.0
"""Seconds for which a call is repeated that was throttled, or that failed inside the service."""

_THROTTLED = frozenset(
    (
        "KMSThrottlingException",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
    )
)
_ANSWERED = {
    "describe_stream_summary": "StreamDescriptionSummary",
    "get_records": "Records",
    "get_shard_iterator": "ShardIterator",
    "list_shards": "Shards",
}
"""Method -> what each response to it has."""

_REFUSED = frozenset(
    (
        "AccessDeniedException",
        "ExpiredTokenException",
        "IncompleteSignatureException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationTokenException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    )
)


class ExpiredIteratorError(Exception):
    """An iterator was not used for five minutes."""


@dataclass(frozen=True, slots=True)
class KinesisConnection:
    """The place of streams.

    `region`: the region; empty: the one that boto3 finds. `endpoint_url`: the address of another service;
    empty: Amazon's.
    """

    region: str = ""
    endpoint_url: str = ""

    @property
    def where(self) -> str:
        """The service as text."""
        return self.endpoint_url or f"Kinesis in {self.region or 'the region of this machine'}"


class Calls:
    """Calls the methods of a service."""

    def __init__(self, connection: KinesisConnection, sleep: Callable[[float], None] = time.sleep) -> None:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        self._connection = connection
        self._sleep = sleep
        patience = {"total_max_attempts": 2, "mode": "standard"}
        config = Config(connect_timeout=_CONNECT_SECONDS, read_timeout=_READ_SECONDS, retries=patience)
        try:
            self._client: Any = boto3.session.Session().client(
                "kinesis",
                region_name=connection.region or None,
                endpoint_url=connection.endpoint_url or None,
                config=config,
            )
        except (BotoCoreError, ValueError) as error:
            raise InputError(
                "E0883",
                f"boto3 refuses its settings: {_shown(error)}",
                "check `region` and `endpoint_url`, and the files and variables that boto3 reads",
            ) from error

    def __call__(self, method: str, doing: str, **arguments: Any) -> Any:
        """Return the response to a method; `doing` names the action.

        Raises ExpiredIteratorError: `ShardIterator` is too old. Raises InputError: the service does not
        answer, refuses access, lacks the stream, or has failed.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        waited, pause = 0.0, _FIRST_PAUSE
        while True:
            try:
                answer = getattr(self._client, method)(**arguments)
            except ClientError as error:
                code = error.response.get("Error", {}).get("Code", "")
                if code == "ExpiredIteratorException":
                    raise ExpiredIteratorError from error
                if not _is_for_now(error, code) or waited >= PATIENCE_SECONDS:
                    raise self._error(error, code, doing) from error
            except BotoCoreError as error:
                raise self._error(error, type(error).__name__, doing) from error
            except (AttributeError, KeyError, TypeError, ValueError) as error:  # of boto3, for other JSON
                raise self._other_service(doing) from error
            else:
                if _ANSWERED[method] not in answer:
                    raise self._other_service(doing)
                return answer
            self._sleep(pause)
            waited += pause
            pause = min(2 * pause, _LONGEST_PAUSE)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _other_service(self, doing: str) -> InputError:
        return InputError(
            "E0880",
            f"what answers at `{self._connection.where}` for {doing} is not Kinesis",
            "correct `endpoint_url`",
        )

    def _error(self, cause: Exception, code: str, doing: str) -> InputError:
        where = f"`{self._connection.where}`"
        if code == "ResourceNotFoundException":
            return InputError("E0881", f"there is no {doing} at {where}", "create it, or correct its name")
        if code == "InvalidArgumentException":
            return InputError(
                "E0884",
                f"{where} knows no such position of {doing}: {_shown(cause)}",
                "if the stream was deleted and made again, start with an empty checkpoint directory",
            )
        if code in _REFUSED or "Credential" in code:
            return InputError(
                "E0882",
                f"{where} refuses access to {doing}: {_shown(cause)}",
                "boto3 takes credentials from the environment (AWS_ACCESS_KEY_ID, ...), its files or the "
                "role of the machine; they need ListShards, GetShardIterator and GetRecords of the stream",
            )
        if code in ("EndpointConnectionError", "ConnectTimeoutError", "ConnectionClosedError"):
            return InputError(
                "E0880",
                f"nothing answers at {where}: {_shown(cause)}",
                "check the network, `region` and `endpoint_url`",
            )
        return InputError("E0885", f"{where} failed at {doing}: {_shown(cause)}")


def _is_for_now(error: Any, code: str) -> bool:
    """Return whether a call that failed may succeed later."""
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return code in _THROTTLED or status >= 500


def _shown(error: Exception) -> str:
    return " ".join(str(error).split())
