"""OpenLineage: events that say what a run read and wrote, and with which rules.

The events follow version 2-0-2 of the specification (https://openlineage.io/spec/2-0-2/OpenLineage.json).
They go to a server, as ``POST <address>/api/v1/lineage``, or to a file, one event in each line.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPException
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pyarrow as pa

from cep.schema.text_values import event_table_schema
from spark_runtime.pipeline.health import Watched
from spark_runtime.pipeline.made import Pipeline
from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.sinks.place import PlacedSink

EVERY_S = 60.0
"""Seconds from one event of a stream that runs to the next."""

API_KEY = "OPENLINEAGE_API_KEY"
"""The environment variable with the key of the server, as OpenLineage's own clients have it."""

_SECONDS = 5.0
_SPEC = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = "https://openlineage.io/spec/facets"
_PRODUCER = "https://pypi.org/project/spark-cep"


@dataclass(slots=True)
class Lineage:
    """Sends the events of one run. `say`: gets one sentence if an event cannot be sent; the run continues."""

    watched: Watched
    to: str
    say: Callable[[str], None]
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    _has_failed: bool = False

    def send(self, kind: str) -> None:
        """Send an event: START, RUNNING, COMPLETE, ABORT or FAIL."""
        text = json.dumps(self.event(kind))
        try:
            if "://" in self.to:
                self._post(text)
            else:
                with Path(self.to).open("a", encoding="utf-8") as file:
                    file.write(f"{text}\n")
        except (OSError, HTTPException) as error:  # URLError is an OSError
            if not self._has_failed:
                self._has_failed = True
                self.say(f"warning: events of OpenLineage cannot be sent to {self.to}: {error}")

    def _post(self, text: str) -> None:
        headers = {"Content-Type": "application/json"}
        if os.environ.get(API_KEY):
            headers["Authorization"] = f"Bearer {os.environ[API_KEY]}"
        address = f"{self.to.rstrip('/')}/api/v1/lineage"
        with urlopen(Request(address, text.encode(), headers), timeout=_SECONDS):  # noqa: S310 - http or https
            pass

    def event(self, kind: str) -> dict[str, Any]:
        """Return an event as JSON values."""
        run, pipeline = self.watched.run, self.watched.pipeline
        pipeline = pipeline if run is None else run.pipeline  # its rules may have changed
        return {
            "eventType": kind,
            "eventTime": datetime.now(UTC).isoformat(),
            "run": {"runId": self.run_id, "facets": self._run_facets(pipeline)},
            "job": {"namespace": "spark-cep", "name": pipeline.name, "facets": _job_facets(pipeline)},
            "inputs": list(_inputs(pipeline)),
            "outputs": list(self._outputs(pipeline)),
            "producer": _PRODUCER,
            "schemaURL": _SPEC,
        }

    def _run_facets(self, pipeline: Pipeline) -> dict[str, Any]:
        rules = {
            "ruleSet": StoredRules.of(pipeline.texts, pipeline.rules).version,
            "rules": [rule.name for rule in pipeline.rules.rules],
        }
        engine = {"name": "spark-cep", "version": _version()}
        found = {
            "processing_engine": _facet("1-1-1/ProcessingEngineRunFacet.json", engine),
            "cep_rules": {"_producer": _PRODUCER, "_schemaURL": _PRODUCER, **rules},
        }
        if self.watched.failure is not None:
            error = {"message": str(self.watched.failure), "programmingLanguage": "Python"}
            found["errorMessage"] = _facet("1-0-1/ErrorMessageRunFacet.json", error)
        return found

    def _outputs(self, pipeline: Pipeline) -> Iterator[dict[str, Any]]:
        rows = {} if self.watched.run is None else self.watched.run.written.rows
        names = pipeline.sink_names()
        for sink, outputs in pipeline.outputs():
            for output, shown in zip(outputs, names, strict=False):
                for place in sink.places(output)[:1] if isinstance(sink, PlacedSink) else ():
                    namespace, name = _of_place(place.name)
                    statistics = _facet(
                        "1-0-2/OutputStatisticsOutputDatasetFacet.json", {"rowCount": rows.get(shown, 0)}
                    )
                    yield {
                        "namespace": namespace,
                        "name": name,
                        "facets": _columns(output.schema),
                        "outputFacets": {"outputStatistics": statistics},
                    }


@contextmanager
def traced(watched: Watched, say: Callable[[str], None]) -> Iterator[None]:
    """Send the events of a run, from its start to its end, if its pipeline asks for them."""
    to = watched.pipeline.lineage
    if not to:
        yield
        return
    lineage, ended = Lineage(watched, to, say), threading.Event()
    lineage.send("START")

    def go_on() -> None:
        while not ended.wait(EVERY_S):
            lineage.send("RUNNING")

    sender = threading.Thread(target=go_on, name="lineage", daemon=True)
    sender.start()
    kind = "FAIL"
    try:
        yield
        was_stopped = watched.run is not None and watched.run.was_stopped
        kind = "ABORT" if was_stopped else "COMPLETE"
    except KeyboardInterrupt:
        kind = "ABORT"
        raise
    except Exception as error:
        watched.failure = error
        raise
    finally:
        ended.set()
        sender.join()
        lineage.send(kind)


def _version() -> str:
    try:
        return version("spark-cep")
    except PackageNotFoundError:  # the package came to the cluster as an archive, not by pip
        return "unknown"


def _facet(schema: str, values: dict[str, Any]) -> dict[str, Any]:
    return {"_producer": _PRODUCER, "_schemaURL": f"{_FACETS}/{schema}", **values}


def _job_facets(pipeline: Pipeline) -> dict[str, Any]:
    kind = {
        "processingType": "STREAMING" if pipeline.is_stream else "BATCH",
        "integration": "SPARK_CEP",
        "jobType": "PIPELINE",
    }
    return {"jobType": _facet("2-0-3/JobTypeJobFacet.json", kind)}


def _inputs(pipeline: Pipeline) -> Iterator[dict[str, Any]]:
    for entry in pipeline.sources:
        namespace, name = _of_text(entry.name, entry.spec.place)
        stream = pipeline.rules.inputs.get(entry.stream)
        facets = {} if stream is None else _columns(event_table_schema(stream))
        yield {"namespace": namespace, "name": name, "facets": facets}
    for table in pipeline.tables:
        namespace, name = _of_text(table.file_format, table.path)
        yield {"namespace": namespace, "name": name, "facets": {}}


def _of_text(system: str, place: str) -> tuple[str, str]:
    """Return namespace and name of what a source reads: a path, an address, or names in a log."""
    if "://" in place:
        scheme, _, rest = place.partition("://")
        host, _, path = rest.partition("/")
        return f"{scheme}://{host}", path
    return ("file", place) if os.path.isabs(place) else (system, place)


def _of_place(name: tuple[str, ...]) -> tuple[str, str]:
    """Return namespace and name of the place of an output (`Place.name`)."""
    system, *rest = name
    if system == "folder":
        path = os.path.join(*rest)
        scheme, _, host_and_path = path.partition(":/")
        return _of_text(system, f"{scheme}://{host_and_path.lstrip('/')}" if host_and_path else path)
    host, port, *names = rest
    return f"{system}://{host}:{port}", ".".join(names)


def _columns(schema: pa.Schema) -> dict[str, Any]:
    fields = [{"name": item.name, "type": str(item.type)} for item in schema]
    return {"schema": _facet("1-1-1/SchemaDatasetFacet.json", {"fields": fields})}
