"""Files as a sink: the settings, and the choice of the writer. Only for the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cep.settings import declared
from cep.settings.declared import Declared
from spark_runtime.connectors.files.writers import CsvWriter, FileWriter, JsonWriter, ParquetWriter
from spark_runtime.sinks.place import Place, folder_place
from spark_runtime.sinks.protocol import AnySink, Output
from spark_runtime.sinks.registry import ALL_KINDS, SinkContext
from spark_runtime.storage.checkpoint_files import is_remote


@dataclass(frozen=True, slots=True)
class FilesSpec:
    """A folder, and the writer of its files."""

    path: str = declared.path()
    writer: FileWriter = field(default_factory=JsonWriter)

    @property
    def file_format(self) -> str:
        """The ending of the files."""
        return self.writer.name

    def places(self, output: Output) -> Sequence[Place]:
        """Return the folder."""
        return (folder_place(self.path, output.folder),)

    def open(self, output: Output, context: SinkContext) -> AnySink:
        """Return the sink: the workers write it if it is on a disk and they can write the columns.

        On remote storage the driver writes the rows of a stream, and Spark the result of a batch.
        """
        from spark_runtime.connectors.files.sink import FolderSink, FolderSinkOfSpark, ObjectSink

        path = f"{self.path}/{output.folder}" if output.folder else self.path
        is_far = is_remote(path)
        if is_far and context.owner is None:
            return ObjectSink(output, path, self.writer)
        if not is_far and (context.is_replay or self.writer.can_write(output)):
            return FolderSink(output, path, self.writer, context.owner)
        return FolderSinkOfSpark(output, path, self.writer, context.owner)


JSON, PARQUET, CSV = (
    Declared[FilesSpec](FilesSpec, kinds=ALL_KINDS, given={"writer": writer})
    for writer in (JsonWriter(), ParquetWriter(), CsvWriter())
)
