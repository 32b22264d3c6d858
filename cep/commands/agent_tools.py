"""What `cep mcp` offers to agents: each tool is a function of plain values that returns plain values.

Every path, including one that a test file names, must be below a declared root. Nothing is written unless the
server was started with `--allow-write`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import yaml

from cep.commands.test import run_test_files
from cep.commands.why import compiled_rule, replayed, time_asked, with_steps
from cep.diagnostics.diagnostic import in_order, render, to_json
from cep.errors import CepError, RuleError, Source
from cep.formats.path_names import path_pattern
from cep.formats.text.damaged import COMPRESSED
from cep.formats.text.text_files import is_read_once
from cep.language.front_ends import SUFFIXES
from cep.rule_files import STREAMS_FILE, TEST_ENDING, nearest_streams_file
from cep.rule_tests.reading import test_files
from cep.rule_tests.report import as_data as tests_as_data
from cep.rulebook import Rulebook, check_book, check_rules, compile_rulebook, load_rulebook
from cep.settings.roots import is_inside
from cep.settings.yaml_document import Document

MAX_TEXT = 1 << 20
"""Most characters of a text that an agent gives."""

MAX_FILES = 500
"""Most files in the folders that a call names."""

MAX_INPUT = 64 << 20
"""Most bytes of the files that a call reads, unpacked."""

_UNPACKED = 1 << 20
"""Bytes that are unpacked at a time, to count them."""

MAX_ANSWER = 200_000
"""Most characters of an answer."""

MAX_ATTEMPTS = 20
"""Most attempts that `why` shows."""

_ARGUMENTS = {
    **{name: name for name in ("key", "at", "rule", "streams", "summary", "limit", "only", "truth")},
    **{"input": "inputs", "set": "parameters", "from": "from_time", "to": "to_time"},
}
"""The argument of a tool for each option of the command line."""

_OPTION = re.compile(rf"`?--({'|'.join(_ARGUMENTS)})\b(?!-)`?")
"""An option in a message, which an agent knows as an argument."""


class RefusedError(ValueError):
    """A call that the server does not allow; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Access:
    """What a server may read and write: files below `roots`, each in the form of `root_of`."""

    roots: tuple[str, ...]
    may_write: bool = False

    def file(self, path: str) -> Path:
        """Return a path below a root, after following links.

        A relative path is that in the first root in which it exists, or else in the first root.

        Raises RefusedError: it is empty, it is elsewhere, or it is a pipe or a device, which may never end.
        """
        if not path:
            raise RefusedError("a path is empty: name a file or a folder")
        places = [path if "://" in path else str(Path(root, path)) for root in self.roots]
        # No place outside is touched, so that nobody learns whether it exists.
        inside = [place for place in places if "\0" not in place and is_inside(place, self.roots)]
        if not inside:
            raise RefusedError(
                f"`{path}` is not below a root: {', '.join(self.roots)}; start with --root DIR"
            )
        found = next(filter(_exists, inside), inside[0])
        if is_read_once(found):
            raise RefusedError(f"`{path}` is a pipe or a device, and only files are read")
        return Path(found)

    def read(self, paths: Sequence[str]) -> list[Path]:
        """Return paths that a call may read. A path may be a folder or a pattern of files.

        Raises RefusedError: a path or a file that it leads to is elsewhere, there are too many files, or they
        are too large.
        """
        found = [self.file(path) for path in paths]
        inside = [file for path in found for file in _files_of(path)]
        if len(inside) > MAX_FILES:
            raise RefusedError(f"{len(inside):,} files, and a call may read {MAX_FILES}: name fewer")
        for file in inside:
            self.file(str(file))
        n_bytes = 0
        for file in inside:
            n_bytes += _n_bytes(file, MAX_INPUT - n_bytes)
            if n_bytes > MAX_INPUT:
                raise RefusedError(
                    f"more than the {MAX_INPUT:,} bytes that a call may read: give a part of the events"
                )
        return found

    def rules(self, paths: Sequence[str], streams: str | None) -> tuple[list[Path], Path | None]:
        """Return rule files and the streams file. Without one, the one next to the rules is checked."""
        found = self.read(paths)
        if streams is not None:
            return found, self.file(streams)
        for path in found:
            beside = nearest_streams_file(path / STREAMS_FILE if path.is_dir() else path)
            if beside is not None:
                self.file(str(beside))
        return found, None


def _exists(path: str) -> bool:
    """Return whether a path, or a file of a pattern, exists."""
    pattern = path_pattern(path)
    return Path(path).exists() if pattern is None else bool(pattern.files())


