"""Warnings about variables without a definition, each of which may be any event.

SQL:2016 has such variables, too. To mean any event, write ``v AS TRUE``.
"""

from __future__ import annotations

from collections.abc import Iterator

from cep.compiler.pattern_shape import variable_places
from cep.diagnostics.diagnostic import suggestion
from cep.diagnostics.report import Reporter
from cep.errors import Span
from cep.language import ast
from cep.language.expressions import parts_of
from cep.language.foreign import foreign_name

_MIN_MISSPELLED = 3
"""A name with at least this many letters may be another name, misspelled."""

_MAX_COMPARED = 10
"""The maximum number of variables without a definition whose names are compared with the others."""


def warn_of_undefined(rule: ast.Rule, report: Reporter) -> None:
    """Report the variables of `rule` that have no definition and that nothing else names."""
    defined = {definition.variable.text for definition in rule.definitions}
    mentioned = defined | set(_mentioned(rule))
    places = {name: span for name, span in variable_places(rule.pattern).items() if name not in mentioned}
    foreign = _foreign_names(rule.pattern, places)
    if places and not foreign and not rule.definitions:
        report(
            "W0511",
            "no variable of this pattern is defined",
            rule.pattern.span,
            "each may be any event",
            f"write a condition for each; if any event is meant, DEFINE {next(iter(places))} AS TRUE",
        )
        return
    for name, span in places.items():
        if name in foreign:
            place, instead = foreign[name]
            if instead:
                report(
                    "W0512",
                    f"`{rule.source.text[place.start : place.end]}` is a word of another language",
                    place,
                    "a variable here, which may be any event",
                    f"{instead}; if any event is meant, DEFINE {name} AS TRUE",
                )
            continue
        is_long = len(name) >= _MIN_MISSPELLED and len(places) <= _MAX_COMPARED
        near = suggestion(name, sorted(defined)) if is_long else None
        meant = f"did you mean `{near}`? " if near else ""
        report(
            "W0511",
            f"`{name}` may be any event",
            span,
            "nothing defines it, and nothing reads it",
            f"{meant}if any event is meant, write DEFINE {name} AS TRUE",
        )


def _mentioned(rule: ast.Rule) -> Iterator[str]:
    """Yield the variables that conditions, measures, subsets and the skip clause name."""
    if rule.skip is not None and rule.skip.variable is not None:
        yield rule.skip.variable.text
    for subset in rule.subsets:
        yield from (member.text for member in subset.members)
    level: list[ast.Expression] = [measure.expression for measure in rule.measures]
    level += [one.condition for one in rule.definitions if one.condition is not None]
    for node in ast.walk(rule.pattern):
        if isinstance(node, ast.Repetition) and node.until is not None:
            level.append(node.until)
    while level:
        for expression in level:
            if isinstance(expression, ast.Column | ast.Events) and expression.variable is not None:
                yield expression.variable.text
        level = [part for expression in level for part in parts_of(expression)]


def _foreign_names(pattern: ast.Pattern, places: dict[str, Span]) -> dict[str, tuple[Span, str]]:
    """Return those of `places` that are words of other languages: where, and what to write.

    What to write is empty for the second word of *followed by*.
    """
    found: dict[str, tuple[Span, str]] = {}
    for node in ast.walk(pattern):
        items = node.items if isinstance(node, ast.Sequence) else ()
        names = [_name_of(item.pattern) for item in items] or [_name_of(node)]
        for number, name in enumerate(names):
            if name not in places or name in found:
                continue
            before = names[number - 1] if number else ""
            after, second = (*names[number + 1 : number + 3], "", "")[:2]
            place = places[name]
            if name.casefold() == "followed" and after.casefold() == "by" and after in places:
                found[after] = (places[after], "")
                place = Span(place.start, places[after].end)
                after = second
            instead = foreign_name(name, before or "a", after or "b")
            if instead is not None:
                found[name] = (place, instead)
    return found


def _name_of(pattern: ast.Pattern) -> str:
    """Return the variable that `pattern` is, or repeats; empty if it is more than one."""
    step = pattern.body if isinstance(pattern, ast.Repetition) else pattern
    return step.variable.text if isinstance(step, ast.Step) else ""
