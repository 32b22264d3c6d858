"""Servers of the tests in this folder: each is started once, for all of them."""

import os
from collections.abc import Iterator
from shutil import which

import pytest

from spark_runtime.connectors.message_logs.source import KEPT
from tests.left_out import require
from tests.servers.certificates import Authority, made_authority, signed_certificate
from tests.servers.kafka_broker import Broker, running_broker
from tests.servers.kinesis_server import CREDENTIALS, KinesisServer, running_kinesis
from tests.servers.nats_server import NatsServer, running_nats
from tests.servers.postgres_server import PostgresServer, running_postgres
from tests.servers.rabbitmq_server import Rabbit, running_rabbit
from tests.spark.conftest import spark as spark

os.environ.update(CREDENTIALS)  # before anything starts Spark, whose workers take over what is there then


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Broker]:
    """Return a Kafka broker."""
    folder = tmp_path_factory.mktemp("kafka")
    with running_broker(folder, signed_certificate(folder, authority)) as running:
        yield running


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Return who has signed the certificate of the Kafka broker."""
    require(which("openssl") is not None, "openssl")
    return made_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Return a PostgreSQL server."""
    with running_postgres() as running:
        yield running


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """Return a server of NATS with JetStream."""
    with running_nats(tmp_path_factory.mktemp("nats")) as running:
        yield running
        KEPT.close()


@pytest.fixture(scope="session")
def kinesis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KinesisServer]:
    """Return a server that plays Kinesis."""
    with running_kinesis(tmp_path_factory.mktemp("kinesis")) as running:
        yield running
        KEPT.close()


@pytest.fixture(scope="session")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rabbit]:
    """Return a broker of RabbitMQ."""
    with running_rabbit(tmp_path_factory.mktemp("rabbit")) as running:
        yield running
        KEPT.close()
