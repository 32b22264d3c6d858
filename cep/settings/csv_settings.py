"""The setting `csv` of a stream: how its CSV files are written."""

from __future__ import annotations

import codecs

import yaml

from cep.schema.stream import CsvLayout
from cep.settings.yaml_document import Document

_SETTINGS = ("delimiter", "quote", "header", "columns", "encoding", "decimal", "thousands")

_EXAMPLES = {"delimiter": '";", or tab', "quote": '"\'", or none', "decimal": '","', "thousands": '"."'}

_NEVER = {
    **dict.fromkeys(("delimiter", "quote"), "\r\n\0"),
    **dict.fromkeys(("decimal", "thousands"), "\r\n\0+-"),
}
"""Signs that a setting cannot have."""

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


def csv_layout(document: Document, node: yaml.Node) -> CsvLayout | None:
    """Return how CSV files are written, or None after a report if a setting is wrong."""
    found = document.settings(node, "`csv`", _SETTINGS)
    if found is None:
        return None
    before = len(document.diagnostics)
    delimiter = _sign(document, found, "delimiter", ",", {"tab": "\t", "\\t": "\t"})
    quote = _sign(document, found, "quote", '"', {"none": ""})
    has_header = True
    if "header" in found:
        has_header = document.boolean(found["header"], "`header`") is not False
    columns: list[str] = []
    if "columns" in found:
        columns = [name for name, _ in document.texts(found["columns"], "`columns`") or []]
    encoding = _encoding(document, found["encoding"]) if "encoding" in found else "utf-8"
    if "columns" in found and has_header:
        document.problem(
            "E0416",
            "`columns` of files that name their columns",
            found["columns"],
            "the first line names the columns",
            "add header: false, or remove `columns`",
        )
    if delimiter == quote:
        document.problem(
            "E0416",
            "`delimiter` and `quote` are the same",
            found.get("quote", found.get("delimiter")),
            "one sign for two things",
            "write another sign, or quote: none",
        )
    decimal, thousands = _number_signs(document, found, delimiter, quote)
    if len(document.diagnostics) > before or encoding is None:
        return None
    return CsvLayout(delimiter, quote, has_header, tuple(columns), encoding, decimal, thousands)


def _number_signs(
    document: Document, found: dict[str, yaml.Node], delimiter: str, quote: str
) -> tuple[str, str]:
    """Return the signs before the fraction of a number and between its thousands."""
    decimal = _sign(document, found, "decimal", ".", {"comma": ",", "point": "."})
    thousands = _sign(document, found, "thousands", "", {"none": "", "blank": " "})
    at = found.get("thousands", found.get("decimal"))
    if decimal == thousands:
        document.problem(
            "E0416",
            f"`decimal` and `thousands` are both `{decimal}`",
            at,
            "one sign for two things",
            'write both: decimal: "," beside thousands: "."',
        )
    for name, sign in (("decimal", decimal), ("thousands", thousands)):
        if name in found and sign and sign in (quote, *((delimiter,) if not quote else ())):
            document.problem(
                "E0416",
                f"`{name}` and `{'quote' if sign == quote else 'delimiter'}` are the same",
                found[name],
                "one sign for two things",
                "write another sign" if sign == quote else "allow quotes, or write another delimiter",
            )
    return decimal, thousands


def _sign(
    document: Document, found: dict[str, yaml.Node], name: str, usual: str, words: dict[str, str]
) -> str:
    """Return a setting of one character."""
    if name not in found:
        return usual
    text = document.text(found[name], f"`{name}`")
    if text is None:
        return usual
    sign = words.get(text, text)
    is_one = len(sign) == 1 and not sign.isalnum() and sign not in _NEVER[name]
    if sign and not (is_one and (sign.isascii() or name == "thousands")):
        document.problem(
            "E0420",
            f"`{name}` cannot be `{text}`",
            found[name],
            f"expected one sign, not a letter{', a digit, + or -' if '+' in _NEVER[name] else ' or a digit'}",
            f"write for example: {name}: {_EXAMPLES[name]}",
        )
        return usual
    return sign


def _encoding(document: Document, node: yaml.Node) -> str | None:
    text = document.text(node, "`encoding`")
    if text is None:
        return None
    try:
        name = codecs.lookup(text).name
    except (LookupError, ValueError):
        name = ""
    if name not in ENCODINGS:
        document.problem(
            "E0420",
            f"there is no encoding `{text}`",
            node,
            "not the encoding of a text",
            "write for example utf-8, latin-1, cp1252, utf-16 or shift_jis",
        )
        return None
    return name
