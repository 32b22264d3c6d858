"""The setting `field` of a column: where its value is in the data, such as ``readings[0].value``."""

from __future__ import annotations

import re

import yaml

from cep.settings.yaml_document import Document

MAX_INDEX = 9_999
"""Largest index of an element."""

_NAME = r"`((?:[^`]|``)+)`((?:\[[0-9]+\])*)|([^`.]+)"
_PART = re.compile(_NAME)
_PLACE = re.compile(rf"(?:{_NAME})(?:\.(?:{_NAME}))*")
_INDEXED = re.compile(r"(.+?)((?:\[[0-9]+\])+)")
_INDEX = re.compile(r"\[([0-9]+)\]")

_OF_OTHERS = tuple(
    (re.compile(pattern), advice)
    for pattern, advice in (
        (r"\$(?:$|[.\[])", "leave out `$`: the first name is a field of the event itself"),
        (
            r".*\[(?:\*|[0-9]*:[0-9]*)?\]",
            "a column has one value: write the index of an element: [0]",
        ),
        (r"\[", "an event is an object: the first part is the name of a field"),
        (r".*\[-[0-9]+\]", "elements are counted from the first one, which is [0]"),
        (r".*\[\s*['\"]", "write names with dots between them; one with a dot in it goes into backticks"),
    )
)
"""What other languages of places have, and what to write."""

Place = tuple[tuple[str, ...], tuple[str | int, ...]]
"""`Field.path` and `Field.element`."""


def read_place(document: Document, node: yaml.Node) -> Place | None:
    """Return the place of a value, or None after a report."""
    text = document.text(node, "`field`")
    if text is None:
        return None
    for pattern, advice in _OF_OTHERS:
        if pattern.match(_QUOTED.sub("x", text)):
            document.problem("E0421", f"`{text}` does not name a field", node, "not a place here", advice)
            return None
    if not _PLACE.fullmatch(text):
        document.problem(
            "E0421",
            f"`{text}` does not name a field",
            node,
            "expected names with dots between them",
            "write for example: n.card_id; a name with a dot in it goes into backticks",
        )
        return None
    parts: list[str | int] = []
    for quoted, behind, plain in _PART.findall(text):
        indexed = _INDEXED.fullmatch(plain)
        parts.append(quoted.replace("``", "`") if quoted else indexed[1] if indexed else plain)
        parts += map(int, _INDEX.findall(indexed[2] if indexed else behind))
    first = next((at for at, part in enumerate(parts) if isinstance(part, int)), len(parts))
    if any(isinstance(part, int) and part > MAX_INDEX for part in parts):
        document.problem(
            "E0421", f"`{text}` does not name a field", node, "too large an index", f"at most {MAX_INDEX:,}"
        )
        return None
    return tuple(map(str, parts[:first])), tuple(parts[first:])


_QUOTED = re.compile(r"`(?:[^`]|``)+`")
