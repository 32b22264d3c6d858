"""Event files as a source: the settings, and the choice of the reader. Only for the driver."""

from __future__ import annotations

from dataclasses import dataclass

from cep.errors import InputError
from cep.formats.files import BadFile, Reading, pattern_of, require_no_table
from cep.formats.path_names import check_names
from cep.settings import declared
from cep.settings.declared import Declared
from spark_runtime.event_time.partitions import PER_SOURCE, check_watermark_per
from spark_runtime.sources.protocol import Source, SparkSource
from spark_runtime.sources.spec import SourceContext, SourceType


@dataclass(frozen=True, slots=True)
class Files:
    """A file, a folder of files or a pattern of paths."""

    file_format: str
    path: str = declared.path()
    max_files: int | None = declared.integer(None, at_least=1, name="max_files_per_trigger")
    on_bad_file: BadFile = declared.choice(BadFile)
    watermark_per: str = declared.text(PER_SOURCE)

    @property
    def place(self) -> str:
        """The path."""
        return self.path

    def open(self, context: SourceContext) -> Source | SparkSource:
        """Return the source; Spark reads files on other file systems."""
        from spark_runtime.connectors.files.source import FolderSource

        stream = context.stream
        pattern = pattern_of(self.path)
        if pattern is not None:
            check_names(pattern, stream)
        check_watermark_per(self.watermark_per, stream)
        reading = Reading(context.keys, self.on_bad_file, in_worker=True, pattern=pattern)
        # The checkpoint contains the list of files that were read, so Python must be able to access its disk.
        if "://" in self.path or (context.is_stream and not context.log):
            if self.watermark_per != PER_SOURCE:
                raise InputError(
                    "E0843",
                    f"`watermark_per` of stream `{stream.name}` is for files on a local disk",
                    "leave it out: what only Spark reads has one watermark",
                )
            require_no_table(self.path, pattern)
            from spark_runtime.dataflow.by_spark import FilesOfSpark  # with PySpark

            return FilesOfSpark(stream, self.path, self.file_format, reading, self.max_files)
        return FolderSource(
            stream=stream,
            path=self.path,
            file_format=self.file_format,
            reading=reading,
            log=context.log,
            max_files=self.max_files,
            holds_open_lines=context.is_live,
            watermark_per=self.watermark_per,
            by_time=context.by_time,
            has_begun=context.has_begun,
        )


def files_type(file_format: str) -> SourceType:
    """Return the source type for files of a format."""
    return Declared(Files, given={"file_format": file_format})
