"""`cep spool`: a verb for each protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from cep.commands.spool.running import (
    Server,
    Storage,
    name_of_header,
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


def _listens(port: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options for its address."""

    def given_to(command: Callable[..., None]) -> Callable[..., None]:
        of_port = click.option(
            "--port", type=click.IntRange(0, 65535), default=port, show_default=True, help="0: a free one."
        )
        help_text = "Address to listen at."
        return click.option("--host", default="127.0.0.1", show_default=True, help=help_text)(
            of_port(command)
        )

    return given_to


def _ahead(option: str, most: int, word: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the option for the number of messages that a server sends ahead."""
    help_text = f"Messages that may be {word}."
    return click.option(option, type=click.IntRange(1, most), default=1000, show_default=True, help=help_text)


@spool.command()
@_listens(8080)
@click.option(
    "--token-env",
    metavar="VARIABLE",
    help="Variable of the environment that holds the token which every request must have.",
)
@click.option(
    "--max-body",
    "max_body_bytes",
    type=size,
    default="16MiB",
    show_default=True,
    help="Limit of one request.",
)
@click.option(
    "--max-connections", type=click.IntRange(1), default=1000, show_default=True, help="Limit of connections."
)
@click.option(
    "--max-connections-per-address",
    "max_connections_of_one",
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
@click.option(
    "--header",
    "headers",
    type=name_of_header,
    multiple=True,
    metavar="NAME",
    help="Keep this header; may be repeated.",
)
@click.option(
    "--retry-after",
    "retry_seconds",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Seconds that a sender is told to wait when there is no room.",
)
@click.option("--certificate", type=click.Path(), default="", help="PEM file, for TLS.")
@click.option("--private-key", type=click.Path(), default="", help="PEM file, if not in the certificate's.")
@storage_options
def http(storage: Storage, token_env: str | None, headers: tuple[str, ...], **given: Any) -> None:
    """Take messages over HTTP: POST an event, JSON lines, or a JSON array."""
    from cep.spool.receivers.http import HttpReceiver, HttpSettings

    settings = HttpSettings(token=secret(token_env), headers=headers, **given)
    listening = _listening(storage, "https" if settings.certificate else "http", settings.host)
    run_spool("http", HttpReceiver(settings, now_us, listening), storage)


def _listening(storage: Storage, scheme: str, host: str) -> Callable[[int], None]:
    """Return a function that prints the port."""
    say = _say(storage)
    return lambda port: say(f"listening at {scheme}://{host}:{port}")


def _say(storage: Storage) -> Callable[[str], None]:
    """Return a function that prints a line about the spool, unless it is quiet."""

    def say(text: str) -> None:
        if not storage.quiet:
            click.echo(f"spool {storage.into}: {text}", err=True)

    return say


@spool.command()
@click.option("--queue", required=True, help="Name of the queue, classic or quorum.")
@server_options("broker", 5672, user="guest", password="guest")  # noqa: S106 - every new broker has it
@click.option("--virtual-host", default="/", show_default=True, help="Virtual host of the queue.")
@_ahead("--prefetch", 65535, "unacknowledged")
@storage_options
def rabbitmq(storage: Storage, server: Server, **given: Any) -> None:
    """Take the messages of a RabbitMQ queue."""
    require_package("this protocol", "pika", "rabbitmq")
    from cep.spool.receivers.rabbitmq import RabbitReceiver, RabbitSettings

    settings = RabbitSettings(**server.settings, **given)
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
@_ahead("--in-flight", 65535, "unacknowledged")
@storage_options
def mqtt(storage: Storage, server: Server, **given: Any) -> None:
    """Take the messages of topics of MQTT 5."""
    require_package("this protocol", "paho", "mqtt")
    from cep.spool.receivers.mqtt import MqttReceiver, MqttSettings

    settings = MqttSettings(**server.settings, **given)
    run_spool("mqtt", MqttReceiver(settings, now_us, _say(storage)), storage)


_buffer = click.option(
    "--buffer",
    "buffer_bytes",
    type=size,
    default="8MiB",
    show_default=True,
    help="What the system keeps for us.",
)


@spool.command()
@_listens(8514)
@click.option("--lines", "has_lines", is_flag=True, help="Each line of a datagram is a message.")
@click.option(
    "--as",
    "form",
    type=click.Choice(["message", "text", "syslog"]),
    default="message",
    show_default=True,
    help="Keep messages as they are, or make events of JSON of text.",
)
@click.option("--sequence", default="", metavar="NAME", help="Count gaps by this number in messages of JSON.")
@_buffer
@storage_options
def udp(storage: Storage, **given: Any) -> None:
    """Take datagrams of UDP."""
    from cep.spool.receivers.udp import UdpReceiver, UdpSettings

    settings = UdpSettings(**given)
    run_spool("udp", UdpReceiver(settings, now_us, _listening(storage, "udp", settings.host)), storage)


@spool.command()
@_listens(8125)
@_buffer
@storage_options
def statsd(storage: Storage, **given: Any) -> None:
    """Take metrics of StatsD (UDP): each value becomes a JSON event."""
    from cep.spool.receivers.udp import UdpReceiver, UdpSettings

    settings = UdpSettings(form="statsd", has_lines=True, **given)
    run_spool("statsd", UdpReceiver(settings, now_us, _listening(storage, "udp", settings.host)), storage)


@spool.command()
@click.option("--connect", multiple=True, metavar="ADDRESS", help="tcp://HOST:PORT; may be repeated.")
@click.option("--bind", multiple=True, metavar="ADDRESS", help="Address to listen at; may be repeated.")
@click.option("--kind", type=click.Choice(["sub", "pull"]), default="sub", show_default=True, help="Socket.")
@click.option("--subscribe", multiple=True, metavar="PREFIX", help="What a SUB socket takes; by default all.")
@click.option("--sequence", default="", metavar="NAME", help="Count gaps by this number in messages of JSON.")
@click.option("--sequence-part", type=click.IntRange(0), help="Count gaps by this part of a message.")
@click.option(
    "--high-water",
    "most",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    help="What the socket keeps.",
)
@storage_options
def zmq(storage: Storage, **given: Any) -> None:
    """Take messages of ZeroMQ."""
    require_package("this protocol", "zmq", "zmq")
    from cep.spool.receivers.zeromq import ZmqReceiver, ZmqSettings

    run_spool("zmq", ZmqReceiver(ZmqSettings(**given), now_us), storage)


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
@_ahead("--credit", 100_000, "unsettled")
@storage_options
def amqp(storage: Storage, server: Server, **given: Any) -> None:
    """Take messages of AMQP 1.0: ActiveMQ Artemis, Azure Service Bus."""
    if given["subscription"] and not given["container_id"]:
        raise click.UsageError("--subscription needs --container-id: a subscription belongs to a client")
    require_package("this protocol", "proton", "amqp")
    from cep.spool.receivers.amqp import AmqpReceiver, AmqpSettings

    settings = AmqpSettings(**server.settings, **given)
    run_spool("amqp", AmqpReceiver(settings, now_us, _say(storage)), storage)
