"""Files that are given as a pipeline but are something else."""

from __future__ import annotations

import re

from cep.errors import Diagnostic, RuleError, Source
from cep.language.front_ends import SUFFIXES, is_rule_text

_STREAMS = re.compile(r"^(?:streams|tables):[ \t]*(?:#.*)?\n[ \t]+\w+:", re.MULTILINE)
"""How a streams file declares streams; in a pipeline `streams` is a path."""

_OF_PIPELINES = re.compile(r"^(?:rules|sources?|sinks|checkpoint)[ \t]*:", re.MULTILINE)


def require_pipeline(source: Source) -> None:
    """Raise RuleError for a file that is a rule file or a streams file."""
    is_streams_file = bool(_STREAMS.search(source.text)) and not _OF_PIPELINES.search(source.text)
    is_rule_file = source.name.endswith(SUFFIXES) or is_rule_text(source.text)
    if not is_rule_file and not is_streams_file:
        return
    what, instead = (
        ("a rule file", f"run a rule over a file: cep match {source.name} --input events.jsonl")
        if is_rule_file
        else ("a streams file", "the file that names it in `streams` is the pipeline")
    )
    problem = Diagnostic(
        "E0831",
        f"`{source.name}` is {what}, not a pipeline",
        help=f"{instead}; a pipeline is a YAML file with `rules`, `source` and `sinks` "
        "(docs/reference/pipeline.md)",
    )
    raise RuleError([problem])
