"""Parameters whose names mean something else in their rule, and those that nothing reads."""

from __future__ import annotations

from collections.abc import Sequence

from cep.compiler.pattern_shape import variable_names
from cep.diagnostics.report import Reporter
from cep.language import ast
from cep.language.parameters import parameters_read
from cep.schema.stream import Stream


def check_parameters(rule: ast.Rule, streams: Sequence[Stream], report: Reporter) -> None:
    """Report each parameter of a rule, as it is written, whose name is taken or that nothing reads."""
    if not rule.parameters:
        return
    read = parameters_read(rule)
    taken = {column.name: f"a column of `{stream.name}`" for stream in streams for column in stream.fields}
    taken |= dict.fromkeys(variable_names(rule.pattern), "a variable of the pattern")
    taken |= {subset.name.text: "a subset" for subset in rule.subsets}
    taken |= {let.name.text: "a name in LET" for let in rule.lets}
    taken |= {join.table.text: "a table" for join in rule.joins}
    for parameter in rule.parameters:
        name = parameter.name.text
        if name in taken:
            title = f"the name of parameter `{name}` is taken"
            report("E0248", title, parameter.name.span, taken[name], "give the parameter another name")
        elif name not in read:
            title = f"nothing reads parameter `{name}`"
            advice = "remove it, or name it in a condition or a measure"
            report("W0520", title, parameter.name.span, "read nowhere", advice)
        taken[name] = "another parameter"
