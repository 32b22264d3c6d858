"""``make tables-test``: the code of docs/connectors/lake_tables.md, with the connectors of Delta and Iceberg.

`make test` does not run this file: the connectors need another PySpark than the one in .venv, which
`tests/e2e/versions.py` installs beside it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.transactions import local_matches, write_transactions
from tests.e2e.versions import environment_of
from tests.left_out import require
from tests.pages import DOCS, blocks

pytestmark = pytest.mark.spark

VERSION = "4.1.4"
JARS = DOCS.parent / ".servers" / "lake-tables"
PAGE = (DOCS / "connectors" / "lake_tables.md").read_text()

DELTA, ICEBERG, BATCH, STREAM, MERGE = blocks(PAGE, "python")

ADD = """
import glob
frame = spark.read.schema(
    "tx_id string, card_id string, ts timestamp, amount double, approved boolean"
)
for file in sorted(glob.glob("part-[{parts}].json")):
    rows = frame.json(file).coalesce(1)
    if spark.catalog.tableExists("default.transactions"):
        rows.writeTo("default.transactions").append()
    else:
        rows.writeTo("default.transactions").create()
"""

SHOW = """
import json
print("FOUND", json.dumps({
    name: sorted(row.match_id for row in spark.table(f"default.{name}").select("match_id").collect())
    for name in ("alerts_of_all", "alerts", "cases")
}))
"""

FORGET = """
import pathlib
for name in ("checkpoint_of_alerts", "checkpoint_of_cases"):
    commits = pathlib.Path(name, "commits")
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
"""
"""The commit of the last micro-batch is lost, as if the driver was killed before it: Spark repeats it."""


def again(code: str) -> str:
    """Return the code for a table that exists."""
    lines = [line for line in code.splitlines() if not line.endswith(".create()")]
    assert len(lines) == len(code.splitlines()) - 1
    return "\n".join(lines)


@pytest.mark.parametrize(("session", "jar"), [(DELTA, "delta-*.jar"), (ICEBERG, "iceberg-*.jar")])
def test_the_code_of_the_page_gives_the_matches_of_a_local_run(
    tmp_path: Path, session: str, jar: str
) -> None:
    require(JARS.exists(), "Spark's connectors for Delta and Iceberg", "make tables-test")
    (package,) = (line for line in session.splitlines() if "spark.jars.packages" in line)
    files = sorted(JARS.glob(jar))
    _, artifact, version = package.split('"')[3].split(":")
    assert JARS / f"{artifact}-{version}.jar" in files
    settings = {
        "spark.jars": ",".join(map(str, files)),
        "spark.databricks.delta.snapshotPartitions": "1",  # otherwise 50 tasks read a log of three files
        "spark.ui.enabled": "false",
    }
    lines = [f'    .config("{name}", "{value}")' for name, value in settings.items()]
    session = session.replace(package, "\n".join(lines))
    code = [
        *(session, ADD.format(parts="01"), STREAM, MERGE),
        *(ADD.format(parts="23"), again(STREAM), again(MERGE)),
        *(FORGET, again(STREAM), again(MERGE), BATCH, SHOW),
    ]
    write_transactions(tmp_path, 1_000, files=4)
    ids = [row["match_id"] for row in local_matches(tmp_path)]
    assert len(ids) > 5
    (tmp_path / "code.py").write_text("\n".join(code))
    done = subprocess.run(
        [sys.executable, "code.py"],
        cwd=tmp_path,
        env=environment_of(VERSION) | {"SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    (shown,) = (line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    assert json.loads(shown.removeprefix("FOUND ")) == {"alerts_of_all": ids, "alerts": ids, "cases": ids}
