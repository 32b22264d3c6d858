"""`find_reasons`: the answer of `cep why` for events in memory."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from cep.arguments import count_of, wrong_argument
from cep.compiler.automaton.build import Built
from cep.errors import Source
from cep.local.given_events import GivenEventsError, event_tables
from cep.rule_files import STREAMS_FILE
from cep.rulebook import compile_rulebook, compile_texts, is_rules, load_rulebook
from cep.schema.stream import Stream
from cep.settings.schema_file import declared_streams
from cep.why.reasons import Why, WhyRows
from cep.why.rows import prepared, told

_ONE_VALUE = (str, int, float, Decimal, date, np.generic, type(None))


def find_reasons(
    rules: str | Path,
    streams: str | Path | Stream | Mapping[str, Stream] | None,
    rows: Any,
    key: Any,
    *,
    rule: str | None = None,
    limit: int = 20,
) -> Why | WhyRows:
    """Return why a rule matched for a key in `rows`, or how far it came; a notebook draws it as a time line.

    Parameters
    ----------
    rules
        Rule text, or the path of a rule file or of a directory of rule files. The result of `load_rules` is
        not enough: it does not contain the conditions as they are written.
    streams
        The result of `load_streams`, or the path of a streams file. None: the nearest ``streams.yaml``.
    rows
        The events, as for `find_matches`.
    key
        The value of PARTITION BY; a list if the key has several columns.
    rule
        The rule, if `rules` have several.
    limit
        The maximum number of attempts in the answer.

    Raises
    ------
    RuleError
        The rules are wrong.
    InputError
        The rows do not fit the stream (E0832), or no event has the key (E0898). Or an argument is of another
        type (E0827).
    """
    if not isinstance(rules, str | Path):
        raise wrong_argument(
            "rules", rules, "rule text, or the path of a rule file or of a directory of them"
        )
    if rule is not None and not isinstance(rule, str):
        raise wrong_argument("rule", rule, "the name of a rule, or None")
    values = list(key) if isinstance(key, list | tuple) else [key]
    if not all(isinstance(value, _ONE_VALUE) for value in values):
        raise wrong_argument("key", key, "the value of PARTITION BY; a list if the key has several columns")
    count_of("limit", limit)
    only = [] if rule is None else [rule]
    declared = None if streams is None else declared_streams(streams)
    if is_rules(rules):
        declared = declared_streams(STREAMS_FILE) if declared is None else declared
        compiled = compile_texts([Source("rules", str(rules))], declared, only)
    else:
        compiled = compile_rulebook(load_rulebook([rules], declared), only)
    if rule is None and len(compiled.rules) > 1:
        names = ", ".join(one.name for one in compiled.rules)
        raise GivenEventsError("E0832", "the rules are several", f"name one as `rule`: {names}")
    rule_set, chosen = compiled.rule_set, compiled.rules[-1]
    tables = event_tables(rule_set, rows)
    built = [Built(one.typed, one.automaton) for one in compiled.rules]
    found = prepared(built, rule_set, chosen.name, tables, chosen.tree)
    return told(found, found.key_of(list(map(str, values)), is_option=False), limit=limit)
