"""YAML files, read as nodes with places. With them, every problem names its line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import yaml

from cep.diagnostics.diagnostic import did_you_mean, suggestion
from cep.diagnostics.limits import Problems, too_large
from cep.errors import Diagnostic, Source, Span

MAX_BYTES = 1 << 18
"""Largest size of one YAML file."""

MAX_NODES = 10_000
"""Most names, values, lists and mappings of one file."""

MAX_NESTING = 20

MAX_TEXT = 1_000
"""Most characters of a name or value."""

_ELSEWHERE = {
    "allowedlateness": "lateness",
    "bootstrapservers": "brokers",
    "checkpointlocation": "checkpoint",
    "connector": "format",
    "deadletters": "dead_letter",
    "delay": "lateness",
    "delayms": "lateness",
    "dlq": "dead_letter",
    "fields": "schema",
    "file": "path",
    "files": "path",
    "input": "source",
    "inputs": "sources",
    "output": "sinks",
    "outputs": "sinks",
    "primarykey": "key",
    "queries": "rules",
    "rowtime": "event_time",
    "sep": "delimiter",
    "separator": "delimiter",
    "startingoffsets": "from",
    "time": "event_time",
    "timestamp": "event_time",
    "tsfield": "event_time",
    "type": "format",
    "uri": "url",
    "username": "user",
    "watermarkdelay": "lateness",
    "webhookurl": "url",
}
"""What other tools call a setting, in lower case, without signs: too unlike ours to be found by likeness."""

_VARIABLE = re.compile(r"\$\{[^}]*\}")

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's loader is ten times as fast as Python's. PyYAML's packages for all common machines contain it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A key of a mapping and its value."""

    name: str
    key: yaml.Node
    value: yaml.Node


@dataclass
class Document:
    """A YAML text and its problems. A method reports a node that does not fit, and returns None."""

    source: Source
    diagnostics: Problems = field(default_factory=Problems)
    max_text: int = MAX_TEXT
    begins: str = "streams"  # a setting that every such text has
    roots: tuple[str, ...] = ()  # of all paths (`cep.settings.roots`); empty: any
    relative: list[str] = field(default_factory=list)  # paths of settings that are relative, as written
    schemas: list[str] = field(default_factory=list)  # files with schemas of messages

    def problem(
        self, code: str, title: str, node: yaml.Node | None, label: str = "", help_text: str = ""
    ) -> None:
        """Report a problem at `node`."""
        span = None if node is None else span_of(node, len(self.source.text))
        self.problem_at(code, title, span, label, help_text)

    def problem_at(self, code: str, title: str, span: Span | None, label: str, help_text: str) -> None:
        """Report a problem at a place."""
        self.diagnostics.append(Diagnostic(code, title, self.source, span, label, help_text))

    def root(self) -> yaml.Node | None:
        """Return the text as a tree of nodes, without aliases and tags."""
        if len(self.source.text.encode(errors="replace")) > MAX_BYTES:
            self.diagnostics.append(too_large(self.source, MAX_BYTES))
            return None
        try:
            if not self._is_plain():
                return None
            node = yaml.compose(self._encodable(), Loader=_LOADER)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            index = mark.index if mark is not None else 0
            self._at(
                "E0401",
                "this is not valid YAML",
                index,
                _in_plain_words(error.problem or "cannot be read"),
                _advice(self.source.text[index : index + 1]),
            )
            return None
        except yaml.reader.ReaderError as error:
            self._at(
                "E0401",
                "this is not valid YAML",
                _character_of(self._encodable(), error),
                "a character that YAML does not allow",
                "remove it",
            )
            return None
        if node is None:
            self.problem("E0402", "the file is empty", None, help_text=f"write: {self.begins}:")
        return node

    def _encodable(self) -> str:
        """Return the text with each half of a surrogate pair replaced by a character that YAML refuses."""
        return re.sub("[\ud800-\udfff]", "\0", self.source.text)

    def _is_plain(self) -> bool:
        """Return whether the text has no aliases, no tags and not too many nodes; report the problem.

        The check reads the parser's events, because building a tree of aliases, or a very deep tree, could
        take forever.
        """
        depth = 0
        n_nodes = 0
        for event in yaml.parse(self._encodable(), Loader=_LOADER):
            assert event.start_mark is not None
            place = event.start_mark.index
            if isinstance(event, yaml.NodeEvent):
                n_nodes += 1
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > MAX_NESTING:
                self._at(
                    "E0902",
                    f"more than {MAX_NESTING} levels of nesting",
                    place,
                    "one level too many",
                    "nest less",
                )
                return False
            if n_nodes > MAX_NODES:
                self._at(
                    "E0910",
                    f"the file has more than {MAX_NODES:,} names and values",
                    place,
                    "one too many",
                    "split the file",
                )
                return False
            if isinstance(event, yaml.ScalarEvent) and len(event.value) > self.max_text:
                self._at(
                    "E0912",
                    f"a text of more than {self.max_text:,} characters",
                    place,
                    "too long",
                    "write less",
                )
                return False
            what = ""
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                what = "anchors and aliases"
            elif getattr(event, "tag", None):
                what = "tags"
            if what:
                self._at("E0412", f"{what} are not read", place, "not plain YAML", "write the value itself")
                return False
        return True

    def _at(self, code: str, title: str, index: int, label: str, help_text: str) -> None:
        index = min(index, len(self.source.text.rstrip()))
        self.diagnostics.append(
            Diagnostic(
                code, title, self.source, Span(index, min(index + 1, len(self.source.text))), label, help_text
            )
        )

    def mapping(self, node: yaml.Node, what: str) -> list[Entry] | None:
        """Return the entries of a mapping. A duplicate key is a problem."""
        if not isinstance(node, yaml.MappingNode):
            self._wrong(node, what, "a mapping of names to values", "write: name: value")
            return None
        entries: dict[str, Entry] = {}
        for key, value in node.value:
            name = self.text(key, "a name")
            if name is None:
                continue
            if name in entries:
                self.problem(
                    "E0405", f"`{name}` occurs twice", key, "already given above", "keep one of them"
                )
                continue
            entries[name] = Entry(name, key, value)
        return list(entries.values())

    def settings(
        self,
        node: yaml.Node,
        what: str,
        known: Iterable[str],
        required: Iterable[str] = (),
        of_others: Callable[[], Iterable[str]] = tuple,
    ) -> dict[str, yaml.Node] | None:
        """Return the values of a mapping with fixed keys. Unknown keys and missing keys are problems.

        `of_others` returns keys that the caller reports itself; no help names them. It is called only for an
        unknown key, because the settings of all formats take 0.05 s to load.
        """
        entries = self.mapping(node, what)
        if entries is None:
            return None
        allowed = list(known)
        found: dict[str, yaml.Node] = {}
        meant: set[str | None] = set()
        for entry in entries:
            if entry.name in allowed or entry.name in of_others():
                found[entry.name] = entry.value
                continue
            elsewhere = _ELSEWHERE.get(re.sub(r"[^a-z]", "", entry.name.casefold()))
            near = elsewhere if elsewhere in allowed else suggestion(entry.name, sorted(allowed))
            meant.add(near)
            self.problem(
                "E0403",
                f"{what} has no setting `{entry.name}`",
                entry.key,
                "not a setting",
                did_you_mean(entry.name, allowed, "settings", near),
            )
        for name in required:
            if name not in found and name not in meant:  # a misspelt key is not also reported as missing
                first = entries[0].key if entries else node
                self.problem(
                    "E0404", f"{what} has no `{name}`", first, f"`{name}` is missing", f"add: {name}: ..."
                )
        return found

    def text(self, node: yaml.Node, what: str) -> str | None:
        """Return the text of a scalar as it is written. So ``on`` and ``2020-01-01`` are strings."""
        if not isinstance(node, yaml.ScalarNode) or is_null(node) or not node.value:
            self._wrong(node, what, "a text", "write one word or a quoted text")
            return None
        found = _VARIABLE.search(node.value)
        if found is not None:
            self.problem(
                "E0418",
                f"`{found[0]}` is not replaced",
                node,
                "variables of the environment are not read",
                "write the value itself",
            )
            return None
        return str(node.value)

    def texts(self, node: yaml.Node, what: str) -> list[tuple[str, yaml.Node]] | None:
        """Return a list of strings with their nodes. A single text counts as a list of one."""
        items = node.value if isinstance(node, yaml.SequenceNode) else [node]
        found = [(self.text(item, what), item) for item in items]
        sound = [(text, item) for text, item in found if text is not None]
        return sound if len(sound) == len(found) else None

    def boolean(self, node: yaml.Node, what: str) -> bool | None:
        """Return true or false."""
        if not isinstance(node, yaml.ScalarNode) or node.tag != "tag:yaml.org,2002:bool":
            self._wrong(node, what, "true or false", "write true or false")
            return None
        return str(node.value).lower() in ("true", "yes", "on")

    def integer(self, node: yaml.Node, what: str) -> int | None:
        """Return a whole number that is not negative."""
        if not isinstance(node, yaml.ScalarNode) or not (node.value.isdecimal() and len(node.value) <= 18):
            self._wrong(node, what, "a whole number", "write digits only")
            return None
        return int(node.value)

    def _wrong(self, node: yaml.Node, what: str, needs: str, help_text: str) -> None:
        self.problem("E0402", f"{what} must be {needs}", node, f"expected {needs}", help_text)


