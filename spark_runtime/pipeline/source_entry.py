"""A source of a pipeline file: the stream or table that it feeds, and whether rules read it.

Only for the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import yaml

from cep.formats.files import BadFile
from cep.program.match_stream import inputs_of
from cep.rule_set import RuleSet
from cep.settings.yaml_document import Document
from spark_runtime.connectors.files.source_settings import Files
from spark_runtime.event_time.partitions import PER_SOURCE
from spark_runtime.sources.spec import SourceSpec
from spark_runtime.tables.static import StaticFile


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """A source of the file: its `format`, its stream or table, its other settings, where it is written."""

    name: str
    stream: str
    spec: SourceSpec
    node: yaml.Node = field(compare=False, repr=False)
    idle_after_s: float | None = None
    is_table: bool = False

    @property
    def local_files(self) -> tuple[str, str] | None:
        """The path and the format of files on this machine that it reads; None: it reads something else."""
        spec = self.spec
        return (spec.path, spec.file_format) if isinstance(spec, Files) and "://" not in spec.path else None


def check_entries(
    document: Document, rules: RuleSet, sources: Mapping[str, SourceEntry], place: yaml.Node
) -> None:
    """Report missing or needless sources: exactly the streams and tables that rules read need one."""
    word = "the source is" if len(sources) == 1 else "the sources are"
    names = ", ".join(f"`{name}`" for name in sources)

    def needs(rule: str, verb: str, what: str, name: str) -> None:
        document.problem(
            "E0842",
            f"rule `{rule}` {verb} {what} `{name}`, {word} {names}",
            place,
            f"no source for `{name}`",
            f"name the {what}s of the rules in `sources`, and only rules that read these",
        )

    for program in rules.programs:
        for stream in inputs_of(program.streams):
            if stream.name not in sources:
                needs(program.rules[0].name, "reads", "stream", stream.name)
    for name in rules.tables:
        if name not in sources:
            needs(_joins(rules, name), "joins", "table", name)
    for name, entry in sources.items():
        if rules.programs and name not in rules.inputs:
            word = "table" if entry.is_table else "stream"
            document.problem(
                "E0842",
                f"no rule {'joins' if entry.is_table else 'reads'} {word} `{name}`",
                entry.node,
                "a source without a rule",
                f"leave it out, or add rules that read `{name}`",
            )
        elif rules.programs and entry.is_table != (name in rules.tables):
            was, now = ("table", "stream") if entry.is_table else ("stream", "table")
            document.problem(
                "E0842",
                f"`{name}` is a {now}, not a {was}",
                entry.node,
                f"`{was}: {name}`",
                f"write {now}: {name}",
            )
    for name in static_entries(rules, sources):
        for problem in _problems_of_static(sources[name]):
            document.problem(
                "E0843",
                f"table `{name}` is static: {problem}",
                sources[name].node,
                "read as a whole",
                "write table, format (json, csv or parquet) and path only",
            )


def _joins(rules: RuleSet, table: str) -> str:
    """Return a rule that may join a table."""
    return next(
        program.rules[0].name
        for program in rules.programs
        if any(joined.name == table for joined in program.joins.declared)
    )


def static_entries(rules: RuleSet, sources: Mapping[str, SourceEntry]) -> list[str]:
    """Return the static tables among the sources."""
    return [name for name in sources if name in rules.tables and rules.tables[name].is_static]


def static_file(rules: RuleSet, entry: SourceEntry) -> StaticFile:
    """Return the file from which a static table is read."""
    assert isinstance(entry.spec, Files)
    return StaticFile(rules.tables[entry.stream], entry.spec.path, entry.spec.file_format)


def _problems_of_static(entry: SourceEntry) -> Iterator[str]:
    spec = entry.spec
    if not isinstance(spec, Files):
        yield f"a source of format {entry.name} has no end"
        return
    if "://" in spec.path:
        yield "its file must be on a disk of this machine"
    if spec.max_files is not None:
        yield "it has no `max_files_per_trigger`"
    if spec.on_bad_file is not BadFile.FAIL:
        yield "`on_bad_file` cannot be quarantine"
    if spec.watermark_per != PER_SOURCE or entry.idle_after_s is not None:
        yield "it has no watermark"
