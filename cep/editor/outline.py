"""What a rule declares, read from its words: it is known while the rule is still being written.

The parser returns no rule that has a problem. An editor needs the names of such a rule all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cep.errors import Source
from cep.language.grammar import RESERVED, Lexeme, Token, tokens
from cep.language.parser import parse_with_places

_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_IN_PATTERNS = frozenset(("PERMUTE", "FOR", "DISTINCT", "BY", "EVENTS", "EVENT"))


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause: its first word and all of its words and signs."""

    word: str
    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Outline:
    """The names in a rule or a view.

    - `start`, `end`: where the rule is in its text.
    - `streams`, `rules`, `tables`: what its FROM and its joins name; `rules` follow MATCHES OF.
    - `steps`: the variables of its pattern and its definitions, each with its stream if DEFINE names one.
    - `parameters`, `lets`, `measures`: their names with the text of their values.
    """

    start: int
    end: int
    name: str
    clauses: tuple[Clause, ...]
    streams: tuple[str, ...]
    rules: tuple[str, ...]
    tables: tuple[str, ...]
    steps: Mapping[str, str]
    subsets: tuple[str, ...]
    parameters: Mapping[str, str]
    lets: Mapping[str, str]
    measures: Mapping[str, str]

    @property
    def words(self) -> frozenset[str]:
        """The first words of its clauses."""
        return frozenset(clause.word for clause in self.clauses)

    def clause_at(self, offset: int) -> Clause | None:
        """Return the clause in which something at `offset` is; None: it is before the first word."""
        before = [clause for clause in self.clauses if clause.tokens[0].start < offset]
        return before[-1] if before else None


def outlines(text: str) -> tuple[Outline, ...]:
    """Return the outline of each rule and view of a text."""
    starts = parse_with_places(Source("rule.cep", text))[2].clauses
    *words, _ = tokens(text)
    clauses: list[list[Token]] = []
    for token in words:
        if token.start in starts:
            clauses.append([])
        if clauses:
            clauses[-1].append(token)
    rules: list[list[Clause]] = []
    for found in clauses:
        if found[0].word in ("RULE", "VIEW"):
            rules.append([])
        if rules:
            rules[-1].append(Clause(found[0].word, tuple(found)))
    starting = [rule[0].tokens[0].start for rule in rules]
    ends = [*starting[1:], len(text) + 1]
    return tuple(_outline(text, rule, end) for rule, end in zip(rules, ends, strict=False))


def outline_at(text: str, offset: int) -> Outline | None:
    """Return the outline of the rule or view in which `offset` is; None: it is before the first one."""
    return next((rule for rule in outlines(text) if rule.start <= offset < rule.end), None)


def name_of(token: Token) -> str:
    """Return the name that a word, or text in backticks, stands for."""
    return token.text[1:-1].replace("``", "`") if token.kind is Lexeme.QUOTED else token.text


def is_name(token: Token) -> bool:
    """Return whether a token can be a name."""
    return token.kind is Lexeme.QUOTED or (token.kind is Lexeme.WORD and token.word not in RESERVED)


def _outline(text: str, clauses: Sequence[Clause], end: int) -> Outline:
    of_word: dict[str, Clause] = {}
    for clause in clauses:
        of_word.setdefault(clause.word, clause)
    head = clauses[0].tokens
    streams, rules = _sources(of_word.get("FROM"))
    tables = [
        name_of(clause.tokens[at + 1])
        for clause in clauses
        for at, token in enumerate(clause.tokens[:-1])
        if token.word == "JOIN" and is_name(clause.tokens[at + 1])
    ]
    parameters = _values(text, of_word.get("PARAM"))
    in_pattern = (name for name in _in_pattern(of_word.get("PATTERN")) if name not in parameters)
    steps = dict.fromkeys(in_pattern, "")
    for item in _items(of_word.get("DEFINE")):
        on = next((at for at, token in enumerate(item[:3]) if token.word == "ON"), None)
        is_named = on is not None and on + 1 < len(item)
        steps[name_of(item[0])] = name_of(item[on + 1]) if on is not None and is_named else ""
    return Outline(
        start=head[0].start,
        end=end,
        name=name_of(head[1]) if len(head) > 1 and is_name(head[1]) else "",
        clauses=tuple(clauses),
        streams=tuple(streams),
        rules=tuple(rules),
        tables=tuple(tables),
        steps=steps,
        subsets=tuple(name_of(item[0]) for item in _items(of_word.get("SUBSET"))),
        parameters=parameters,
        lets=_values(text, of_word.get("LET")),
        measures=_measures(text, of_word.get("MEASURES") or of_word.get("SELECT")),
    )


def _sources(clause: Clause | None) -> tuple[list[str], list[str]]:
    streams: list[str] = []
    rules: list[str] = []
    words = clause.tokens[1:] if clause else ()
    for at, token in enumerate(words):
        is_matches = token.word == "MATCHES" and at + 1 < len(words) and words[at + 1].word == "OF"
        if not is_name(token) or is_matches or token.word == "OF":
            continue
        (rules if at and words[at - 1].word == "OF" else streams).append(name_of(token))
    return streams, rules


def _in_pattern(clause: Clause | None) -> Iterator[str]:
    for token in clause.tokens[1:] if clause else ():
        if is_name(token) and token.word not in _IN_PATTERNS:
            yield name_of(token)


def _items(clause: Clause | None) -> Iterator[list[Token]]:
    """Yield the parts of a list that begin with a name, which commas outside of brackets separate."""
    depth, item = 0, list[Token]()
    for token in (*clause.tokens[1:], None) if clause else ():
        if token is None or (token.text == "," and depth == 0):
            if item and is_name(item[0]):
                yield item
            item = []
            continue
        depth += (token.text in _OPENING) - (token.text in _CLOSING)
        item.append(token)


def _values(text: str, clause: Clause | None) -> dict[str, str]:
    found = {}
    for item in _items(clause):
        sign = next((at for at, token in enumerate(item) if token.text == "="), None)
        if sign is not None and sign + 1 < len(item):
            found[name_of(item[0])] = text[item[sign + 1].start : item[-1].end]
    return found


def _measures(text: str, clause: Clause | None) -> dict[str, str]:
    depth, start, found = 0, None, {}
    words = clause.tokens[1:] if clause else ()
    for at, token in enumerate(words):
        if token.text == "," and depth == 0:
            start = None
            continue
        start = token.start if start is None else start
        depth += (token.text in _OPENING) - (token.text in _CLOSING)
        if token.word == "AS" and depth == 0 and at + 1 < len(words):
            found[name_of(words[at + 1])] = text[start : token.start].strip()
    return found
