"""The setting `columns` of a source: what is a column of the stream besides what a record says itself.

On the driver only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cep.errors import InputError
from cep.expression import Type
from cep.schema.stream import Stream
from cep.settings.settings import Settings


@dataclass(frozen=True, slots=True)
class ColumnWords:
    """What may be a column.

    Parameters
    ----------
    noun
        What has it: ``a message``.
    words
        What it has.
    prefix
        What stands before a name of the user's: ``header.``. Empty: there is no such thing.
    example
        How a help shows that: ``header.NAME``.
    others
        More words, which a help names behind the others.
    is_other
        Whether a word is meant in yet another way.
    """

    noun: str
    words: Sequence[str]
    prefix: str = ""
    example: str = ""
    others: Sequence[str] = ()
    is_other: Callable[[str], bool] = lambda word: False

    def has(self, word: str) -> bool:
        """Say whether there is such a thing."""
        return (
            word in self.words or (bool(self.prefix) and word.startswith(self.prefix)) or self.is_other(word)
        )

    @property
    def help(self) -> str:
        """What to write."""
        shown = ", ".join((*self.words, *self.others))
        return f"write {shown} or {self.example}" if self.example else f"write {shown}"


def columns_of(settings: Settings, known: ColumnWords) -> dict[str, str]:
    """Return what is a column, by the name of the column; problems are noted in `settings`."""
    node = settings.found.get("columns")
    if node is None:
        return {}
    found: dict[str, str] = {}
    for entry in settings.document.mapping(node, "`columns`") or []:
        column = settings.document.text(entry.value, f"`{entry.name}`")
        if not known.has(entry.name):
            settings.document.problem(
                "E0841", f"{known.noun} has no `{entry.name}`", entry.value, "not known", known.help
            )
        elif column is not None and column in found:
            settings.document.problem(
                "E0843", f"column `{column}` is there twice", entry.value, "already given", "keep one of them"
            )
        elif column is not None:
            found[column] = entry.name
    return found


def require_columns(columns: Mapping[str, str], stream: Stream, noun: str, times: Mapping[str, str]) -> None:
    """Raise InputError unless the stream has the columns, in types that they can be of.

    Parameters
    ----------
    columns
        What is a column, by the name of the column.
    noun
        What has it: ``a message``.
    times
        What is a time, and how an error speaks of it.
    """
    for name, what in columns.items():
        declared = stream.field(name)
        if declared is None:
            raise InputError(
                "E0841",
                f"stream `{stream.name}` has no column `{name}`, which is to be the {what} of {noun}",
                f"declare it, or write one of {', '.join(f.name for f in stream.fields)}",
            )
        if what in times and declared.type is not Type.TIMESTAMP:
            raise InputError(
                "E0843",
                f"column `{name}` is {declared.ddl}, and is to be the {times[what]} of {noun}",
                "declare it as timestamp",
            )
