"""A cluster of brokers of which one dies in the middle of a run. It takes a minute: `make deep-test`."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kills.runs import Kill, killed
from tests.kills.ticks import Tick, expected_rows, write_rules
from tests.kills.written import in_topic
from tests.servers.kafka_cluster import Cluster, running_cluster
from tests.servers.spools import until

pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Return three brokers."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def test_a_broker_that_dies_in_the_middle_of_a_run_costs_no_match_and_gives_none_twice(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic, found = cluster.topic("ticks", 2), cluster.topic("found")
    ticks = [Tick(number) for number in range(1_000)]
    for partition in (0, 1):
        cluster.send(topic, [tick.text for tick in ticks if tick.number % 2 == partition], partition)
    write_rules(tmp_path)
    file = tmp_path / "pipeline.yaml"
    at = f"format: kafka, brokers: '{cluster.address}'"
    file.write_text(
        f"rules: [rules.cep]\nsource: {{stream: ticks, {at}, topic: {topic}, max_events_per_trigger: 50}}\n"
        f"sinks: [{{{at}, topic: {found}}}]\ncheckpoint: checkpoint\nat_end: finish\n"
    )
    expected = sorted(expected_rows(tmp_path, ticks))
    with ThreadPoolExecutor(1) as thread:
        run = thread.submit(killed, file, Kill())
        until(lambda: bool(in_topic(cluster, found)) or run.done(), 200)
        seen = in_topic(cluster, found)
        cluster.kill(cluster.leader(found))
        assert not run.result(300)
    assert 0 < len(seen) < len(expected)
    assert sorted(in_topic(cluster, found)) == expected
