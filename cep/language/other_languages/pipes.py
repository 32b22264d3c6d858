"""A query with pipes (KQL) that counts in windows -> a rule."""

from __future__ import annotations

import re

from cep.language.other_languages.texts import condition_of, durations, one_line, split_outside
from cep.schema.time_literals import print_duration

_VALUE = re.compile(r"(?:(\w{1,60})\s*=\s*)?(\w{1,30})\s*\((.{0,200})\)")
_FUNCTIONS = {"SUM", "AVG", "MIN", "MAX"}


def rule_of_pipes(text: str) -> str | None:
    """Return the window rule for ``T | where ... | summarize ... by key, bin(ts, 10m)``."""
    table, *steps = split_outside(one_line(text), "|")
    conditions: list[str] = []
    windows: tuple[dict[str, str], list[str], str] | None = None
    limits: list[str] = []
    for step in steps:
        word, _, rest = step.partition(" ")
        if word.lower() == "where":
            condition = condition_of(rest)
            condition = f"({condition})" if " OR " in condition else condition
            (conditions if windows is None else limits).append(condition)
        elif word.lower() == "summarize" and windows is None:
            windows = _summary(rest)
            if windows is None:
                return None
        else:
            return None
    if windows is None or not re.fullmatch(r"\w+", table):
        return None
    values, keys, length = windows
    having = " AND ".join(limits)
    for name, value in values.items():
        having = re.sub(rf"\b{name}\b", value.replace("\\", r"\\"), having)
    lines = (
        "RULE name",
        f"FROM {table}",
        f"PARTITION BY {', '.join(keys) or 'key'}",
        f"WINDOW TUMBLING {length}",
        f"WHERE {' AND '.join(conditions)}" if conditions else "",
        f"HAVING {having}" if having else "",
        f"MEASURES {', '.join(f'{value} AS {name}' for name, value in values.items())}",
    )
    return "\n".join(line for line in lines if line)


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
            return f"COUNT(*) FILTER (WHERE {condition_of(argument)})"
        case "PERCENTILE" if (found := re.fullmatch(r"(\w+)\s*,\s*(\d{1,2})", argument)) is not None:
            return f"PERCENTILE({found[1]}, {int(found[2]) / 100})"
        case _ if name in _FUNCTIONS and argument:
            return f"{name}({argument})"
    return None
