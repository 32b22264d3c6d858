"""The setting `columns` of a source: columns of the stream whose values are not in the record itself.

Only for the driver.
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
    """The words that may name the value of a column.

    - `noun`: what has the values: ``a message``.
    - `words`: the names of the values.
    - `prefix`: the prefix of names that users choose: ``header.``. Empty if there are none.
    - `example`: how a help shows such names: ``header.NAME``.
    - `others`: more words, which a help names last.
    - `is_other`: whether a word is valid for another reason.
    """

    noun: str
    words: Sequence[str]
    prefix: str = ""
    example: str = ""
    others: Sequence[str] = ()
    is_other: Callable[[str], bool] = lambda word: False

    def has(self, word: str) -> bool:
        """Return whether a word names a value."""
        return (
            word in self.words or (bool(self.prefix) and word.startswith(self.prefix)) or self.is_other(word)
        )

    @property
    def help(self) -> str:
        """The help that lists the valid words."""
        shown = ", ".join((*self.words, *self.others))
        return f"write {shown} or {self.example}" if self.example else f"write {shown}"


def columns_of(settings: Settings, known: ColumnWords) -> dict[str, str]:
    """Return, for each column, the word that names its value; report problems in `settings`."""
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
                "E0843", f"column `{column}` occurs twice", entry.value, "already given", "keep one of them"
            )
        elif column is not None:
            found[column] = entry.name
    return found


def require_columns(columns: Mapping[str, str], stream: Stream, noun: str, times: Mapping[str, str]) -> None:
    """Raise InputError unless the stream has the columns, with types that fit the values.

    `columns`: the word that names the value, by the name of the column. `noun`: what has the values: ``a
    message``. `times`: the words whose values are times, each with its name in an error.
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
