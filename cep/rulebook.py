"""Find, load, check and compile rule files with the streams that they read.

The name of a rule file ends in ``.cep``. The nearest ``streams.yaml`` declares its streams: the one in the
directory of the rule file, or else in a directory above it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cep.arguments import rule_names, wrong_argument
from cep.compiler.compile import Compiled, check_sources, compile_rules, compile_sources
from cep.diagnostics.diagnostic import did_you_mean, in_order
from cep.errors import Diagnostic, RuleError, Source
from cep.language import ast
from cep.language.front_ends import is_rule_text, read_rules
from cep.language.parameters import set_parameters
from cep.language.printer import print_rules
from cep.profiles.never_seen import never_seen, profiles_of
from cep.profiles.profile import Profile
from cep.rule_files import STREAMS_FILE, found_rule_files, nearest_streams_file, read_rule_file
from cep.rule_set import RuleSet
from cep.schema.stream import Stream
from cep.settings.schema_file import declared_streams, load_streams

Streams = Mapping[str, Stream]


@dataclass(frozen=True, slots=True)
class Rulebook:
    """Rule texts, the streams that they may read, and the file that declares these, if there is only one."""

    sources: tuple[Source, ...]
    streams: Streams
    streams_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check. The problems are in the order of files and places.

    `unread` contains, for each stream with a profile, the columns that no rule reads.
    """

    files: tuple[str, ...]
    n_rules: int
    problems: tuple[Diagnostic, ...]
    unread: Mapping[str, tuple[str, ...]]

    @property
    def n_files(self) -> int:
        """The number of rule files."""
        return len(self.files)


def load_rulebook(paths: Iterable[str | Path], streams: str | Path | Streams | None = None) -> Rulebook:
    """Return the rules of all files and directories in `paths`, with their streams.

    `streams` are the declarations, or the file that contains them. If it is None, each rule file has its own
    streams file. Raises RuleError with every file that is missing or cannot be read.
    """
    problems: list[Diagnostic] = []
    books = load_rulebooks(found_rule_files(paths, problems), streams, problems)
    merged: dict[str, Stream] = {}
    for book in books:
        for name, stream in book.streams.items():
            if merged.setdefault(name, stream) != stream:
                problems.append(
                    Diagnostic(
                        "E0614",
                        f"stream `{name}` is declared in two ways by the streams files of these rules",
                        help="run the rules of one streams file at a time, or name the file to use",
                    )
                )
    if problems:
        raise RuleError(problems)
    files = {book.streams_file for book in books}
    only_file = next(iter(files)) if len(files) == 1 else None
    return Rulebook(tuple(source for book in books for source in book.sources), merged, only_file)


def load_rules(
    rules: str | Path | Sequence[str | Path],
    streams: str | Path | Stream | Streams | None = None,
    only: str | Sequence[str] = (),
    parameters: Mapping[str, str] | None = None,
) -> RuleSet:
    """Return the compiled rules of a text, of a ``.cep`` file, of a directory, or of several of these.

    Parameters
    ----------
    rules
        A string with the word PATTERN, or with several lines, is rule text; any other string is a path. A
        text or a file that is given several times is read once.
    streams
        The streams, or the file that declares them. Without it, each rule file reads the nearest
        ``streams.yaml`` in its folder or above. Rule text needs `streams`, because it is not in a folder.
    only
        Names of rules or views: these, and those whose matches they read; without names all.
    parameters
        Other values of parameters (`PARAM`), as they are written in rules: ``{"small": "4"}``.

    Raises
    ------
    RuleError
        Rules or streams files are wrong, or no rule has a name in `only` (E0897). The error contains every
        problem of all of them.
    InputError
        An argument is of another type (E0827).
    """
    given = [rules] if isinstance(rules, str | Path) else rules
    if not isinstance(given, Sequence) or not all(isinstance(item, str | Path) for item in given):
        raise wrong_argument(
            "rules", rules, "rule text, a .cep file, a directory of them, or several of these in a list"
        )
    if not given:
        raise RuleError([Diagnostic("E0611", "the list of rules is empty", help="give rule texts or paths")])
    texts = [Source("rules", str(item)) for item in given if is_rules(item)]
    paths = [item for item in given if not is_rules(item)]
    declared = None if streams is None else declared_streams(streams)
    if texts and declared is None:
        advice = "give `streams`: a streams file, or what load_streams returns"
        raise RuleError([Diagnostic("E0612", "a rule text has no streams file beside it", help=advice)])
    book = load_rulebook(paths, declared) if paths else Rulebook((), {})
    return compile_texts([*texts, *book.sources], declared or book.streams, only, parameters).rule_set


def is_rules(item: str | Path) -> bool:
    """Return whether `item` is a text of rules and not a path."""
    return isinstance(item, str) and ("\n" in item or is_rule_text(item))


def compile_rulebook(
    rulebook: Rulebook,
    only: str | Sequence[str] = (),
    parameters: Mapping[str, str] | None = None,
    shadow: str | Sequence[str] = (),
) -> Compiled:
    """Return the compiled rules: all, or those in `only`; see `compile_texts`."""
    return compile_texts(rulebook.sources, rulebook.streams, only, parameters, shadow)


