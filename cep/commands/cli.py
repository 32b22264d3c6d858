"""The command `cep`. Each of its verbs has one module.

Only click is loaded at the start, then the module of the verb, which loads the modules that it needs. So a
verb starts fast, and a check loads neither the engine nor Spark.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import click

from cep.commands.group import ErrorReportingGroup

_NAMES = ("check", "match", "explain", "run", "doctor", "spool", "rules", "warm", "completion")


class _Verbs(Mapping[str, click.Command]):
    """The verbs by name, each loaded when it is requested."""

    def __getitem__(self, name: str) -> click.Command:
        if name not in _NAMES:
            raise KeyError(name)
        module = importlib.import_module(f"cep.commands.{'spool.verbs' if name == 'spool' else name}")
        found: click.Command = getattr(module, name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)


_VERBS: Any = _Verbs()  # click's type can also be written to


@click.group(
    cls=ErrorReportingGroup,
    commands=_VERBS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 problems in your files, 2 wrong usage, 3 done, but not every file was read "
    "as it is, 130 interrupted.",
)
@click.version_option(package_name="spark-cep", prog_name="cep")
@click.option("--debug", is_flag=True, help="Show the traceback of an internal error.")
def main(debug: bool) -> None:
    """Event pattern rules: check them, run them over files, run them on Spark."""
