"""`cep spool`: a verb for each protocol."""

from __future__ import annotations

from pathlib import Path

import click

from cep.commands.spool.running import Storage, now_us, run_spool, secret, size, storage_options


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
        headers=tuple(name.lower() for name in headers),
        retry_seconds=retry_after,
        certificate=str(certificate or ""),
        private_key=str(private_key or ""),
    )

    def ready(found: int) -> None:
        if not storage.quiet:
            scheme = "https" if certificate else "http"
            click.echo(f"spool {storage.into}: listening at {scheme}://{host}:{found}", err=True)

    run_spool("http", HttpReceiver(settings, now_us, ready), storage)
