"""The setting `csv` of a stream: how its CSV files are written."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from dataclasses import dataclass

from cep.schema.stream import CsvLayout
from cep.settings import declared
from cep.settings.declared import Wrong
from cep.settings.settings import Settings
from cep.settings.stream_settings import placed_names

ENCODINGS = (
    "utf-8",
    "utf-16",
    "utf-16-le",
    "utf-16-be",
    "ascii",
    "iso8859-1",
    "iso8859-2",
    "iso8859-5",
    "iso8859-9",
    "iso8859-15",
    "cp1250",
    "cp1251",
    "cp1252",
    "cp1253",
    "cp1254",
    "cp437",
    "cp850",
    "koi8-r",
    "mac-roman",
    "shift_jis",
    "cp932",
    "euc_jp",
    "gb18030",
    "big5",
    "euc_kr",
)
"""Encodings of CSV files, by Python's names. Their other names (latin-1, windows-1252) are accepted too."""

_SIGN, _OF_NUMBERS = "\r\n\0", "\r\n\0+-"
"""Characters that a sign between fields, and one within numbers, cannot be."""


def _sign(words: dict[str, str], example: str, never: str = _SIGN) -> Callable[[Settings, str], str | None]:
    """Return a reader of one character, or of a word for it."""

    def read(settings: Settings, name: str) -> str | None:
        text = settings.text(name)
        if text is None:
            return None
        sign = words.get(text, text)
        is_one = len(sign) == 1 and not sign.isalnum() and sign not in never
        if sign and not (is_one and (sign.isascii() or name == "thousands")):
            others = ", a digit, + or -" if "+" in never else " or a digit"
            label = f"expected one sign, not a letter{others}"
            advice = f"write for example: {name}: {example}"
            settings.problem("E0420", f"`{name}` cannot be `{text}`", name, label, advice)
            return None
        return sign

    return read


def _encoding(settings: Settings, name: str) -> str | None:
    text = settings.text(name)
    if text is None:
        return None
    try:
        found = codecs.lookup(text).name
    except (LookupError, ValueError):
        found = ""
    if found not in ENCODINGS:
        _NO_ENCODING.note(settings, name, text)
        return None
    return found


def _columns(settings: Settings, name: str) -> tuple[str, ...]:
    return tuple(column for column, _ in placed_names(settings, name))


_NO_ENCODING = Wrong(
    "there is no encoding `{}`",
    "not the encoding of a text",
    "write for example utf-8, latin-1, cp1252, utf-16 or shift_jis",
    "E0420",
)


@dataclass(frozen=True, slots=True)
class CsvSettings:
    """How CSV files are written."""

    delimiter: str = declared.own(_sign({"tab": "\t", "\\t": "\t"}, '";", or tab'), ",")
    quote: str = declared.own(_sign({"none": ""}, '"\'", or none'), '"')
    has_header: bool = declared.flag(True, name="header")
    columns: tuple[str, ...] = declared.own(_columns, ())
    encoding: str = declared.own(_encoding, "utf-8")
    decimal: str = declared.own(_sign({"comma": ",", "point": "."}, '","', _OF_NUMBERS), ".")
    thousands: str = declared.own(_sign({"none": "", "blank": " "}, '"."', _OF_NUMBERS), "")

    def layout(self, settings: Settings) -> CsvLayout | None:
        """Return the layout, or None after reporting settings that contradict each other."""
        before = settings.n_problems
        if "columns" in settings and self.has_header:
            label, advice = "the first line names the columns", "add header: false, or remove `columns`"
            settings.problem("E0416", "`columns` of files that name their columns", "columns", label, advice)
        delimiter, quote, decimal, thousands = self.delimiter, self.quote, self.decimal, self.thousands
        if delimiter == quote:
            at = "quote" if "quote" in settings else "delimiter"
            _same(settings, "`delimiter` and `quote` are the same", at, "write another sign, or quote: none")
        if decimal == thousands:
            at = "thousands" if "thousands" in settings else "decimal"
            advice = 'write both: decimal: "," beside thousands: "."'
            _same(settings, f"`decimal` and `thousands` are both `{decimal}`", at, advice)
        for name, sign in (("decimal", decimal), ("thousands", thousands)):
            if name in settings and sign and sign in (quote, *((delimiter,) if not quote else ())):
                is_quote = sign == quote
                advice = "write another sign" if is_quote else "allow quotes, or write another delimiter"
                other = "quote" if is_quote else "delimiter"
                _same(settings, f"`{name}` and `{other}` are the same", name, advice)
        if settings.n_problems > before:
            return None
        return CsvLayout(delimiter, quote, self.has_header, self.columns, self.encoding, decimal, thousands)


def _same(settings: Settings, title: str, name: str, advice: str) -> None:
    settings.problem("E0416", title, name, "one sign for two things", advice)
