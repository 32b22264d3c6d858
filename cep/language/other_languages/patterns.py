"""Patterns of Esper, Siddhi and EQL -> a rule: steps one after another, each with its condition."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cep.language.other_languages.texts import (
    condition_of,
    end_of_bracket,
    first_duration,
    one_line,
    split_outside,
)

_ESPER = re.compile(r"\bpattern\s{0,99}\[", re.IGNORECASE)
_SIDDHI = re.compile(r"\bfrom\s+(every\b)?", re.IGNORECASE)
_AFTER_SIDDHI = re.compile(r"\b(?:select|insert\s+into|return)\b", re.IGNORECASE)
_WITHIN = re.compile(r"\bwithin\s+(\d[\w .]{0,20})$", re.IGNORECASE)
_TIMER = re.compile(r"\s+where\s+timer:within\(([^()]{1,40})\)\s*$", re.IGNORECASE)
_INTERVAL = re.compile(r"^timer:interval\(([^()]{1,40})\)$", re.IGNORECASE)
_STEP = re.compile(r"(?:(\w{1,60})\s*=\s*)?([A-Za-z_]\w{0,60})\s*")
_COUNT = re.compile(r"<(\d{0,9})(:?)(\d{0,9})>\s*$")
_SAME = re.compile(r"\b(\w{1,60})\s*==?\s*\w{1,60}\.(\w{1,60})\b")
_EQL_HEAD = re.compile(
    r"sequence\b(?:\s+by\s+([\w.,@ ]{1,200}?))?(?:\s+with\s+maxspan\s*=\s*(\w{1,20}))?\s*(?=!?\[)"
)
_EQL_STEP = re.compile(r"\s*(!?)\[\s*(\w{1,60})\s+where\s+")
_EQL_BEHIND = re.compile(r"\s*(?:with\s+runs\s*=\s*(\d{1,6}))?\s*")
_DOTTED = re.compile(r"\b([A-Za-z_@]\w{0,60})((?:\.\w{1,60})+)")

_LIKE = re.compile(r"\b(\w{1,100})\s{0,9}:\s{0,9}'([^'*?]{0,100})'")


@dataclass(frozen=True, slots=True)
class _Step:
    """A step: its variable, its stream, its condition, and its text in the pattern."""

    name: str
    stream: str
    condition: str
    written: str


def rule_of_esper(text: str) -> str | None:
    """Return the rule that is equivalent to the pattern of an EPL statement."""
    begin = _ESPER.search(text)
    end = end_of_bracket(text, begin.end() - 1) if begin is not None else None
    if begin is None or end is None:
        return None
    pattern = one_line(text[begin.end() : end])
    is_each = pattern.lower().startswith("every ") and not pattern.lower().startswith("every (")
    pattern = re.sub(r"^every\b\s*", "", pattern, flags=re.IGNORECASE)
    within = ""
    if (timer := _TIMER.search(pattern)) is not None:
        within, pattern = first_duration(timer[1]), pattern[: timer.start()]
    pieces = split_outside(_unwrapped(pattern), "->")
    if (timer := _TIMER.search(_unwrapped(pieces[-1]))) is not None and len(pieces) == 2:
        within, pieces[-1] = first_duration(timer[1]), _unwrapped(pieces[-1])[: timer.start()]
    steps = _steps(pieces)
    return None if steps is None else _rule(steps, f"< {within}" if within else "", is_each=is_each)


def rule_of_siddhi(text: str) -> str | None:
    """Return the rule that is equivalent to the first pattern of a Siddhi app."""
    begin = next((one for one in _SIDDHI.finditer(text) if "->" in text[one.end() : one.end() + 2000]), None)
    if begin is None:
        return None
    behind = text[begin.end() :]
    end = _AFTER_SIDDHI.search(behind)
    pattern = one_line(behind[: end.start()] if end is not None else behind)
    within = _WITHIN.search(pattern)
    if within is not None:
        pattern = pattern[: within.start()].strip()
    is_each = begin[1] is not None and not pattern.startswith("(")
    steps = _steps(split_outside(_unwrapped(pattern), "->"))
    key = re.search(r"\bpartition\s+with\s*\(\s*(\w+)\s+of\b", text, re.IGNORECASE)
    if steps is None:
        return None
    length = first_duration(within[1]) if within is not None else ""
    return _rule(steps, length, is_each=is_each, key=key[1] if key is not None else "")


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
            length = first_duration(interval[1])
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
    return _Step(name, head[2], condition_of(rest[1:-1]), f"{name}{bounds}")


def _rule(steps: Sequence[_Step], within: str, *, is_each: bool, key: str = "") -> str:
    """Return the rule of steps that follow each other; an equal column of two steps is the key."""
    streams = list(dict.fromkeys(step.stream for step in steps))
    if not key:
        same = (found for step in steps for found in _SAME.finditer(step.condition))
        key = next((found[1] for found in same if found[1] == found[2]), "key")
    several = len(streams) > 1
    definitions = []
    for step in steps:
        condition = re.sub(rf"\b{key}\s*==?\s*\w+\.{key}\b(\s+AND\s+)?", "", step.condition).strip()
        condition = re.sub(r"\s+AND\s*$", "", condition) or "TRUE"
        definitions.append(f"{step.name}{f' ON {step.stream}' if several else ''} AS {condition}")
    keys = " = ".join(f"{stream}.{key}" for stream in streams) if several else key
    lines = [
        "RULE name",
        f"FROM {', '.join(streams)}",
        f"PARTITION BY {keys}",
        f"PATTERN {' -> '.join(step.written for step in steps)}",
        f"WITHIN {within}" if within else "",
        "DEFINE\n  " + ",\n  ".join(definitions),
        "AFTER MATCH NO SKIP" if is_each else "",
    ]
    return "\n".join(line for line in lines if line)


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
    key = ", ".join(_columns(one) for one in split_outside(head[1] or "key", ","))
    return _rule(steps, first_duration(head[2] or ""), is_each=False, key=key)


def _columns(text: str) -> str:
    """Return `text` with underscores for the dots of fields, and ``:`` as a comparison."""
    pieces = text.split("'")  # every second one is a text
    pieces[::2] = [
        _DOTTED.sub(lambda name: name[0].replace(".", "_").replace("@", ""), one) for one in pieces[::2]
    ]
    return _LIKE.sub(lambda test: f"LOWER({test[1]}) = '{test[2].lower()}'", "'".join(pieces))
