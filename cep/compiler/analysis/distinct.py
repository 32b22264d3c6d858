"""DISTINCT BY: the values by which the events of a loop differ, and where it has no effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from cep.compiler.analysis.names import Names
from cep.compiler.pattern_shape import summary
from cep.compiler.typing.inference import Inference
from cep.diagnostics.report import Reporter
from cep.errors import Span
from cep.expression import Call, Expression
from cep.language import ast
from cep.program.window_functions import ANY_VALUE


def type_distincts(names: Names, report: Reporter) -> dict[ast.Repetition, Expression]:
    """Return the value of DISTINCT BY of each loop that has one."""
    pattern = names.rule.pattern
    n_steps = Counter(node.variable.text for node in ast.walk(pattern) if isinstance(node, ast.Step))
    inner = set(_inside_loops(pattern, inside=False))
    found: dict[ast.Repetition, Expression] = {}
    for loop in ast.walk(pattern):
        if not isinstance(loop, ast.Repetition) or loop.distinct is None:
            continue
        own = Counter(node.variable.text for node in ast.walk(loop.body) if isinstance(node, ast.Step))
        shared = next((name for name in own if own[name] < n_steps[name]), None)
        place = loop.distinct.span
        if loop.most is not None and loop.most <= 1:
            _refuse(report, place, "this quantifier allows one repetition only", "write a->{5} DISTINCT BY x")
        elif id(loop) in inner:
            label = "the loop is inside another loop"
            _refuse(report, place, label, "write the outer loop out, with other names for each repetition")
        elif shared is not None:
            label = f"`{shared}` is a step outside of the loop, too"
            _refuse(report, place, label, "give the step outside a name and a condition of its own")
        else:
            value = _value(loop, names, report)
            if value is not None:
                found[loop] = value
    return found


def _refuse(report: Reporter, place: Span, label: str, instead: str) -> None:
    report("E0319", "DISTINCT BY cannot be here", place, label, instead)


def _inside_loops(pattern: ast.Pattern, *, inside: bool) -> Iterator[int]:
    """Yield the identities of the loops inside another loop."""
    is_loop = isinstance(pattern, ast.Repetition)
    if is_loop and inside:
        yield id(pattern)
    repeats = isinstance(pattern, ast.Repetition) and (pattern.most is None or pattern.most > 1)
    for child in ast.children(pattern):
        yield from _inside_loops(child, inside=inside or repeats)


def _value(loop: ast.Repetition, names: Names, report: Reporter) -> Expression | None:
    """Return the value of an event of `loop`; with several streams that of its own stream."""
    assert loop.distinct is not None
    column = ast.Column(None, loop.distinct, loop.distinct.span)
    stream_of = names.partitioning.stream_of
    steps = [name for name in summary(loop.body).taken if name in stream_of]
    if len(steps) < len(summary(loop.body).taken):
        label = "some of its events may be of any stream"
        _refuse(report, loop.distinct.span, label, "say in DEFINE of which stream each step is: a ON logins")
        return None
    streams = {stream_of[name].name: stream_of[name] for name in steps}
    values = []
    for stream in streams.values():
        inference = Inference(replace(names, joins={}, tables=()).event_scope(stream), report.add)
        value = inference.infer(column)
        if value is None or inference.of_types("DISTINCT BY", [value], [column.span], ANY_VALUE) is None:
            return None
        values.append(value)
    checker = Inference(names.scope(steps[0]), report.add)
    same = checker.unify(values, [column.span] * len(values))
    if same is None:
        return None
    return same[0] if len(same) == 1 else Call("coalesce", tuple(same), same[0].type)
