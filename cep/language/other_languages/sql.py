"""SQL with MATCH_RECOGNIZE or with windows -> a rule."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cep.language.other_languages.texts import (
    NEXT_QUERY,
    clauses_of,
    durations,
    end_of_bracket,
    offered,
    one_line,
    outside_quotes,
    partition_by,
    split_outside,
    with_values,
    without_now,
    written,
)
from cep.schema.time_literals import print_duration

MATCH_RECOGNIZE = re.compile(r"\bMATCH_RECOGNIZE\s{0,99}\(", re.IGNORECASE)

_CLAUSE = re.compile(
    r"\b(PARTITION\s+BY|ORDER\s+BY|MEASURES|ONE\s+ROW\s+PER\s+MATCH|ALL\s+ROWS\s+PER\s+MATCH|AFTER\s+MATCH"
    r"|PATTERN|WITHIN|SUBSET|DEFINE)\b",
    re.IGNORECASE,
)
_OF_SELECT = re.compile(
    r"\b(?:SELECT|FROM|WHERE|GROUP\s+BY|HAVING|QUALIFY|ORDER\s+BY|LIMIT|OFFSET|FETCH|EMIT|UNION|EXCEPT|INTERSECT"
    r"|(?:(?:LEFT|RIGHT|FULL|INNER|CROSS)\s+)?(?:OUTER\s+)?JOIN)\b|;",
    re.IGNORECASE,
)
_TABLE = re.compile(r"(?:\w+\.){0,9}(\w+)(?:\s+(?:AS\s+)?(\w+))?", re.IGNORECASE)
_ALIAS = re.compile(r"(?:(?:AS\s+)?(\w+))?", re.IGNORECASE)
_CALL = re.compile(r"(?:TABLE\s*\(\s*)?\b(TUMBLE|HOP|SESSION)\s{0,99}\(", re.IGNORECASE)
_COLUMN = re.compile(r"(?:\w+\.)?(?:\w+|\*)")
_BY_TIME = re.compile(r"\w+(?:\s+ASC)?", re.IGNORECASE)
_OF_WINDOW = re.compile(r"window_(?:start|end|time)\b|(?:TUMBLE|HOP|SESSION)_\w+\s*\(", re.IGNORECASE)
_AGGREGATE = re.compile(r"\b(COUNT|SUM|AVG|MIN|MAX|STDDEV|FIRST_VALUE|LAST_VALUE)\s{0,9}\(", re.IGNORECASE)
_NAMED = re.compile(r"(.*?[\w)])\s+(?:AS\s+)?(\w+)", re.IGNORECASE | re.DOTALL)
_ROW = re.compile(r"\bROW\b", re.IGNORECASE)
_NO_MEASURE = re.compile(r"\b(MATCH_ROWTIME|MATCH_PROCTIME|MATCH_NUMBER|CLASSIFIER)\b", re.IGNORECASE)


class _Source(NamedTuple):
    """FROM: the stream, the names that may precede its columns, a filter, and what is not translated."""

    stream: str
    names: tuple[str, ...]
    where: str = ""
    missing: tuple[str, ...] = ()

    def bare(self, text: str) -> str:
        """Return `text` in one line, without the names of the stream before columns."""
        names = "|".join(self.names)
        return outside_quotes(
            one_line(text), lambda piece: re.sub(rf"(?<![\w.])(?:{names})\.(?=\w)", "", piece)
        )


def rule_of_match_recognize(text: str) -> str | None:
    """Return the rule that is equivalent to the clause MATCH_RECOGNIZE of `text`."""
    begin = MATCH_RECOGNIZE.search(text)
    end = end_of_bracket(text, begin.end() - 1) if begin is not None else None
    if begin is None or end is None:
        return None
    before = clauses_of(text[: begin.start()], _OF_SELECT)
    source = _source(before[-1][1]) if [word for word, _ in before[-2:]] == ["SELECT", "FROM"] else None
    clauses = dict(reversed(clauses_of(text[begin.end() : end], _CLAUSE)))
    pattern = clauses.get("PATTERN", "").strip()
    if source is None or not pattern.startswith("(") or end_of_bracket(pattern, 0) != len(pattern) - 1:
        return None
    behind = clauses_of(text[end + 1 :], _OF_SELECT)
    order, is_by_row = source.bare(clauses.get("ORDER BY", "")), "ALL ROWS PER MATCH" in clauses
    measures, no_measures = _measures(clauses.get("MEASURES", ""), is_by_row=is_by_row)
    missing = (
        *_of_other_queries(before[:-2]),
        *_more_than_columns(before[-2][1]),
        *source.missing,
        f"WHERE {source.where} before the pattern" if source.where else "",
        f"ORDER BY {order}" if order and not _BY_TIME.fullmatch(order) else "",
        f"ALL ROWS PER MATCH {clauses['ALL ROWS PER MATCH']}" if clauses.get("ALL ROWS PER MATCH") else "",
        *no_measures,
        *written(behind[1:] if _ALIAS.fullmatch(behind[0][1]) else behind),
    )
    return offered(
        (
            "RULE name",
            f"FROM {source.stream}",
            partition_by(source.bare(clauses.get("PARTITION BY", ""))),
            f"PATTERN {one_line(pattern[1:-1])}",
            f"WITHIN < {one_line(clauses['WITHIN'])}" if "WITHIN" in clauses else "",
            f"SUBSET {one_line(clauses['SUBSET'])}" if "SUBSET" in clauses else "",
            _definitions(clauses.get("DEFINE", ""), pattern),
            measures,
            "MATCH PREFERRED",
            _skip(clauses.get("AFTER MATCH", "")),
            "ALL ROWS PER MATCH" if is_by_row else "",
        ),
        missing,
    )


def _source(text: str) -> _Source | None:
    """Return what FROM names: a table, or a query in parentheses with columns of one table."""
    table = _TABLE.fullmatch(text)
    if table is not None:
        return _Source(table[1], tuple(filter(None, table.groups())))
    end = end_of_bracket(text, 0) if text.startswith("(") else None
    alias = _ALIAS.fullmatch(text[end + 1 :].strip()) if end is not None else None
    if alias is None:
        return None
    clauses = clauses_of(text[1:end], _OF_SELECT)
    query = dict(reversed(clauses))
    table = _TABLE.fullmatch(query.get("FROM", ""))
    if table is None or any(word in NEXT_QUERY for word, _ in clauses):
        return None
    source = _Source(table[1], tuple(filter(None, (*table.groups(), alias[1]))))
    others = [clause for clause in clauses if clause[0] not in ("SELECT", "FROM", "WHERE")]
    missing = (*_more_than_columns(query.get("SELECT", "")), *written(others))
    return source._replace(where=source.bare(query.get("WHERE", "")), missing=missing)


def _source_of_call(text: str) -> _Source | None:
    """Return what FROM names if it calls a function of windows."""
    table = re.search(r"\bTABLE\s+(\w+)", text, re.IGNORECASE)
    end = end_of_bracket(text, text.index("("))
    if table is None or end is None:
        return None
    behind = text[end + 1 :].strip()
    alias = _ALIAS.fullmatch(behind)
    names = filter(None, (table[1], alias[1] if alias is not None else None))
    return _Source(table[1], tuple(names), missing=() if alias is not None else (f"FROM ... {behind}",))


def _of_other_queries(clauses: Sequence[tuple[str, str]]) -> list[str]:
    """Return what precedes a query, as one text; empty: nothing but what names its result."""
    head, *others = clauses or [("", "")]
    is_left_out = bool(others) or re.search(r"\bWITH\b", head[1], re.IGNORECASE) is not None
    return [" ".join(written(clauses))] if is_left_out else []


def _more_than_columns(select: str) -> list[str]:
    """Return each part of SELECT that is not a plain column, with the word SELECT."""
    return [f"SELECT {one}" for one in split_outside(select, ",") if one and not _COLUMN.fullmatch(one)]


def _definitions(text: str, pattern: str) -> str:
    """Return DEFINE; a variable without a condition is any event."""
    defined = [one_line(one) for one in split_outside(text, ",") if one]
    names = {one.split(maxsplit=1)[0].casefold() for one in defined}
    used = dict.fromkeys(re.findall(r"[A-Za-z_]\w*", pattern))
    defined += [f"{name} AS TRUE" for name in used if name.casefold() not in (*names, "permute")]
    return "DEFINE\n  " + ",\n  ".join(defined) if defined else ""


def _measures(text: str, *, is_by_row: bool) -> tuple[str, list[str]]:
    """Return MEASURES, and the measures of SQL that are not translated."""
    kept, missing = [], []
    for one in filter(None, map(one_line, split_outside(text, ","))):
        if _NO_MEASURE.search(one):
            missing.append(one)
            continue
        if is_by_row and not one.upper().startswith(("FINAL ", "FIRST(", "FIRST (")):
            missing.append(f"up to each row, {one}: a rule measures the whole match")
        kept.append(re.sub(r"\b(FINAL|RUNNING)\s+", "", one, flags=re.IGNORECASE))
    return ("MEASURES\n  " + ",\n  ".join(kept) if kept else ""), missing


def _skip(text: str) -> str:
    return f"AFTER MATCH {re.sub(_ROW, 'EVENT', one_line(text))}" if text else ""


def rule_of_windows(text: str) -> str | None:
    """Return the rule that is equivalent to a query over windows."""
    clauses = clauses_of(text, _OF_SELECT)
    n_first = next((n for n, (word, _) in enumerate(clauses) if word in NEXT_QUERY), len(clauses))
    query = dict(reversed(clauses[1:n_first]))
    of_from, keys = query.get("FROM", ""), split_outside(query.get("GROUP BY", ""), ",")
    call = next((found for one in (of_from, *keys) if (found := _CALL.match(one)) is not None), None)
    end = end_of_bracket(call.string, call.end() - 1) if call is not None else None
    if call is None or end is None:
        return None
    source = (_source_of_call if call.string == of_from else _source)(of_from)
    length = _window(call[1].upper(), durations(call.string[call.end() : end]))
    if source is None or length is None:
        return None
    columns = [one for one in map(source.bare, keys) if one and not _is_window(one)]
    plain = [one for one in columns if re.fullmatch(r"\w+", one)]
    values, no_values = _values(map(source.bare, split_outside(query.get("SELECT", ""), ",")), plain)
    having = source.bare(query.get("HAVING", ""))
    where, of_now = [source.where] if source.where else [], list[str]()
    if condition := source.bare(query.get("WHERE", "")):
        lasting, of_now = without_now(outside_quotes(condition, _with_upper_operators))
        where += [" AND ".join(lasting) if of_now else condition] if lasting else []
    where = [f"({one})" for one in where] if len(where) > 1 else where
    kept = [
        (word, query[word]) for word in ("SELECT", "FROM", "WHERE", "GROUP BY", "HAVING") if word in query
    ]
    missing = (
        *_of_other_queries(clauses[:1]),
        *no_values,
        *source.missing,
        *(f"WHERE {one}" for one in of_now),
        *(f"GROUP BY {one}" for one in columns if one not in plain),
        *written([clause for clause in clauses[1:] if clause not in kept]),
    )
    return offered(
        (
            "RULE name",
            f"FROM {source.stream}",
            partition_by(", ".join(plain)),
            f"WINDOW {length}",
            f"WHERE {' AND '.join(where)}" if where else "",
            f"HAVING {having if _AGGREGATE.search(having) else with_values(having, values)}"
            if having
            else "",
            f"MEASURES {', '.join(f'{value} AS {name}' for name, value in values.items())}" if values else "",
        ),
        missing,
    )


def _with_upper_operators(text: str) -> str:
    return re.sub(r"\b(?:and|or)\b", lambda word: word[0].upper(), text, flags=re.IGNORECASE)


def _is_window(text: str) -> bool:
    """Return whether the text is a window, its start or its end."""
    return _CALL.match(text) is not None or _OF_WINDOW.match(text) is not None


def _window(kind: str, lengths: Sequence[int]) -> str | None:
    """Return WINDOW for a call with these lengths; None: it has an offset, or no length."""
    printed = [print_duration(length) for length in sorted(lengths, reverse=True)]
    match kind, printed:
        case "TUMBLE", [length]:
            return f"TUMBLING {length}"
        case "HOP", [length, every]:
            return f"HOPPING {length} EVERY {every}"
        case "SESSION", [length]:
            return f"SESSION GAP {length}"
    return None


def _values(select: Iterable[str], keys: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the aggregates of SELECT by their names, and its other columns except keys and windows."""
    values: dict[str, str] = {}
    missing = []
    for one in select:
        if _AGGREGATE.search(one):
            named = _NAMED.fullmatch(one)
            value, name = (named[1], named[2]) if named is not None else (one, f"v{len(values)}")
            missing += [f"SELECT {one}"] if name in values else []
            values.setdefault(name, value)
        elif one and one not in keys and not _is_window(one):
            missing.append(f"SELECT {one}")
    return values, missing
