"""Rule text -> the same words and comments in the usual layout.

A comment stays after the word that it follows on a line, or on separate lines before the next word. Lines
of conditions and patterns end where the author ended them, or at `WIDTH` if the author did not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from cep.errors import RuleError, Source
from cep.language.brackets import CLOSING
from cep.language.grammar import RESERVED, Lexeme, Token, tokens
from cep.language.parser import Places, parse, parse_with_places
from cep.language.spaces import spaces

WIDTH = 120
"""Length of a line, in characters, after which a condition on one line is divided."""

_HEAD = frozenset(("TITLE", "SEVERITY", "TAGS", "STATUS"))
_LISTS = frozenset(("LET", "DEFINE", "MEASURES", "SELECT"))
_CONDITIONS = frozenset(("WHERE", "HAVING"))
_NEVER_FIRST = (*CLOSING.values(), ",", ".")
_NEVER_LAST = (*CLOSING, ".")
_WIDEST = 60
"""Length, in characters, up to which what precedes AS or = takes part in its column."""


class _Comment(NamedTuple):
    text: str
    is_own_line: bool
    is_after_blank: bool


class _Word(NamedTuple):
    """A token, how it is written, the comments before it, and its place in the layout."""

    token: Token
    text: str
    comments: tuple[_Comment, ...]
    is_first: bool  # of its line in the source
    is_after_blank: bool
    spaces: int = 0
    indent: int = 0  # if it begins a line
    begins_line: bool = False


def laid_out(source: Source) -> str:
    """Return the text of a rule file in the usual layout, with the same rules and the same comments.

    Raises RuleError: the text has a problem.
    """
    rules, problems, places = parse_with_places(source)
    if any(problem.is_error for problem in problems):
        raise RuleError(problems)
    text = _text(source.text, places)
    if parse(Source(source.name, text))[0] != rules or _comments(text) != _comments(source.text):
        raise AssertionError(f"the layout of {source.name} would change its rules")
    return text


def _comments(text: str) -> list[str]:
    return [token.text.rstrip() for token in tokens(text, with_comments=True) if token.kind is Lexeme.COMMENT]


def _text(text: str, places: Places) -> str:
    *words, end = _words(text)
    starts = [at for at, word in enumerate(words) if word.token.start in places.clauses]
    placed = [
        word
        for first, last in zip(starts, [*starts[1:], len(words)], strict=True)
        for word in _clause(_spelled(words[first:last], places.keywords))
    ]
    return _written([*placed, end])


def _words(text: str) -> list[_Word]:
    """Return all tokens, the last of which is END, with their comments; a comma precedes comments."""
    words: list[_Word] = []
    comments: list[_Comment] = []
    end = 0
    for token in tokens(text, with_comments=True):
        start = len(text) if token.kind is Lexeme.END else token.start
        n_lines = text.count("\n", end, start)
        is_first = n_lines > 0 or end == 0
        # A comment ends before its line end, so that the line after it is always a new one.
        end = token.end
        if token.kind is Lexeme.COMMENT:
            comments.append(_Comment(token.text.rstrip(), is_first, n_lines > 1))
            continue
        held = () if token.text == "," else tuple(comments)
        if token.text != ",":
            comments = []
        words.append(_Word(token, token.text, held, is_first or bool(held), n_lines > 1))
    return words


def _clause(words: Sequence[_Word]) -> Iterator[_Word]:
    """Place the words of a clause."""
    first = words[0].token.word
    gaps = spaces([word.token for word in words], is_pattern=first == "PATTERN")
    words = [
        word._replace(spaces=gap, is_first=word.is_first and _may_begin_line(words, at))
        for at, (word, gap) in enumerate(zip(words, gaps, strict=True))
    ]
    indent = 2 if first in _HEAD else 0
    head = words[0]._replace(indent=indent, begins_line=True)
    if first in _LISTS:
        yield from (head, *_list(words[1:], first))
        return
    yield head
    hang = indent + len(first) + 1
    if first in _CONDITIONS:
        yield from _flow(words[1:], hang, hang, 4)
    elif first == "PATTERN":
        yield from _flow(words[1:], hang, hang, 1)
    else:
        for before, word in pairwise(words):
            yield word._replace(indent=hang, begins_line=word.is_first and before.text == ",")


def _may_begin_line(words: Sequence[_Word], at: int) -> bool:
    """Return whether a line break of the author before a word stays: always after a comment."""
    if words[at].comments:
        return True
    return words[at].text not in _NEVER_FIRST and words[at - 1].text not in _NEVER_LAST


def _spelled(words: Sequence[_Word], keywords: frozenset[int]) -> list[_Word]:
    """Write the first word of the clause and keywords in capitals."""
    return [
        word._replace(text=word.token.word)
        if at == 0 or (word.token.word and word.token.start in keywords) or _is_reserved(words, at)
        else word
        for at, word in enumerate(words)
    ]


def _is_reserved(words: Sequence[_Word], at: int) -> bool:
    return words[at].token.word in RESERVED and words[at - 1].text != "."


def _list(words: Sequence[_Word], clause: str) -> Iterator[_Word]:
    """Place the items of a clause below it; the only item stays beside it if it is written there."""
    items = _items(words)
    if len(items) == 1 and not any(word.is_first for word in items[0]):
        width = len(clause) + 1 + sum(word.spaces + len(word.text) for word in items[0])
        if width <= WIDTH:
            yield from items[0]
            return
    heads = [_head(item, clause) for item in items]
    names = _padding([_name_width(item, head) for item, head in zip(items, heads, strict=True)])
    items = [
        [word._replace(spaces=1 + pad) if pad and at == 1 else word for at, word in enumerate(item)]
        for item, pad in zip(items, names, strict=True)
    ]
    widths = [
        _width(item[:head]) if head and _is_aligned(item, head, clause) else 0
        for item, head in zip(items, heads, strict=True)
    ]
    for item, head, pad in zip(items, heads, _padding(widths), strict=True):
        first = item[0]._replace(begins_line=True, indent=2)
        joined = [word._replace(indent=6) for word in item[1 : head + 1]]
        if clause in ("MEASURES", "SELECT"):
            tail = head or len(item)
            before = list(_flow(item[1:tail], 2 + len(first.text), 2, 4))
            behind = [word._replace(indent=6) for word in item[tail:]]
            behind[:1] = [word._replace(spaces=1 + pad) for word in behind[:1]]
            yield from (first, *before, *behind)
            continue
        joined[-1:] = [word._replace(spaces=word.spaces + pad) for word in joined[-1:] if head]
        hang = 2 + _width([first, *joined]) + 1
        rest = item[1 + len(joined) :]
        rest[:1] = [word._replace(is_first=bool(word.comments)) for word in rest[:1]]
        yield from (first, *joined, *_flow(rest, hang - 1, hang, 4))


def _items(words: Sequence[_Word]) -> list[list[_Word]]:
    """Divide the words of a clause after the commas that are in no parentheses."""
    items: list[list[_Word]] = [[]]
    depth = 0
    for word in words:
        depth += (word.text in CLOSING) - (word.text in CLOSING.values())
        items[-1].append(word)
        if word.text == "," and depth == 0:
            items.append([])
    return items


def _head(item: Sequence[_Word], clause: str) -> int:
    """Return the place of AS or = of an item, 0 if it has none."""
    sign = "=" if clause == "LET" else "AS"
    found = 0
    depth = 0
    for at, word in enumerate(item):
        depth += (word.text in CLOSING) - (word.text in CLOSING.values())
        if depth == 0 and sign in (word.token.word, word.text) and item[at - 1].text != ".":
            if clause in ("LET", "DEFINE"):
                return at
            found = at
    return found


def _name_width(item: Sequence[_Word], head: int) -> int:
    """Return the width of a name that ON or BY follows, 0 for others."""
    if len(item) < 2 or item[1].token.word not in ("ON", "BY") or item[1].comments or head == 1:
        return 0
    return len(item[0].text)


def _is_aligned(item: Sequence[_Word], head: int, clause: str) -> bool:
    """Return whether AS or = of an item is in the common column."""
    is_whole = not any(word.comments for word in item[1 : head + 1])
    if clause in ("MEASURES", "SELECT"):
        is_whole = is_whole and not any(word.is_first for word in item[2:head])
    return is_whole and _width(item[:head]) <= _WIDEST


def _width(words: Sequence[_Word]) -> int:
    return len(words[0].text) + sum(word.spaces + len(word.text) for word in words[1:])


def _padding(widths: Sequence[int]) -> list[int]:
    """Return the spaces that fill each width up to the greatest one; none for a width of 0."""
    widest = max(widths, default=0)
    return [widest - width if width else 0 for width in widths]


def _flow(words: Sequence[_Word], column: int, hang: int, step: int) -> Iterator[_Word]:
    """Place words after `column`; lines after the first begin at `hang`, or `step` more in parentheses."""
    junctions = _junctions(words)
    is_divided = any(word.is_first for word in words[1:])
    depth = 0
    for at, word in enumerate(words):
        before = words[at - 1].text if at else ""
        deeper = depth if step == 1 or junctions[at] is not None or before in (*CLOSING, ",") else depth + 1
        begins = word.is_first
        depth += (word.text in CLOSING) - (word.text in CLOSING.values())
        if not is_divided and junctions[at] == 0:
            ends = [place for place in range(at + 1, len(words)) if junctions[place] == 0] or [len(words)]
            begins = column + sum(one.spaces + len(one.text) for one in words[at : ends[0]]) > WIDTH
        column = hang + len(word.text) if begins else column + word.spaces + len(word.text)
        yield word._replace(begins_line=begins and at > 0, indent=hang + step * deeper)


def _junctions(words: Sequence[_Word]) -> list[int | None]:
    """Return the depth of parentheses of each AND and OR between conditions, None for other words."""
    found: list[int | None] = []
    depth = 0
    ranges: list[int] = []  # depths of each BETWEEN whose AND is to come
    for word in words:
        depth += (word.text in CLOSING) - (word.text in CLOSING.values())
        if word.token.word == "BETWEEN":
            ranges.append(depth)
        is_junction = word.token.word in ("AND", "OR")
        if is_junction and word.token.word == "AND" and ranges and ranges[-1] == depth:
            ranges.pop()
            is_junction = False
        found.append(depth if is_junction else None)
    return found


def _written(words: Sequence[_Word]) -> str:
    """Return the text of placed words, the last of which is END."""
    lines: list[str] = []
    is_closed = True  # a comment ends the last line
    for word in words:
        is_rule = word.begins_line and word.token.word in ("RULE", "VIEW") and word.indent == 0
        is_outside = is_rule or word.token.kind is Lexeme.END
        blanks = [comment.is_after_blank for comment in word.comments] + [word.is_after_blank]
        own = [at for at, comment in enumerate(word.comments) if comment.is_own_line or is_closed or at]
        n_before = len(lines)
        for at, comment in enumerate(word.comments):
            if at not in own:
                lines[-1] += f"  {comment.text}"
            else:
                is_apart = blanks[at] or (is_rule and not any(blanks) and at == own[0])
                if is_outside and is_apart and lines:
                    lines.append("")
                lines.append(" " * word.indent + comment.text)
            is_closed = True
        if word.token.kind is Lexeme.END:
            break
        if is_rule and lines and (word.is_after_blank or (len(lines) == n_before and not any(blanks))):
            lines.append("")
        if word.begins_line or is_closed:
            lines.append(" " * word.indent + word.text)
        else:
            lines[-1] += " " * word.spaces + word.text
        is_closed = False
    return "\n".join(lines) + "\n"
