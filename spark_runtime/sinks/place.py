"""The places of outputs, of the checkpoint and of input files. No two of a pipeline share one.

Each output would mistake the other's files for its own, a source would read what the pipeline writes, and who
empties a checkpoint would remove more than it.

Only for the driver.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import combinations
from pathlib import Path, PurePath
from typing import Protocol, runtime_checkable

import yaml

from cep.formats.files import pattern_of
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


@runtime_checkable
class FileSource(Protocol):
    """The settings of a source that reads the files of a folder, but not those of folders inside it."""

    @property
    def path(self) -> str:
        """A file, a folder, or a pattern of files."""


@runtime_checkable
class PlacedSource(Protocol):
    """The settings of a source, or its log of messages, that know which places of outputs it reads."""

    def reads(self, place: Place) -> bool:
        """Return whether the source reads what an output writes to a place."""


@runtime_checkable
class FormatSink(Protocol):
    """The settings of a sink with a folder for each micro-batch, whose files have one format."""

    @property
    def file_format(self) -> str:
        """The ending of the files, without the dot."""


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


def check_places(
    document: Document,
    outputs: Iterable[tuple[yaml.Node, object, Sequence[Output]]],
    checkpoint: tuple[yaml.Node, str] | None,
    sources: Iterable[tuple[yaml.Node, object]],
) -> None:
    """Report outputs, the checkpoint and sources that share a place.

    Each sink is given with its node, its settings and its outputs; each source with its node and its
    settings. `checkpoint`: its node and its path; None in a batch.
    """
    written = [
        _Written(node, [place for output in of_sink for place in sink.places(output)])
        for node, sink, of_sink in outputs
        if isinstance(sink, PlacedSink)
    ]
    if checkpoint is not None:
        node, path = checkpoint
        written.append(_Written(node, [folder_place(path)], is_checkpoint=True))
    for first, second in combinations(written, 2):
        met = next(((a, b) for a in first.places for b in second.places if a.meets(b)), None)
        if met is not None:
            _report(document, _of_both(*met, second), second.node, first.node)
    for node, source in sources:
        for item in written:
            what = next((said for place in item.places if (said := _of_source(source, place, item))), "")
            if what:
                _report(document, what, node, item.node)


@dataclass(frozen=True, slots=True)
class _Written:
    """What a pipeline writes: an output or its checkpoint."""

    node: yaml.Node
    places: Sequence[Place]
    is_checkpoint: bool = False


def _of_both(one: Place, other: Place, second: _Written) -> str:
    """Return how two places meet. `second` has the other one; a checkpoint comes after all outputs."""
    another = "an output" if second.is_checkpoint else "another output"
    if one.name == other.name:
        both = "an output and the checkpoint" if second.is_checkpoint else "two outputs"
        return f"{both} go to {other.shown}"
    if len(one.name) < len(other.name):
        return f"{other.shown} is inside {one.shown}, where {another} goes"
    return f"{one.shown}, where {another} goes, is inside {other.shown}"


def _of_source(source: object, place: Place, item: _Written) -> str:
    """Return how a source would read what is written to a place; empty if it does not read it."""
    if isinstance(source, FileSource):
        return _of_files(source.path, place, item)
    is_read = isinstance(source, PlacedSource) and source.reads(place)
    return f"a source reads {place.shown}, where an output goes" if is_read else ""


def _of_files(path: str, place: Place, item: _Written) -> str:
    pattern = pattern_of(path)
    read = folder_place(path if pattern is None else str(pattern.folder))
    if item.is_checkpoint and read.name != place.name and read.name[: len(place.name)] == place.name:
        return f"a source reads {read.shown}, which is inside the checkpoint"
    signs = () if pattern is None else Path(pattern.glob).parts[len(pattern.folder.parts) :]
    inner = place.name[len(read.name) :]
    # The files of a pattern may be in the folder itself, or in folders that its writer makes there.
    is_read = place.name[: len(read.name)] == read.name and len(inner) < max(len(signs), 1)
    if is_read and all(_is_named(*pair) for pair in zip(inner, signs, strict=False)):
        goes = "the checkpoint is" if item.is_checkpoint else "an output goes"
        return f"a source reads {place.shown}, where {goes}"
    return ""


def _is_named(name: str, sign: str) -> bool:
    """Return whether a part of a pattern fits a name; hidden folders are not read."""
    return fnmatchcase(name, sign) and not (sign[0] == "*" and name[0] in "._")


def _report(document: Document, what: str, node: yaml.Node, other: yaml.Node) -> None:
    line = other.start_mark.line + 1
    document.problem("E0843", what, node, f"the other one is in line {line}", "give each its own place")
