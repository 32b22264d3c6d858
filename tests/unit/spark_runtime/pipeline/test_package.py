"""An archive contains every file that its pipeline reads, or is refused."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest
import yaml

from cep.errors import InputError
from spark_runtime.pipeline.package import write_package

RULE = "RULE {} FROM readings JOIN sites ON device PARTITION BY device PATTERN a DEFINE a AS x > sites.x\n"
STREAMS = """\
streams: {readings: {event_time: ts, schema: {device: string, ts: timestamp, x: double}}}
tables: {sites: {key: [device], static: true, schema: {device: string, x: double}}}
"""
SCHEMA = '{"type": "record", "name": "r", "fields": [{"name": "device", "type": "string"}]}'
PIPELINE = """\
rules: [rules]
sources:
- {stream: readings, format: kafka, brokers: "b:1", topic: t, value: {format: avro, schema: r.avsc}}
- {table: sites, format: json, path: sites.json}
sinks: [{format: json, path: /data/out}]
checkpoint: /data/state
"""
FILES = {
    "pipeline.yaml": PIPELINE,
    "r.avsc": SCHEMA,
    "rules/high.cep": RULE.format("high"),
    "rules/low.cep": RULE.format("low"),
    "sites.json": '{"device": "d", "x": 1}\n',
    "streams.yaml": STREAMS,
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder inside other folders."""
    folder = tmp_path / "team/project"
    (folder / "rules").mkdir(parents=True)
    (tmp_path / "elsewhere/deep").mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


def packaged(project: Path) -> dict[str, str]:
    """Return the texts of the pipeline's files in its archive."""
    write_package(project / "pipeline.yaml", project / "job.zip", ())
    with zipfile.ZipFile(project / "job.zip") as file:
        names = [name for name in file.namelist() if name.startswith("job/")]
        return {name.removeprefix("job/"): file.read(name).decode() for name in names}


@pytest.mark.parametrize(
    ("name", "more"),
    [
        *((name, "") for name in ("rules/high.cep", "streams.yaml", "r.avsc", "sites.json")),
        *((name, "streams: streams.yaml\n") for name in ("rules", "streams.yaml")),
    ],
)
def test_where_a_link_was_is_the_file_to_which_it_leads(name: str, more: str, project: Path) -> None:
    (project / "pipeline.yaml").write_text(PIPELINE + more)
    there = (project / name).rename(project.parents[1] / "elsewhere/deep/other.of.another.name")
    (project / name).symlink_to(os.path.relpath(there, (project / name).parent))
    assert packaged(project) == {**FILES, "pipeline.yaml": PIPELINE + more}


def test_rules_in_a_folder_that_is_a_link_keep_their_streams(project: Path) -> None:
    there = project.parents[1] / "elsewhere/deep"
    for name in ("rules", "streams.yaml"):
        (project / name).rename(there / name)
    (project / "rules").symlink_to(there / "rules")
    found = packaged(project)
    assert found.pop("rules/streams.yaml") == STREAMS
    assert found == {name: text for name, text in FILES.items() if name != "streams.yaml"}


def test_the_name_of_a_folder_is_no_pattern(project: Path) -> None:
    assert packaged(project.rename(project.with_name("project[1]"))) == FILES


def test_files_of_rules_that_are_left_out_are_there(project: Path) -> None:
    both = PIPELINE.replace("[rules]", "[rules/high.cep, rules/low.cep]")
    (project / "pipeline.yaml").write_text(f"{both}only: low\n")
    assert {*packaged(project)} == {*FILES}


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("checkpoint: /data/state", "checkpoint: ../../../../state", "../../../../state"),
        ("checkpoint:", "lineage: lineage.jsonl\ncheckpoint:", "lineage.jsonl"),
        ("checkpoint:", "lineage: ../lineage.jsonl\ncheckpoint:", "../lineage.jsonl"),
        ("checkpoint:", "log: {path: log}\ncheckpoint:", "log"),
        (
            "{format: json, path: /data/out}",
            "{format: webhook, url: 'https://h/', ca_file: ca.pem}",
            "ca.pem",
        ),
        ("schema: r.avsc", "schema: {folder}/r.avsc", "{folder}/r.avsc"),
        ("path: sites.json", "path: {folder}/sites.json", "{folder}/sites.json"),
        ("checkpoint:", "streams: {folder}/streams.yaml\ncheckpoint:", "{folder}/streams.yaml"),
        ("rules: [rules]", "rules: ['{folder}/rules/*.cep']", "{folder}/rules/*.cep"),
    ],
)
def test_a_path_that_the_cluster_lacks_is_refused(before: str, after: str, named: str, project: Path) -> None:
    text = PIPELINE.replace(before, after.replace("{folder}", str(project)))
    assert yaml.safe_load(text)
    (project / "pipeline.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        packaged(project)
    assert caught.value.code == "E0888"
    assert f"`{named.replace('{folder}', str(project))}`" in caught.value.args[0]


def test_a_file_with_two_names_is_there_once(project: Path) -> None:
    (project / "rules/other.cep").symlink_to("low.cep")
    assert {*packaged(project)} == {*FILES}


def test_an_archive_with_other_rules_is_refused(project: Path) -> None:
    deep = project.parents[1] / "elsewhere/deep"
    (project / "rules").rename(deep.parent / "rules")
    (project / "link").symlink_to(deep)
    (project / "pipeline.yaml").write_text(
        PIPELINE.replace("[rules]", "[link/../rules]") + "streams: streams.yaml\n"
    )
    with pytest.raises(InputError) as caught:
        packaged(project)
    assert str(caught.value) == (
        "error[E0888]: the archive would not have all files: there is no file or directory `link/../rules`\n"
        "help: name the files without links and `..` in their paths"
    )
