"""Matches as rows: each with the columns of its own rule, and as a JSON line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from cep.program.program import EVENT_COLUMNS, OUTCOME
from cep.rule_set import ENDED_BY, KIND, MATCH_COLUMNS, REVISION, RULE_VERSION, RuleSet
from cep.schema.text_values import json_text


def match_rows(rules: RuleSet, matches: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield each match as a mapping with the columns of its own rule."""
    columns = columns_of(rules)
    for batch in matches.to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            yield {name: row[name] for name in columns[row["rule"]]}


def json_line(row: Mapping[str, Any] | list[Any]) -> str:
    """Return a row (or a list) as one line of JSON; times are ISO 8601 in UTC, to the microsecond.

    NaN and infinities are the strings of `NUMBER_WORDS`.
    """
    return json_text(row, default=_text)


def columns_of(rules: RuleSet) -> dict[str, tuple[str, ...]]:
    """Return the columns of each rule's matches, by the name of the rule."""
    return {
        rule.name: (
            "rule",
            *program.key,
            *MATCH_COLUMNS,
            *([OUTCOME] if rule.timeouts else []),
            *([REVISION, KIND] if rules.has_kinds else []),
            *([ENDED_BY] if rules.tells_end else []),
            *([RULE_VERSION] if rules.tells_version else []),
            *(name for name, _ in rule.measures if not (rule.is_view and name in (REVISION, KIND))),
            *(EVENT_COLUMNS if rule.all_rows else []),
        )
        for program in rules.programs
        for rule in program.rules
    }


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return str(value)
