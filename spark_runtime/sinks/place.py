"""The places of outputs. No two outputs of a pipeline share one: each would mistake the other's for its own.

Only for the driver.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import PurePath
from typing import Protocol, runtime_checkable

import yaml

from cep.settings.yaml_document import Document
from spark_runtime.sinks.protocol import Output

_HERE = ("localhost", "127.0.0.1", "::1", "[::1]", "")
_ON_DISK = "file://"


@dataclass(frozen=True, slots=True)
class Place:
    """Where an output goes.

    `shown`: for messages, such as "topic `alerts`". `name`: identifies the place. For a folder: the names on
    its path. `has_inside`: whether the place includes everything inside it, as a reader of a folder also
    reads its subfolders.
    """

    shown: str
    name: tuple[str, ...]
    has_inside: bool = False

    def meets(self, other: Place) -> bool:
        """Return whether both are the same place, or one is inside the other."""
        if not (self.has_inside and other.has_inside):
            return self.name == other.name
        n = min(len(self.name), len(other.name))
        return self.name[:n] == other.name[:n]


@runtime_checkable
class PlacedSink(Protocol):
    """The settings of a sink that name its place. Sinks without them share no place, or none that matters."""

    def places(self, output: Output) -> Sequence[Place]:
        """Return the places to which an output goes; one place may occur under several names."""


def folder_place(path: str, inside: str = "") -> Place:
    """Return the place of a folder, or of its subfolder `inside` unless that is empty."""
    whole = os.path.join(path, inside) if inside else path
    if whole.startswith(_ON_DISK) or "://" not in whole:
        whole = os.path.realpath(whole.removeprefix(_ON_DISK))
    return Place(f"folder `{whole}`", ("folder", *PurePath(whole).parts), has_inside=True)


def server_place(shown: str, system: str, host: str, port: object, *names: str) -> Place:
    """Return a place on a server: a table, a topic, a queue."""
    host = "localhost" if host.lower() in _HERE else host.lower()
    return Place(shown, (system, host, str(port), *names))


def folders_of(outputs: Iterable[tuple[object, Sequence[Output]]]) -> list[str]:
    """Return the folders on this machine to which outputs go; each sink is given with its outputs."""
    found = [
        p
        for sink, of_sink in outputs
        if isinstance(sink, PlacedSink)
        for o in of_sink
        for p in sink.places(o)
    ]
    return [os.path.join(*place.name[1:]) for place in found if place.has_inside and place.name[1] == os.sep]


def check_places(document: Document, outputs: Sequence[tuple[yaml.Node, object, Sequence[Output]]]) -> None:
    """Report outputs that share a place. Each sink is given with its node, its settings and its outputs."""
    placed = [
        (node, [place for output in of_sink for place in sink.places(output)])
        for node, sink, of_sink in outputs
        if isinstance(sink, PlacedSink)
    ]
    for (first, places), (second, others) in combinations(placed, 2):
        met = next(((a, b) for a in places for b in others if a.meets(b)), None)
        if met is None:
            continue
        one, other = met
        line = first.start_mark.line + 1
        if one.name == other.name:
            what = f"two outputs go to {other.shown}"
        elif len(one.name) < len(other.name):
            what = f"{other.shown} is inside {one.shown}, where another output goes"
        else:
            what = f"{one.shown}, where another output goes, is inside {other.shown}"
        document.problem("E0843", what, second, f"the other one is in line {line}", "give each its own place")
