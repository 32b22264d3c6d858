"""The setting `log` of a pipeline: where the log of matches is, and how long it is kept. For the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import yaml

from cep.settings import declared
from cep.settings.declared import declared_settings
from cep.settings.settings import Settings
from spark_runtime.sinks.log_sink import FolderOfRows, LogSink
from spark_runtime.sinks.match_log import MatchLog
from spark_runtime.sinks.place import Place, folder_place
from spark_runtime.sinks.protocol import AnySink, Output
from spark_runtime.sinks.registry import SINKS, SinkContext, SinkSpec
from spark_runtime.storage.checkpoint_files import is_remote


@dataclass(frozen=True, slots=True)
class LogSpec:
    """The folder of a log, which of its entries are kept (None: all), and the sink that writes its rows."""

    path: str = declared.path()
    keep_us: int | None = declared.duration(None, "us", above_zero=True, example="30 days", name="keep")
    at_most_mb: int | None = declared.integer(None, at_least=1)
    rows: SinkSpec | None = None

    def places(self, output: Output) -> Sequence[Place]:
        """Return the folder."""
        return (folder_place(self.path),)

    def open(self, output: Output, context: SinkContext) -> AnySink:
        """Return the sink."""
        assert self.rows is not None
        assert context.stored is not None
        # As in a replay: nothing of the log is written by Spark.
        folder = cast("FolderOfRows", self.rows.open(output, replace(context, is_replay=True)))
        max_bytes = None if self.at_most_mb is None else self.at_most_mb * 1_000_000
        return LogSink(folder, MatchLog(self.path), *context.stored, self.keep_us, max_bytes)


def read_log(settings: Settings, name: str) -> LogSpec | None:
    """Return the setting, a path or a mapping; None after a report."""
    node = settings.found[name]
    if isinstance(node, yaml.ScalarNode):
        inner: Settings | None = replace(settings, found={"path": node}, what=f"`{name}`")
    else:
        inner = settings.inside(name, declared_settings(LogSpec), ("path",))
    if inner is None or "path" not in inner:
        return None
    rows = SINKS.get("parquet").spec(replace(inner, found={"path": inner.found["path"]}))
    if rows is None:
        return None
    spec = replace(declared.read(LogSpec, inner, is_complete=True), rows=rows)
    if is_remote(spec.path):
        advice = (
            "write a folder that this machine and the workers share; for the same rows on remote storage, "
            "add a sink, or replay the log into one: cep replay PIPELINE --into '{format: parquet, path: s3a://...}'"
        )
        label = "`cep replay` and `cep backfill --gaps` read it from a disk, without Spark"
        settings.problem("E0843", f"`{name}` on remote storage", name, label, advice)
    return spec
