"""Amazon Kinesis as moto plays it, for tests: one process on this machine, which answers on 127.0.0.1 only.

What moto does differently is put right here: it moves the messages of a shard that is split to the new
shards, and stores new ones in the old shard. Kinesis does neither. What moto cannot do is told to the process
on its standard input: to remove messages, as retention does, and to be too busy for some calls.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import pytest

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "tests",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""What the environment of tests must have, that of Spark's workers, too."""

_NUMBERS = count()
_LAST_HASH = 2**128 - 1


@dataclass(frozen=True)
class KinesisServer:
    """A server that runs."""

    address: str
    process: subprocess.Popen[str]

    @property
    def client(self) -> Any:
        """A client of boto3."""
        import boto3

        return boto3.client("kinesis", endpoint_url=self.address)

    def stream(self, n_shards: int = 1) -> str:
        """Make a stream; return its name, which no other test has."""
        name = f"stream-{next(_NUMBERS)}"
        client = self.client
        client.create_stream(StreamName=name, ShardCount=n_shards)
        client.close()
        return name

    def remake(self, stream: str, n_shards: int) -> None:
        """Delete a stream and make it again."""
        client = self.client
        client.delete_stream(StreamName=stream)
        client.create_stream(StreamName=stream, ShardCount=n_shards)
        client.close()

    def shards(self, stream: str) -> list[str]:
        """Return the names of all shards."""
        client = self.client
        found = [shard["ShardId"] for shard in client.list_shards(StreamName=stream)["Shards"]]
        client.close()
        return found

    def send(self, stream: str, values: Sequence[bytes], shard: int = 0, key: str = "k") -> None:
        """Store messages in a shard."""
        client = self.client
        listed = client.list_shards(StreamName=stream)["Shards"][shard]["HashKeyRange"]
        for begin in range(0, len(values), 500):
            client.put_records(
                StreamName=stream,
                Records=[
                    {"Data": value, "PartitionKey": key, "ExplicitHashKey": listed["StartingHashKey"]}
                    for value in values[begin : begin + 500]
                ],
            )
        client.close()

    def split(self, stream: str, shard: int) -> None:
        """Split a shard in the middle."""
        client = self.client
        found = client.list_shards(StreamName=stream)["Shards"][shard]
        low, high = (int(found["HashKeyRange"][f"{end}HashKey"]) for end in ("Starting", "Ending"))
        middle = str((low + high) // 2)
        client.split_shard(StreamName=stream, ShardToSplit=found["ShardId"], NewStartingHashKey=middle)
        client.close()

    def forget(self, stream: str, shard: int, before: int) -> None:
        """Remove the messages before a sequence number, as retention does."""
        self._tell({"forget": [stream, shard, before]})

    def drop_shard(self, stream: str, shard: int) -> None:
        """Let a closed shard be gone, as Kinesis does when its messages are."""
        self._tell({"drop": [stream, shard]})

    def throttle(self, n_calls: int) -> None:
        """Be too busy for the next calls that ask for messages."""
        self._tell({"throttle": n_calls})

    def _tell(self, order: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"


@contextmanager
def running_kinesis(folder: Path) -> Iterator[KinesisServer]:
    """Start a server, wait until it answers, and end it."""
    from tests.left_out import require  # not above: this file is the server's program, too

    installed = all(find_spec(name) is not None for name in ("moto", "boto3"))
    require(installed, "the server of Kinesis, moto,")
    log = folder / "kinesis.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        if not address:
            pytest.fail(f"moto does not start:\n{log.read_text()[-4000:]}")
        yield KinesisServer(address, process)
    finally:
        process.stdin.close()  # it ends with its standard input, also when the tests are killed
        process.terminate()
        process.wait(20)
        process.stdout.close()


def _put_right(to_refuse: list[int]) -> None:
    """Let moto do as Kinesis does; `to_refuse` has the number of calls for which it is too busy."""
    from moto.core.exceptions import JsonRESTError
    from moto.kinesis.models import KinesisBackend, Stream

    split, get_records = Stream.split_shard, KinesisBackend.get_records
    shard_for_key = Stream.get_shard_for_key

    def kept_split(self: Any, shard_to_split: str, new_starting_hash_key: str) -> None:
        kept = dict(self.shards[shard_to_split].records)
        split(self, shard_to_split, new_starting_hash_key)
        self.shards[shard_to_split].records.update(kept)
        for shard in self.shards.values():
            if shard.parent == shard_to_split:
                shard.records.clear()

    def of_key(self: Any, partition_key: str, explicit_hash_key: str) -> Any:
        shards = self.shards
        self.shards = {name: shard for name, shard in shards.items() if shard.is_open}
        try:
            return shard_for_key(self, partition_key, explicit_hash_key)
        finally:
            self.shards = shards

    def refused(self: Any, *arguments: Any, **more: Any) -> Any:
        if to_refuse[0]:
            to_refuse[0] -= 1
            raise JsonRESTError("ProvisionedThroughputExceededException", "Rate exceeded for shard")
        return get_records(self, *arguments, **more)

    Stream.get_shard_for_key = of_key
    Stream.split_shard = kept_split
    KinesisBackend.get_records = refused


def _serve() -> None:
    """Run the server until standard input ends."""
    from moto.kinesis.models import Shard, kinesis_backends
    from moto.server import ThreadedMotoServer

    to_refuse = [0]
    _put_right(to_refuse)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    print(f"http://{host}:{port}", flush=True)

    def shard_of(stream: str, number: int) -> tuple[Any, Shard]:
        found = kinesis_backends["123456789012"][CREDENTIALS["AWS_DEFAULT_REGION"]].streams[stream]
        return found, sorted(found.shards.values(), key=lambda shard: shard.shard_id)[number]

    for line in sys.stdin:
        match json.loads(line):
            case {"throttle": int(n)}:
                to_refuse[0] = n
            case {"forget": [stream, number, before]}:
                _, shard = shard_of(stream, number)
                for sequence in [sequence for sequence in shard.records if sequence < before]:
                    del shard.records[sequence]
            case {"drop": [stream, number]}:
                found, shard = shard_of(stream, number)
                del found.shards[shard.shard_id]
        print("done", flush=True)
    server.stop()


if __name__ == "__main__":
    threading.current_thread().name = "control"
    _serve()
