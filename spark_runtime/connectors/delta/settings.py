"""The settings of a Delta table as a sink. Only for the driver; reading them does not need deltalake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cep.settings import declared
from cep.settings.declared import Declared
from spark_runtime.sinks.place import Place, folder_place
from spark_runtime.sinks.protocol import Output, TableSink
from spark_runtime.sinks.registry import ALL_KINDS, SinkContext, SinkType


@dataclass(frozen=True, slots=True)
class DeltaSpec:
    """A Delta table.

    `path`: its folder, or its address in an object store. `options`: the options of the object store, by
    name. In values, `${NAME}` is an environment variable.
    """

    path: str = declared.path()
    partition_by: tuple[str, ...] = declared.names(())
    options: tuple[tuple[str, str], ...] = declared.texts()

    def places(self, output: Output) -> Sequence[Place]:
        """Return the folder of the table."""
        return (folder_place(self.path, output.folder),)

    def open(self, output: Output, context: SinkContext) -> TableSink:
        """Return the sink."""
        from spark_runtime.connectors.delta.sink import DeltaSink

        path = f"{self.path}/{output.folder}" if output.folder else self.path
        return DeltaSink(output, path, self.partition_by, self.options)


DELTA: SinkType = Declared(DeltaSpec, package="deltalake", extra="delta", kinds=ALL_KINDS)
