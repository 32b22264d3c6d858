"""The language server: what the modules of this folder say about texts, in the Language Server Protocol.

It wraps pygls and decides nothing. A text is checked when it is opened, changed or saved.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cattrs import transform_error
from lsprotocol import types
from pygls import uris
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol
from pygls.protocol.json_rpc import JsonRPCNotification, JsonRPCRequestMessage

from cep.editor.assist import Shown, completions, hover
from cep.editor.names import NameKind, declaration, places, symbol_at
from cep.editor.positions import Positions
from cep.editor.project import dependents, problems, surroundings
from cep.editor.renaming import RenameError, rename
from cep.editor.test_lens import RUN_TESTS, lenses, run_tests
from cep.errors import Diagnostic, RuleError, Source, Span
from cep.language.front_ends import SUFFIXES
from cep.language.layout import laid_out

_KINDS = {
    Shown.COLUMN: types.CompletionItemKind.Field,
    Shown.FUNCTION: types.CompletionItemKind.Function,
    Shown.STEP: types.CompletionItemKind.Variable,
    Shown.VALUE: types.CompletionItemKind.Constant,
    Shown.STREAM: types.CompletionItemKind.Class,
    Shown.KEYWORD: types.CompletionItemKind.Keyword,
}


_LOG = logging.getLogger("pygls.protocol.json_rpc")


def _without_traceback(record: logging.LogRecord) -> bool:
    """Let a record pass; a request that is refused is not a fault, so it has no traceback."""
    if record.exc_info and isinstance(record.exc_info[1], JsonRpcInvalidParams):
        record.exc_info = None
    return True


@dataclass(frozen=True, slots=True)
class _Invalid:
    """A message whose parameters are not those of its method."""

    number: Any
    reason: str


class _Protocol(LanguageServerProtocol):
    """The protocol, with an answer to a request with invalid parameters: pygls prints a traceback instead."""

    def structure_message(self, data: dict[str, Any]) -> Any:
        """Return a message with its types, or what is wrong with it."""
        if "jsonrpc" not in data or "method" not in data:
            return super().structure_message(data)
        try:
            unknown = JsonRPCRequestMessage if "id" in data else JsonRPCNotification
            kind = self.get_message_type(data["method"]) or unknown
            return self._converter.structure({"params": None, **data}, kind)
        except Exception as error:  # noqa: BLE001 - each type has its own way to refuse a value
            return _Invalid(data.get("id"), f"{data['method']}: {transform_error(error)[0]}")

    def handle_message(self, message: Any) -> None:
        """Handle a message, or answer that it is invalid."""
        if not isinstance(message, _Invalid):
            super().handle_message(message)
            return
        _LOG.warning("invalid parameters: %s", message.reason)
        if isinstance(message.number, int | str):
            self._send_response(
                message.number, error=JsonRpcInvalidParams(message.reason).to_response_error()
            )


class RuleServer(LanguageServer):
    """A server with the texts that its editor has opened."""

    def __init__(self, *, with_lint: bool = False) -> None:
        super().__init__("cep", version("spark-cep"), protocol_cls=_Protocol)
        self.with_lint = with_lint
        self.shown: dict[Path, set[Path]] = {}  # files for which problems of a text are shown

    @property
    def opened(self) -> Mapping[Path, str]:
        """The text of each open file."""
        documents = self.workspace.text_documents.values()
        return {path_of(document.uri): document.source for document in documents}

    def text(self, uri: str) -> str:
        """Return the text of a file, opened or on the disk. Raises OSError, ValueError: there is none."""
        return self.workspace.get_text_document(uri).source

    def about_text(self, method: str, options: Any = None) -> Callable[[Callable[[Any], Any]], None]:
        """Register what answers requests about a text. Without the text the answer is null."""

        def register(answer: Callable[[Any], Any]) -> None:
            @self.feature(method, options)
            def answered(params: Any) -> Any:
                try:
                    self.text(params.text_document.uri)
                except (OSError, ValueError):
                    return None
                return answer(params)

        return register

    def check(self, path: Path) -> None:
        """Show the problems of a file, and of the open files that depend on it."""
        opened = self.opened
        for file in dependents(path, opened):
            found = problems(file, opened, with_lint=self.with_lint)
            for gone in self.shown.get(file, set()) - found.keys():
                self.publish(gone, ())
            self.shown[file] = set(found)
            for each, of_file in found.items():
                self.publish(each, of_file)

    def publish(self, path: Path, found: Iterable[Diagnostic]) -> None:
        """Show the problems of one file, in place of those shown before."""
        self.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(uri_of(path), [diagnostic(problem) for problem in found])
        )


def path_of(uri: str) -> Path:
    """Return the absolute path of a file, links on its way followed as files of rules name it."""
    return Path(uris.to_fs_path(uri) or uri)


def uri_of(path: str | Path) -> str:
    """Return the address of a file."""
    return uris.from_fs_path(str(path)) or str(path)


def range_of(text: str, span: Span) -> types.Range:
    """Return a place in a text."""
    positions = Positions(text)
    start, end = positions.place(span.start), positions.place(span.end)
    return types.Range(types.Position(*start), types.Position(*end))


def diagnostic(problem: Diagnostic) -> types.Diagnostic:
    """Return a problem as editors show it: the fact, what is wrong there, and what to write instead."""
    text = problem.source.text if problem.source is not None else ""
    lines = [problem.title, problem.label, *(f"help: {line}" for line in problem.help.splitlines()[:1])]
    lines += problem.help.splitlines()[1:]
    severity = types.DiagnosticSeverity.Error if problem.is_error else types.DiagnosticSeverity.Warning
    return types.Diagnostic(
        range_of(text, problem.span or Span(0, 0)),
        "\n".join(filter(None, lines)),
        severity,
        problem.code,
        source="cep",
    )


def create(*, with_lint: bool = False) -> RuleServer:
    """Return a server, ready for `start_io`; `with_lint`: it also shows what `cep lint` finds."""
    _LOG.addFilter(_without_traceback)
    server = RuleServer(with_lint=with_lint)
    _checking(server)
    _assisting(server)
    _renaming(server)
    _testing(server)
    return server


def _checking(server: RuleServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: types.DidOpenTextDocumentParams) -> None:
        server.check(path_of(params.text_document.uri))

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: types.DidChangeTextDocumentParams) -> None:
        server.check(path_of(params.text_document.uri))

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def saved(params: types.DidSaveTextDocumentParams) -> None:
        server.check(path_of(params.text_document.uri))

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseTextDocumentParams) -> None:
        for file in server.shown.pop(path_of(params.text_document.uri), set()):
            server.publish(file, ())

    @server.about_text(types.TEXT_DOCUMENT_FORMATTING)
    def formatted(params: types.DocumentFormattingParams) -> list[types.TextEdit]:
        text, path = server.text(params.text_document.uri), path_of(params.text_document.uri)
        try:
            new = laid_out(Source(str(path), text)) if path.name.endswith(SUFFIXES) else text
        except RuleError:
            return []  # its problems are shown
        return [] if new == text else [types.TextEdit(range_of(text, Span(0, len(text))), new)]


def _assisting(server: RuleServer) -> None:
    def at(params: Any) -> tuple[Path, str, int]:
        text = server.text(params.text_document.uri)
        place = params.position
        return (
            path_of(params.text_document.uri),
            text,
            Positions(text).offset(place.line, place.character),
        )

    @server.about_text(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=["."]))
    def completed(params: types.CompletionParams) -> list[types.CompletionItem]:
        path, text, offset = at(params)
        if not path.name.endswith(SUFFIXES):
            return []
        return [
            types.CompletionItem(
                found.label,
                kind=_KINDS[found.kind],
                detail=found.detail or None,
                documentation=found.about or None,
                sort_text=f"{number:04}",
            )
            for number, found in enumerate(completions(text, offset, surroundings(path, server.opened)))
        ]

    @server.about_text(types.TEXT_DOCUMENT_HOVER)
    def hovered(params: types.HoverParams) -> types.Hover | None:
        path, text, offset = at(params)
        is_rule = path.name.endswith(SUFFIXES)
        found = hover(text, offset, surroundings(path, server.opened)) if is_rule else None
        if found is None:
            return None
        told = types.MarkupContent(types.MarkupKind.Markdown, found[0])
        return types.Hover(told, range_of(text, found[1]))

    @server.about_text(types.TEXT_DOCUMENT_DEFINITION)
    def defined(params: types.DefinitionParams) -> types.Location | None:
        path, _, offset = at(params)
        around = surroundings(path, server.opened)
        found = places(around.sources)
        here = symbol_at(found, str(path), offset)
        there = None if here is None else declaration(found, here.symbol, around.streams_file)
        if there is None:
            return None
        return types.Location(uri_of(there.source.name), range_of(there.source.text, there.span))

    @server.about_text(types.TEXT_DOCUMENT_REFERENCES)
    def references(params: types.ReferenceParams) -> list[types.Location]:
        path, _, offset = at(params)
        found = places(surroundings(path, server.opened).sources)
        here = symbol_at(found, str(path), offset)
        return [
            types.Location(uri_of(place.source.name), range_of(place.source.text, place.span))
            for place in found
            if here is not None and place.symbol == here.symbol
        ]

    @server.about_text(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def symbols(params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
        text, path = server.text(params.text_document.uri), path_of(params.text_document.uri)
        return [
            types.DocumentSymbol(place.symbol.text, types.SymbolKind.Function, where, where)
            for place in places([Source(str(path), text)])
            if place.symbol.kind is NameKind.RULE and place.is_declaration
            for where in [range_of(text, place.span)]
        ]


def _renaming(server: RuleServer) -> None:
    def asked(params: Any, new: str | None) -> Any:
        text = server.text(params.text_document.uri)
        offset = Positions(text).offset(params.position.line, params.position.character)
        try:
            return rename(path_of(params.text_document.uri), offset, new, server.opened)
        except RenameError as error:
            raise JsonRpcInvalidParams(str(error)) from None

    @server.about_text(types.TEXT_DOCUMENT_PREPARE_RENAME)
    def prepared(params: types.PrepareRenameParams) -> types.PrepareRenamePlaceholder:
        place = asked(params, None)[0]
        where = range_of(place.source.text, place.span)
        return types.PrepareRenamePlaceholder(
            where, place.source.text[place.span.start : place.span.end].strip("`")
        )

    @server.about_text(types.TEXT_DOCUMENT_RENAME, types.RenameOptions(prepare_provider=True))
    def renamed(params: types.RenameParams) -> types.WorkspaceEdit:
        edits: dict[str, list[types.TextEdit]] = {}
        for edit in asked(params, params.new_name):
            where = range_of(edit.source.text, edit.span)
            edits.setdefault(uri_of(edit.source.name), []).append(types.TextEdit(where, edit.text))
        return types.WorkspaceEdit(changes=edits)


def _testing(server: RuleServer) -> None:
    @server.about_text(types.TEXT_DOCUMENT_CODE_LENS, types.CodeLensOptions(resolve_provider=False))
    def lens(params: types.CodeLensParams) -> list[types.CodeLens]:
        text, path = server.text(params.text_document.uri), path_of(params.text_document.uri)
        return [
            types.CodeLens(
                range_of(text, found.span),
                types.Command(found.title, RUN_TESTS, arguments=[uri_of(path), found.rule]),
            )
            for found in lenses(path, text, server.opened)
        ]

    @server.thread()
    @server.command(RUN_TESTS)
    def run(uri: str = "", rule: str = "") -> dict[str, Any]:
        if not uri or not rule:
            raise JsonRpcInvalidParams(f"{RUN_TESTS} takes the address of a rule file and the name of a rule")
        result = run_tests(path_of(uri), rule)
        kind = types.MessageType.Error if result.problems else types.MessageType.Info
        server.window_show_message(types.ShowMessageParams(kind, result.text))
        server.publish(result.file, result.problems)
        return {"text": result.text, "cases": result.n_cases, "failed": result.n_failed}
