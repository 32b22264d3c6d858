"""The pipeline file: YAML -> `Pipeline`, every problem with its place."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path

import yaml

from cep.errors import Diagnostic, RuleError
from cep.language.diagnostics import in_order
from cep.language.limits import TooManyErrorsError
from cep.language.source_file import read_source
from cep.language.time_literals import parse_duration
from cep.program import Program
from cep.schema import Stream
from cep.schema_file import load_streams, read_streams
from cep.yaml_document import MAX_BYTES, Document
from rules.rulebook import compile_rulebook, load_rulebook

CODES: dict[str, str] = {
    "E0840": "the pipeline file cannot be read",
    "E0841": "not one of the words possible here",
    "E0842": "no rule reads a source's stream, or a rule reads one without a source",
    "E0843": "settings that do not go together",
    "E0844": "a pattern of paths that names no file",
}
"""Code -> meaning of what can be wrong with a pipeline file, besides E04 (YAML)."""

_SETTINGS = (
    "streams",
    "rules",
    "source",
    "sources",
    "sinks",
    "late",
    "dead_letter",
    "checkpoint",
    "trigger",
    "at_end",
    "mode",
    "spark",
)
_SOURCE_FORMATS = ("json", "csv", "parquet", "rate")
_FILE_FORMATS = ("json", "parquet")
_SINK_FORMATS = ("console", *_FILE_FORMATS)
_REMOTE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")

AVAILABLE_NOW = "available_now"


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """What is read."""

    file_format: str
    stream: str
    path: str = ""
    max_files_per_trigger: int | None = None
    rows_per_second: int = 1


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """Where something is written; `path` is empty for the console."""

    file_format: str
    path: str = ""
    limit: int = 20


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline file that is sound, its rules compiled, its paths absolute."""

    name: str
    programs: tuple[Program, ...]
    warnings: tuple[Diagnostic, ...]
    sources: tuple[SourceSpec, ...]
    sinks: tuple[SinkSpec, ...]
    late: SinkSpec | None
    dead_letter: SinkSpec | None
    checkpoint: str
    trigger: str  # "available_now", or an interval
    finishes: bool
    is_stream: bool
    spark: tuple[tuple[str, str], ...]


def load_pipeline(path: str | Path) -> Pipeline:
    """Return the pipeline of the file at `path`.

    Raises
    ------
    RuleError
        With every problem of the file, or of the rules and streams that it names.
    """
    path = Path(path)
    try:
        document = Document(read_source(path, MAX_BYTES))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise RuleError(
            [Diagnostic("E0840", f"the pipeline file `{path}` cannot be read: {reason}")]
        ) from error
    pipeline = None
    with suppress(TooManyErrorsError):  # the last diagnostic says so
        pipeline = _Reader(document, path.resolve().parent, path.stem).pipeline()
    if pipeline is None or any(problem.is_error for problem in document.diagnostics):
        raise RuleError(in_order(document.diagnostics))
    return pipeline


