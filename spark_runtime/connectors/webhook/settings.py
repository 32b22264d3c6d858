"""The settings of a webhook as a sink. Only for the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import yaml

from cep.settings import declared
from cep.settings.declared import Declared, Wrong
from cep.settings.settings import Settings
from cep.settings.yaml_document import Document
from spark_runtime.connectors.webhook.endpoint import NAME_OF_HEADER, OF_HEADER, OF_URL, Endpoint
from spark_runtime.connectors.webhook.template import NamedColumn, Template, TemplateReader, check_columns
from spark_runtime.sinks.place import Place, folder_place
from spark_runtime.sinks.protocol import Output, TableSink
from spark_runtime.sinks.registry import ALL_KINDS, SinkContext, SinkType
from spark_runtime.sources.secrets import without_variables

_JSON, _BULK = "json", "bulk"
_TIMEOUT_S, _RETRY_S = 10.0, 300.0
_PARALLEL, _MOST_PARALLEL = 4, 64
_TOGETHER_IN_BULK = 500
_HEADERS_FORM = {"type": "object", "additionalProperties": declared.TEXT_FORM}
_OURS = ("content-length", "content-type", "host", "idempotency-key", "transfer-encoding", "connection")


def _url(settings: Settings, name: str) -> str | None:
    text = settings.secret(name)
    if text is None:
        return None
    if not OF_URL.fullmatch(without_variables(text)):
        _NO_URL.note(settings, name, text)
        return text
    parts = urlsplit(text)
    try:
        is_sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is not a number
        is_sound = False
    if not is_sound:
        _NO_ADDRESS.note(settings, name, text)
    elif "@" in parts.netloc or "$" in parts.netloc:
        _SECRET_HOST.note(settings, name, text)
    return text


def _headers(settings: Settings, name: str) -> tuple[tuple[str, str], ...]:
    found = declared.read_texts(settings, name, _OURS)
    for header, value in found:
        if not NAME_OF_HEADER.fullmatch(header):
            _NO_NAME.note(settings, name, header)
        elif not OF_HEADER.fullmatch(without_variables(value)):
            _NO_VALUE.note(settings, name, header)
    return found


_NO_URL = Wrong(
    "`url` has a character that no URL can have",
    "a blank, `#`, or a character that is not ASCII",
    "write it as in %20, which is a blank, and %23, which is #",
)
_NO_NAME = Wrong(
    "`{}` is not the name of a header",
    "a name has letters, digits and signs such as -, without blanks",
    "for example: headers: {X-Source: spark-cep}",
)
_NO_VALUE = Wrong(
    "the header `{}` has a character that no header can have",
    "a value has printable characters of ASCII",
    "write other characters into `body`",
)
_NO_ADDRESS = Wrong(
    "`url` is no address of a web server", "not an address", "for example: https://alerts.example/hook"
)
_SECRET_HOST = Wrong(
    "a host of `url` with a user, a password or a variable",
    "would be shown in messages",
    'put it into `headers`: {Authorization: "Basic ${CREDENTIALS}"}',
    "E0843",
)
_TOO_MANY = Wrong(
    f"`parallel` is at most {_MOST_PARALLEL}",
    "too many",
    "for more rows a second, send several in one request: batch: 100",
)
_NOT_LOCAL = Wrong(
    "`refused` is a folder of this machine", "not a local path", "write refused: out/refused", "E0843"
)


@dataclass(frozen=True, slots=True)
class _Settings:
    url: str = declared.own(_url, "", required=True, hidden=True)
    headers: tuple[tuple[str, str], ...] = declared.own(_headers, (), form=_HEADERS_FORM, hidden=True)
    body: yaml.Node | None = declared.later()
    body_of_retract: yaml.Node | None = declared.later()
    together: int | None = declared.integer(None, at_least=1, name="batch")
    parallel: int = declared.integer(4, at_least=1, valid=lambda n: n <= _MOST_PARALLEL, wrong=_TOO_MANY)
    timeout_s: float = declared.duration(10.0, "s", name="timeout")
    retry_s: float = declared.duration(300.0, "s", name="retry_for")
    refused: str = declared.path("", valid=lambda path: "://" not in path, wrong=_NOT_LOCAL)
    ca_file: str = declared.path("")
    is_verified: bool = declared.flag(True, name="verify")

    def spec(self, settings: Settings) -> WebhookSpec:
        body, template, withdrawing, named = _body(settings)
        secrets = [name for each in (template, withdrawing) if each is not None for name in each.variables]
        others = tuple(dict.fromkeys(secrets))
        access = (self.headers, self.timeout_s or _TIMEOUT_S, self.ca_file, self.is_verified, others)
        return WebhookSpec(
            endpoint=Endpoint(self.url, *access),
            body=body,
            together=self.together,
            parallel=self.parallel,
            retry_s=self.retry_s,
            refused=self.refused,
            template=template,
            withdrawing=withdrawing,
            named=named,
        )


def _body(
    settings: Settings,
) -> tuple[str, Template | None, Template | None, tuple[tuple[str, NamedColumn], ...]]:
    """Return the form, the templates of rows and of withdrawing rows, and the columns that they name."""
    form = _JSON
    templates: list[Template | None] = []
    named: list[tuple[str, NamedColumn]] = []
    for name in ("body", "body_of_retract"):
        node = settings.found.get(name)
        if node is None or isinstance(node, yaml.ScalarNode):
            templates.append(None)
            continue
        reader = TemplateReader(settings.document, name)
        templates.append(reader.template(node))
        named += [(name, each) for each in reader.named]
    template, withdrawing = templates
    node = settings.found.get("body")
    if isinstance(node, yaml.ScalarNode):
        if node.value in (_JSON, _BULK):
            form = node.value
        else:
            settings.document.problem(
                "E0841",
                f"`body` cannot be `{node.value}`",
                node,
                "not known",
                'write json or bulk, or what is to be sent, as a structure: body: {text: "{{rule}}"}',
            )
    if "body_of_retract" in settings and (withdrawing is None or template is None):
        settings.document.problem(
            "E0843",
            "`body_of_retract` is a structure, beside a `body` that is one",
            settings.found["body_of_retract"],
            "goes with a template",
            'write both: body: {...}, body_of_retract: {event_action: resolve, dedup_key: "{{match_id}}"}',
        )
    return form, template, withdrawing, tuple(named)


@dataclass(frozen=True, slots=True)
class WebhookSpec:
    """A webhook.

    - `body`: ``json`` or ``bulk``.
    - `together`: maximum number of rows in a request; None: one, and the body is not an array.
    - `retry_s`: seconds for which a request is repeated.
    - `refused`: the folder of permanently refused rows.
    - `template`, `withdrawing`: the body for a row, and for a row that withdraws another one; None: the row
      itself, and `template`.
    - `named`: the columns that templates name, each with its setting.
    """

    endpoint: Endpoint
    body: str = _JSON
    together: int | None = None
    parallel: int = _PARALLEL
    retry_s: float = _RETRY_S
    refused: str = ""
    template: Template | None = None
    withdrawing: Template | None = None
    named: tuple[tuple[str, NamedColumn], ...] = field(default=(), repr=False, compare=False)

    def check_columns(self, document: Document, known: Sequence[str]) -> None:
        """Report each column of a template that rows lack."""
        for setting, column in self.named:
            check_columns(document, setting, [column], known)

    def places(self, output: Output) -> Sequence[Place]:
        """Return the folder of refused rows; several outputs may share an address."""
        return (folder_place(self.refused, output.folder),) if self.refused else ()

    def open(self, output: Output, context: SinkContext) -> TableSink:
        """Return the sink."""
        from spark_runtime.connectors.webhook.bodies import Body, BulkBody, JsonBody
        from spark_runtime.connectors.webhook.sending import Sending
        from spark_runtime.connectors.webhook.sink import WebhookSink

        is_bulk = self.body == _BULK
        body: Body = BulkBody()
        if not is_bulk:
            template, withdrawing = (
                None if each is None else each.with_secrets() for each in (self.template, self.withdrawing)
            )
            body = JsonBody(self.together is not None, template, withdrawing)
        n_together = self.together or (_TOGETHER_IN_BULK if is_bulk else 1)
        sending = Sending(self.endpoint, body, n_together, self.parallel, self.retry_s)
        path = f"{self.refused}/{output.folder}" if self.refused and output.folder else self.refused
        return WebhookSink(output, sending, path, context.owner)


WEBHOOK: SinkType = Declared(_Settings, _Settings.spec, kinds=ALL_KINDS)
