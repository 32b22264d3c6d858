"""Two outputs of a pipeline in one place are refused before anything runs."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from cep.errors import RuleError
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.sinks.place import PlacedSink
from spark_runtime.sinks.registry import SINKS
from tests.unit.spark_runtime.sinks.test_settings import RULE, STREAMS, spec_of

TWO_STREAMS = (
    "streams: {s: {event_time: ts, schema: {id: bigint, ts: timestamp}}, "
    "t: {event_time: ts, schema: {id: bigint, ts: timestamp}}}"
)
TWO_RULES = f"{RULE}\nRULE r2 FROM t PARTITION BY id PATTERN a DEFINE a AS id > 0"
POSTGRES = "format: postgres, host: {}, database: d, table: {}"
KAFKA = "format: kafka, brokers: '{}', topic: {}"
RABBIT = "format: rabbitmq, host: {}"
EACH = {
    "console": "format: console",
    "json": "format: json, path: p",
    "parquet": "format: parquet, path: p",
    "csv": "format: csv, path: p",
    "delta": "format: delta, path: p",
    "kafka": KAFKA.format("b:9092", "t"),
    "postgres": POSTGRES.format("h", "t"),
    "webhook": "format: webhook, url: 'http://h/', refused: p",
    "rabbitmq": f"{RABBIT.format('h')}, queue: q",
}


def said(
    folder: Path,
    first: str,
    second: str,
    late: str = "",
    *,
    streams: int = 1,
    checkpoint: str = "c",
    source: str = "format: json, path: in-s",
) -> list[str]:
    """Return the problems of a pipeline with these outputs; `second` may be ``dead ...``."""
    (folder / "streams.yaml").write_text(STREAMS if streams == 1 else TWO_STREAMS)
    (folder / "r.cep").write_text(RULE if streams == 1 else TWO_RULES)
    lines = ["rules: [r.cep]", "sources:"]
    lines += [f"  - {{stream: s, {source}}}"]
    lines += [f"  - {{stream: {name}, format: json, path: in-{name}}}" for name in "t"[: streams - 1]]
    lines += [f"checkpoint: {checkpoint}", "sinks:", f"  - {{{first}}}"]
    if second:
        lines.append(
            f"  - {{{second}}}" if not second.startswith("dead ") else f"dead_letter: {{{second[5:]}}}"
        )
    if late:
        lines.append(f"late: {{{late}}}")
    (folder / "p.yaml").write_text("\n".join(lines) + "\n")
    try:
        load_pipeline(folder / "p.yaml")
    except RuleError as error:
        return [f"{found.code} {found.title}" for found in error.diagnostics]
    return []


def folder_of(place: Path) -> str:
    return f"E0843 two outputs go to folder `{place}`"


def test_each_sink_of_this_package_says_where_it_writes(tmp_path: Path) -> None:
    assert EACH.keys() == set(SINKS.built_in)
    placed = {name for name, text in EACH.items() if isinstance(spec_of(tmp_path, f"{{{text}}}"), PlacedSink)}
    assert placed == EACH.keys() - {"console"}


@pytest.mark.parametrize("name", [name for name in EACH if name != "console"])
def test_a_place_is_refused_a_second_time(tmp_path: Path, name: str) -> None:
    (found,) = said(tmp_path, EACH[name], EACH[name])
    assert found.startswith("E0843 two outputs go to ")


OF_FOLDERS = ("json", "parquet", "csv", "delta", "webhook")


@pytest.mark.parametrize(("first", "second"), [*permutations(OF_FOLDERS, 2)])
def test_a_folder_is_refused_whatever_is_written_into_it(tmp_path: Path, first: str, second: str) -> None:
    assert said(tmp_path, EACH[first], EACH[second]) == [folder_of(tmp_path / "p")]
    assert said(tmp_path, EACH[first], f"dead {EACH[second]}") == [folder_of(tmp_path / "p")]
    assert said(tmp_path, EACH[first], "", EACH[second]) == [folder_of(tmp_path / "p")]
    assert said(tmp_path, "format: console", f"dead {EACH[first]}", EACH[second]) == [
        folder_of(tmp_path / "p")
    ]


def test_a_folder_is_known_behind_links_and_schemes(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "p")
    for other in ("link", "./x/../p", f"file://{tmp_path}/p", f"file://{tmp_path}/link"):
        assert said(tmp_path, EACH["json"], f"dead format: json, path: '{other}'") == [
            folder_of(tmp_path / "p")
        ]
    assert said(tmp_path, "format: json, path: s3a://b/p", "format: csv, path: 's3a://b/p'") == [
        "E0843 two outputs go to folder `s3a://b/p`"
    ]


def test_a_folder_inside_another_one_is_refused(tmp_path: Path) -> None:
    inside = f"E0843 folder `{tmp_path}/p/q` is inside folder `{tmp_path}/p`, where another output goes"
    assert said(tmp_path, EACH["json"], "dead format: csv, path: p/q") == [inside]
    around = f"E0843 folder `{tmp_path}/p/q`, where another output goes, is inside folder `{tmp_path}/p`"
    assert said(tmp_path, "format: csv, path: p/q", f"dead {EACH['delta']}") == [around]
    assert said(tmp_path, EACH["json"], "dead format: json, path: p2") == []
    assert said(tmp_path, "format: json, path: out/p", "dead format: json, path: out/q") == []


@pytest.mark.parametrize("name", OF_FOLDERS)
def test_a_checkpoint_and_an_output_do_not_meet(tmp_path: Path, name: str) -> None:
    both = f"E0843 an output and the checkpoint go to folder `{tmp_path}/p`"
    inside = f"E0843 folder `{tmp_path}/p/c` is inside folder `{tmp_path}/p`, where an output goes"
    assert said(tmp_path, EACH[name], "", checkpoint="p") == [both]
    assert said(tmp_path, EACH[name], "", checkpoint="p/c") == [inside]
    within = EACH[name].replace("path: p", "path: c/p").replace("refused: p", "refused: c/p")
    around = f"E0843 folder `{tmp_path}/c/p`, where an output goes, is inside folder `{tmp_path}/c`"
    assert said(tmp_path, within, "") == [around]
    assert said(tmp_path, "format: console", f"dead {within}") == [around]
    assert said(tmp_path, "format: console", "", within) == [around]


def of_source(folder: Path, source: str, sink: str = "p", checkpoint: str = "c") -> list[str]:
    sink, source = f"format: json, path: {sink}", f"format: csv, path: '{source}'"
    return said(folder, sink, "", checkpoint=checkpoint, source=source)


def test_a_source_reads_nothing_that_the_pipeline_writes(tmp_path: Path) -> None:
    output = "E0843 a source reads folder `{}`, where an output goes"
    checkpoint = "E0843 a source reads folder `{}`, where the checkpoint is"
    assert of_source(tmp_path, "p") == [output.format(tmp_path / "p")]
    assert of_source(tmp_path, "c") == [checkpoint.format(tmp_path / "c")]
    assert of_source(tmp_path, "c/in") == [
        f"E0843 a source reads folder `{tmp_path}/c/in`, which is inside the checkpoint"
    ]
    assert of_source(tmp_path, "c/in/*.csv")[0].endswith("which is inside the checkpoint")
    assert of_source(tmp_path, "p/*.csv") == [output.format(tmp_path / "p")]
    assert of_source(tmp_path, "p/*/{id}.csv") == [output.format(tmp_path / "p")]
    assert of_source(tmp_path, "in/*/{id}.csv", "in/out") == [output.format(tmp_path / "in/out")]
    assert of_source(tmp_path, "in/*/{id}.csv", checkpoint="in/c") == [checkpoint.format(tmp_path / "in/c")]
    (tmp_path / "p").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "p")
    assert of_source(tmp_path, "link/*.csv") == [output.format(tmp_path / "p")]
    assert of_source(tmp_path, "link") == [output.format(tmp_path / "p")]


def test_a_source_may_be_near_what_the_pipeline_writes(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").touch()
    assert of_source(tmp_path, "in", "in/out", "in/c") == []  # it reads no folders inside
    assert of_source(tmp_path, "in/*.csv", "in/out", "in/c") == []
    assert of_source(tmp_path, "in/*/{id}.csv", "in/_out", "in/.c") == []  # hidden
    assert of_source(tmp_path, "in/d*/{id}.csv", "in/out", "in/c") == []
    assert of_source(tmp_path, "in/a.csv", "in") == []  # it reads nothing else
    assert of_source(tmp_path, "p/in") == []
    assert of_source(tmp_path, "s3a://b/in", "s3a://b/out", "s3a://b/c") == []


def test_a_source_reads_nothing_that_the_pipeline_writes_to_a_server(tmp_path: Path) -> None:
    def is_read(source: str, sink: str) -> bool:
        found = said(tmp_path, sink, "", source=source)
        assert said(tmp_path, "format: console", f"dead {sink}", source=source) == found
        assert all(found.startswith("E0843 a source reads ") for found in found)
        return bool(found)

    written = KAFKA.format("b:9092", "t")
    assert said(tmp_path, written, "", source=written) == [
        "E0843 a source reads topic `t`, where an output goes"
    ]
    assert is_read(f"{written}, via: spark", written)
    assert is_read("format: kafka, brokers: [a, B], topic: [s, t]", written)
    assert is_read("format: kafka, brokers: b, topic_pattern: '[s-u]'", written)
    assert not is_read("format: kafka, brokers: b, topic_pattern: 'a.*'", written)
    assert not is_read(KAFKA.format("b:9092", "s"), written)
    assert not is_read(KAFKA.format("a:9092", "t"), written)
    table = "format: postgres, host: {}, database: d, tables: [a, {}], slot: s"
    assert is_read(table.format("h", "t"), POSTGRES.format("H", "public.t"))
    assert not is_read(table.format("h", "x.t"), POSTGRES.format("h", "t"))
    assert not is_read(table.format("g", "t"), POSTGRES.format("h", "t"))
    assert not is_read(table.format("h", "t"), KAFKA.format("h:5432", "t"))
    stream = "format: rabbitmq_stream, servers: '{}', stream_name: [a, q]"
    queue = f"{RABBIT.format('h')}, queue: q"
    for server in ("h", "h:5552"):
        assert is_read(stream.format(server), queue)
        assert not is_read(f"{stream.format(server)}, virtual_host: v", queue)
        assert not is_read(stream.format(server), f"{RABBIT.format('h')}, exchange: e, routing_key: q")
    assert not is_read(stream.format("g"), queue)


def test_late_events_of_several_streams_have_places_of_their_own(tmp_path: Path) -> None:
    late = "format: json, path: late"
    assert said(tmp_path, EACH["json"], "", late, streams=2) == []
    met = said(tmp_path, "format: json, path: late/stream=t", "", late, streams=2)
    assert met == [folder_of(tmp_path / "late/stream=t")]
    for format_ in ("kafka", "rabbitmq"):  # one topic, one queue gets all of them
        assert said(tmp_path, EACH["json"], "", EACH[format_], streams=2) == []
    table = POSTGRES.format("h", "a")
    assert said(tmp_path, POSTGRES.format("h", "a"), "", table, streams=2) == []
    met = said(tmp_path, POSTGRES.format("h", "a_t"), "", table, streams=2)
    assert met == ["E0843 two outputs go to table `a_t`"]


def test_things_of_servers_are_known_by_other_names(tmp_path: Path) -> None:
    def are_one(first: str, second: str) -> bool:
        found = said(tmp_path, first, second)
        assert all(problem.startswith("E0843 two outputs go to ") for problem in found)
        return bool(found)

    assert are_one(KAFKA.format("a:1,b:2", "t"), KAFKA.format("B:2", "t"))
    assert are_one(KAFKA.format("localhost", "t"), KAFKA.format("PLAINTEXT://127.0.0.1:9092", "t"))
    assert are_one(KAFKA.format("a:1", "t"), f"dead {KAFKA.format('a:1', 't')}")
    assert not are_one(KAFKA.format("a:1", "t"), KAFKA.format("a:1", "u"))
    assert not are_one(KAFKA.format("a:1", "t"), KAFKA.format("a:2", "t"))
    assert are_one(POSTGRES.format("localhost", "t"), POSTGRES.format("127.0.0.1", "public.t"))
    assert are_one(POSTGRES.format("h", "t"), f"dead {POSTGRES.format('h', 't')}, port: 5432")
    assert not are_one(POSTGRES.format("h", "t"), POSTGRES.format("h", "s.t"))
    assert not are_one(POSTGRES.format("h", "t"), POSTGRES.format("g", "t"))
    queue = f"{RABBIT.format('h')}, queue: q"
    assert not are_one(queue, f"{queue}, virtual_host: v")
    assert not are_one(queue, f"dead {queue}")  # `type` of a message tells them
    exchange = f"{RABBIT.format('h')}, exchange: e, routing_key: "
    assert are_one(f"{exchange}k", f"{exchange}k")
    assert not are_one(f"{exchange}k", f"{exchange}l")
    webhook = "format: webhook, url: 'http://h/'"
    assert not are_one(webhook, f"dead {webhook}")
