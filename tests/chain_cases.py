"""Letter examples of rules over rules: fenced ``chains`` blocks of documents, and their matches as text.

``rule m: a b`` begins a rule, ``events`` are letters as in ``cases`` blocks, each followed by its
``matches``. An empty line forgets the rules. A variable that is called as a rule is of its matches, any
other takes its letter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cep.program.program import OUTCOME, TIMEOUT
from tests.letters import LETTERS, LetterRule, read_letters

_SHOWN = 4
"""Events of one variable that are shown at most."""


@dataclass(frozen=True, slots=True)
class ChainCase:
    """Rules, events in letters, and the matches of all rules."""

    name: str
    rules: tuple[tuple[str, str], ...]
    events: str
    matches: tuple[str, ...]

    @property
    def texts(self) -> str:
        """The text of the rules."""
        return "\n".join(self._text(name, rest) for name, rest in self.rules)

    @property
    def variables(self) -> dict[str, tuple[str, ...]]:
        """The variables of each rule that take events."""
        return {name: LetterRule(_CLAUSE.split(rest)[0]).taken for name, rest in self.rules}

    def rule_of(self, variable: str) -> str | None:
        """Return the rule whose matches a variable takes; None: it takes letters."""
        plain = variable.rstrip("0123456789")
        return plain if plain in dict(self.rules) else None

    def _text(self, name: str, rest: str) -> str:
        pattern, *clauses = _CLAUSE.split(rest)
        every = LetterRule(pattern).variables
        rules = sorted({found for item in every if (found := self.rule_of(item)) is not None})
        sources = [f"MATCHES OF {item}" for item in rules]
        sources += [LETTERS.name] if any(self.rule_of(item) is None for item in every) else []
        own = {clause.split()[0]: clause for clause in clauses}
        measures = [own.pop("MEASURES", "").removeprefix("MEASURES ")]
        for item in self.variables[name]:
            column = "seq" if self.rule_of(item) is None else "match_id"
            measures.append(f"COUNT({item}.*) AS n_{item}")
            measures += [f"FIRST({item}.{column}, {at}) AS p{at}_{item}" for at in range(_SHOWN)]
        usual = {
            "PARTITION": "PARTITION BY key",
            "DEFINE": "DEFINE " + ", ".join(self._definition(item, len(sources) > 1) for item in every),
            "MEASURES": "MEASURES " + ", ".join(filter(None, measures)),
        }
        head = [f"RULE {name} FROM {', '.join(sources)}", f"PATTERN {pattern}"]
        return "\n".join([*head, *(usual | own).values()])

    def _definition(self, variable: str, is_one_of_several: bool) -> str:
        rule = self.rule_of(variable)
        on = f" ON {rule or LETTERS.name}" if is_one_of_several else ""
        condition = "TRUE" if rule else f"letter = '{variable[0].upper()}'"
        return f"{variable}{on} AS {condition}"

    def shown(self, matches: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return matches, in an order in which each comes behind those that it took, as text."""
        events = read_letters(self.events, (LETTERS.name,))
        known: dict[str, tuple[int, str]] = {}
        shown = []
        for match in matches:
            taken: list[tuple[int, int, str, str]] = []
            for item in self.variables[match["rule"]]:
                for place in [match[f"p{at}_{item}"] for at in range(match[f"n_{item}"])]:
                    if isinstance(place, str):
                        end_us, text = known[place]
                        taken.append((end_us, 1, text, f"({text})"))
                    else:
                        taken.append((events.rows[place]["ts"], 0, f"{place:09}", events.names[place]))
            words = [text for *_, text in sorted(taken)]
            end_us = match["match_end"]
            if end_us != max(taken)[0]:
                words.append(f"@{end_us / 1_000_000:g}")
            text = " ".join(words)
            known[match["match_id"]] = (end_us, text)
            outcome = "timeout " if match.get(OUTCOME) == TIMEOUT else ""
            line = f"{outcome}{match['rule']} {text}"
            if line not in shown:  # a match may have several rows
                shown.append(line)
        return shown


_CLAUSE = re.compile(
    r"(?<!AFTER)(?<!PER) (?=(?:WITHIN|MATCH|AFTER|SUPPRESS|ON TIMEOUT|ALL ROWS|MEASURES|DEFINE|PARTITION)\b)"
)
"""What stands between the pattern and the clauses behind it."""


def read_chains(document: str, text: str) -> Iterator[ChainCase]:
    """Yield the cases of all ``chains`` blocks of a document."""
    inside = False
    rules: dict[str, str] = {}
    events = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            inside, rules = line == "```chains", {}
            continue
        if not inside:
            continue
        if not line.strip():
            rules = {}
            continue
        word, _, rest = (part.strip() for part in line.partition(":"))
        match word.split():
            case ["rule", name]:
                rules[name] = rest
            case ["events"]:
                events = rest
            case ["matches"]:
                found = () if rest == "none" else tuple(match.strip() for match in rest.split(";"))
                yield ChainCase(f"{document}:{number}", tuple(rules.items()), events, found)
            case _:
                raise AssertionError(f"{document}:{number}: `{word}`")
