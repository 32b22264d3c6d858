"""A Delta table as a sink: its settings. On the driver only; deltalake is not needed to read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import yaml

from cep.settings.settings import Settings
from spark_runtime.sinks.place import Place, folder_place
from spark_runtime.sinks.protocol import Output, TableSink
from spark_runtime.sinks.registry import ALL_KINDS, SinkContext, SinkSpec, SinkType


class _DeltaType:
    """See `SinkType`."""

    settings = ("path", "partition_by", "options")
    kinds = ALL_KINDS

    def spec(self, settings: Settings) -> SinkSpec | None:
        """Return the spec, or None if a problem was noted."""
        document = settings.document
        before = len(document.diagnostics)
        settings.require_package("deltalake", "delta")
        path = settings.path("path")
        columns: tuple[str, ...] = ()
        if "partition_by" in settings:
            texts = document.texts(settings.found["partition_by"], "`partition_by`") or []
            columns = tuple(text for text, _ in texts)
        options = []
        node = settings.found.get("options")
        for entry in [] if node is None else document.mapping(node, "`options`") or []:
            if isinstance(entry.value, yaml.ScalarNode):
                options.append((entry.name, str(entry.value.value)))
            else:
                document.text(entry.value, f"`{entry.name}`")  # notes that it is no text
        if path is None or len(document.diagnostics) > before:
            return None
        return DeltaSpec(path, columns, tuple(options))


@dataclass(frozen=True, slots=True)
class DeltaSpec:
    """A Delta table.

    Parameters
    ----------
    path
        Its folder, or its address in an object store.
    partition_by
        The columns by which its files are parted.
    options
        What the object store asks for, by name. In values `${NAME}` is a variable of the environment.
    """

    path: str
    partition_by: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def places(self, output: Output) -> Sequence[Place]:
        """Return the folder of the table."""
        return (folder_place(self.path, output.folder),)

    def open(self, output: Output, context: SinkContext) -> TableSink:
        """Return the sink."""
        from spark_runtime.connectors.delta.sink import DeltaSink

        path = f"{self.path}/{output.folder}" if output.folder else self.path
        return DeltaSink(output, path, self.partition_by, self.options)


DELTA: SinkType = _DeltaType()
