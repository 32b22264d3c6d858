"""JSON Schemas of the YAML files: they have the declared settings, and accept what `cep` accepts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from cep.commands.cli import main
from cep.commands.schemas import NAMES, schema
from cep.errors import Source
from cep.rule_tests.reading import OF_CASE, OF_FILE
from cep.settings.declared import declared_settings
from cep.settings.schema_file import ColumnSettings, OfAll, OfStreams, parse_streams
from cep.settings.table_settings import OfTables
from spark_runtime.pipeline.pipeline_file import PipelineSettings
from spark_runtime.sinks.registry import SINKS, sink_names
from spark_runtime.sources.registry import source_names, source_type
from spark_runtime.wire.output import MATCH
from tests.pages import DOCS, blocks

ROOT = Path(__file__).parents[3]
FILES = {
    "pipeline": sorted((ROOT / "scenarios").rglob("pipeline.yaml")),
    "streams": [*sorted((ROOT / "rules").rglob("streams.yaml")), ROOT / "scenarios/payments/streams.yaml"],
    "tests": sorted((ROOT / "rules").rglob("*.test.yaml")),
}


def loaded(text: str) -> Any:
    """Return YAML as an editor reads it: JSON has no dates."""
    return json.loads(json.dumps(yaml.safe_load(text), default=str))


def refused(name: str, text: str) -> list[str]:
    """Return what a schema refuses of a text."""
    checker = jsonschema.Draft202012Validator(schema(name))
    return [error.message for error in checker.iter_errors(loaded(text))]


@pytest.mark.parametrize("name", NAMES)
def test_each_schema_is_one_and_accepts_the_files_of_the_repository(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(name))
    assert len(FILES[name]) > 3
    for file in FILES[name]:
        assert refused(name, file.read_text()) == [], file


def test_the_schemas_accept_the_examples_of_the_pages() -> None:
    n_found = 0
    for page in sorted(DOCS.rglob("*.md")):
        for block in blocks(page.read_text(), "yaml"):
            keys = set(loaded(block) or ()) if not block.lstrip().startswith(("-", "#")) else set()
            kind = (
                "pipeline"
                if {"rules", "sinks"} <= keys
                else "streams"
                if "streams" in keys and keys <= {"streams", "tables"}
                else "tests"
                if "cases" in keys
                else None
            )
            if kind is not None and "format: kv" not in block:  # a format of a plug-in
                n_found += 1
                assert refused(kind, block) == [], (page, block)
    assert n_found > 20


def test_the_schema_of_pipelines_has_each_declared_setting_and_no_other() -> None:
    found = schema("pipeline")["properties"]
    assert set(found) == set(declared_settings(PipelineSettings))
    assert set(found["watermark"]["enum"]) == set(declared_settings(PipelineSettings)["watermark"].words)


@pytest.mark.parametrize("format_name", [*source_names(), *sink_names(MATCH)])
def test_each_source_and_sink_has_its_settings(format_name: str) -> None:
    found = schema("pipeline")["properties"]
    for lists, names, lookup, more in (
        (found["source"], source_names(), source_type, {"stream", "table", "idle_after"}),
        (found["sinks"]["anyOf"][0], sink_names(MATCH), SINKS.get, set[str]()),
    ):
        if format_name in names:
            branch = next(
                each["then"]
                for each in lists["allOf"]
                if each["if"]["properties"]["format"]["const"] == format_name
            )
            expected = {"format", *more, *lookup(format_name).settings}
            assert set(branch["properties"]) == expected


def test_the_schema_of_streams_has_each_declared_setting_and_no_other() -> None:
    found = schema("streams")["properties"]
    of_all = set(declared_settings(OfAll))
    assert set(found["streams"]["additionalProperties"]["properties"]) == of_all | set(
        declared_settings(OfStreams)
    )
    table = found["tables"]["additionalProperties"]["properties"]
    assert set(table) == of_all | set(declared_settings(OfTables))
    column = table["schema"]["additionalProperties"]["anyOf"][1]["properties"]
    assert set(column) == set(declared_settings(ColumnSettings))


def test_the_schema_of_tests_has_the_settings_that_are_read() -> None:
    found = schema("tests")["properties"]
    assert set(found) == set(OF_FILE)
    assert set(found["cases"]["additionalProperties"]["properties"]) == set(OF_CASE)


@pytest.mark.parametrize(
    "file", sorted((ROOT / "tests/golden/errors").glob("E0403*.yaml")), ids=lambda f: f.stem
)
def test_an_unknown_setting_is_refused_as_cep_refuses_it(file: Path) -> None:
    assert {one.code for one in parse_streams(Source("streams.yaml", file.read_text()))[1]} == {"E0403"}
    assert refused("streams", file.read_text()) != []


@pytest.mark.parametrize(
    "wrong",
    [
        "{rules: a.cep, source: {stream: s, format: json, path: p, brokers: x}, sinks: {format: console}}",
        "{rules: a.cep, source: {stream: s, format: json, path: p}, sinks: {format: consol}}",
        "{rules: a.cep, source: {stream: s, format: json, path: p}, sinks: {format: console}, mode: steam}",
        "{rules: a.cep, source: {stream: s, format: json, path: p}, sinks: {format: console, limit: -1}}",
        "{source: {stream: s, format: json, path: p}, sinks: {format: console}}",
        "{rules: a.cep, sinks: {format: console}}",
    ],
)
def test_a_wrong_pipeline_is_refused(wrong: str) -> None:
    assert refused("pipeline", wrong) != []


def test_cep_schema_prints_one() -> None:
    for name in NAMES:
        result = CliRunner().invoke(main, ["schema", name])
        assert result.exit_code == 0
        assert json.loads(result.output) == schema(name)
