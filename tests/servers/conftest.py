"""Servers of the tests in this folder: each is started once, for all of them."""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.servers.kafka_broker import JARS, Broker, require_servers, running_broker
from tests.servers.nats_server import NatsServer, running_nats
from tests.servers.nats_server import program as nats_program
from tests.servers.postgres_server import PostgresServer, require_postgres, running_postgres
from tests.servers.process import require
from tests.spark.conftest import spark as spark


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Return a Kafka broker."""
    require_servers(JARS.is_dir() and find_spec("confluent_kafka") is not None)
    with running_broker(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Return a PostgreSQL server."""
    require_postgres()
    with running_postgres() as running:
        yield running


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """Return a server of NATS with JetStream."""
    require(nats_program() is not None and find_spec("nats") is not None, "the server of NATS")
    with running_nats(tmp_path_factory.mktemp("nats")) as running:
        yield running
