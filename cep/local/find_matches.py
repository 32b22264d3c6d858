"""A kit with which rule authors test their rules: rows in, matches out.

`find_matches` runs rules over a few rows with the engine that also runs them in production:

    rows = [{"card": "c1", "ts": 0, "amount": 1.0}, {"card": "c1", "ts": 1_000_000, "amount": 900.0}]
    assert [match["rule"] for match in find_matches(text, streams, rows)] == ["card_testing"]
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, overload

import pyarrow as pa

from cep.arguments import flag_of
from cep.compiler.compile import compile_sources
from cep.engine.chains.chain import Chain
from cep.engine.tables.tables import GivenTable
from cep.errors import InputError, Source
from cep.local.given_events import event_tables
from cep.rule_files import STREAMS_FILE
from cep.rule_set import RuleSet
from cep.rulebook import load_rules
from cep.schema.stream import Stream
from cep.settings.schema_file import declared_streams


@overload
def find_matches(
    rules: str | Path | Source | RuleSet,
    streams: str | Path | Stream | Mapping[str, Stream] | None,
    rows: Any,
    *,
    as_table: Literal[False] = False,
    parameters: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]: ...


@overload
def find_matches(
    rules: str | Path | Source | RuleSet,
    streams: str | Path | Stream | Mapping[str, Stream] | None,
    rows: Any,
    *,
    as_table: Literal[True],
    parameters: Mapping[str, str] | None = None,
) -> pa.Table: ...


def find_matches(
    rules: str | Path | Source | RuleSet,
    streams: str | Path | Stream | Mapping[str, Stream] | None,
    rows: Any,
    *,
    as_table: bool = False,
    parameters: Mapping[str, str] | None = None,
) -> list[dict[str, Any]] | pa.Table:
    """Return the matches of `rules` in `rows`, in the order of the output, each with its columns by name.

    No row is late, and the order of the rows does not matter. After the last row, every window closes. A row
    that would be a dead letter elsewhere, such as one with a time outside the stream's ``valid_time``, is an
    error. A row whose key is NULL is not an error: it belongs to no key and matches nothing. As with a
    DataFrame, a row may be ahead of the others by any time: ``max_ahead`` has no effect.

    Parameters
    ----------
    rules
        The text of rules, the path of a rule file or of a directory of rule files, or the result of
        `load_rules`.
    streams
        The result of `load_streams`, or the path of a streams file. None: the nearest ``streams.yaml``.
    rows
        A list of dictionaries, or a table: a pandas or Polars DataFrame, an Arrow table. If the rules read
        several streams or tables, rows by name: ``{"logins": [...], "transfers": df}``; one that is not named
        has no rows. A column that is missing from a dictionary is NULL. A time is a string in the form that
        the stream declares, a datetime, or a number in the column's `unit`; without a `unit`, in microseconds
        since 1970. A datetime without a zone is a time in the column's `zone`.
    as_table
        Return an Arrow table, with the columns of all rules; ``to_pandas()`` makes it a DataFrame.
    parameters
        Other values of parameters (`PARAM`), as they are written in rules: ``{"small": "4"}``.

    Raises
    ------
    RuleError
        The rules are wrong, or there are none. The error's `diagnostics` hold all problems.
    InputError
        The rows do not fit the stream (E0832); this error is also a ValueError. Or an argument is of another
        type (E0827), or `streams` or `parameters` are given for rules that are already compiled (E0828).
    """
    flag_of("as_table", as_table)
    compiled = _compiled(rules, streams, parameters)
    tables = event_tables(compiled, rows)
    static = {
        name: GivenTable(table, tables[name]) for name, table in compiled.tables.items() if table.is_static
    }
    found: list[pa.Table] = []
    engine = Chain(compiled, tables=static)
    for name, stream in compiled.inputs.items():
        if not stream.is_static:
            engine.push_events(stream, tables[name])
    engine.finish(found.append)
    matches = compiled.in_order(found)
    if as_table:
        return matches
    listed: list[dict[str, Any]] = matches.to_pylist()
    return listed


def _compiled(
    rules: str | Path | Source | RuleSet,
    streams: str | Path | Stream | Mapping[str, Stream] | None,
    parameters: Mapping[str, str] | None,
) -> RuleSet:
    if isinstance(rules, RuleSet):
        for name, is_given in (("streams", streams is not None), ("parameters", bool(parameters))):
            if is_given:
                raise InputError(
                    "E0828", f"{name} cannot be given here", "give it to load_rules, or rule texts here"
                )
        return rules
    if not isinstance(rules, Source):
        return load_rules(rules, streams, parameters=parameters)
    return compile_sources([rules], declared_streams(streams or STREAMS_FILE), parameters=parameters).rule_set
