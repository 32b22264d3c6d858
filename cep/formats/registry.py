"""The formats of events, by name. One line here adds a format."""

from __future__ import annotations

from functools import cache

from cep.errors import SetupError
from cep.formats.protocol import AnyFormat, FileFormat
from cep.formats.text.damaged import COMPRESSED
from cep.registry import Registry

FORMATS: Registry[AnyFormat] = Registry(
    "format",
    "cep.formats",
    {
        "json": "cep.formats.text.json_lines:JSON_LINES",
        "csv": "cep.formats.text.csv_lines:CSV_LINES",
        "parquet": "cep.formats.parquet:PARQUET",
    },
    (
        ("name", "suffixes", "encoding", "quote", "reader"),  # RecordFormat
        ("name", "suffixes", "name_in_spark", "read"),  # FileFormat
    ),
)
"""Other packages register theirs in the group ``cep.formats`` (docs/reference/pipeline.md, "Plug-ins")."""


def format_of_name(file: str) -> str | None:
    """Return the name of the format from the ending of a file's name; None if no format has it."""
    name = file.lower()
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    by_suffix = [own for own in FORMATS.built_in if name.endswith(f".{own}")]  # so no other is loaded
    for of in (*by_suffix, *FORMATS.built_in):
        if name.endswith(FORMATS.get(of).suffixes):
            return of
    return next((found for suffix, found in _suffixes(FORMATS.names).items() if name.endswith(suffix)), None)


def known_suffixes() -> tuple[str, ...]:
    """Return all endings of formats."""
    return tuple(_suffixes(FORMATS.names))


def record_formats() -> tuple[str, ...]:
    """Return the names of the formats that can be read from standard input."""
    return tuple(name for name, found in FORMATS.loaded().items() if not isinstance(found, FileFormat))


@cache
def _suffixes(names: tuple[str, ...]) -> dict[str, str]:
    """Return ending -> name of the format."""
    found: dict[str, str] = {}
    loaded = FORMATS.loaded(names)
    for name in names:
        for suffix in loaded[name].suffixes if name in loaded else ():
            if found.setdefault(suffix, name) != name:
                raise SetupError(
                    "E0681",
                    f"files that end in `{suffix}` are of two formats: {found[suffix]} and {name}",
                    "uninstall the package of one of the two",
                )
    return found


def in_words(names: tuple[str, ...]) -> str:
    """Return names as a choice: ``json, csv or parquet``."""
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
