"""Where outputs go: no two outputs of a pipeline to one place, where each would take the other's for its own.

On the driver only.
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

    Parameters
    ----------
    shown
        For messages: "topic `alerts`".
    name
        What other places do not have. Of a folder: the names on its path.
    has_inside
        Whether what is inside it is its own, too: a reader of a folder sees the folders in it.
    """

    shown: str
    name: tuple[str, ...]
    has_inside: bool = False

    def meets(self, other: Place) -> bool:
        """Return whether both are one place, or one of them is inside the other."""
        if not (self.has_inside and other.has_inside):
            return self.name == other.name
        n = min(len(self.name), len(other.name))
        return self.name[:n] == other.name[:n]


@runtime_checkable
class PlacedSink(Protocol):
    """The settings of a sink that tell its place. Others share no place, or none that matters."""

    def places(self, output: Output) -> Sequence[Place]:
        """Return the places that an output goes to; it may have several names for one place."""
        ...


def folder_place(path: str, inside: str = "") -> Place:
    """Return a folder; `inside`: a folder in it, or an empty text."""
    whole = os.path.join(path, inside) if inside else path
    if whole.startswith(_ON_DISK) or "://" not in whole:
        whole = os.path.realpath(whole.removeprefix(_ON_DISK))
    return Place(f"folder `{whole}`", ("folder", *PurePath(whole).parts), has_inside=True)


def server_place(shown: str, system: str, host: str, port: object, *names: str) -> Place:
    """Return something of a server: a table, a topic, a queue."""
    host = "localhost" if host.lower() in _HERE else host.lower()
    return Place(shown, (system, host, str(port), *names))


def folders_of(outputs: Iterable[tuple[object, Sequence[Output]]]) -> list[str]:
    """Return the folders on this machine that outputs go to; each sink is given with its outputs."""
    found = [
        p
        for sink, of_sink in outputs
        if isinstance(sink, PlacedSink)
        for o in of_sink
        for p in sink.places(o)
    ]
    return [os.path.join(*place.name[1:]) for place in found if place.has_inside and place.name[1] == os.sep]


def check_places(document: Document, outputs: Sequence[tuple[yaml.Node, object, Sequence[Output]]]) -> None:
    """Note outputs that go to one place. Each sink of the file has its node, its settings and its outputs."""
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