def _files_of(path: Path) -> list[Path]:
    """Return the file, all files in the folder, or those of the pattern, which may be links."""
    pattern = path_pattern(str(path))
    if pattern is not None:
        return pattern.files()
    return [file for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file()]


def _n_bytes(file: Path, most: int) -> int:
    """Return how many bytes a file contains, unpacked. More than `most` are not all counted."""
    if not file.name.endswith(COMPRESSED):
        return file.stat().st_size
    n_bytes = 0
    with suppress(OSError, pa.ArrowException), pa.input_stream(str(file), compression="detect") as stream:
        while n_bytes <= most and (data := stream.read(_UNPACKED)):
            n_bytes += len(data)
    return n_bytes  # what reads a damaged file reports the damage


def check(
    access: Access, rules: Sequence[str] = (), streams: str | None = None, text: str | None = None
) -> dict[str, Any]:
    """Return every problem of rule files, or of a `text` of rules over a streams file."""
    if bool(rules) == (text is not None):
        raise RefusedError("what is to be checked? Write either `rules` or `text`")
    if text is not None:
        if streams is None or len(text) > MAX_TEXT:
            raise RefusedError(
                f"a text needs `streams`, the streams file, and has at most {MAX_TEXT:,} characters"
            )
        from cep.settings.schema_file import load_streams

        book = Rulebook((Source("text.cep", text),), load_streams(access.file(streams)), None)
        checked = check_book(book)
    else:
        checked = check_rules(*access.rules(rules, streams))
    return {
        "files": checked.n_files,
        "rules": checked.n_rules,
        "problems": to_json(checked.problems),
        "unread": {name: list(columns) for name, columns in checked.unread.items()},
    }


def explain(
    access: Access, rules: Sequence[str], streams: str | None = None, only: Sequence[str] = ()
) -> dict[str, Any]:
    """Return what rules compile to, as text: predicates, automaton, bounds, what a run remembers."""
    from cep.explain.explain import explain as explain_rule

    compiled = compile_rulebook(load_rulebook(*access.rules(rules, streams)), only)
    return {
        "text": "\n".join(explain_rule(rule) for rule in compiled.rules),
        "warnings": to_json(compiled.warnings),
    }


def test(access: Access, rules: Sequence[str]) -> dict[str, Any]:
    """Return the results of the tests beside the rules."""
    paths, _ = access.rules(rules, None)
    files = test_files(paths)
    for file in files:
        for named in _named_by(file):
            access.rules([str(file.parent / named)], None)
    results, _ = run_test_files(files, None, {}, False)
    return {"files": tests_as_data(results)}


def _named_by(file: Path) -> Iterator[str]:
    """Yield the paths that a test file names: its rules, its streams file and its files of events."""
    access_text = file.read_text(encoding="utf-8", errors="replace")[: MAX_TEXT + 1]
    root = Document(Source(str(file), access_text), max_text=MAX_TEXT).root()
    left = [] if root is None else [root]
    while left:
        node = left.pop()
        if isinstance(node, yaml.SequenceNode):
            left += node.value
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            left.append(value)
            is_path = key.value in ("rules", "streams", "file")
            for item in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if is_path and isinstance(item, yaml.ScalarNode):
                    yield item.value


def why(  # noqa: PLR0913 - an argument of the tool is an argument
    access: Access,
    rules: Sequence[str],
    inputs: Sequence[str],
    key: Sequence[str] = (),
    rule: str | None = None,
    streams: str | None = None,
    at: str | None = None,
    summary: bool = False,
    limit: int = 3,
) -> dict[str, Any]:
    """Return why a rule matched for a key, or what it missed; with `summary` the counts over all keys."""
    from cep.why.rows import told
    from cep.why.shown import as_data
    from cep.why.summary import funnel

    if summary and (key or at is not None):
        raise RefusedError("`summary` counts over all keys and times: leave out `key` and `at`")
    paths, streams_file = access.rules(rules, streams)
    inputs = _inputs(access, inputs)
    compiled = compiled_rule(paths, streams_file, rule, {})
    found = replayed(compiled, inputs, None)
    source = compiled.rules[-1].tree.source
    if summary:
        counted: dict[str, Any] = as_data(funnel(with_steps(found)), source)
        return counted
    at_us = None if at is None else time_asked(at)
    answer = told(found, found.key_of(key, is_option=False), at_us, limit)
    data: dict[str, Any] = as_data(answer, source)
    return data


