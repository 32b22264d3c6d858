"""The formats of message values: all record formats, and those that need a schema."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from cep.errors import InputError
from cep.formats.payloads.schemas import SchemaSource
from cep.formats.protocol import FileFormat, RecordFormat
from cep.formats.registry import FORMATS, in_words, record_formats
from cep.registry import Registry


class PayloadType(Protocol):
    """A format of messages that has settings."""

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of its settings, without `registry`."""

    @property
    def files(self) -> tuple[str, ...]:
        """Those of its settings that are file names."""

    def open(self, settings: Mapping[str, str], registry: SchemaSource | None) -> RecordFormat:
        """Return the format. It reads the files. Raises InputError (E0890) for problems with them."""


PAYLOADS: Registry[PayloadType] = Registry(
    "format of messages",
    "cep.payloads",
    {
        "avro": "cep.formats.payloads.avro:AVRO [avro]",
        "protobuf": "cep.formats.payloads.protobuf:PROTOBUF [protobuf]",
        "debezium": "cep.formats.payloads.debezium:DEBEZIUM",
    },
    (("settings", "files", "open"),),
)
"""Formats of messages that need a schema."""


def payload_names() -> tuple[str, ...]:
    """Return all formats that the value of a message may have."""
    return (*record_formats(), *PAYLOADS.names)


def payload_format(
    name: str, settings: Mapping[str, str] | None = None, registry: SchemaSource | None = None
) -> RecordFormat:
    """Return the format of values that has this name.

    Raises InputError: there is no such format (E0680) or setting (E0828); a file cannot be read (E0890).
    Raises SetupError: a package is missing (E0683).

    `settings`: its settings by name, such as ``{"schema": "orders.avsc"}``. `registry`: returns schemas by
    their numbers.
    """
    given = {**(settings or {}), **({} if registry is None else {"registry": ""})}
    known: tuple[str, ...] = ()
    kind = PAYLOADS.get(name) if name in PAYLOADS.names else None
    if kind is not None:
        known = (*kind.settings, "registry")
    unknown = [setting for setting in given if setting not in known]
    if unknown:
        raise InputError(
            "E0828",
            f"values of the format {name} have no setting `{unknown[0]}`",
            f"write {in_words(known)}" if known else "leave it out",
        )
    if kind is not None:
        return kind.open(settings or {}, registry)
    if name not in record_formats():
        raise InputError(
            "E0680", f"there is no format of messages `{name}`", f"formats: {', '.join(payload_names())}"
        )
    found = FORMATS.get(name)
    assert not isinstance(found, FileFormat), name
    return found


def read_file(file: str, what: str) -> bytes:
    """Return the bytes of a file with a schema; raises InputError."""
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise InputError(
            "E0890", f"{what} `{file}` cannot be read: {error.strerror or error}", "correct its name"
        ) from error
