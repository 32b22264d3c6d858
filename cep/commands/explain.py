"""`cep explain` shows what a rule compiles to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from cep.commands.group import show, tell
from cep.commands.options import only_option, set_option, streams_option


@click.command()
@click.argument("rules", nargs=-1, required=True, type=click.Path(path_type=Path))
@streams_option
@only_option
@set_option
@click.option(
    "--stage",
    type=click.Choice(["ast", "ir", "nfa", "program", "all"]),
    help="Show a stage of compilation instead: syntax tree, typed rule, automaton, tables of the engine.",
)
@click.option(
    "--format",
    "picture",
    type=click.Choice(["text", "dot", "mermaid"]),
    default="text",
    help="dot, mermaid: a picture of the automata, for Graphviz or Mermaid.",
)
def explain(
    rules: Sequence[Path],
    streams: Path | None,
    only: Sequence[str],
    parameters: Mapping[str, str],
    stage: str | None,
    picture: str,
) -> None:
    """Show what RULES compile to: predicates, automaton, bounds, what a run remembers."""
    from cep.rulebook import compile_rulebook, load_rulebook

    compiled = compile_rulebook(load_rulebook(rules, streams), only, parameters)
    show(compiled.warnings)
    if picture != "text":
        if stage is not None:
            raise click.UsageError(f"--format {picture} draws the automaton: leave out --stage")
        from cep.explain import picture as draw

        click.echo((draw.dot if picture == "dot" else draw.mermaid)(compiled.rules), nl=False)
        return
    if stage is None:
        from cep.explain.explain import explain as explain_rule

        shown = [explain_rule(rule) for rule in compiled.rules]
    else:
        from cep.explain.stages import show_stages

        shown = show_stages(compiled, stage)
    tell("\n".join(shown).removesuffix("\n"))
