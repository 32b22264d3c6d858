"""A savepoint of a pipeline that reads a log goes on at the saved positions."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from cep.counts import Counts
from cep.errors import StateError
from cep.local.match_file import match_file
from spark_runtime import run_pipeline
from spark_runtime.operator.daily import Days
from spark_runtime.pipeline.micro_batches import MicroBatches
from spark_runtime.pipeline.restoring import restore
from spark_runtime.pipeline.savepoint import opened
from spark_runtime.pipeline.saving import save
from tests.servers.logs import MadeLog
from tests.servers.test_kafka_pipeline import RULES, STREAMS, in_files, tick
from tests.servers.test_log_contract import ALL

pytestmark = pytest.mark.spark

N_EVENTS, N_MORE, OF_A_BATCH, SAVED_IN = 60, 20, 12, 2


def send(made: MadeLog, first: int, n: int) -> list[bytes]:
    """Store events in both partitions; return them."""
    events = [tick(number, number, f"k{number // 2 % 7}") for number in range(first, first + n)]
    for partition in (0, 1):
        made.send(partition, events[partition::2])
    return events


def run(file: Path, *, accepts: bool = False) -> Counts:
    console = Console(file=StringIO())
    return run_pipeline(file, console=console, quiet=True, accept_older_checkpoint=accepts).counts


@pytest.mark.deep(but="kafka")
@pytest.mark.parametrize("name", ALL)
def test_a_restored_savepoint_with_twice_the_key_groups_reads_what_came_after_it_once(
    spark: SparkSession,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    server, make = ALL[name]
    made = make(request.getfixturevalue(server))
    events = send(made, 0, N_EVENTS)
    (tmp_path / "rules.cep").write_text(RULES)
    (tmp_path / "streams.yaml").write_text(STREAMS)
    source = f"{{stream: ticks, {made.settings}, max_events_per_trigger: {OF_A_BATCH}}}"
    text = f"rules: [rules.cep]\nsource: {source}\nsinks: [{{format: json, path: out}}]\ncheckpoint: "
    file = tmp_path / "pipeline.yaml"
    file.write_text(f"{text}first\n")
    usual = MicroBatches.complete
    n_saved = 0

    def saving(batches: MicroBatches, batch: int, counts: Counts, reported: Days | None) -> None:
        nonlocal n_saved
        if batch < SAVED_IN:
            n_saved += counts.events
        if batch == SAVED_IN:
            save(str(tmp_path / "first"), str(tmp_path / "saved"))
        usual(batches, batch, counts, reported)

    monkeypatch.setattr(MicroBatches, "complete", saving)
    assert run(file).events == N_EVENTS
    monkeypatch.undo()
    manifest = opened(str(tmp_path / "saved")).manifest
    assert (manifest.micro_batch, manifest.key_groups) == (SAVED_IN - 1, 2)
    assert restore(str(tmp_path / "saved"), str(tmp_path / "second"), 4).n_groups == 4
    events += send(made, N_EVENTS, N_MORE)
    file.write_text(f"{text}second\nat_end: finish\n")
    with pytest.raises(StateError, match=r"E0849.*is not the latest state of its stream"):
        run(file)
    # In NATS, the messages of the other subject count for the size of a micro-batch, too.
    assert n_saved == SAVED_IN * OF_A_BATCH or (name == "nats" and 0 < n_saved < SAVED_IN * OF_A_BATCH)
    assert run(file, accepts=True).events == N_EVENTS + N_MORE - n_saved
    (tmp_path / "events.json").write_bytes(b"\n".join(events))
    local = match_file(tmp_path / "rules.cep", tmp_path / "events.json").matches
    assert in_files(tmp_path / "out") == sorted(local.column("match_id").to_pylist())
    assert local.num_rows > 30
