"""Renaming a name of a rule, in its text, in rules that read its matches, and in the test file beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cep.editor.names import (
    RENAMED,
    NameKind,
    Place,
    Symbol,
    declaration,
    in_tests,
    places,
    renamed,
    symbol_at,
)
from cep.editor.project import Texts, problems, surroundings, test_file
from cep.errors import Source, Span
from cep.language.front_ends import read_rules


class RenameError(ValueError):
    """A name cannot be renamed, or cannot get this new name; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Edit:
    """What replaces a part of a text."""

    source: Source
    span: Span
    text: str


def rename(path: Path, offset: int, new: str | None, opened: Texts) -> tuple[Place | Edit, ...]:
    """Return what to replace so that the name at an offset of a rule file becomes `new`.

    Without `new`, the result is only the place of the name, if it can be renamed. The result is checked: the
    rule file has the same errors as before. Raises RenameError otherwise.
    """
    found = places(surroundings(path, opened).sources)
    here = symbol_at(found, str(path), offset)
    if here is None:
        raise RenameError("no name of a rule is here; a rule with a syntax error has to be corrected first")
    symbol = here.symbol
    if symbol.kind not in RENAMED:
        known = ", ".join(kind + "s" for kind in RENAMED if kind is not NameKind.LET)
        raise RenameError(
            f"`{symbol.text}` is a {symbol.kind}, which other files name, too: change it there; "
            f"{known} and values of LET can be renamed here"
        )
    if new is None:
        return (here,)
    if not new.strip() or "\n" in new or "`" in new:
        raise RenameError(f"`{new}` is no name: write letters, digits and _")
    new = new.strip()
    taken = {
        each.symbol.kind for each in found if _is_beside(each.symbol, symbol) and each.symbol.text == new
    }
    if taken and new != symbol.text:
        raise RenameError(f"`{new}` is already a {min(taken)} of `{symbol.scope}`: write another name")
    edits = [Edit(*one) for one in renamed(found, symbol, new)]
    declared = declaration(found, symbol, None)
    edits += [] if declared is None else _of_tests(Path(declared.source.name), symbol, new, opened)
    after = dict(opened)
    for source in {edit.source.name: edit.source for edit in edits}.values():
        after[Path(source.name)] = applied(source, edits)
    old_errors, new_errors = (_errors(path, texts) for texts in (opened, after))
    if new_errors - old_errors:
        raise RenameError(f"`{new}` would be an error: {min(new_errors - old_errors)}")
    return tuple(edits)


def applied(source: Source, edits: list[Edit]) -> str:
    """Return the text of a source after the edits that belong to it."""
    text = source.text
    of_text = [edit for edit in edits if edit.source.name == source.name]
    for edit in sorted(of_text, key=lambda edit: edit.span.start, reverse=True):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return text


def _is_beside(other: Symbol, symbol: Symbol) -> bool:
    """Return whether two names must differ: those of measures among each other, and all others of a rule."""
    is_measure = symbol.kind is NameKind.MEASURE
    return other.scope == symbol.scope and (other.kind is NameKind.MEASURE) == is_measure


def _of_tests(path: Path, symbol: Symbol, new: str, opened: Texts) -> Iterator[Edit]:
    tests = test_file(path, opened)
    rules = read_rules(Source(str(path), opened.get(path) or path.read_text(encoding="utf-8")))[0]
    own = [
        rule
        for rule in rules
        if symbol.text
        in {one.name.text for one in (rule.measures if symbol.kind is NameKind.MEASURE else rule.parameters)}
    ]
    if tests is not None:
        for span in in_tests(tests, symbol, is_only=len(own) == 1):
            yield Edit(tests, span, new)


def _errors(path: Path, opened: Texts) -> set[str]:
    found = problems(path, opened)[path]
    return {f"{problem.title} [{problem.code}]" for problem in found if problem.is_error}
