"""A query with pipes (KQL) that counts in windows -> a rule."""

from __future__ import annotations

import re

from cep.language.other_languages.texts import (
    condition_of,
    durations,
    offered,
    one_line,
    partition_by,
    split_outside,
    with_values,
    without_now,
)
from cep.schema.time_literals import print_duration

_VALUE = re.compile(r"(?:(\w{1,60})\s*=\s*)?(\w{1,30})\s*\((.{0,200})\)")
_FUNCTIONS = {"SUM", "AVG", "MIN", "MAX"}
_ONLY_SHOW = ("order", "sort", "top", "take", "limit", "project", "render")
_OF_TEXT = re.compile(
    r"(?P<column>\w{1,100})\s{0,9}(?P<no>!?)(?P<operator>=~|~|has_cs|has|contains_cs|contains"
    r"|startswith_cs|startswith|endswith_cs|endswith)\s{0,9}'(?P<text>[^']{0,200})'|'[^']*'"
)


def rule_of_pipes(text: str) -> str | None:
    """Return the window rule for ``T | where ... | summarize ... by key, bin(ts, 10m)``."""
    if "\\" in text:
        return None  # strings in KQL have escapes
    table, *steps = split_outside(one_line(text), "|")
    conditions: list[str] = []
    windows: tuple[dict[str, str], list[str], str] | None = None
    limits: list[str] = []
    missing: list[str] = []
    for step in steps:
        word, _, rest = step.partition(" ")
        if word.lower() == "where":
            lasting, of_now = without_now(_condition(rest))
            (conditions if windows is None else limits).extend(lasting)
            missing += (f"where {one}" for one in of_now)
        elif word.lower() == "summarize" and windows is None:
            windows = _summary(rest)
            if windows is None:
                return None
        elif word.lower() in _ONLY_SHOW and windows is not None:
            missing.append(step)
        else:
            return None
    if windows is None or not re.fullmatch(r"\w+", table):
        return None
    values, keys, length = windows
    having = with_values(" AND ".join(limits), values)
    lines = (
        "RULE name",
        f"FROM {table}",
        partition_by(", ".join(keys)),
        f"WINDOW TUMBLING {length}",
        f"WHERE {' AND '.join(conditions)}" if conditions else "",
        f"HAVING {having}" if having else "",
        f"MEASURES {', '.join(f'{value} AS {name}' for name, value in values.items())}",
    )
    return offered(lines, missing)


def _condition(text: str) -> str:
    """Return a condition of KQL in the form of rules."""
    return _OF_TEXT.sub(_test_of_text, condition_of(text))


def _test_of_text(found: re.Match[str]) -> str:
    """Return the test for an operator on a string; most of them ignore upper and lower case."""
    operator, text, column = found["operator"], found["text"], found["column"]
    if operator is None or (operator == "~" and not found["no"]):
        return found[0]
    operator, is_exact = operator.removesuffix("_cs"), operator.endswith("_cs")
    column, text = (column, text) if is_exact else (f"LOWER({column})", text.lower())
    match operator:
        case "=~" | "~":
            return f"{column} {'!=' if found['no'] else '='} '{text}'"
        case "has":
            if not re.fullmatch(r"[\w ]+", text):
                return found[0]
            sign = "A-Za-z0-9" if is_exact else "a-z0-9"
            test = f"{column} RLIKE '(^|[^{sign}]){text}([^{sign}]|$)'"
        case _:
            test = f"{operator.upper()}({column}, '{text}')"
    return f"NOT {test}" if found["no"] else test


def _summary(text: str) -> tuple[dict[str, str], list[str], str] | None:
    """Return the values of ``summarize``, the key, and the length of a window."""
    written, by, of_windows = text.partition(" by ")
    values: dict[str, str] = {}
    for one in split_outside(written, ","):
        found = _VALUE.fullmatch(one)
        value = _aggregate(found[2].upper(), found[3].strip()) if found is not None else None
        if found is None or value is None:
            return None
        values[found[1] or f"{found[2].lower()}_{found[3] if found[3].isidentifier() else ''}"] = value
    keys = split_outside(of_windows, ",")
    bins = [key for key in keys if re.match(r"(?:\w+\s*=\s*)?bin\s*\(", key)]
    lengths = [length for one in bins for length in durations(one)]
    plain = [key for key in keys if key not in bins]
    if not by or len(lengths) != 1 or not all(re.fullmatch(r"\w+", key) for key in plain):
        return None
    return values, plain, print_duration(lengths[0])


def _aggregate(name: str, argument: str) -> str | None:
    match name:
        case "COUNT" if not argument:
            return "COUNT(*)"
        case "DCOUNT":
            return f"COUNT(DISTINCT {argument})"
        case "COUNTIF":
            return f"COUNT(*) FILTER (WHERE {_condition(argument)})"
        case "PERCENTILE" if (found := re.fullmatch(r"(\w+)\s*,\s*(\d{1,2})", argument)) is not None:
            return f"PERCENTILE({found[1]}, {int(found[2]) / 100})"
        case _ if name in _FUNCTIONS and argument:
            return f"{name}({argument})"
    return None
