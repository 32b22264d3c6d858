"""Posts rows to a webhook. Only for the driver.

A micro-batch is done when each of its rows was accepted, or was permanently refused and written to a file.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from cep.errors import InputError
from cep.write_errors import require_folder, writing
from spark_runtime.connectors.webhook.sending import Refused, Sending
from spark_runtime.sinks.messages import messages
from spark_runtime.sinks.owner import WRITTEN_BY, Owner, text_of
from spark_runtime.sinks.protocol import Collected, Guarantee, MicroBatch, Output
from spark_runtime.storage.checkpoint_files import LocalFiles


@dataclass(slots=True)
class WebhookSink:
    """An address; see `TableSink`.

    `refused_path`: the folder of permanently refused rows; empty: such a row ends the run.
    """

    output: Output
    sending: Sending
    refused_path: str = ""
    owner: Owner | None = None  # of a batch
    n_refused: int = 0
    _refused: list[Refused] = field(default_factory=list)  # of the micro-batch

    guarantee = Guarantee.AT_LEAST_ONCE

    @property
    def shown(self) -> str:
        """The name of the sink, for messages."""
        return self.sending.endpoint.shown

    def check(self) -> None:
        """Connect to the server, and try to write to the folder of refused rows."""
        self.sending.endpoint.check()
        if self.refused_path:
            require_folder(self.refused_path, f".probe-{os.getpid()}")
            with writing(self.refused_path):
                file = Path(self.refused_path) / f"batch={MicroBatch(None, 0).name}.json"
                if self.owner is not None and file.exists():
                    says = LocalFiles(self.refused_path).read(WRITTEN_BY)
                    self.owner.require(self.refused_path, self.output.kind, str(file), says)

    def last(self, run: str) -> None:
        """Return None: the server does not report what it got."""

    def begin(self, batch: MicroBatch) -> None:
        """Forget the refused rows of an interrupted micro-batch."""
        self._refused = []

    def write_rows(self, batch: MicroBatch, rows: Collected) -> None:
        """Send the rows until each is accepted or permanently refused."""
        if not rows.n_rows:
            return
        self._refused = self.sending.send(messages(batch, rows))
        if self._refused and not self.refused_path:
            first = self._refused[0]
            raise InputError(
                "E0875",
                f"the webhook `{self.shown}` refuses {len(self._refused):,} rows for good, "
                f"the first is {first.message.key}: {first.reason}",
                "name a folder for such rows: refused: out/refused",
            )

    def commit(self, batch: MicroBatch) -> None:
        """Write the permanently refused rows to a file of the micro-batch, and count them."""
        if not self._refused:
            return
        with writing(self.refused_path):
            file = Path(self.refused_path) / f"batch={batch.name}.json"
            unfinished = file.with_name(f".{file.name}.tmp")
            with unfinished.open("w", encoding="utf-8") as lines:
                for item in sorted(self._refused, key=lambda item: item.message.key):
                    label = json.dumps({"reason": item.reason, "key": item.message.key}, ensure_ascii=False)
                    lines.write(f'{label[:-1]}, "row": {item.message.text}}}\n')
            if batch.run is None:
                says = text_of(batch, self.refused_path, self.output.kind, self.owner)
                LocalFiles(self.refused_path).write(WRITTEN_BY, says)
            unfinished.replace(file)
        self.n_refused += len(self._refused)
        self._refused = []

    def close(self) -> None:
        """End the connections."""
        self.sending.close()
