"""A webhook as a sink: its settings. On the driver only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import yaml

from cep.settings.settings import Settings
from cep.settings.yaml_document import Document
from spark_runtime.connectors.webhook.endpoint import Endpoint
from spark_runtime.connectors.webhook.template import NamedColumn, Template, TemplateReader, check_columns
from spark_runtime.sinks.place import Place, folder_place
from spark_runtime.sinks.protocol import Output, TableSink
from spark_runtime.sinks.registry import ALL_KINDS, SinkContext, SinkSpec, SinkType

_JSON, _BULK = "json", "bulk"
_TIMEOUT_S, _RETRY_S = 10.0, 300.0
_PARALLEL, _MOST_PARALLEL = 4, 64
_TOGETHER_IN_BULK = 500
_OURS = ("content-length", "content-type", "host", "idempotency-key", "transfer-encoding", "connection")


class _WebhookType:
    """See `SinkType`."""

    settings = (
        "url",
        "headers",
        "body",
        "body_of_retract",
        "batch",
        "parallel",
        "timeout",
        "retry_for",
        "refused",
        "ca_file",
        "verify",
    )
    kinds = ALL_KINDS

    def spec(self, settings: Settings) -> SinkSpec | None:
        """Return the spec, or None if a problem was noted."""
        before = len(settings.document.diagnostics)
        url, headers = _url(settings), _headers(settings)
        body, template, withdrawing, named = _body(settings)
        together, parallel = settings.positive("batch"), settings.positive("parallel")
        timeout_s, retry_s = settings.seconds("timeout"), settings.seconds("retry_for")
        refused = settings.path("refused") if "refused" in settings else ""
        ca_file = settings.path("ca_file") if "ca_file" in settings else ""
        verifies = True
        if "verify" in settings:
            verifies = settings.document.boolean(settings.found["verify"], "`verify`") is not False
        if parallel is not None and parallel > _MOST_PARALLEL:
            settings.document.problem(
                "E0402",
                f"`parallel` is at most {_MOST_PARALLEL}",
                settings.found["parallel"],
                "too many",
                "for more rows a second, send several in one request: batch: 100",
            )
        if refused and "://" in refused:
            settings.document.problem(
                "E0843",
                "`refused` is a folder of this machine",
                settings.found["refused"],
                "not a local path",
                "write refused: out/refused",
            )
        if url is None or len(settings.document.diagnostics) > before:
            return None
        secrets = [name for each in (template, withdrawing) if each is not None for name in each.variables]
        return WebhookSpec(
            endpoint=Endpoint(
                url, headers, timeout_s or _TIMEOUT_S, ca_file or "", verifies, tuple(dict.fromkeys(secrets))
            ),
            body=body,
            together=together,
            parallel=parallel or _PARALLEL,
            retry_s=_RETRY_S if retry_s is None else retry_s,
            refused=refused or "",
            template=template,
            withdrawing=withdrawing,
            named=named,
        )


def _url(settings: Settings) -> str | None:
    text = settings.secret("url")
    if text is None:
        return None
    parts = urlsplit(text)
    try:
        is_sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number
        is_sound = False
    if not is_sound:
        settings.document.problem(
            "E0402",
            "`url` is no address of a web server",
            settings.found["url"],
            "not an address",
            "for example: https://alerts.example/hook",
        )
    elif "@" in parts.netloc or "$" in parts.netloc:
        settings.document.problem(
            "E0843",
            "a host of `url` with a user, a password or a variable",
            settings.found["url"],
            "would be shown in messages",
            'put it into `headers`: {Authorization: "Basic ${CREDENTIALS}"}',
        )
    return text


def _body(
    settings: Settings,
) -> tuple[str, Template | None, Template | None, tuple[tuple[str, NamedColumn], ...]]:
    """Return the form, the templates of rows and of those that withdraw others, and the columns they name."""
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


def _headers(settings: Settings) -> tuple[tuple[str, str], ...]:
    node = settings.found.get("headers")
    found = []
    for entry in [] if node is None else settings.document.mapping(node, "`headers`") or []:
        if entry.name.lower() in _OURS:
            settings.document.problem(
                "E0843",
                f"`{entry.name}` is not for `headers`",
                entry.value,
                "the sink decides about it",
                "remove it",
            )
        elif not isinstance(entry.value, yaml.ScalarNode):
            settings.document.text(entry.value, f"`{entry.name}`")  # notes that it is no text
        else:
            found.append((entry.name, str(entry.value.value)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class WebhookSpec:
    """A webhook.

    Parameters
    ----------
    endpoint
        The address.
    body
        ``json`` or ``bulk``.
    together
        The most rows of a request; None: one, and the body is no array.
    parallel
        The most requests at a time.
    retry_s
        How long a request is sent again.
    refused
        Where rows go that are refused for good.
    template, withdrawing
        What is sent of a row, and of one that withdraws another one; None: the row, as all others.
    named
        The columns that templates name, each with the setting.
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
        """Note a problem for each column of a template that rows do not have."""
        for setting, column in self.named:
            check_columns(document, setting, [column], known)

    def places(self, output: Output) -> Sequence[Place]:
        """Return the folder of refused rows; an address may get several outputs."""
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


WEBHOOK: SinkType = _WebhookType()
