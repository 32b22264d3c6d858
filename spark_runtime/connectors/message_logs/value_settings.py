"""The setting `value` of a source of messages: the format of the values. Only for the driver."""

from __future__ import annotations

import yaml

from cep.errors import CepError
from cep.formats.payloads.registry import PAYLOADS, payload_format, payload_names
from cep.formats.protocol import RecordFormat
from cep.settings.settings import Settings, one_of, path_of
from spark_runtime.sources.schema_registry import SchemaRegistry, is_address

_SECRETS = ("user", "password")
_REGISTRY = ("registry", *_SECRETS)


def value_format(settings: Settings, name: str) -> RecordFormat | None:
    """Return the format of the setting; None if a problem was reported.

    `value` is a name, or a mapping with `format` and the settings of the format::

        value: {format: avro, registry: "http://localhost:8081"}
    """
    node = settings.found[name]
    try:
        if not isinstance(node, yaml.MappingNode):
            known = settings.word(name, payload_names())
            return None if known is None else payload_format(known)
        return _with_settings(settings, node)
    except CepError as error:
        settings.problem(error.code, str(error.args[0]), name, "cannot be used", error.help)
        return None


def _with_settings(settings: Settings, node: yaml.MappingNode) -> RecordFormat | None:
    document = settings.document
    before = len(document.diagnostics)
    entries = {entry.name: entry.value for entry in document.mapping(node, "`value`") or []}
    if "format" not in entries:
        document.problem("E0404", "`value` has no `format`", node, "`format` is missing", "add: format: avro")
        return None
    name = one_of(document, entries.pop("format"), "`format` of `value`", payload_names())
    if name is None:
        return None
    files = PAYLOADS.get(name).files if name in PAYLOADS.names else ()
    given: dict[str, str] = {}
    for key, value in entries.items():
        text: str | None
        if key in files:
            text = path_of(document, value, f"`{key}`", settings.folder)
        elif key in _SECRETS and isinstance(value, yaml.ScalarNode):
            text = str(value.value)  # may be an environment variable
        else:
            text = document.text(value, f"`{key}`")
        if text is not None:
            given[key] = text
    texts = {key: given.pop(key) for key in _REGISTRY if key in given}
    registry = None
    if "registry" in texts:
        registry = SchemaRegistry(texts["registry"], texts.get("user", ""), texts.get("password", ""))
        if not is_address(registry.url):
            document.problem(
                "E0841",
                "`registry` is no address",
                entries["registry"],
                "not known",
                'for example: registry: "https://registry:8081"; name and password are `user` and `password`',
            )
    elif texts:
        document.problem(
            "E0843", f"`{next(iter(texts))}` without `registry`", node, "has no effect", "remove it"
        )
    if len(document.diagnostics) > before:
        return None
    return payload_format(name, given, registry)
