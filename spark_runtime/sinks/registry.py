"""The sinks of pipelines, by their `format` in a pipeline file. A new sink needs one line here.

Only for the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from cep.registry import Registry
from cep.rule_set import RuleSet
from cep.settings.settings import Settings
from cep.settings.yaml_document import Document
from spark_runtime.sinks.owner import Owner
from spark_runtime.sinks.protocol import AnySink, Output
from spark_runtime.wire.output import DEAD, LATE, MATCH

if TYPE_CHECKING:
    from rich.console import Console

ALL_KINDS = frozenset((MATCH, LATE, DEAD))


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a sink must know about the pipeline for which it is opened.

    - `console`: where a sink may print.
    - `owner`: the pipeline, if it runs as a batch: a sink that uses the same name for every batch must not
      replace the rows of another pipeline. None in a stream.
    - `stored`: the version of the rules and the text of their file, for the log of matches.
    - `is_replay`: whether the driver writes all rows, without Spark.
    """

    rules: RuleSet
    console: Console
    owner: Owner | None = None
    stored: tuple[str, str] | None = None
    is_replay: bool = False


class SinkSpec(Protocol):
    """The checked settings of a sink; a frozen record."""

    def open(self, output: Output, context: SinkContext) -> AnySink:
        """Return the sink of one output; write nothing yet (`Sink.check`)."""


@runtime_checkable
class NamesColumns(Protocol):
    """A `SinkSpec` whose settings name columns of its rows."""

    def check_columns(self, document: Document, known: Sequence[str]) -> None:
        """Report each column that is not among the columns `known` of the rows."""


def check_columns(document: Document, outputs: Iterable[tuple[SinkSpec, Sequence[Output]]]) -> None:
    """Report each column that the settings of a sink name but its rows lack."""
    for spec, of_spec in outputs:
        if isinstance(spec, NamesColumns):  # late events of several streams go to one sink
            spec.check_columns(document, [name for output in of_spec for name in output.schema.names])


class SinkType(Protocol):
    """A registered kind of sink: turns the settings in a pipeline file into a spec."""

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of its settings, except `format`."""

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of output that it accepts: some of `MATCH`, `LATE` and `DEAD`."""

    def spec(self, settings: Settings) -> SinkSpec | None:
        """Return the spec, or None if a problem was reported in `settings`."""


SINKS: Registry[SinkType] = Registry(
    "sink",
    "cep.sinks",
    {
        "console": "spark_runtime.connectors.console.sink:CONSOLE",
        "json": "spark_runtime.connectors.files.sink_settings:JSON",
        "parquet": "spark_runtime.connectors.files.sink_settings:PARQUET",
        "csv": "spark_runtime.connectors.files.sink_settings:CSV",
        "kafka": "spark_runtime.connectors.kafka.sink_settings:KAFKA",
        "postgres": "spark_runtime.connectors.postgres.sink_settings:POSTGRES",
        "delta": "spark_runtime.connectors.delta.settings:DELTA",
        "webhook": "spark_runtime.connectors.webhook.settings:WEBHOOK",
        "rabbitmq": "spark_runtime.connectors.rabbitmq.sink_settings:RABBITMQ",
    },
    (("settings", "kinds", "spec"),),
)
"""Other packages register theirs in the group ``cep.sinks`` (docs/reference/pipeline.md, "Plug-ins")."""


def sink_names(kind: str) -> tuple[str, ...]:
    """Return the valid values of `format` for a kind of output."""
    return tuple(name for name, found in SINKS.loaded().items() if kind in found.kinds)
