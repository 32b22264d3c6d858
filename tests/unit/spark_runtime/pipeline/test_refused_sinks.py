"""A sink that cannot take changed rules refuses them, and the sinks before continue."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from rich.console import Console

from cep.errors import CepError
from spark_runtime.connectors.delta.sink import DeltaSink
from spark_runtime.pipeline.made import Pipeline
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.pipeline.runs import StreamRun
from spark_runtime.sinks.log_sink import LogSink
from spark_runtime.sinks.match_log import MatchLog
from spark_runtime.sinks.protocol import MicroBatch


class _Refusing:
    """Stands for `Reloading`, which records nothing here."""

    def __init__(self) -> None:
        self.refused: list[str] = []

    def take(self, turn: object) -> object:
        return turn

    def refuse(self, error: CepError) -> object:
        self.refused.append(error.code)
        return "the rules before"


class _Turn:
    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline


def pipeline(folder: Path, measure: str) -> Pipeline:
    (folder / "r.cep").write_text(
        f"RULE r FROM s PARTITION BY k PATTERN a DEFINE a AS x > 1 MEASURES a.{measure} AS found"
    )
    lines = (
        "streams: {s: {event_time: ts, schema: {k: string, ts: timestamp, x: bigint}}}",
        "rules: [r.cep]",
        "source: {stream: s, format: json, path: in}",
        "sinks: [{format: json, path: out/json}, {format: delta, path: out/delta}]",
        "checkpoint: state",
        "log: out/log",
    )
    (folder / "p.yaml").write_text("\n".join(lines))
    return load_pipeline(folder / "p.yaml")


def test_sinks_that_continue_after_a_refusal_are_checked_again(tmp_path: Path) -> None:
    before, after = pipeline(tmp_path, "x"), pipeline(tmp_path, "k")
    nothing = cast(Any, None)
    run = StreamRun(before, nothing, Console(), Console(), 0.0, nothing)
    run._check_sinks()
    log = MatchLog(str(tmp_path / "out/log"))
    log.open()
    log.append_rules(MicroBatch("run", 0), "version", "{}", 0)
    reloading = run.reloading = cast(Any, _Refusing())
    taken = cast(Any, run._taken)
    assert taken(_Turn(after)) == "the rules before"
    assert reloading.refused == ["E0873"]
    assert run.pipeline is before
    of_delta = next(item.sink for item in run.sinks if isinstance(item.sink, DeltaSink))
    of_log = next(item.sink for item in run.sinks if isinstance(item.sink, LogSink))
    assert of_delta.last("run") is None
    assert of_log.log.last is not None  # otherwise the next entry would replace the first one
    assert taken(_Turn(before)).pipeline is before
    assert reloading.refused == ["E0873"]
