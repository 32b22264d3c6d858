"""The lease of a remote checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from cep.errors import StateError
from spark_runtime.storage.lease import SECONDS, Lease


@dataclass
class Store:
    """Files in memory, on a file system that creates a file only once, and a clock."""

    root: str = "s3a://lake/checkpoint"
    files: dict[str, str] = field(default_factory=dict)
    now: float = 0.0
    slept: Callable[[], None] = lambda: None

    def names(self, folder: str) -> list[str]:
        return [name.removeprefix(f"{folder}/") for name in self.files if name.startswith(f"{folder}/")]

    def read(self, name: str) -> str | None:
        return self.files.get(name)

    def write(self, name: str, text: str) -> None:
        self.files[name] = text

    def create(self, name: str, text: str) -> bool:
        return self.files.setdefault(name, text) == text

    def remove(self, name: str) -> None:
        self.files.pop(name, None)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept()

    def lease(self) -> Lease:
        files: Any = self
        return Lease(files, lambda: self.now, self.sleep)

    def taken(self) -> Lease:
        lease = self.lease()
        lease.take(lambda text: None)
        return lease


def test_a_lease_that_was_ended_is_taken_at_once() -> None:
    store = Store()
    said: list[str] = []
    for _ in range(3):
        lease = store.lease()
        lease.take(said.append)
        lease.require()
        lease.release()
    assert (store.now, said) == (0, [])
    assert list(store.files) == ["lease/3"]


def test_a_lease_that_nobody_renews_is_taken_over_after_its_time() -> None:
    store = Store()
    first = store.taken()
    said: list[str] = []
    second = store.lease()
    second.take(said.append)
    assert SECONDS <= store.now < SECONDS + 3
    assert len(said) == 1
    assert said[0].startswith("waiting 30 seconds for the lease of the checkpoint: process ")
    assert list(store.files) == ["lease/2"]
    with pytest.raises(
        StateError, match=r"another run works on .* did not renew its lease for 30 sec"
    ) as caught:
        first.require()
    assert caught.value.code == "E0711"
    first.release()  # writes nothing: it is not its own
    second.require()
    assert list(store.files) == ["lease/2"]


def test_a_run_is_refused_while_another_one_renews() -> None:
    store = Store()
    first = store.taken()
    first_until = SECONDS - 5

    def renewed() -> None:
        nonlocal first_until
        if store.now > first_until:
            store.now += 6
            first.require()  # its time is over, and nobody has taken it over
            first_until = float("inf")

    store.slept = renewed
    with pytest.raises(
        StateError, match=r"E0711.*another run works on the checkpoint `s3a://lake/checkpoint`: pro"
    ):
        store.lease().take(lambda text: None)
    assert list(store.files) == ["lease/1"]


def test_one_of_two_runs_gets_a_lease_that_both_await() -> None:
    store = Store()
    store.taken()
    takers = iter([store.lease()])

    def other_takes() -> None:
        for taker in takers:
            taker.take(lambda text: None)

    store.slept = other_takes
    with pytest.raises(StateError, match=r"E0711"):
        store.lease().take(lambda text: None)
    assert list(store.files) == ["lease/2"]


def test_a_run_whose_file_another_one_has_replaced_stops() -> None:
    """On a file system without an exclusive creation two runs may create the same file; the last one wins."""
    store = Store()
    first = store.taken()
    store.files.clear()
    second = store.taken()
    store.now += SECONDS
    second.require()
    with pytest.raises(StateError, match="E0711"):
        first.require()


@pytest.fixture(params=["", "no JSON", "[]", json.dumps({"owner": "x"})])
def damaged(request: pytest.FixtureRequest) -> Store:
    return Store(files={"lease/7": request.param, "lease/.8.tmp": "{}"})


def test_a_damaged_lease_is_taken_over_after_its_time(damaged: Store) -> None:
    damaged.taken().require()
    assert damaged.now >= SECONDS
    assert "lease/8" in damaged.files
