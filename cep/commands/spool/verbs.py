"""`cep spool`: a verb for each protocol."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from cep.commands.spool.running import (
    Server,
    Storage,
    now_us,
    run_spool,
    secret,
    server_options,
    size,
    storage_options,
)
from cep.packages import require_package


@click.group()
def spool() -> None:
    """Take messages that cannot be read twice, and keep them on disk for pipelines.

    A message is acknowledged when it is on disk. A pipeline reads the folder as a source: `format: spool`.
    """


@spool.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0: a free one.")
@click.option(
    "--token-env",
    metavar="VARIABLE",
    help="Variable of the environment that holds the token which every request must have.",
)
@click.option("--max-body", type=size, default="16MiB", show_default=True, help="Limit of one request.")
@click.option(
    "--max-connections", type=click.IntRange(1), default=1000, show_default=True, help="Limit of connections."
)
@click.option(
    "--max-connections-per-address",
    type=click.IntRange(1),
    default=250,
    show_default=True,
    help="Limit of those from one address. It has the same share of the memory.",
)
@click.option(
    "--min-rate",
    type=size,
    default="1KiB",
    show_default=True,
    help="What a client has to send of a body in a second.",
)
@click.option("--header", "headers", multiple=True, metavar="NAME", help="Keep this header; may be repeated.")
@click.option(
    "--retry-after",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Seconds that a sender is told to wait when there is no room.",
)
@click.option("--certificate", type=click.Path(path_type=Path), help="PEM file, for TLS.")
@click.option("--private-key", type=click.Path(path_type=Path), help="PEM file, if not in the certificate's.")
@storage_options
def http(  # noqa: PLR0913 - an argument for each option
    storage: Storage,
    host: str,
    port: int,
    token_env: str | None,
    max_body: int,
    max_connections: int,
    max_connections_per_address: int,
    min_rate: int,
    headers: tuple[str, ...],
    retry_after: int,
    certificate: Path | None,
    private_key: Path | None,
) -> None:
    """Take messages by HTTP: POST an event, lines of JSON, or a JSON array."""
    from cep.spool.receivers.http import HttpReceiver, HttpSettings

    settings = HttpSettings(
        host=host,
        port=port,
        token=secret(token_env),
        max_body_bytes=max_body,
        max_connections=max_connections,
        max_connections_of_one=max_connections_per_address,
        min_rate=min_rate,
        headers=tuple(name.lower() for name in headers),
        retry_seconds=retry_after,
        certificate=str(certificate or ""),
        private_key=str(private_key or ""),
    )

    listening = _listening(storage, "https" if certificate else "http", host)
    run_spool("http", HttpReceiver(settings, now_us, listening), storage)


def _listening(storage: Storage, scheme: str, host: str) -> Callable[[int], None]:
    """Return what tells a user the port."""
    say = _say(storage)
    return lambda port: say(f"listening at {scheme}://{host}:{port}")


def _say(storage: Storage) -> Callable[[str], None]:
    """Return what tells a user of lost connections."""

    def say(text: str) -> None:
        if not storage.quiet:
            click.echo(f"spool {storage.into}: {text}", err=True)

    return say


@spool.command()
@click.option("--queue", required=True, help="Name of the queue, classic or quorum.")
@server_options("broker", 5672, user="guest", password="guest")  # noqa: S106 - every new broker has it
@click.option("--virtual-host", default="/", show_default=True, help="Virtual host of the queue.")
@click.option(
    "--prefetch",
    type=click.IntRange(1, 65535),
    default=1000,
    show_default=True,
    help="Messages that may be unacknowledged.",
)
@storage_options
def rabbitmq(
    storage: Storage,
    server: Server,
    queue: str,
    virtual_host: str,
    prefetch: int,
) -> None:
    """Take the messages of a queue of RabbitMQ."""
    require_package("this protocol", "pika", "rabbitmq")
    from cep.spool.receivers.rabbitmq import RabbitReceiver, RabbitSettings

    settings = RabbitSettings(
        **server.settings,
        queue=queue,
        virtual_host=virtual_host,
        prefetch=prefetch,
    )
    run_spool("rabbitmq", RabbitReceiver(settings, now_us, _say(storage)), storage)


@spool.command()
@click.option(
    "--topic", "topics", multiple=True, required=True, metavar="FILTER", help="Topics; may be repeated."
)
@click.option("--client-id", required=True, help="Name of the session, which no other client has.")
@server_options("broker", 1883)
@click.option(
    "--qos",
    type=click.IntRange(0, 1),
    default=1,
    show_default=True,
    help="0: at most once, 1: at least once.",
)
@click.option(
    "--in-flight",
    type=click.IntRange(1, 65535),
    default=1000,
    show_default=True,
    help="Messages that may be unacknowledged.",
)
@storage_options
def mqtt(
    storage: Storage,
    server: Server,
    topics: tuple[str, ...],
    client_id: str,
    qos: int,
    in_flight: int,
) -> None:
    """Take the messages of topics of MQTT 5."""
    require_package("this protocol", "paho", "mqtt")
    from cep.spool.receivers.mqtt import MqttReceiver, MqttSettings

    settings = MqttSettings(
        **server.settings,
        topics=topics,
        client_id=client_id,
        qos=qos,
        in_flight=in_flight,
    )
    run_spool("mqtt", MqttReceiver(settings, now_us, _say(storage)), storage)


@spool.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8514, show_default=True, help="0: a free one.")
@click.option("--lines", is_flag=True, help="Each line of a datagram is a message.")
@click.option(
    "--as",
    "form",
    type=click.Choice(["message", "text", "syslog"]),
    default="message",
    show_default=True,
    help="Keep messages as they are, or make events of JSON of text.",
)
@click.option("--sequence", default="", metavar="NAME", help="Count gaps by this number in messages of JSON.")
@click.option("--buffer", type=size, default="8MiB", show_default=True, help="What the system keeps for us.")
@storage_options
def udp(storage: Storage, host: str, port: int, lines: bool, form: str, sequence: str, buffer: int) -> None:
    """Take datagrams of UDP."""
    from cep.spool.receivers.udp import UdpReceiver, UdpSettings

    settings = UdpSettings(host, port, form, lines, sequence, buffer)
    run_spool("udp", UdpReceiver(settings, now_us, _listening(storage, "udp", host)), storage)


@spool.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8125, show_default=True, help="0: a free one.")
@click.option("--buffer", type=size, default="8MiB", show_default=True, help="What the system keeps for us.")
@storage_options
def statsd(storage: Storage, host: str, port: int, buffer: int) -> None:
    """Take metrics of StatsD (UDP): each value becomes an event of JSON."""
    from cep.spool.receivers.udp import UdpReceiver, UdpSettings

    settings = UdpSettings(host, port, "statsd", has_lines=True, buffer_bytes=buffer)
    run_spool("statsd", UdpReceiver(settings, now_us, _listening(storage, "udp", host)), storage)


@spool.command()
@click.option("--connect", multiple=True, metavar="ADDRESS", help="tcp://HOST:PORT; may be repeated.")
@click.option("--bind", multiple=True, metavar="ADDRESS", help="Address to listen at; may be repeated.")
@click.option("--kind", type=click.Choice(["sub", "pull"]), default="sub", show_default=True, help="Socket.")
@click.option("--subscribe", multiple=True, metavar="PREFIX", help="What a SUB socket takes; by default all.")
@click.option("--sequence", default="", metavar="NAME", help="Count gaps by this number in messages of JSON.")
@click.option("--sequence-part", type=click.IntRange(0), help="Count gaps by this part of a message.")
@click.option(
    "--high-water", type=click.IntRange(1), default=10_000, show_default=True, help="What the socket keeps."
)
@storage_options
def zmq(
    storage: Storage,
    connect: tuple[str, ...],
    bind: tuple[str, ...],
    kind: str,
    subscribe: tuple[str, ...],
    sequence: str,
    sequence_part: int | None,
    high_water: int,
) -> None:
    """Take messages of ZeroMQ."""
    require_package("this protocol", "zmq", "zmq")
    from cep.spool.receivers.zeromq import ZmqReceiver, ZmqSettings

    settings = ZmqSettings(connect, bind, kind, subscribe, sequence, sequence_part, high_water)
    run_spool("zmq", ZmqReceiver(settings, now_us), storage)


@spool.command()
@click.option("--address", required=True, help="Name of the queue or the topic.")
@click.option(
    "--subscription",
    default="",
    metavar="NAME",
    help="Take a copy of what comes to a topic, under this name; needs --container-id.",
)
@click.option("--container-id", default="", metavar="NAME", help="Name of this client.")
@server_options("server", 5672)
@click.option(
    "--credit",
    type=click.IntRange(1, 100_000),
    default=1000,
    show_default=True,
    help="Messages that may be unsettled.",
)
@storage_options
def amqp(
    storage: Storage,
    server: Server,
    address: str,
    subscription: str,
    container_id: str,
    credit: int,
) -> None:
    """Take messages of AMQP 1.0: ActiveMQ Artemis, Azure Service Bus."""
    if subscription and not container_id:
        raise click.UsageError("--subscription needs --container-id: a subscription belongs to a client")
    require_package("this protocol", "proton", "amqp")
    from cep.spool.receivers.amqp import AmqpReceiver, AmqpSettings

    settings = AmqpSettings(
        **server.settings,
        address=address,
        subscription=subscription,
        container_id=container_id,
        credit=credit,
    )
    run_spool("amqp", AmqpReceiver(settings, now_us, _say(storage)), storage)
