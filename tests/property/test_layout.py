"""`cep fmt` keeps rules and comments, and changes nothing the second time."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from cep.errors import Source
from cep.language.grammar import Lexeme, Token, tokens
from cep.language.layout import laid_out
from cep.language.parser import parse
from cep.language.printer import print_rules
from tests.property.rule_text import rule_text
from tests.property.strategies.cases import cases
from tests.property.test_language import GATE, rule_trees, view_trees

_BETWEEN = st.sampled_from([None, None, None, None, " ", "\n", "\n\n", "comment", "line", "lines"])


def _source(text: str) -> Source:
    return Source("drawn.cep", text)


@st.composite
def _written(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> str:
    """Draw a text whose tokens have other space and comments between them."""
    text = draw(texts)
    *pieces, _ = tokens(text)
    ends = [0, *(piece.end for piece in pieces)]
    starts = [*(piece.start for piece in pieces), len(text)]
    written = ""
    for number, (end, start) in enumerate(zip(ends, starts, strict=True)):
        match draw(_BETWEEN):
            case None:
                written += text[end:start]
            case "comment":
                written += f" -- c{number}, 'text\n"
            case "line":
                written += f"\n    --c{number} \t\n"
            case "lines":
                written += f" --c{number}\n\n--\n  -- -> RULE\n\n"
            case space:
                written += space if end < start else ""
        written += text[start : pieces[number].end] if number < len(pieces) else ""
    return written


def _comments(text: str) -> list[Token]:
    return [piece for piece in tokens(text, with_comments=True) if piece.kind is Lexeme.COMMENT]


def _check(text: str) -> None:
    read, problems = parse(_source(text))
    assume(not problems)  # a name that a clause may begin with was moved to the start of a line
    laid = laid_out(_source(text))
    assert parse(_source(laid)) == (read, [])
    assert [comment.text for comment in _comments(laid)] == [one.text.rstrip() for one in _comments(text)]
    assert [piece.text.upper() for piece in tokens(laid)] == [piece.text.upper() for piece in tokens(text)]
    assert laid_out(_source(laid)) == laid
    assert "\n\n\n" not in laid
    assert not any(line != line.rstrip() for line in laid.split("\n") if "--" not in line)


@GATE
@given(_written(st.lists(rule_trees | view_trees, min_size=1, max_size=2).map(print_rules)))
def test_the_layout_of_any_syntax_tree_keeps_it_and_its_comments(text: str) -> None:
    _check(text)


@GATE
@given(_written(cases(max_rules=1).map(lambda case: rule_text(case.rules[0]))))
def test_the_layout_of_any_drawn_rule_keeps_it_and_its_comments(text: str) -> None:
    _check(text)
