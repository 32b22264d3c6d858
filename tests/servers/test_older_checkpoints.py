"""A copy of a checkpoint that is put back, and sinks on servers: refused, then accepted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from scenarios.servers.web import running_web_server
from tests.kills.feeds import feed_of
from tests.kills.pipelines import KilledPipeline
from tests.kills.ticks import compared
from tests.kills.written import sink_of
from tests.servers.kafka_broker import Broker
from tests.servers.postgres_server import PostgresServer
from tests.servers.rabbitmq_server import Rabbit

SINKS = ("rabbitmq", "kafka", "postgres", "delta", "parquet", "webhook")


@pytest.mark.deep
def test_no_match_is_lost_and_files_and_tables_have_each_once(
    broker: Broker, postgres: PostgresServer, rabbit: Rabbit, tmp_path: Path
) -> None:
    with running_web_server() as web:
        servers = {"kafka": broker, "postgres": postgres, "rabbitmq": rabbit, "web": web}
        sinks = {name: sink_of(name, servers, tmp_path) for name in SINKS}
        pipeline = KilledPipeline(tmp_path, feed_of("kafka", servers, tmp_path), sinks)
        pipeline.send(30)
        pipeline.run()
        pipeline.keep_checkpoint()
        pipeline.send(30)
        pipeline.run()
        before = {name: len(rows) for name, rows in pipeline.rows().items()}
        pipeline.send(30)  # the micro-batches of the numbers that sinks know are other ones now
        assert pipeline.put_back() == "refused, accepted"
        pipeline.finish()
        pipeline.run()
        expected, found = pipeline.expected(), pipeline.rows()
    for name, sink in sinks.items():
        what = compared(expected, found[name])
        assert (what.lost, what.foreign) == ((), ()), name
        if sink.is_once and not sink.may_repeat:
            assert what.n_twice == 0, name
        else:  # what came after the copy, and no more
            assert 0 < what.n_twice < before[name], name
            assert set(Counter(found[name]).values()) == {1, 2}
