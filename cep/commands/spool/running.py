"""Runs a receiver until a signal ends it."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from cep.commands.progress_line import progress_line
from cep.errors import InputError
from cep.settings.file_mode import HELP, FileMode, parse_file_mode
from cep.spool.new_files import umask

if TYPE_CHECKING:
    from cep.spool.receivers.protocol import Receiver

_SIZE = re.compile(r"(\d+) ?([KMGT]?)(i?)B?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}

_LEAST_LIMIT = 64 << 10

_SEGMENTS = 8
"""A limit on disk is divided into this many segments, so that some can be removed before it is reached."""


def size(text: str) -> int:
    """Return bytes: ``100000``, ``64MiB``, ``10 GB``; the type of an option."""
    found = _SIZE.fullmatch(text.strip())
    if not found or int(found[1]) == 0:
        raise click.BadParameter(f"`{text}` is not a size; write for example 64MiB")
    base = 1024 if found[3] else 1000
    return int(found[1]) * int(base ** _POWERS[found[2].upper()])


def limit(text: str) -> int:
    """Return bytes of a limit on disk, which leaves room for messages; the type of an option."""
    found = size(text)
    if found < _LEAST_LIMIT:
        raise click.BadParameter(f"`{text}` leaves no room for messages; write 64KiB or more")
    return found


def name_of_header(text: str) -> str:
    """Return the name of a header in lower case; the type of an option."""
    from cep.spool.receivers.http_messages import TOKEN

    if not TOKEN.fullmatch(text):
        raise click.BadParameter(f"`{text}` is not the name of a header; write for example X-Trace")
    return text.lower()


def duration(text: str) -> float:
    """Return seconds: ``10 minutes``; the type of an option."""
    from cep.schema.time_literals import parse_duration

    length_us = parse_duration(text)
    if length_us is None:
        raise click.BadParameter(f'`{text}` is not a length of time; write for example "10 minutes"')
    return length_us / 1e6


def file_mode(text: str) -> FileMode:
    """Return who may read files: ``0640``; the type of an option."""
    found = parse_file_mode(text)
    if found is None:
        raise click.BadParameter(f"`{text}` is no mode of files; {HELP}")
    return found


@dataclass(frozen=True, slots=True)
class Storage:
    """Where and how many messages are stored: the options of all protocols."""

    into: Path
    file_mode: FileMode
    max_bytes: int | None
    at_limit: str
    max_waiting: int
    segment_bytes: int
    segment_age: float
    keep: float
    remove_after: float | None
    wait_for: tuple[str, ...]
    progress: bool | None
    quiet: bool


def storage_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `Storage`; it receives them as `storage`."""
    from functools import wraps

    @wraps(command)
    def with_storage(**given: Any) -> None:
        names = Storage.__dataclass_fields__
        storage = Storage(**{name: given.pop(name) for name in names})
        command(storage=storage, **given)

    options = [
        click.option(
            "--into",
            type=click.Path(path_type=Path),
            required=True,
            help="Folder of the spool, made if it is missing.",
        ),
        click.option(
            "--file-mode",
            type=file_mode,
            default="0600",
            show_default=True,
            help="Who may read and write the files. Folders have the same, and x where there is r.",
        ),
        click.option("--max-bytes", type=limit, help="Limit of all segments on disk; by default none."),
        click.option(
            "--at-limit",
            type=click.Choice(["refuse", "drop", "remove-oldest"]),
            default="refuse",
            show_default=True,
            help="What becomes of messages for which there is no room.",
        ),
        click.option(
            "--max-waiting",
            type=size,
            default="64MiB",
            show_default=True,
            help="Limit of what waits in memory to be written.",
        ),
        click.option(
            "--segment-bytes",
            type=size,
            default="64MiB",
            show_default=True,
            help="A larger segment is closed.",
        ),
        click.option(
            "--segment-age",
            type=duration,
            default="10 minutes",
            show_default=True,
            help="An older segment is closed.",
        ),
        click.option(
            "--keep",
            type=duration,
            default="1 minute",
            show_default=True,
            help="How long a segment stays after every pipeline has read it.",
        ),
        click.option(
            "--remove-after",
            type=duration,
            help="Remove older segments, read or not; by default only what was read.",
        ),
        click.option(
            "--wait-for",
            multiple=True,
            metavar="READER",
            help="Keep everything until this pipeline (`reader: NAME`) has registered, too; may be repeated.",
        ),
        click.option(
            "--progress/--no-progress",
            default=None,
            help="Show the status on standard error. Without this option, only a terminal shows it.",
        ),
        click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors."),
    ]
    for option in reversed(options):
        with_storage = option(with_storage)
    return with_storage


