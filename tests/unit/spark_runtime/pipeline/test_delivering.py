"""Which sinks have a micro-batch: what the checkpoint remembers."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from spark_runtime.connectors.webhook.bodies import JsonBody
from spark_runtime.connectors.webhook.endpoint import Endpoint
from spark_runtime.connectors.webhook.sending import Sending
from spark_runtime.connectors.webhook.sink import WebhookSink
from spark_runtime.pipeline.delivering import Notes, named
from spark_runtime.sinks.protocol import Output
from spark_runtime.storage.checkpoint_files import LocalFiles
from spark_runtime.wire.output import DEAD, MATCH


def sink(kind: str) -> WebhookSink:
    return WebhookSink(Output(kind, pa.schema([])), Sending(Endpoint("http://h/"), JsonBody(False)))


def test_notes_are_of_one_micro_batch_and_stay_after_a_restart(tmp_path: Path) -> None:
    notes = Notes(LocalFiles(str(tmp_path)))
    assert notes.names(0) == ()
    notes.add(3, "a")
    notes.add(3, "b")
    assert Notes(LocalFiles(str(tmp_path))).names(3) == ("a", "b")
    assert Notes(LocalFiles(str(tmp_path))).names(4) == ()
    notes.add(4, "a")
    assert Notes(LocalFiles(str(tmp_path))).names(4) == ("a",)


def test_damaged_notes_are_none(tmp_path: Path) -> None:
    (tmp_path / "delivered.json").write_text("{")
    notes = Notes(LocalFiles(str(tmp_path)))
    assert notes.names(0) == ()
    notes.add(0, "a")
    assert Notes(LocalFiles(str(tmp_path))).names(0) == ("a",)


def test_a_batch_writes_no_notes() -> None:
    notes = Notes(None)
    notes.add(0, "a")
    assert notes.names(0) == ("a",)


def test_a_sink_is_known_by_its_settings_and_its_output() -> None:
    names = [item.name for item in named((("x", sink(MATCH)), ("x", sink(MATCH)), ("y", sink(MATCH))))]
    assert len(set(names)) == 3
    again = [item.name for item in named((("y", sink(MATCH)), ("x", sink(MATCH)), ("x", sink(DEAD))))]
    assert again[:2] == [names[2], names[0]]
    assert again[2] not in names