def compile_texts(
    sources: Sequence[Source],
    streams: Streams,
    only: str | Sequence[str] = (),
    parameters: Mapping[str, str] | None = None,
    shadow: str | Sequence[str] = (),
) -> Compiled:
    """Return the rules in `sources`, compiled: all, or those named in `only` and those whose matches they
    read. `parameters` are other values of parameters (`cep.language.parameters`), `shadow` the names of
    rules that are shadow rules, whatever their status.

    Raises RuleError with every problem of all sources, or with every name that no rule has (E0897).
    """
    names = rule_names("only", only)
    shadow = rule_names("shadow", shadow)
    asked = [*names, *shadow]
    known = {rule.name.text for source in sources for rule in read_rules(source)[0]} if asked else set()
    if known and (unknown := [name for name in asked if name not in known]):
        raise RuleError(
            [
                Diagnostic(
                    "E0897",
                    f"there is no rule and no view `{name}`",
                    help=did_you_mean(name, known, "rules and views"),
                )
                for name in unknown
            ]
        )
    return compile_sources(sources, streams, names, parameters, shadow)


def texts_of(compiled: Compiled) -> tuple[Source, ...]:
    """Return the printed texts of only these rules, one for each file."""
    trees: dict[str, list[ast.Rule]] = {}
    for rule in compiled.rules:
        trees.setdefault(rule.tree.source.name, []).append(rule.tree)
    return tuple(Source(name, print_rules(of_file)) for name, of_file in trees.items())


def check_rules(
    paths: Iterable[str | Path],
    streams: str | Path | Streams | None = None,
    parameters: Mapping[str, str] | None = None,
) -> Checked:
    """Return every problem of all rule files in `paths`, of their streams files and of `parameters`."""
    problems: list[Diagnostic] = []
    files = found_rule_files(paths, problems)
    n_rules = 0
    unread: dict[str, tuple[str, ...]] = {}
    for book in load_rulebooks(files, streams, problems):
        found = check_book(book, parameters)
        problems += found.problems
        n_rules += found.n_rules
        unread |= found.unread
    return Checked(tuple(map(str, files)), n_rules, tuple(in_order(problems)), unread)


def check_book(book: Rulebook, parameters: Mapping[str, str] | None = None) -> Checked:
    """Return every problem of the rules of one streams file, and of `parameters`."""
    rules, found = check_sources(book.sources, book.streams, parameters)
    problems = list(found)
    unread: dict[str, tuple[str, ...]] = {}
    read: set[tuple[str, str]] = set()
    for rule in rules:
        try:
            read.update(*(program.read_columns for program in compile_rules([rule], book.streams)))
        except RuleError as error:
            problems += error.diagnostics
    profiled = profiles_of(book.streams_file, book.streams)
    problems += values_never_seen(book, profiled, parameters)
    for name in profiled:
        stream = book.streams[name]
        used = {stream.event_time, *stream.tie_break}
        left = [column.name for column in stream.fields if (name, column.name) not in read]
        left = [column for column in left if column not in used]
        unread |= {name: tuple(left)} if left else {}
    names = tuple(source.name for source in book.sources)
    return Checked(names, len(rules), tuple(in_order(problems)), unread)


def values_never_seen(
    book: Rulebook, profiled: Mapping[str, Profile], parameters: Mapping[str, str] | None = None
) -> list[Diagnostic]:
    """Return a warning for each value in the rules that, according to profiles, the events never had."""
    if not profiled:
        return []
    trees = [tree for source in book.sources for tree in read_rules(source)[0]]
    return never_seen(set_parameters(trees, parameters or {})[0], book.streams, profiled)


def load_rulebooks(
    files: Iterable[Path], streams: str | Path | Streams | None, problems: list[Diagnostic]
) -> list[Rulebook]:
    """Return one rulebook for each streams file; see `load_rulebook`.

    Files that cannot be read are reported in `problems`.
    """
    groups: dict[Path | None, list[Source]] = {}
    for file in files:
        if streams is None:
            beside = nearest_streams_file(file)
            if beside is None:
                problems.append(no_streams(file))
                continue
        else:
            beside = None if isinstance(streams, Mapping) else Path(streams)
        source = read_rule_file(file, problems)
        if source is not None:
            groups.setdefault(beside, []).append(source)
    books = []
    for beside, sources in groups.items():
        if beside is None:
            assert isinstance(streams, Mapping)
            declared: Streams = streams
        else:
            try:
                declared = load_streams(beside)
            except RuleError as error:
                problems += error.diagnostics
                continue
        books.append(Rulebook(tuple(sources), declared, beside))
    return books


def no_streams(file: Path) -> Diagnostic:
    """Return the problem of a rule file without a streams file."""
    return Diagnostic(
        "E0612",
        f"there is no `{STREAMS_FILE}` beside `{file}` or in a directory above it",
        help="declare the streams that the rules read there, or give the file that has them",
    )