@dataclass(frozen=True, slots=True)
class Server:
    """The address of a server, and how to log in: the options of all protocols that connect to one."""

    host: str
    port: int
    user: str
    password: str
    tls: bool
    ca_file: str

    @property
    def settings(self) -> dict[str, Any]:
        """Those of a receiver (`ServerSettings`)."""
        return {name: getattr(self, name) for name in type(self).__dataclass_fields__}


def server_options(
    noun: str, port: int, *, user: str = "", password: str = ""
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of `Server`; it receives them as `server`.

    `port`, `user` and `password`: the defaults of the options.
    """
    from functools import wraps

    options = [
        click.option("--host", default="127.0.0.1", show_default=True, help=f"Host of the {noun}."),
        click.option(
            "--port", type=click.IntRange(1, 65535), default=port, show_default=True, help="Its port."
        ),
        click.option("--user", default=user, show_default=bool(user), help="Name of the user."),
        click.option(
            "--password-env", metavar="VARIABLE", help="Variable of the environment with the password."
        ),
        click.option("--tls", is_flag=True, help="Connect by TLS."),
        click.option(
            "--ca-file", type=click.Path(path_type=Path), help="PEM file of the authorities to trust."
        ),
    ]

    def given_to(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_server(**given: Any) -> None:
            found = {name: given.pop(name) for name in ("host", "port", "user", "tls")}
            told = secret(given.pop("password_env")) or password
            trusted = str(given.pop("ca_file") or "")
            if trusted and not found["tls"]:
                raise InputError(
                    "E0957",
                    "`--ca-file` without `--tls`: the connection would not be encrypted",
                    "add --tls",
                )
            command(server=Server(**found, password=told, ca_file=trusted), **given)

        for option in reversed(options):
            with_server = option(with_server)
        return with_server

    return given_to


def secret(variable: str | None) -> str:
    """Return the value of an environment variable; raises InputError if it does not exist."""
    if variable is None:
        return ""
    found = os.environ.get(variable)
    if not found:
        is_missing = f"the environment has no variable `{variable}`"
        raise InputError(
            "E0957",
            is_missing if found is None else f"the variable `{variable}` of the environment is empty",
            "set it before you start the spool",
        )
    return found


def now_us() -> int:
    """Return the wall clock, microseconds since 1970."""
    return time.time_ns() // 1000


def run_spool(protocol: str, receiver: Receiver, storage: Storage) -> None:
    """Take messages until SIGTERM or Ctrl-C; raises CepError."""
    with umask(storage.file_mode.umask):
        _run_spool(protocol, receiver, storage)


def _run_spool(protocol: str, receiver: Receiver, storage: Storage) -> None:
    from cep.spool.intake import AtLimit, Intake, Room
    from cep.spool.writer import Limits, writer_at

    segment_bytes = storage.segment_bytes
    if storage.max_bytes is not None:
        segment_bytes = max(min(segment_bytes, storage.max_bytes // _SEGMENTS), 1)
    limits = Limits(
        segment_bytes=segment_bytes,
        segment_seconds=storage.segment_age,
        keep_seconds=storage.keep,
        remove_after_seconds=storage.remove_after,
        wanted=storage.wait_for,
    )
    # Only the process that holds the folder may connect: a second session with a name would end the first.
    writer = writer_at(storage.into, limits, time.time)
    try:
        receiver.check()
    except BaseException:
        writer.close()
        raise
    line = progress_line(storage.quiet, storage.progress)
    stopped = threading.Event()
    _stop_at_signals(stopped)
    intake = Intake(
        writer,
        Room(storage.max_bytes, storage.max_waiting, AtLimit(storage.at_limit)),
        time.monotonic,
        about={"protocol": protocol, "pid": os.getpid(), "since_us": now_us()},
        show=line.show,
        stop=stopped.set,
    )
    try:
        receiver.run(intake, stopped)
    finally:
        intake.close()
        writer.close()
        line.clear()
    if intake.error is not None:
        raise intake.error
    if not storage.quiet:
        click.echo(f"spool {storage.into}: {intake.line()}", err=True)


def _stop_at_signals(stopped: threading.Event) -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        stopped.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, stop)
