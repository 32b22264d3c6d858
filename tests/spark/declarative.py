"""docs/guides/declarative_pipelines.md: `spark-pipelines` runs its files, twice; `make connect-test`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pyarrow.dataset as ds
import pyspark
import pytest

from spark_runtime.compat.driver import pyspark_version
from spark_runtime.sessions.java import find_java
from tests.java_classes import VARIABLES
from tests.pages import DOCS, blocks

pytestmark = pytest.mark.skipif(pyspark_version() < (4, 1), reason="PySpark 4.0 has no spark-pipelines")

PAGE = (DOCS / "guides/declarative_pipelines.md").read_text()


def order(number: int, ts: str, status: str) -> str:
    row = {"order_id": f"o{number}", "ts": f"2024-05-01T{ts}Z", "status": status, "amount": 10.0 * number}
    return json.dumps(row) + "\n"


def run(folder: Path) -> str:
    """Run the pipeline of a folder; return what it said."""
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        **VARIABLES,
        **find_java().environment(Path(mkdtemp(dir=folder))),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.ui.enabled": "false",
    }
    options = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    done = subprocess.run(
        [str(home / "bin/spark-pipelines"), "run", *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return f"{done.stdout}{done.stderr}"


def rows(folder: Path, table: str, *columns: str) -> Sequence[Mapping[str, Any]]:
    found: list[dict[str, Any]] = [
        row
        for file in sorted((folder / "spark-warehouse" / table).glob("part-*.parquet"))
        for row in ds.dataset(file).to_table(columns=list(columns)).to_pylist()
    ]
    return sorted(found, key=str)


def placed(folder: Path) -> Path:
    """Put the files of the page into a folder."""
    spec, streams = blocks(PAGE, "yaml")
    storage = (folder / "storage").as_uri()
    (folder / "spark-pipeline.yml").write_text(spec.replace("file:///srv/orders/storage", storage))
    (folder / "streams.yaml").write_text(streams)
    (folder / "orders.cep").write_text(blocks(PAGE, "cep")[0])
    for name in ("incoming", "transformations"):
        (folder / name).mkdir()
    (folder / "transformations/orders.py").write_text(blocks(PAGE, "python")[0])
    return folder


FIRST = (
    order(1, "10:00:00", "placed")
    + order(2, "10:05:00", "placed")
    + order(1, "10:20:00", "paid")
    + order(3, "12:00:00", "placed")
)
SECOND = order(1, "08:00:00", "placed") + order(3, "12:30:00", "paid") + order(4, "15:00:00", "placed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the pipeline twice; a fixture has no limit of time, and a busy machine needs minutes."""
    folder = placed(tmp_path_factory.mktemp("orders"))
    for number, events in enumerate((FIRST, SECOND)):
        (folder / f"incoming/{number}.json").write_text(events)
        said = run(folder)
        assert "Run is COMPLETED" in said, said
    return folder


COLUMNS = ("order_id", "outcome", "amount")


def found(number: int, outcome: str) -> dict[str, Any]:
    return {"order_id": f"o{number}", "outcome": outcome, "amount": 10.0 * number}


def test_matches_timeouts_and_late_events_are_tables_of_their_own(folder: Path) -> None:
    assert rows(folder, "paid", *COLUMNS) == [found(1, "match"), found(3, "match")]
    assert rows(folder, "unpaid", *COLUMNS) == [found(2, "timeout")]
    (event,) = rows(folder, "late", "stream", "event")
    assert (event["stream"], json.loads(event["event"])["order_id"]) == ("orders", "o1")


def test_a_flow_appends_matches_of_each_run_to_a_table(folder: Path) -> None:
    assert rows(folder, "alerts", *COLUMNS) == [found(1, "match"), found(2, "timeout"), found(3, "match")]


def test_a_view_has_the_matches_of_a_batch(folder: Path) -> None:
    # Nothing is late, and the end of the events closes all windows.
    expected = [(1, "match"), (1, "timeout"), (2, "timeout"), (3, "match"), (4, "timeout")]
    assert rows(folder, "report", *COLUMNS) == [found(*one) for one in expected]


def test_without_the_answers_a_query_function_asks_for_them(tmp_path: Path) -> None:
    definitions = blocks(PAGE, "python")[0].replace(', "events_schema": ORDERS', "")
    (placed(tmp_path) / "transformations/orders.py").write_text(definitions)
    said = run(tmp_path)
    assert "error[E0837]: Spark answers no questions within a query function of a pipeline" in said
    assert "help: give events_schema and streaming=True or False, or call detect outside it" in said
