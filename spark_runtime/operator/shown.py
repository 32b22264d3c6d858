"""What the live page of a run shows of a key group: its newest matches, and its open runs by step."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cep.engine.chains.chain import Chain
from cep.engine.matching.matcher import Matcher

MOST_MATCHES = 10
"""Newest matches that are shown of a key group."""

MOST_RUNS = 1_000_000
"""Steps are counted if a rule has at most this many open runs in a key group: a million takes 20 ms."""

_MOST_ROWS = 100
"""Rows of these matches: a match may have one for each event."""

_MOST_LETTERS = 200


class NewestMatches:
    """Keeps the newest matches of one call of the operator."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []

    def add(self, matches: pa.Table) -> None:
        """Keep those among `matches` (`Program.match_schema`) that end last, with all their rows."""
        order = pc.select_k_unstable(matches, k=MOST_MATCHES, sort_keys=[("match_end", "descending")])
        ids = matches.column("match_id").take(order)
        self._tables.append(matches.filter(pc.is_in(matches.column("match_id"), ids)).slice(0, _MOST_ROWS))

    def text(self) -> str:
        """Return rows of matches as a JSON list, the newest match first; empty without matches."""
        rows = [row for table in self._tables for row in table.to_pylist()]
        rows.sort(key=lambda row: (row["match_end"], row["match_id"]), reverse=True)
        return json.dumps([_shown(row) for row in rows[:_MOST_ROWS]]) if rows else ""


def _shown(value: Any) -> Any:
    """Return a value as JSON has it, with texts that fit on a page."""
    if isinstance(value, dict):
        return {name: _shown(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_shown(each) for each in value[:MOST_MATCHES]]
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value.isoformat() if hasattr(value, "isoformat") else str(value)
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."


def open_steps(chain: Chain) -> dict[str, dict[str, int]]:
    """Return the number of open runs by rule, and by what they wait for.

    Rules with more than `MOST_RUNS` are left out, and so are rules with corrections.
    """
    matchers = (matcher for matcher in chain.matchers if isinstance(matcher, Matcher))
    return {name: steps for matcher in matchers for name, steps in matcher.open_steps(MOST_RUNS).items()}
