r"""The regular expressions that RLIKE accepts: those with one meaning in every common dialect.

Arrow's RE2 searches with the pattern as it is written, in time that grows with the text but never with the
number of ways to match it. It is the only engine that does so (docs/design/decisions, 5), so a part of its
syntax is accepted here:

=====================================  ============================================================
``abc`` ``\.`` ``\t \n \r \f`` ``\x41``  a character
``.``                                  any character except a line feed; with ``(?s)`` any
``[a-z_]`` ``[^a-z]``                  one of these characters; none of these
``\d \w \s`` ``\D \W \S``              ``[0-9]``, ``[0-9A-Za-z_]``, ``[ \t\n\r\f]``; none of these
``^`` ``\A``, ``$`` ``\z``, ``\b``     start and end of the text, edge of a word of ``\w``
``xy`` ``x|y`` ``(x)`` ``(?:x)``       one after another, either, a group
``x* x+ x? x{n} x{n,} x{n,m}``         repetition; ``?`` after it changes nothing
``(?i)`` ``(?s)`` ``(?i:x)``           first of all, or of a group: upper and lower case are one; see ``.``
=====================================  ============================================================
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

MAX_LENGTH = 1000
"""Characters of a pattern."""

MAX_STEPS = 1000
"""Characters and ranges of a pattern once its counted repetitions are written out; RE2's own limit for the
product of nested counts is the same. With it the time to search a text has a bound."""

MAX_GROUPS = 50
"""Groups inside each other."""

BROKEN, MISSING, TOO_LARGE = "E0241", "E0242", "E0941"

_QUANTIFIER = re.compile(r"[*+?]|\{(\d{1,9})(?:(,)(\d{1,9})?)?\}", re.ASCII)
_FLAGS = re.compile(r"\(\?([is]+)([:)])")
_CHARACTER = re.compile(r"\\(?:[!-/:-@\[-`{-~]|[tnrf]|x[0-9A-Fa-f]{2})")
_CLASS = re.compile(r"\\[dwsDWS]")
_ANCHOR = re.compile(r"[\^$]|\\[Azb]")

_MISSING = (
    (r"\(\?<?[=!]", "look-around", "use two conditions: x RLIKE 'a' AND NOT x RLIKE 'b'"),
    (r"\(\?>", "an atomic group", "write (?:...): the search never goes back over a choice"),
    (r"\(\?P?<", "a named group", "write (...): nothing reads what a group found"),
    (r"\(\?", "this kind of group", "groups are (...), (?:...), (?i:...) and (?s:...)"),
    (r"\\[1-9]|\\k", "a reference to a group", "write out what is to be there again"),
    (r"\\[pPX]", "a class of Unicode", "name the characters: [a-zà-ÿ]"),
    (r"\\B", r"\B", r"write what is beside: \w"),
    (r"\\[ZG]", "this anchor", r"the start of the text is ^, its end $"),
    (r"\\[hHvVRaecux0QEN]", "this escape", r"write the character itself, or \x and two hexadecimal digits"),
)  # fmt: skip
"""Parts of regular expressions that other engines have: their form, their name, what to write instead."""


@dataclass(frozen=True, slots=True)
class PatternProblem:
    """What is wrong with a pattern, between the characters `start` and `stop`."""

    code: str
    title: str
    start: int
    stop: int
    label: str
    help: str


class _RefusedError(Exception):
    def __init__(self, problem: PatternProblem) -> None:
        super().__init__(problem.title)
        self.problem = problem


def problem_of(pattern: str) -> PatternProblem | None:
    """Return why `pattern` cannot be used, or None."""
    if len(pattern) > MAX_LENGTH:
        return PatternProblem(
            TOO_LARGE,
            f"a pattern of {len(pattern):,} characters",
            0,
            len(pattern),
            f"longer than {MAX_LENGTH:,}",
            "split it: x RLIKE 'a' OR x RLIKE 'b'",
        )
    try:
        _Reader(pattern).read()
    except _RefusedError as refused:
        return refused.problem
    return None


class _Reader:
    """Reads a pattern from left to right and counts its steps."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.groups: list[tuple[int, int]] = []  # start, steps before it in the group around
        self.steps = 0  # of the group that is open
        self.last: int | None = None  # steps of what a quantifier would repeat
        self.last_at = 0

    def read(self) -> None:
        if found := _FLAGS.match(self.pattern):
            self.at = found.end() if found[2] == ")" else 0
        while self.at < len(self.pattern):
            self._one()
        if self.groups:
            start, _ = self.groups[-1]
            self._refuse(
                BROKEN, "a group that is not closed", start, start + 1, "no `)` for it", _LITERAL["("]
            )

    def _one(self) -> None:
        sign, start = self.pattern[self.at], self.at
        if found := _QUANTIFIER.match(self.pattern, start):
            self._repeat(found)
        elif found := _ANCHOR.match(self.pattern, start):
            self.at, self.last = found.end(), None
        elif sign == "|":
            self.at, self.last = start + 1, None
        elif sign == "(":
            self._open()
        elif sign == ")":
            self._close()
        elif sign == "[":
            self._set()
        elif sign == "{":
            self._refuse(
                BROKEN,
                "a `{` that begins no count",
                start,
                start + 1,
                "expected {n}, {n,} or {n,m}",
                _LITERAL["{"],
            )
        else:
            self._character()
            self._taken(start, 1)

    def _taken(self, start: int, steps: int) -> None:
        self.steps += steps
        self.last, self.last_at = steps, start
        if self.steps > MAX_STEPS:
            self._too_large(0, self.at)

    def _character(self) -> str:
        """Read one character, written as itself or escaped; "" is a class such as ``\\d``."""
        start = self.at
        sign = self.pattern[start]
        if sign != "\\":
            self.at += 1
            return sign
        if found := _CLASS.match(self.pattern, start):
            self.at = found.end()
            return ""
        found = _CHARACTER.match(self.pattern, start)
        if found is None:
            self._refuse_part(start)
        self.at = found.end()
        return _plain(found[0])

    def _set(self) -> None:
        start = self.at
        self.at += 2 if self.pattern.startswith("[^", start) else 1
        n_items = 0
        while True:
            if self.at >= len(self.pattern):
                self._refuse(
                    BROKEN,
                    "characters in brackets that are not closed",
                    start,
                    start + 1,
                    "no `]` for it",
                    _LITERAL["["],
                )
            sign = self.pattern[self.at]
            if sign == "]" and n_items:
                break
            if sign in "[]" or self.pattern.startswith(("&&", "--"), self.at):
                stop = self.at + (1 if sign in "[]" else 2)
                written = self.pattern[self.at : stop]
                self._refuse(
                    BROKEN,
                    f"`{written}` inside brackets",
                    self.at,
                    stop,
                    "not the same in all regular expressions",
                    f"write \\{written[0]} for the character itself; classes do not nest",
                )
            self._item()
            n_items += 1
        self.at += 1
        self._taken(start, n_items)

    def _item(self) -> None:
        """Read a character, a class or a range in brackets."""
        start = self.at
        low = self._character()
        if self.pattern[self.at : self.at + 1] != "-" or self.pattern[self.at + 1 : self.at + 2] in ("]", ""):
            return
        self.at += 1
        high = "" if self.pattern[self.at] in "[-" else self._character()
        if not low or not high or low > high:
            self._refuse(
                BROKEN,
                "a range that has no characters",
                start,
                self.at,
                "expected two characters, the lower one first",
                "write [a-z]; a `-` that is itself stands last or is \\-",
            )

    def _open(self) -> None:
        start = self.at
        flags = _FLAGS.match(self.pattern, start)
        if self.pattern.startswith("(?", start):
            if flags is not None and flags[2] == ")":
                self._refuse(
                    MISSING,
                    "flags in the middle of a pattern",
                    start,
                    flags.end(),
                    "flags stand first",
                    f"begin the pattern with them, or write (?{flags[1]}:...) around what they are for",
                )
            if flags is None and not self.pattern.startswith("(?:", start):
                self._refuse_part(start)
        if len(self.groups) == MAX_GROUPS:
            self._refuse(
                TOO_LARGE, f"more than {MAX_GROUPS} groups inside each other", start, start + 1, "too deep",
                "take out the groups that are not needed",
            )  # fmt: skip
        self.groups.append((start, self.steps))
        self.at = flags.end() if flags else start + (3 if self.pattern.startswith("(?:", start) else 1)
        self.steps, self.last = 0, None

    def _close(self) -> None:
        if not self.groups:
            self._refuse(BROKEN, "a `)` without a `(`", self.at, self.at + 1, "closes nothing", _LITERAL[")"])
        start, before = self.groups.pop()
        self.at += 1
        inside, self.steps = max(self.steps, 1), before
        self._taken(start, inside)

    def _repeat(self, found: re.Match[str]) -> None:
        start, stop = found.span()
        if self.last is None:
            self._refuse(
                BROKEN, f"`{found[0]}` repeats nothing", start, stop, "expected something before it",
                f"write \\{found[0][0]} for the character itself",
            )  # fmt: skip
        if self.pattern.startswith("?", stop):
            stop += 1
        elif self.pattern.startswith("+", stop):
            self._refuse(
                MISSING, "a possessive quantifier", start, stop + 1, "not known here",
                f"write {found[0]}: the search never goes back over a choice",
            )  # fmt: skip
        if again := _QUANTIFIER.match(self.pattern, stop):
            self._refuse(
                BROKEN, "two quantifiers on one part", again.start(), again.end(), "one is already there",
                "put the first one in a group: (?:a+){2}",
            )  # fmt: skip
        count = 1
        if found[1] is not None:
            least = int(found[1])
            most = int(found[3]) if found[3] else least
            if most < least:
                self._refuse(
                    BROKEN, "a count with its bounds the wrong way round", start, found.end(),
                    f"at least {least} and at most {most}", f"write {{{most},{least}}}",
                )  # fmt: skip
            count = max(most, 1)
        self.at = stop
        repeated, begin = self.last * count, self.last_at
        self.steps += repeated - self.last
        self.last = None
        if self.steps > MAX_STEPS:
            self._too_large(begin, stop)

    def _too_large(self, start: int, stop: int) -> NoReturn:
        self._refuse(
            TOO_LARGE,
            "a pattern that grows too large",
            start,
            stop,
            f"more than {MAX_STEPS:,} characters once it is written out",
            "use smaller counts or fewer characters; LENGTH(x) > n asks for a length",
        )

    def _refuse_part(self, start: int) -> NoReturn:
        """Refuse what starts at `start` and is not known here."""
        for form, name, instead in _MISSING:
            if found := re.compile(form).match(self.pattern, start):
                self._refuse(MISSING, f"{name} in a pattern", *found.span(), "not known here", instead)
        written = self.pattern[start : start + 2]
        self._refuse(
            BROKEN,
            f"`{written}` means nothing",
            start,
            start + len(written),
            "no such escape",
            r"write \\ for a backslash, and letters as they are",
        )

    def _refuse(self, code: str, title: str, start: int, stop: int, label: str, help_text: str) -> NoReturn:
        raise _RefusedError(PatternProblem(code, title, start, stop, label, help_text))


_LITERAL = {sign: f"write \\{sign} for the character itself" for sign in "([{)"}


def _plain(escape: str) -> str:
    """Return the character that an escape stands for."""
    if len(escape) == 4:
        return chr(int(escape[2:], 16))
    return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(escape[1], escape[1])
