"""Patterns of Esper, Siddhi and EQL -> a rule: steps one after another, each with its condition."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cep.language.other_languages.texts import (
    clauses_of,
    condition_of,
    end_of_bracket,
    offered,
    one_line,
    outside_quotes,
    partition_by,
    split_outside,
    whole_duration,
    without_quoted,
    written,
)

_ESPER = re.compile(r"\bpattern\s{0,99}\[", re.IGNORECASE)
_SIDDHI = re.compile(r"\bfrom\s+(every\b)?", re.IGNORECASE)
_CLAUSE = re.compile(
    r"\b(?:select|from|where|group\s+by|having|order\s+by|limit|offset|output|insert|return)\b|;",
    re.IGNORECASE,
)
_ANNOTATIONS = re.compile(r"(?:\s*@\w+(?:\([^()]*\))?)*\s*")
_ALIAS = re.compile(r"(?:as\s+\w+)?", re.IGNORECASE)
_DECLARED = re.compile(r"\s*(?:create\s+(?:\w+\s+)?schema|module|import|uses)\b", re.IGNORECASE)
_WITHIN = re.compile(r"\bwithin\s+(\d[\w .]{0,20})$", re.IGNORECASE)
_TIMER = re.compile(r"\s+where\s+timer:within\(([^()]{1,40})\)\s*$", re.IGNORECASE)
_INTERVAL = re.compile(r"^timer:interval\(([^()]{1,40})\)$", re.IGNORECASE)
_STEP = re.compile(r"(?:(\w{1,60})\s*=\s*)?([A-Za-z_]\w{0,60})\s*")
_COUNT = re.compile(r"<(\d{0,9})(:?)(\d{0,9})>\s*$")
_SAME = re.compile(r"\b(\w{1,60})\s*==?\s*\w{1,60}\.(\w{1,60})\b")
_SELECTED = re.compile(r"(.*?[\w)\]])\s+as\s+(\w+)", re.IGNORECASE | re.DOTALL)
_NTH = re.compile(r"\b(\w+)\[\s*(\d+|last)\s*(?:-\s*(\d+)\s*)?\]\.(\w+)")
_NTH_OR_FIELD = re.compile(r"(?:FIRST|LAST)\((\w+)\.(\w+)(?:, \d+)?\)|\b([A-Za-z_]\w*)\.(\w+)")
_REST_OF_VALUE = re.compile(r"[\d.\s+*/()-]*")
_EQL_HEAD = re.compile(
    r"sequence\b(?:\s+by\s+([\w.,@ ]{1,200}?))?(?:\s+with\s+maxspan\s*=\s*(\w{1,20}))?\s*(?=!?\[)"
)
_EQL_STEP = re.compile(r"\s*(!?)\[\s*(\w{1,60})\s+where\s+")
_EQL_BEHIND = re.compile(r"\s*(?:with\s+runs\s*=\s*(\d{1,6}))?\s*")
_DOTTED = re.compile(r"\b([A-Za-z_@]\w{0,60})((?:\.\w{1,60})+)")

_WILDCARDS = re.compile(r"(\bLIKE\s{1,9})('[^']{0,100}')")
_OF_LIKE = str.maketrans({"*": "%", "?": "_", "%": r"\%", "_": r"\_"})
_LIKE = re.compile(r"\b(\w{1,100})\s{0,9}:\s{0,9}'([^'*?]{0,100})'")


@dataclass(frozen=True, slots=True)
class _Step:
    """A step: its variable, its stream, its condition, and its text in the pattern."""

    name: str
    stream: str
    condition: str
    written: str


_ONCE = "without `every` only one match is found ever; SUPPRESS FOR 36500 DAYS finds one for each key"


def rule_of_esper(text: str) -> str | None:
    """Return the rule that is equivalent to the pattern of an EPL statement."""
    begin = _ESPER.search(text)
    end = end_of_bracket(text, begin.end() - 1) if begin is not None else None
    if begin is None or end is None:
        return None
    *earlier, statement = split_outside(text[: begin.start()], ";")
    before, behind = clauses_of(statement, _CLAUSE), clauses_of(text[end + 1 :], _CLAUSE)
    pattern = one_line(text[begin.end() : end])
    is_repeated = re.match(r"every\b", pattern, re.IGNORECASE) is not None
    is_each = is_repeated and not pattern.lower().startswith("every (")
    pattern = re.sub(r"^every\b\s*", "", pattern, flags=re.IGNORECASE)
    within = ""
    if (timer := _TIMER.search(pattern)) is not None:
        within, pattern = _duration_of_epl(timer[1]), pattern[: timer.start()]
    pieces = split_outside(_unwrapped(pattern), "->")
    if timer is not None and (not within or (len(pieces) > 2 and _unwrapped(pattern) == pattern.strip())):
        return None  # no length, or the timer is only for the last step
    if (timer := _TIMER.search(_unwrapped(pieces[-1]))) is not None and len(pieces) == 2:
        within, pieces[-1] = _duration_of_epl(timer[1]), _unwrapped(pieces[-1])[: timer.start()]
        if not within:
            return None
    steps = _steps(pieces)
    selected = next((columns for word, columns in before if word == "SELECT"), "")
    if steps is None:
        return None
    missing = (
        *(one for one in earlier if not _DECLARED.match(one)),
        _ANNOTATIONS.sub("", before[0][1], count=1),
        *written([clause for clause in before[1:] if clause[0] not in ("SELECT", "INSERT")]),
        *written(behind[1:] if _ALIAS.fullmatch(behind[0][1]) else behind),
        *([] if is_repeated else [_ONCE]),
    )
    return _rule(
        steps,
        f"< {within}" if within else "",
        is_each=is_each,
        selected=selected,
        column="{}_{}",
        missing=missing,
    )


def rule_of_siddhi(text: str) -> str | None:
    """Return the rule that is equivalent to the first pattern of a Siddhi app."""
    queries = [
        (found, clauses_of(statement[found.end() :], _CLAUSE))
        for statement in split_outside(text, ";")
        if (found := _SIDDHI.search(without_quoted(statement))) is not None
    ]
    chosen = next((query for query in queries if "->" in query[1][0][1]), None)
    if chosen is None:
        return None
    begin, ((_, pattern), *behind) = chosen
    length = ""
    if (within := _WITHIN.search(pattern)) is not None:
        length, pattern = whole_duration(within[1]), pattern[: within.start()].strip()
        if not length:
            return None
    is_each = begin[1] is not None and not pattern.startswith("(")
    steps = _steps(split_outside(_unwrapped(pattern), "->"))
    keys, missing = dict[str, str](), list[str]()
    if (partition := re.search(r"\bpartition\s+with\s*\(", text, re.IGNORECASE)) is not None:
        end = end_of_bracket(text, partition.end() - 1) or len(text)
        for one in split_outside(one_line(text[partition.end() : end]), ","):
            key = re.fullmatch(r"(\w+) of (\w+)", one, re.IGNORECASE)
            if key is not None:
                keys[key[2]] = key[1]
            else:
                missing.append(f"partition with ({one})")
    if steps is None:
        return None
    missing += [f"{query[0][0]} {' '.join(written(query[1]))}" for query in queries if query is not chosen]
    missing += written([clause for clause in behind if clause[0] not in ("SELECT", "INSERT")])
    missing += [] if begin[1] is not None else [_ONCE]
    return _rule(
        steps,
        length,
        is_each=is_each,
        keys=keys,
        selected=next((columns for word, columns in behind if word == "SELECT"), ""),
        column="{1}",
        missing=missing,
    )


def _duration_of_epl(text: str) -> str:
    """Return a duration in the form of rules; a number without a unit is seconds."""
    return whole_duration(f"{text} seconds" if text.strip().isdecimal() else text)


def _unwrapped(text: str) -> str:
    """Return `text` without parentheses around the whole."""
    text = text.strip()
    while text.startswith("(") and end_of_bracket(text, 0) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def _steps(pieces: Sequence[str]) -> list[_Step] | None:
    """Return the pieces of a pattern as steps; None: a piece is more than a step."""
    found: list[_Step] = []
    for piece in pieces:
        parts = re.split(r"\s+and\s+(?=not\b)", _unwrapped(piece), flags=re.IGNORECASE)
        if len(parts) > 2:
            return None
        interval = _INTERVAL.match(parts[0])
        absent = None
        if len(parts) == 2:
            absent = _step(parts[1][len("not") :], len(found))
            if absent is None:
                return None
        if interval is not None:
            length = _duration_of_epl(interval[1])
            if absent is None or not found or not length:
                return None
            found.append(
                _Step(absent.name, absent.stream, absent.condition, f"!{absent.name} FOR < {length}")
            )
            continue
        if absent is not None:
            found.append(_Step(absent.name, absent.stream, absent.condition, f"!{absent.name}"))
        step = _step(parts[0], len(found))
        if step is None:
            return None
        found.append(step)
    return found if len({step.name for step in found}) == len(found) else None


def _step(text: str, number: int) -> _Step | None:
    """Return ``a=Stream(x > 5)``, ``e1=Stream[x > 5]<2:5>`` as a step."""
    text = text.strip()
    counts = _COUNT.search(text)
    bounds = ""
    if counts is not None:
        least, colon, most = counts.groups()
        bounds = f"->{{{least}{',' if colon else ''}{most}}}"
        text = text[: counts.start()].strip()
    head = _STEP.match(text)
    if head is None or (head[1] is None and head[2].lower() in ("every", "not")):
        return None
    rest = text[head.end() :].strip()
    if rest and (rest[0] not in "([" or end_of_bracket(rest, 0) != len(rest) - 1):
        return None
    name = head[1] or f"{head[2][0].lower()}{number + 1}"
    parts = [condition_of(part) for part in split_outside(rest[1:-1], ",")]  # in EPL a comma is AND
    parts = [f"({part})" if len(parts) > 1 and " OR " in part else part for part in parts]
    return _Step(name, head[2], " AND ".join(parts), f"{name}{bounds}")


def _rule(
    steps: Sequence[_Step],
    within: str,
    *,
    is_each: bool,
    keys: Mapping[str, str] | None = None,
    selected: str = "",
    column: str = "",
    missing: Sequence[str] = (),
) -> str:
    """Return the rule of steps that follow each other.

    `keys` has the key of each stream. Without keys, an equal column of two steps is the key. `column` is the
    form of the name that the other language gives to a variable's column.
    """
    streams = list(dict.fromkeys(step.stream for step in steps))
    key = ""
    left_out = list(missing)
    if keys is None or not keys:
        same = (found for step in steps for found in _SAME.finditer(step.condition))
        key = next((found[1] for found in same if found[1] == found[2]), "")
        keys = dict.fromkeys(streams, key)
    several = len(streams) > 1
    definitions = []
    for number, step in enumerate(steps):
        condition = step.condition
        if key:
            condition, n_removed = re.subn(
                rf"\b{key}\s*==?\s*\w+\.{key}\b(\s+AND\s+)?", "", step.condition, count=1
            )
            condition = re.sub(r"\s+AND\s*$", "", condition.strip())
            left_out += (
                [f"{step.name} of any {key}: here all steps have the same"]
                if number > 0 and not n_removed
                else []
            )
        definitions.append(f"{step.name}{f' ON {step.stream}' if several else ''} AS {condition or 'TRUE'}")
    columns = [keys.get(stream, "") or "key" for stream in streams]
    known = " = ".join(
        f"{stream}.{one}" if several else one for stream, one in zip(streams, columns, strict=True)
    )
    measures, no_measures = _measures(selected, steps, keys, column)
    return offered(
        (
            "RULE name",
            f"FROM {', '.join(streams)}",
            partition_by(known, is_invented="key" in columns and "key" not in keys.values()),
            f"PATTERN {' -> '.join(step.written for step in steps)}",
            f"WITHIN {within}" if within else "",
            "DEFINE\n  " + ",\n  ".join(definitions),
            "MEASURES\n  " + ",\n  ".join(measures) if measures else "",
            "AFTER MATCH NO SKIP" if is_each else "",
        ),
        (*left_out, *no_measures),
    )


def _measures(
    selected: str, steps: Sequence[_Step], keys: Mapping[str, str], column: str
) -> tuple[list[str], list[str]]:
    """Return the measures for what a query selects, and the parts that are not translated.

    A column of the key is not a measure, because every match has it.
    """
    streams = {step.name: step.stream for step in steps if not step.written.startswith("!")}
    repeated = {step.name for step in steps if step.written != step.name}
    measures, missing = dict[str, str](), list[str]()
    for one in filter(None, map(one_line, split_outside(selected, ","))):
        named = _SELECTED.fullmatch(one)
        value = outside_quotes(named[1] if named is not None else one, lambda text: _NTH.sub(_nth, text))
        used = list(_NTH_OR_FIELD.finditer(value))
        plain = re.fullmatch(r"(\w+)\.(\w+)", value)
        name = named[2] if named is not None else column.format(*plain.groups()) if plain is not None else ""
        is_certain = used and all(
            (found[1] or found[3]) in streams and (found[1] or found[3] not in repeated) for found in used
        )
        is_key = plain is not None and plain[2] == keys.get(streams.get(plain[1], ""))
        if one == "*" or (plain is not None and is_key and (named is None or name == plain[2])):
            continue
        if (
            name in ("", *measures)
            or not is_certain
            or not _REST_OF_VALUE.fullmatch(_NTH_OR_FIELD.sub("", value))
        ):
            missing.append(f"select {one}")
        else:
            measures[name] = value
    return [f"{value} AS {name}" for name, value in measures.items()], missing


def _nth(found: re.Match[str]) -> str:
    """Return FIRST or LAST for ``v[2].x``, ``v[last].x``, ``v[last - 1].x``."""
    variable, number, back, column = found.groups()
    if number != "last":
        return found[0] if back else f"FIRST({variable}.{column}{f', {number}' if int(number) else ''})"
    return f"LAST({variable}.{column}{f', {back}' if back else ''})"


def rule_of_eql(text: str) -> str | None:
    """Return the rule that is equivalent to an EQL sequence; ``process.name`` is the column process_name."""
    begin = text.find("sequence")
    head = _EQL_HEAD.match(text, begin) if begin >= 0 else None
    if head is None:
        return None
    at, steps = head.end(), list[_Step]()
    while (step := _EQL_STEP.match(text, at)) is not None and len(steps) < 26:
        end = end_of_bracket(text, text.index("[", at))
        behind = _EQL_BEHIND.match(text, end + 1) if end is not None else None
        if end is None or behind is None:
            return None
        name = chr(ord("a") + len(steps))
        condition = _columns(condition_of(text[step.end() : end]))
        if step[2] != "any":
            condition = f"event_category = '{step[2]}'" + (
                "" if condition.lower() == "true" else f" AND {condition}"
            )
        runs = f"->{{{behind[1]}}}" if behind[1] else ""
        steps.append(_Step(name, "events", condition, f"{step[1]}{name}{runs}"))
        at = behind.end()
    if len(steps) < 2 or text[at:].strip():
        return None
    key = ", ".join(_columns(one) for one in split_outside(head[1] or "", ","))
    length = whole_duration(head[2] or "")
    if head[2] and not length:
        return None
    return _rule(steps, length, is_each=False, keys={"events": key} if key else None)


def _columns(text: str) -> str:
    """Return `text` with underscores for the dots of fields, and ``:`` as a comparison."""
    text = outside_quotes(
        text, lambda piece: _DOTTED.sub(lambda name: name[0].replace(".", "_").replace("@", ""), piece)
    )
    text = _WILDCARDS.sub(lambda test: test[1] + test[2].translate(_OF_LIKE), text)
    return _LIKE.sub(lambda test: f"LOWER({test[1]}) = '{test[2].lower()}'", text)