def _advice(sign: str) -> str:
    """Return what to do about unreadable YAML, by the character at which reading stopped."""
    if sign == "[":
        return 'put quotes around a text with `[` in it, as in field: "readings[0].value"'
    return "check the indentation, colons and quotes of this line and the one before"


def _in_plain_words(problem: str) -> str:
    return (
        problem.replace("<", "")
        .replace(">", "")
        .replace("unexpected end of stream", "the end of the file")
        .replace("stream end", "the end of the file")
        .replace("block end", "the end of the block")
    )


def _character_of(text: str, error: yaml.reader.ReaderError) -> int:
    """Return the index of the character that `error` is about.

    Some readers count bytes, so this looks for the character itself.
    """
    return next(
        (index for index, character in enumerate(text) if not _is_allowed(character)),
        min(error.position, len(text)),
    )


def _is_allowed(character: str) -> bool:
    """Return whether YAML 1.1 allows `character` in a file."""
    code = ord(character)
    if code < 0xA0:
        return character in "\t\n\r\x85" or 0x20 <= code < 0x7F
    return code < 0xD800 or 0xE000 <= code < 0xFFFE or code >= 0x10000


def is_null(node: yaml.Node) -> bool:
    """Return whether a value is ``null``, ``~`` or missing."""
    return isinstance(node, yaml.ScalarNode) and bool(node.tag == "tag:yaml.org,2002:null")


def span_of(node: yaml.Node, length: int) -> Span:
    """Return the place of a scalar or of a collection. For a block collection it is its first line."""
    start = min(node.start_mark.index, length)
    return Span(start, min(length, max(start + 1, _end(node))))


def _end(node: yaml.Node) -> int:
    if isinstance(node, yaml.ScalarNode) or getattr(node, "flow_style", False):
        return int(node.end_mark.index)
    first = node.value[0] if node.value else node
    return int((first[0] if isinstance(first, tuple) else first).end_mark.index)
