"""Letter examples in documents: fenced ``cases`` blocks as data.

A block has lines ``word: rest``. ``pattern`` begins an example and forgets the settings before it;
``within``, ``let``, ``match``, ``skip``, ``measures``, ``report``, ``subset``, ``from``, ``partition by``,
``stream``, ``where v``, ``define v``, ``on v`` and ``by v`` are settings. ``window`` begins an example of a
window rule, whose settings are also ``where``, ``having`` and ``keys``. Each ``events`` is followed by its
``matches``, with ``;`` between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from cep.schema.stream import Stream
from tests.letters import KEYS, LETTERS, LetterRule


@dataclass(frozen=True, slots=True)
class LetterCase:
    """A rule over letters, events, and the matches it has in them."""

    name: str
    rule: LetterRule
    stream: Stream  # what each stream of the rule is like
    events: str
    matches: tuple[str, ...]

    @property
    def streams(self) -> dict[str, Stream]:
        """The rule's streams, in the order of their declaration."""
        return {name: replace(self.stream, name=name) for name in self.rule.streams}

    @property
    def inputs(self) -> dict[str, Stream]:
        """The streams, and the table of keys if there is one."""
        return self.streams | ({KEYS.name: KEYS} if self.rule.keys else {})


_SETTINGS = {
    **{
        name: name
        for name in ("within", "match", "skip", "measures", "report", "subset", "let", "having", "keys")
    },
    "where": "counted",
}
"""Setting -> the field of `LetterRule`."""


def _with(rule: LetterRule, setting: str, value: Any) -> LetterRule:
    """Return the rule with another value of one field."""
    return replace(rule, **{setting: value})


def read_cases(document: str, text: str) -> Iterator[LetterCase]:
    """Yield the cases of all ``cases`` blocks of a document."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            inside = line == "```cases"
            rule, stream, events = LetterRule(""), LETTERS, ""
            continue
        if not inside or not line.strip():
            continue
        word, separator, rest = (part.strip() for part in line.partition(":"))
        assert separator, f"{document}:{number}: not `word: rest`"
        match word.split():
            case ["pattern" | "window" as kind]:
                rule, stream, events = _with(LetterRule(""), kind, rest), LETTERS, ""
            case [setting] if setting in _SETTINGS:
                rule = _with(rule, _SETTINGS[setting], rest)
            case ["from"]:
                rule = replace(rule, streams=tuple(rest.replace(",", " ").split()))
            case ["partition", "by"]:
                rule = replace(rule, partition_by=rest)
            case ["where" | "define" | "on" | "by" as setting, variable]:
                rule = _with(rule, setting, {**getattr(rule, setting), variable: rest})
            case ["stream"]:
                stream = _stream(rest)
            case ["events"]:
                events = rest
            case ["matches"]:
                assert events, f"{document}:{number}: matches of nothing"
                found = () if rest == "none" else tuple(match.strip() for match in rest.split(";"))
                yield LetterCase(f"{document}:{number}", rule, stream, events, found)
                events = ""
            case _:
                raise AssertionError(f"{document}:{number}: no setting is called `{word}`")


def _stream(text: str) -> Stream:
    words = text.replace(",", " ").split()
    assert words[0] == "tie_break", text
    names = tuple(word for word in words[1:] if word != "deduplicate")
    return replace(LETTERS, tie_break=names, deduplicate="deduplicate" in words)
