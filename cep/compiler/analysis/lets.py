"""LET: values that each event of a stream has, by name."""

from __future__ import annotations

from dataclasses import replace

from cep.compiler.analysis.conditions import is_of_bounded_size
from cep.compiler.analysis.names import Names
from cep.compiler.typing.expression_size import written_out
from cep.compiler.typing.inference import Inference
from cep.diagnostics.diagnostic import did_you_mean
from cep.diagnostics.report import Reporter
from cep.expression import Expression
from cep.language import ast
from cep.schema.stream import Stream


def with_lets(names: Names, report: Reporter) -> Names:
    """Return `names` with the values of LET, typed; each may read the ones before it."""
    found: dict[tuple[str, str], Expression | None] = {}  # None: its problems were reported
    sizes: dict[str, int] = {}
    for let in names.rule.lets:
        stream = _stream_of(let, names, report)
        if stream is None or not _is_free(let, stream, names, report):
            continue
        if (stream.name, let.name.text) in found:
            report(
                "E0219",
                f"there are two values `{let.name.text}`",
                let.name.span,
                "defined before",
                "give one of them another name",
            )
            continue
        if not is_of_bounded_size(let.expression, replace(names, let_sizes=sizes), report):
            found = {**found, (stream.name, let.name.text): None}
            continue
        scope = replace(names, lets=found).event_scope(stream)
        value = Inference(scope, report.add).value(let.expression)
        found = {**found, (stream.name, let.name.text): value}
        if value is not None:
            size = written_out(let.expression, sizes)
            sizes = {**sizes, let.name.text: max(size, sizes.get(let.name.text, 0))}
    return replace(names, lets=found, let_sizes=sizes)


def _stream_of(let: ast.Let, names: Names, report: Reporter) -> Stream | None:
    streams = {stream.name: stream for stream in names.partitioning.streams}
    if let.stream is None:
        if len(names.rule.streams) == 1:
            return next(iter(streams.values()), None)
        report(
            "E0232",
            f"`{let.name.text}` is a value of the events of which stream?",
            let.name.span,
            "the rule reads several streams",
            f"write {let.name.text} ON stream = ...",
        )
        return None
    if let.stream.text not in streams:
        report(
            "E0231",
            f"`{let.stream.text}` is not in FROM",
            let.stream.span,
            "not a stream of this rule",
            did_you_mean(let.stream.text, tuple(streams), "streams"),
        )
        return None
    return streams[let.stream.text]


def _is_free(let: ast.Let, stream: Stream, names: Names, report: Reporter) -> bool:
    """Return whether the name of `let` is free: no column, variable or subset. Report it if not."""
    name = let.name.text
    what = ""
    if stream.field(name) is not None:
        what = f"a column of `{stream.name}`"
    elif name in names.variables or name in names.subsets:
        what = "a variable of the pattern" if name in names.variables else "a subset"
    if not what:
        return True
    report(
        "E0219",
        f"the name `{name}` is taken",
        let.name.span,
        f"already {what}",
        "give the value another name",
    )
    return False