class _Reader:
    """Reads one document; problems go to it, methods return None where something is not sound."""

    def __init__(self, document: Document, folder: Path, name: str) -> None:
        self.document = document
        self.folder = folder
        self.name = name

    def pipeline(self) -> Pipeline | None:
        document = self.document
        root = document.root()
        if root is None:
            return None
        has_several = any(entry.name == "sources" for entry in document.mapping(root, "the pipeline") or [])
        needed = ("rules", "sources" if has_several else "source", "sinks")
        found = document.settings(root, "the pipeline", _SETTINGS, needed)
        if found is None or any(name not in found for name in needed):
            return None
        sources = self._sources(found)
        sinks = self._sinks(found["sinks"])
        late = self._sink(found["late"], "`late`", _FILE_FORMATS) if "late" in found else None
        letters = None
        if "dead_letter" in found:
            letters = self._sink(found["dead_letter"], "`dead_letter`", _FILE_FORMATS)
        mode = self._word(found, "mode", ("stream", "batch"), "stream")
        trigger = self._trigger(found)
        finishes = self._word(found, "at_end", ("finish",), "") == "finish"
        if mode == "batch":
            for name in ("at_end", "trigger", "checkpoint"):
                if name in found and name == "at_end":
                    # A batch is complete by nature; the same file may say so for its stream.
                    finishes = False
        elif "checkpoint" not in found:
            document.problem(
                "E0404",
                "a stream needs `checkpoint`",
                root,
                "`checkpoint` is missing",
                "add: checkpoint: ...",
            )
        elif finishes and trigger != AVAILABLE_NOW:
            document.problem(
                "E0843",
                "`at_end` needs `trigger: available_now`",
                found["at_end"],
                "a stream without end never gets here",
                "add: trigger: available_now",
            )
        spark = self._spark(found["spark"]) if "spark" in found else ()
        checkpoint = self._path(found["checkpoint"], "`checkpoint`") if "checkpoint" in found else ""
        compiled = self._rules(found, sources)
        if sources is None or sinks is None or compiled is None or document.diagnostics:
            return None
        programs, warnings = compiled
        return Pipeline(
            self.name,
            programs,
            warnings,
            tuple(sources.values()),
            sinks,
            late,
            letters,
            checkpoint or "",
            trigger,
            finishes,
            mode == "stream",
            spark,
        )

    def _word(self, found: dict[str, yaml.Node], name: str, words: tuple[str, ...], default: str) -> str:
        if name not in found:
            return default
        return self._one_of(found[name], f"`{name}`", words) or default

    def _one_of(self, node: yaml.Node, what: str, words: tuple[str, ...]) -> str | None:
        text = self.document.text(node, what)
        if text is None or text in words:
            return text
        self.document.problem(
            "E0841", f"{what} cannot be `{text}`", node, "not known", f"write {' or '.join(words)}"
        )
        return None

    def _trigger(self, found: dict[str, yaml.Node]) -> str:
        if "trigger" not in found:
            return AVAILABLE_NOW
        text = self.document.text(found["trigger"], "`trigger`")
        if text is None or text == AVAILABLE_NOW:
            return AVAILABLE_NOW
        if parse_duration(text) is None:
            self.document.problem(
                "E0409",
                f"`{text}` is not a trigger",
                found["trigger"],
                "expected available_now or a duration",
                'write available_now, or for example "10 seconds"',
            )
        return text

    def _sources(self, found: dict[str, yaml.Node]) -> dict[str, SourceSpec] | None:
        """Return the sources by stream."""
        if "sources" not in found:
            source = self._source(found["source"])
            return None if source is None else {source.stream: source}
        node = found["sources"]
        if "source" in found:
            self.document.problem(
                "E0843",
                "`source` and `sources` together",
                found["source"],
                "one or the other",
                "list all of them in `sources`",
            )
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            self.document.problem(
                "E0402", "`sources` must be a list", node, "not a list", "add: - {stream: ..., format: ...}"
            )
            return None
        sources: dict[str, SourceSpec] = {}
        is_sound = True
        for item in node.value:
            source = self._source(item)
            is_sound = is_sound and source is not None
            if source is not None and source.stream in sources:
                self.document.problem(
                    "E0843",
                    f"two sources for stream `{source.stream}`",
                    item,
                    "the stream has one already",
                    "put the files into one directory",
                )
            elif source is not None:
                sources[source.stream] = source
        return sources if is_sound else None

    def _source(self, node: yaml.Node) -> SourceSpec | None:
        known = ("stream", "format", "path", "max_files_per_trigger", "rows_per_second")
        found = self.document.settings(node, "`source`", known, ("stream", "format"))
        if found is None or "stream" not in found or "format" not in found:
            return None
        stream = self.document.text(found["stream"], "`stream`")
        file_format = self._one_of(found["format"], "`format`", _SOURCE_FORMATS)
        if stream is None or file_format is None:
            return None
        own = {"rows_per_second"} if file_format == "rate" else {"path", "max_files_per_trigger"}
        for name in (set(known[2:]) - own) & set(found):
            self.document.problem(
                "E0843",
                f"a source of format {file_format} has no `{name}`",
                found[name],
                "not for this format",
                "remove it",
            )
        path = ""
        if file_format != "rate":
            if "path" not in found:
                self.document.problem(
                    "E0404", "`source` has no `path`", node, "`path` is missing", "add: path: ..."
                )
                return None
            path = self._path(found["path"], "`path`") or ""
        limits = {
            name: self._positive(found[name], f"`{name}`")
            for name in ("max_files_per_trigger", "rows_per_second")
            if name in found
        }
        return SourceSpec(
            file_format,
            stream,
            path,
            limits.get("max_files_per_trigger"),
            limits.get("rows_per_second") or 1,
        )

    def _positive(self, node: yaml.Node, what: str) -> int | None:
        value = self.document.integer(node, what)
        if value == 0:
            self.document.problem("E0402", f"{what} must be at least 1", node, "too small", "write 1 or more")
        return value

    def _sinks(self, node: yaml.Node) -> tuple[SinkSpec, ...] | None:
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        if not nodes:
            self.document.problem(
                "E0404", "the pipeline has no sink", node, "empty", "add: - {format: console}"
            )
        sinks = [self._sink(item, "a sink", _SINK_FORMATS) for item in nodes]
        sound = tuple(sink for sink in sinks if sink is not None)
        return sound if len(sound) == len(sinks) else None

    def _sink(self, node: yaml.Node, what: str, formats: tuple[str, ...]) -> SinkSpec | None:
        found = self.document.settings(node, what, ("format", "path", "limit"), ("format",))
        if found is None or "format" not in found:
            return None
        file_format = self._one_of(found["format"], "`format`", formats)
        if file_format is None:
            return None
        if file_format == "console":
            limit = self.document.integer(found["limit"], "`limit`") if "limit" in found else 20
            return None if limit is None else SinkSpec("console", limit=limit)
        if "path" not in found:
            self.document.problem(
                "E0404", f"{what} has no `path`", node, "`path` is missing", "add: path: ..."
            )
            return None
        path = self._path(found["path"], "`path`")
        return None if path is None else SinkSpec(file_format, path)

    def _path(self, node: yaml.Node, what: str) -> str | None:
        """Return a path as it is if it is remote, else from this file's folder on."""
        text = self.document.text(node, what)
        if text is None or _REMOTE.match(text):
            return text
        return str((self.folder / text).resolve())

    def _spark(self, node: yaml.Node) -> tuple[tuple[str, str], ...]:
        settings = []
        for entry in self.document.mapping(node, "`spark`") or []:
            value = self.document.text(entry.value, f"`{entry.name}`")
            if value is not None:
                settings.append((entry.name, value))
        return tuple(settings)

    def _rules(
        self, found: dict[str, yaml.Node], sources: dict[str, SourceSpec] | None
    ) -> tuple[tuple[Program, ...], tuple[Diagnostic, ...]] | None:
        paths = self._rule_paths(found["rules"])
        streams = self._streams(found)
        if paths is None or self.document.diagnostics:
            return None
        try:
            compiled = compile_rulebook(load_rulebook(paths, streams))
        except RuleError as error:
            self.document.diagnostics += error.diagnostics
            return None
        if sources is not None:
            self._check_streams(compiled.programs, sources, found.get("sources") or found["source"])
        return compiled.programs, compiled.warnings

    def _check_streams(
        self, programs: tuple[Program, ...], sources: dict[str, SourceSpec], place: yaml.Node
    ) -> None:
        """Check that the sources are those of the streams that the rules read."""
        word = "the source is" if len(sources) == 1 else "the sources are"
        names = ", ".join(f"`{name}`" for name in sources)
        for program in programs:
            for stream in program.streams:
                if stream.name not in sources:
                    self.document.problem(
                        "E0842",
                        f"rule `{program.rules[0].name}` reads stream `{stream.name}`, {word} {names}",
                        place,
                        f"no source for `{stream.name}`",
                        "name the streams of the rules in `sources`, and only rules that read these",
                    )
        read = {stream.name for program in programs for stream in program.streams}
        for name in sources:
            if programs and name not in read:
                self.document.problem(
                    "E0842",
                    f"no rule reads stream `{name}`",
                    place,
                    "a source without a rule",
                    f"leave it out, or add rules that read `{name}`",
                )

    def _rule_paths(self, node: yaml.Node) -> list[Path] | None:
        texts = self.document.texts(node, "`rules`")
        if texts is None:
            return None
        paths: list[Path] = []
        for text, place in texts:
            names = sorted(glob(str(self.folder / text))) if has_magic(text) else [str(self.folder / text)]
            if not names:
                self.document.problem(
                    "E0844",
                    f"`{text}` names no file",
                    place,
                    "nothing there",
                    f"paths are taken from {self.folder} on",
                )
            paths += [Path(name) for name in names]
        return paths

    def _streams(self, found: dict[str, yaml.Node]) -> dict[str, Stream] | None:
        """Return the declared streams; None: each rule file has its own streams file."""
        if "streams" not in found:
            return None
        node = found["streams"]
        if isinstance(node, yaml.MappingNode):
            return read_streams(self.document, node)
        text = self.document.text(node, "`streams`")
        if text is None:
            return {}
        try:
            return load_streams(self.folder / text)
        except RuleError as error:
            self.document.diagnostics += error.diagnostics
            return {}
