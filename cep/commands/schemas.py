"""JSON Schemas of the YAML files, made from the declarations of their settings.

A schema says which settings there are and which form each has. It accepts every file that `cep` accepts, and
also some that `cep` refuses: what depends on the rules or on other settings is known to `cep` only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cep.errors import CepError
from cep.rule_tests.reading import OF_CASE, OF_FILE
from cep.schema.stream import UNITS
from cep.settings.declared import TEXT_FORM, TEXTS_FORM, form_of
from cep.settings.schema_file import ColumnSettings, OfAll, OfStreams
from cep.settings.table_settings import OfTables

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_ANY: Mapping[str, Any] = {}
_TEXT_VALUES = {"type": "object", "additionalProperties": TEXT_FORM}


def schema(name: str) -> dict[str, Any]:
    """Return the schema of a kind of file, one of `NAMES`."""
    return {"$schema": _DRAFT, "title": f"spark-cep: {name}", **_SCHEMAS[name]()}


def _streams() -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"streams": _named(_stream(OfStreams)), "tables": _named(_stream(OfTables))},
        "anyOf": [{"required": ["streams"]}, {"required": ["tables"]}],
        "additionalProperties": False,
    }


def _named(form: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": form}


def _stream(kind: type) -> dict[str, Any]:
    """Return the schema of a stream or a table. A static table has no event time."""
    of_all, of_kind = form_of(OfAll), form_of(kind)
    column = form_of(ColumnSettings)
    column["properties"]["unit"] = {"type": "string", "examples": list(UNITS)}
    own = {
        "schema": {"type": "object", "additionalProperties": {"anyOf": [{"type": "string"}, column]}},
        "tie_break": TEXTS_FORM,
    }
    keys = {"key": TEXTS_FORM} if kind is OfTables else {}
    required = ["key", "schema"] if kind is OfTables else ["event_time", "schema"]
    properties = {**of_all["properties"], **of_kind["properties"], **own, **keys}
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _tests() -> dict[str, Any]:
    defaults = {"type": "object"}
    case: dict[str, Any] = {
        "type": "object",
        "properties": {
            "events": {"type": ["array", "string", "object"]},
            "expect": {"anyOf": [{"enum": ["none", "None", "NONE"]}, _listed({"type": "object"})]},
            "defaults": defaults,
            "tables": {"type": "object"},
        },
        "required": ["events", "expect"],
        "additionalProperties": False,
    }
    assert set(case["properties"]) == set(OF_CASE)
    properties = {
        "rules": TEXTS_FORM,
        "streams": TEXT_FORM,
        "rule": TEXT_FORM,
        "parameters": _TEXT_VALUES,
        "start": TEXT_FORM,
        "defaults": defaults,
        "tables": {"type": "object"},
        "cases": {"type": "object", "additionalProperties": case, "minProperties": 1},
    }
    assert set(properties) == set(OF_FILE)
    return {
        "type": "object",
        "properties": properties,
        "required": ["cases"],
        "additionalProperties": False,
    }


def _listed(form: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": form}


def _pipeline() -> dict[str, Any]:
    # The declarations need neither Spark nor Java.
    from spark_runtime.pipeline.pipeline_file import LateSettings, PipelineSettings
    from spark_runtime.sinks.registry import SINKS, sink_names
    from spark_runtime.sources.registry import source_names, source_type
    from spark_runtime.wire.output import DEAD, LATE, MATCH

    source = _of_formats({name: _declaration(source_type, name) for name in source_names()}, _SOURCE)
    sinks = {
        kind: _of_formats({name: _declaration(SINKS.get, name) for name in sink_names(kind)}, {})
        for kind in (MATCH, LATE, DEAD)
    }
    of_corrections = form_of(LateSettings)["properties"]
    found = form_of(PipelineSettings)
    found["properties"] |= {
        "streams": {"anyOf": [TEXT_FORM, {"type": "object"}]},
        "tables": {"type": "object"},
        "rules": TEXTS_FORM,
        "parameters": _TEXT_VALUES,
        "source": source,
        "sources": _listed(source),
        "sinks": {"anyOf": [sinks[MATCH], _listed(sinks[MATCH])]},
        "late": _with(sinks[LATE], of_corrections),
        "dead_letter": sinks[DEAD],
        "trigger": TEXT_FORM,
        "metrics": TEXT_FORM,
        "spark": _TEXT_VALUES,
    }
    found["required"] = ["rules", "sinks"]
    found["anyOf"] = [{"required": ["source"]}, {"required": ["sources"]}]
    return found


_SOURCE: Mapping[str, Any] = {"stream": TEXT_FORM, "table": TEXT_FORM, "idle_after": {"type": "string"}}


def _declaration(lookup: Callable[[str], Any], name: str) -> dict[str, Any]:
    """Return the properties of a format. Of one that is not declared as fields, only the names are known."""
    try:
        found = lookup(name)
    except CepError:  # its package is not installed, so nothing is known about it
        return {}
    declaration = getattr(found, "declaration", None)
    if declaration is None:
        return dict.fromkeys(found.settings, _ANY)
    properties: dict[str, Any] = form_of(declaration)["properties"]
    return properties


def _of_formats(formats: Mapping[str, Mapping[str, Any]], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a mapping whose `format` decides about its other settings."""
    return {
        "type": "object",
        "required": ["format"],
        "properties": {"format": {"enum": list(formats)}},
        "allOf": [
            {
                "if": {"properties": {"format": {"const": name}}, "required": ["format"]},
                "then": {
                    "properties": {"format": _ANY, **more, **properties},
                    "additionalProperties": False,
                },
            }
            for name, properties in formats.items()
        ],
    }


def _with(form: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema by format with more settings, which may also be given without a format."""
    formats = {
        each["if"]["properties"]["format"]["const"]: each["then"]["properties"] for each in form["allOf"]
    }
    alone = {"type": "object", "properties": dict(more), "additionalProperties": False}
    return {"anyOf": [_of_formats(formats, more), alone, TEXT_FORM]}


_SCHEMAS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "pipeline": _pipeline,
    "streams": _streams,
    "tests": _tests,
}

NAMES = tuple(_SCHEMAS)
"""The kinds of files that have a schema."""
