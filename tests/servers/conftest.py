"""Servers of the tests in this folder: each is started once, for all of them."""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.servers.kafka_broker import JARS, Broker, require_servers, running_broker
from tests.servers.postgres_server import PostgresServer, require_postgres, running_postgres
from tests.servers.rabbitmq_server import SERVER, WHY, Rabbit, running_rabbit
from tests.spark.conftest import spark as spark


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Return a Kafka broker."""
    require_servers(JARS.is_dir() and find_spec("confluent_kafka") is not None)
    with running_broker(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Return a server of PostgreSQL."""
    require_postgres()
    with running_postgres() as running:
        yield running


@pytest.fixture(scope="session")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rabbit]:
    """Return a broker of RabbitMQ."""
    require_servers(SERVER.exists() and find_spec("pika") is not None, WHY)
    with running_rabbit(tmp_path_factory.mktemp("rabbit")) as running:
        yield running