def _inputs(access: Access, inputs: Sequence[str]) -> list[str]:
    """Return inputs, FILE or STREAM=FILE, whose files a call may read. Raises RefusedError: it may not."""
    found: list[str] = []
    for text in inputs:
        if text.endswith(SUFFIXES):
            raise RefusedError(f"`{text}` is a rule file, and `inputs` are files of events")
        name, sign, path = text.partition("=")
        is_named = bool(sign) and name.isidentifier()
        (file,) = access.read([path if is_named else text])
        found.append(f"{name}={file}" if is_named else str(file))
    return found


def profile(
    access: Access, stream: str, file: str, streams: str | None = None, write: bool = False
) -> dict[str, Any]:
    """Return what the events of a stream look like; with `write`, keep it next to the streams file."""
    from cep.engine.prepare.device_clocks import first_guard
    from cep.formats.files import read_events
    from cep.output.rows import json_line
    from cep.profiles.measuring import measured
    from cep.profiles.profile import write_profile
    from cep.settings.schema_file import load_streams

    if write and not access.may_write:
        raise RefusedError("a profile is written only by a server that was started with --allow-write")
    (path,) = access.read([file])
    beside = access.file(streams) if streams is not None else nearest_streams_file(path)
    if beside is None:
        raise RefusedError(f"there is no `{STREAMS_FILE}` beside `{file}`: name it as `streams`")
    known = load_streams(access.file(str(beside)))
    if stream not in known:
        raise RefusedError(f"there is no stream `{stream}`: it is one of {', '.join(known)}")
    found = measured(known[stream], read_events(str(path), known[stream], ahead=first_guard(known[stream])))
    if write:
        write_profile(beside, found)
    # An infinite end of a range is a string, as in the file: JSON has no such number.
    answer: dict[str, Any] = json.loads(json_line(asdict(found)))
    return answer


def backtest(
    access: Access,
    rules: Sequence[str],
    inputs: Sequence[str],
    streams: str | None = None,
    parameters: Mapping[str, str] | None = None,
    from_time: str | None = None,
    to_time: str | None = None,
    truth: str | None = None,
) -> dict[str, Any]:
    """Return the alerts of rules over history, by rule and day; with a truth file precision and recall."""
    from cep.backtest.figures import figures_of, range_data
    from cep.commands.history import Given, Runner

    paths, streams_file = access.rules(rules, streams)
    inputs = _inputs(access, inputs)
    given = Given(
        rules=paths,
        inputs=inputs,
        streams=streams_file,
        only=(),
        parameters=parameters or {},
        from_time=from_time,
        to_time=to_time,
        margin=None,
        sample=None,
        truth=None if truth is None else access.read([truth])[0],
        same=(),
        input_format=None,
        spark=False,
        output_format="json",
        quiet=True,
        progress=False,
    )
    rule_set = compile_rulebook(given.book(), (), given.parameters).rule_set
    scope = given.scope(rule_set)
    found = Runner(given, [rule_set], scope, keeps=False).run(rule_set)
    figures = figures_of(found, given.truth_of(rule_set, scope))
    return {**range_data(found), "rules": [one.as_data() for one in figures]}


def write_file(access: Access, path: str, text: str) -> dict[str, Any]:
    """Write a rule file, a streams file or a test file, whole."""
    from cep.spool.folder import write_whole

    if not access.may_write:
        raise RefusedError("files are written only by a server that was started with --allow-write")
    file = access.file(path)
    if not path.endswith((*SUFFIXES, TEST_ENDING)) and file.name != STREAMS_FILE:
        raise RefusedError(f"`{path}` is none of: {', '.join(SUFFIXES)}, {TEST_ENDING}, {STREAMS_FILE}")
    if len(text) > MAX_TEXT:
        raise RefusedError(f"a text has at most {MAX_TEXT:,} characters")
    write_whole(file, text)
    return {"written": str(file)}


def answered(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the answer of a tool, or its problems as data: an agent is to read them and correct the rule.

    Raises RefusedError: the call is not allowed, or its answer is too large.
    """
    from cep.output.rows import json_line

    try:
        found = call()
    except RuleError as error:
        problems = in_order(error.diagnostics)
        found = {"problems": to_json(problems), "text": render(problems)}
    except (CepError, click.ClickException) as error:
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        raise RefusedError(_OPTION.sub(lambda option: f"`{_ARGUMENTS[option[1]]}`", text)) from None
    except OSError as error:
        raise RefusedError(str(error)) from None
    size = len(json_line(found))
    if size > MAX_ANSWER:
        raise RefusedError(
            f"an answer of {size:,} characters, at most {MAX_ANSWER:,}: ask for less, by `only` or `rule`"
        )
    return found
