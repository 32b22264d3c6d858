"""SQL with MATCH_RECOGNIZE or with windows -> a rule."""

from __future__ import annotations

import re

from cep.language.other_languages.texts import durations, end_of_bracket, one_line, split_outside
from cep.schema.time_literals import print_duration

MATCH_RECOGNIZE = re.compile(r"\bMATCH_RECOGNIZE\s{0,99}\(", re.IGNORECASE)
WINDOW_CALL = re.compile(r"\b(TUMBLE|HOP|SESSION)\s{0,99}\(", re.IGNORECASE)

_CLAUSE = re.compile(
    r"\b(PARTITION\s+BY|ORDER\s+BY|MEASURES|ONE\s+ROW\s+PER\s+MATCH|ALL\s+ROWS\s+PER\s+MATCH|AFTER\s+MATCH"
    r"|PATTERN|WITHIN|SUBSET|DEFINE)\b",
    re.IGNORECASE,
)
_OF_SELECT = re.compile(r"\b(SELECT|FROM|WHERE|GROUP\s+BY|HAVING|ORDER\s+BY|LIMIT|UNION)\b|;", re.IGNORECASE)
_AGGREGATE = re.compile(r"\b(COUNT|SUM|AVG|MIN|MAX|STDDEV|FIRST_VALUE|LAST_VALUE)\s{0,9}\(", re.IGNORECASE)
_NO_MEASURE = re.compile(r"\b(MATCH_ROWTIME|MATCH_PROCTIME|MATCH_NUMBER|CLASSIFIER)\b", re.IGNORECASE)


def rule_of_match_recognize(text: str) -> str | None:
    """Return the rule that is equivalent to the clause MATCH_RECOGNIZE of `text`."""
    begin = MATCH_RECOGNIZE.search(text)
    end = end_of_bracket(text, begin.end() - 1) if begin is not None else None
    if begin is None or end is None:
        return None
    clauses = _clauses(text[begin.end() : end], _CLAUSE)
    pattern = clauses.get("PATTERN", "").strip()
    if not pattern.startswith("(") or end_of_bracket(pattern, 0) != len(pattern) - 1:
        return None
    table = re.search(r"\bFROM\s+([\w.]+)\s*$", text[: begin.start()], re.IGNORECASE)
    return "\n".join(
        line
        for line in (
            "RULE name",
            f"FROM {table[1].rpartition('.')[2] if table is not None else 'events'}",
            f"PARTITION BY {one_line(clauses.get('PARTITION BY', 'key'))}",
            f"PATTERN {one_line(pattern[1:-1])}",
            f"WITHIN < {one_line(clauses['WITHIN'])}" if "WITHIN" in clauses else "",
            f"SUBSET {one_line(clauses['SUBSET'])}" if "SUBSET" in clauses else "",
            _definitions(clauses.get("DEFINE", ""), pattern),
            _measures(clauses.get("MEASURES", "")),
            "MATCH PREFERRED",
            _skip(clauses.get("AFTER MATCH", "")),
            "ALL ROWS PER MATCH" if "ALL ROWS PER MATCH" in clauses else "",
        )
        if line
    )


def _clauses(text: str, words: re.Pattern[str]) -> dict[str, str]:
    """Return the first words of the clauses of `text`, outside brackets, and what follows each."""
    found: dict[str, str] = {}
    places = []
    depth = at = 0
    for word in words.finditer(text):
        depth += text.count("(", at, word.start()) - text.count(")", at, word.start())
        at = word.start()
        if depth == 0:
            places.append(word)
    ends = [*(word.start() for word in places[1:]), len(text)]
    for word, end in zip(places, ends, strict=True):
        found.setdefault(one_line(word[0]).upper(), text[word.end() : end].strip())
    return found


def _definitions(text: str, pattern: str) -> str:
    """Return DEFINE; a variable without a condition is any event."""
    defined = [
        re.sub(r"\bPREV\s*\(\s*\w+\.", "PREV(", one_line(one)) for one in split_outside(text, ",") if one
    ]
    names = {one.split(maxsplit=1)[0].casefold() for one in defined}
    used = dict.fromkeys(re.findall(r"[A-Za-z_]\w*", pattern))
    defined += [f"{name} AS TRUE" for name in used if name.casefold() not in (*names, "permute")]
    return "DEFINE\n  " + ",\n  ".join(defined) if defined else ""


def _measures(text: str) -> str:
    kept = [
        re.sub(r"\b(FINAL|RUNNING)\s+", "", one_line(one), flags=re.IGNORECASE)
        for one in split_outside(text, ",")
        if one and not _NO_MEASURE.search(one)
    ]
    return "MEASURES\n  " + ",\n  ".join(kept) if kept else ""


def _skip(text: str) -> str:
    return "AFTER MATCH " + re.sub(r"\bROW\b", "EVENT", one_line(text).upper()) if text else ""


def rule_of_windows(text: str) -> str | None:
    """Return the rule that is equivalent to a query over windows."""
    call = WINDOW_CALL.search(text)
    end = end_of_bracket(text, call.end() - 1) if call is not None else None
    if call is None or end is None:
        return None
    inside = text[call.end() : end]
    lengths = durations(inside)
    if not lengths:
        return None
    clauses = _clauses(text, _OF_SELECT)
    table = re.search(r"\bTABLE\s+(\w+)", inside, re.IGNORECASE) or re.match(
        r"(\w+)", clauses.get("FROM", "")
    )
    keys = [one for one in split_outside(clauses.get("GROUP BY", ""), ",") if re.fullmatch(r"\w+", one)]
    keys = [one for one in keys if not one.casefold().startswith("window_")]
    longest, shortest = print_duration(max(lengths)), print_duration(min(lengths))
    window = {
        "TUMBLE": f"TUMBLING {longest}",
        "HOP": f"HOPPING {longest} EVERY {shortest}",
        "SESSION": f"SESSION GAP {longest}",
    }[call[1].upper()]
    values = [
        one_line(one) for one in split_outside(clauses.get("SELECT", ""), ",") if _AGGREGATE.search(one)
    ]
    named = [
        one if re.search(r"\bAS\s+\w+$", one, re.IGNORECASE) else f"{one} AS v{n}"
        for n, one in enumerate(values)
    ]
    return "\n".join(
        line
        for line in (
            "RULE name",
            f"FROM {table[1] if table is not None else 'events'}",
            f"PARTITION BY {', '.join(keys) or 'key'}",
            f"WINDOW {window}",
            f"WHERE {one_line(clauses['WHERE'])}" if "WHERE" in clauses else "",
            f"HAVING {one_line(clauses['HAVING'])}" if "HAVING" in clauses else "",
            f"MEASURES {', '.join(named)}" if named else "",
        )
        if line
    )
