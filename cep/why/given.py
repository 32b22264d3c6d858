"""`find_reasons`: the answer of `cep why` for events in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cep.compiler.automaton.build import Built
from cep.errors import Source
from cep.local.given_events import GivenEventsError, event_table
from cep.rule_files import STREAMS_FILE
from cep.rulebook import compile_rulebook, compile_texts, is_rules, load_rulebook
from cep.schema.stream import Stream
from cep.settings.schema_file import declared_streams
from cep.why.reasons import Why, WhyRows
from cep.why.rows import prepared, told


def find_reasons(
    rules: str | Path,
    streams: str | Path | Mapping[str, Stream] | None,
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
        Rule text, or the path of a rule file or of a directory of rule files.
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
        The rows do not fit the stream (E0832), or no event has the key (E0898).
    """
    only = [] if rule is None else [rule]
    if is_rules(rules):
        declared = declared_streams(streams or STREAMS_FILE)
        compiled = compile_texts([Source("rules", str(rules))], declared, only)
    else:
        compiled = compile_rulebook(load_rulebook([rules], streams), only)
    if rule is None and len(compiled.rules) > 1:
        names = ", ".join(one.name for one in compiled.rules)
        raise GivenEventsError("E0832", "the rules are several", f"name one as `rule`: {names}")
    rule_set, chosen = compiled.rule_set, compiled.rules[-1]
    named = rows if isinstance(rows, Mapping) else dict.fromkeys(rule_set.inputs, rows)
    tables = {name: event_table(stream, named.get(name, ())) for name, stream in rule_set.inputs.items()}
    built = [Built(one.typed, one.automaton) for one in compiled.rules]
    found = prepared(built, rule_set, chosen.name, tables, chosen.tree)
    values = [str(value) for value in (key if isinstance(key, list | tuple) else [key])]
    return told(found, found.key_of(values), limit=limit)
