"""`cep replay` without Spark: from every offset, into every kind of sink, interrupted, over damaged files."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from rich.console import Console

from cep.commands.cli import main
from cep.formats.dead_letter import DEAD_LETTER_SCHEMA
from spark_runtime.connectors.files.sink import FolderSink
from spark_runtime.connectors.files.writers import JsonWriter
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.sinks.log_sink import LogSink
from spark_runtime.sinks.match_log import MatchLog
from spark_runtime.sinks.protocol import MicroBatch, Output, Rows
from spark_runtime.sinks.registry import SinkContext
from spark_runtime.wire.output import DEAD
from spark_runtime.wire.plan import IDENTITY_DIGITS
from tests.standing import Standing
from tests.unit.spark_runtime.pipeline.test_state_setting import RULE, pipeline

START = datetime(2024, 5, 1, tzinfo=UTC)
COLUMNS = ("rule", "match_id", "revision", "kind")
BATCHES = {
    0: [("m0", 0, "match"), ("m1", 0, "match")],
    2: [("m2", 0, "match"), ("m1", 1, "retract")],
    3: [("m0", 1, "retract"), ("m0", 2, "match"), ("m3", 0, "match")],
    7: [("m1", 2, "match"), ("m3", 1, "retract")],
}
"""Rows by micro-batch; the offset of a micro-batch is one more than its place here."""


def rows_of(number: int) -> list[dict[str, Any]]:
    rules = {"m0": "r", "m1": "r", "m2": "gone", "m3": "r"}
    values = [(rules[match_id], match_id, revision, kind) for match_id, revision, kind in BATCHES[number]]
    return [dict(zip(COLUMNS, row, strict=True)) for row in values]


def written(folder: Path, *more: str) -> Path:
    """A pipeline and its log, as a stream would have written it."""
    settings = ("checkpoint: c", "log: log", "late: correct within 1 hour", *more)
    pipeline(folder, *settings)
    file = folder / "p.yaml"
    file.write_text(file.read_text().replace("[{format: console}]", "[{format: delta, path: delta}]"))
    made = load_pipeline(file)
    context = SinkContext(made.rules, Console(file=StringIO()))
    sink = next(sink for _, sink in made.opened_sinks(context) if isinstance(sink, LogSink))
    sink.check()
    for number in range(max(BATCHES) + 1):
        batch = MicroBatch("run", number, f"{number:0{IDENTITY_DIGITS}x}")
        sink.begin(batch)
        if number in BATCHES:
            times = {"match_start": START, "match_end": START}
            rows = [row | times for row in rows_of(number)]
            table = pa.Table.from_pylist(rows, schema=sink.output.schema)
            for part in range(table.num_rows):  # a file for each row
                sink.write_part(batch, str(part), Rows(sink.output, [table.slice(part, 1)]))
        sink.commit(batch)
    return file


def cep(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(main, list(map(str, words)))
    assert result.exit_code == code, result.output
    return result.output


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    """Count rows by the columns that differ."""
    return Counter(json.dumps([row[name] for name in COLUMNS]) for row in rows)


def expected(*numbers: int) -> Counter[str]:
    return counted([row for number in numbers for row in rows_of(number)])


def read(folder: Path, kind: str) -> list[dict[str, Any]]:
    if kind == "delta":
        rows: list[dict[str, Any]] = DeltaTable(folder).to_pyarrow_table().to_pylist()
    elif kind == "json":
        texts = [file.read_text().splitlines() for file in sorted(folder.rglob("part-*"))]
        rows = [json.loads(line) for lines in texts for line in lines]
    else:
        rows = pa.dataset.dataset(folder, format=kind, partitioning=None).to_table().to_pylist()
    return rows


@pytest.mark.parametrize("kind", ["json", "parquet", "csv", "delta"])
def test_a_new_sink_has_the_rows_of_the_log_and_twice_is_once(tmp_path: Path, kind: str) -> None:
    file = written(tmp_path)
    into = ("--into", f"{{format: {kind}, path: {tmp_path}/again}}")
    assert cep("replay", file, *into) == "wrote 9 rows of 4 micro-batches\n"
    for _ in range(2):
        assert counted(read(tmp_path / "again", kind)) == expected(*BATCHES)
        said = cep("replay", file, *into)
        assert said == "wrote 0 rows of 0 micro-batches; 4 the sink had already\n"


def test_rows_that_correct_others_come_in_their_order(tmp_path: Path) -> None:
    file = written(tmp_path)
    cep("replay", file, "--into", f"{{format: json, path: {tmp_path}/again}}")
    live, again = Standing(), Standing()
    for number in BATCHES:
        live.read(rows_of(number))
        folder = tmp_path / f"again/batch=run-{number}"
        again.read({name: row[name] for name in COLUMNS} for row in read(folder, "json"))
    assert {name: kept[0] for name, kept in again.last.items()} == {n: k[0] for n, k in live.last.items()}
    assert (live.sum, live.n_retracted) == (again.sum, again.n_retracted)


@pytest.mark.parametrize("offset", range(len(BATCHES) + 2))
def test_a_replay_begins_at_any_offset_and_time(tmp_path: Path, offset: int) -> None:
    file = written(tmp_path)
    found = [json.loads(line) for line in cep("replay", file, "--list", "--format", "json").splitlines()]
    numbers = list(BATCHES)[max(offset - 1, 0) :]
    starts = {"offset": str(offset)}
    if offset < len(found):
        starts["time"] = found[offset]["written"]
    for name, start in starts.items():
        place = tmp_path / name
        cep("replay", file, "--from", start, "--into", f"{{format: json, path: {place}}}")
        rows = [row for number in BATCHES for row in read(place / f"batch=run-{number}", "json")]
        assert counted(rows) == expected(*numbers)
    ends = "the log ends with offset 4, micro-batch 7"
    assert cep("replay", file, "--from", "2999-01-01", "--dry-run") == f"no rows; {ends}\n"
    assert cep("replay", file, "--from", "5", "--list") == f"no entries; {ends}\n"
    assert f"wrote 0 rows of 0 micro-batches; {ends}\n" == cep(
        "replay", file, "--from", "5", "--into", f"{{format: json, path: {tmp_path}/none}}"
    )
    for how in (("--dry-run",), ("--list",), ("--into", "delta")):
        said = cep("replay", file, "--from", "99", *how, code=1)
        assert f"error[E0721]: the log `{tmp_path}/log` ends with offset 4, micro-batch 7" in said


def test_a_rule_without_rows_is_refused_unless_the_pipeline_has_it(tmp_path: Path) -> None:
    file = written(tmp_path)
    for how in (("--dry-run",), ("--into", "delta")):
        said = cep("replay", file, "--rule", "nope", *how, code=2)
        assert "the log has no row of rule `nope`, but of gone, r" in said
    assert not (tmp_path / "delta").exists()
    (tmp_path / "r.cep").write_text((tmp_path / "r.cep").read_text().replace("RULE r", "RULE other"))
    assert cep("replay", file, "--rule", "other", "--dry-run") == "no rows\n"


def test_only_rows_of_a_rule_are_written_and_counted(tmp_path: Path) -> None:
    file = written(tmp_path)
    lines = cep("replay", file, "--dry-run", "--format", "json").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"rule": "gone", "kind": "match", "rows": 1},
        {"rule": "r", "kind": "match", "rows": 5},
        {"rule": "r", "kind": "retract", "rows": 3},
    ]
    into = ("--into", f"{{format: parquet, path: {tmp_path}/again}}")
    assert cep("replay", file, "--rule", "gone", *into) == "wrote 1 row of 4 micro-batches\n"
    assert [row["match_id"] for row in read(tmp_path / "again", "parquet")] == ["m2"]


@pytest.mark.parametrize("n_read", range(1, 8))
def test_a_replay_that_ends_anywhere_continues_where_the_sink_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_read: int
) -> None:
    file = written(tmp_path)
    table, visits = MatchLog.table, list[int]()

    def ending(*given: Any) -> Any:
        visits.append(1)
        if len(visits) > n_read:
            raise OSError("the replay ends here")
        return table(*given)

    with monkeypatch.context() as patched:
        patched.setattr(MatchLog, "table", ending)
        assert CliRunner().invoke(main, ["replay", str(file), "--into", "delta"]).exit_code
    assert counted(read(tmp_path / "delta", "delta")) <= expected(*BATCHES)
    cep("replay", file, "--into", "delta")
    assert counted(read(tmp_path / "delta", "delta")) == expected(*BATCHES)


@pytest.mark.parametrize("how", ["is missing", "is damaged", "bytes instead of"])
def test_damage_is_one_sentence_with_the_name_of_the_file(tmp_path: Path, how: str) -> None:
    file = written(tmp_path)
    log = MatchLog(str(tmp_path / "log"))
    parts = [log.file(entry, name) for entry in log.entries() for name in entry.files]
    known = sorted((tmp_path / "log/_entries").iterdir())
    victims = (*parts, *(known[:-1] if how == "is missing" else known))
    for number, victim in enumerate(victims):
        into = ("--into", f"{{format: json, path: {tmp_path}/{number}}}")
        data = victim.read_bytes()
        if how == "is missing":
            victim.unlink()
        elif how == "is damaged":
            victim.write_bytes(bytes([data[0] ^ 1]) + data[1:])
        elif victim in known:
            continue
        else:
            victim.write_bytes(data[:-1])
        said = cep("replay", file, *into, code=1)
        sentence = rf"error\[E0720\]: `{re.escape(str(victim))}` of the log of matches .*{how}"
        assert re.search(sentence, said), said
        victim.write_bytes(data)
        assert not list(tmp_path.glob(f"{number}/batch=run-7"))
        assert not list(tmp_path.glob(f"{number}/.batch=*"))
        cep("replay", file, *into)
        assert counted(read(tmp_path / str(number), "json")) == expected(*BATCHES)


@pytest.mark.parametrize("kind", ["json", "delta"])
@pytest.mark.parametrize(
    ("place", "what"),
    [
        ("out/late", "is the folder of `late`"),
        ("out/dead/again", "is inside the folder of `dead_letter`"),
        ("out/shadow", "is the folder of `shadow`"),
        ("out", "contains the folder of `late`"),
        ("log/again", "is inside the log that is replayed"),
        ("events", "is the source of `readings`"),
        ("events/again", "is inside the source of `readings`"),
        ("c", "is the checkpoint"),
        ("c/again", "is inside the checkpoint"),
    ],
)
def test_a_place_of_the_pipeline_is_no_target(tmp_path: Path, kind: str, place: str, what: str) -> None:
    others = {"dead_letter": "dead", "shadow": "shadow"}
    file = written(tmp_path, *(f"{name}: {{format: json, path: out/{of}}}" for name, of in others.items()))
    late = "late: {format: json, path: out/late, correct_within: 1 hour}"
    file.write_text(file.read_text().replace("late: correct within 1 hour", late))
    into = f"{{format: {kind}, path: {tmp_path}/{place}}}"
    before = sorted(tmp_path.rglob("*"))
    said = cep("replay", file, "--into", into, code=1)
    assert f"error[E0721]: sink `{into}` {what}\n" in said
    assert sorted(tmp_path.rglob("*")) == before


def test_the_topic_that_the_pipeline_reads_is_no_target(tmp_path: Path) -> None:
    file = written(tmp_path)
    read = "format: kafka, brokers: 'b:9092', topic: readings"
    file.write_text(re.sub(r"format: json, path: [^,}]*events", read, file.read_text(), count=1))
    assert read in file.read_text()
    into = f"{{{read}}}"
    assert f"error[E0721]: sink `{into}` is the source of `readings`\n" in cep(
        "replay", file, "--into", into, code=1
    )


@pytest.mark.parametrize("there", ["json", "csv", "parquet", "delta"])
@pytest.mark.parametrize("kind", ["json", "csv", "parquet", "delta"])
def test_a_folder_with_files_of_another_format_is_no_target(tmp_path: Path, kind: str, there: str) -> None:
    file = written(tmp_path)
    cep("replay", file, "--into", f"{{format: {there}, path: {tmp_path}/again}}")
    before = sorted(tmp_path.rglob("*"))
    into = f"{{format: {kind}, path: {tmp_path}/again}}"
    if kind == there:
        (tmp_path / "again/batch=of-a-program.json").write_text("{}")  # not a folder
        cep("replay", file, "--into", into)
    else:
        said = cep("replay", file, "--into", into, code=1)
        assert f"error[E0721]: `{tmp_path}/again` has files of the format {there}, not {kind}" in said
        assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_with_other_rows_of_a_stream_is_no_target(tmp_path: Path) -> None:
    file = written(tmp_path)
    output = Output(DEAD, DEAD_LETTER_SCHEMA)
    sink = FolderSink(output, str(tmp_path / "dead"), JsonWriter())
    batch = MicroBatch("run", 7, "7" * IDENTITY_DIGITS)
    sink.check()
    sink.begin(batch)
    sink.write_part(batch, "0", Rows(output, ["{}"]))
    sink.commit(batch)
    said = cep("replay", file, "--into", f"{{format: json, path: {tmp_path}/dead}}", code=1)
    assert f"error[E0721]: `{tmp_path}/dead` has dead letters, not matches" in said


def test_values_that_get_another_type_are_told(tmp_path: Path) -> None:
    pipeline(tmp_path, "checkpoint: c", "log: log")
    file, rule = tmp_path / "p.yaml", tmp_path / "r.cep"
    for number, (measure, value) in enumerate({"a.v": 950.0, "a.k": "much"}.items()):
        rule.write_text(f"{RULE} MEASURES {measure} AS loss")
        made = load_pipeline(file)
        context = SinkContext(made.rules, Console(file=StringIO()))
        sink = next(sink for _, sink in made.opened_sinks(context) if isinstance(sink, LogSink))
        sink.check()
        sink.last("run")
        batch = MicroBatch("run", number, f"{number:0{IDENTITY_DIGITS}x}")
        row = {"rule": "r", "match_id": f"m{number}", "match_start": START, "match_end": START, "loss": value}
        sink.begin(batch)
        table = pa.Table.from_pylist([row], schema=sink.output.schema)
        sink.write_part(batch, "0", Rows(sink.output, [table]))
        sink.commit(batch)
    said = cep("replay", file, "--into", f"{{format: json, path: {tmp_path}/again}}")
    assert said == (
        "warning: `loss` was double up to offset 1, and is string in the rules now: "
        "its values are converted\n"
        "wrote 2 rows of 2 micro-batches\n"
    )
    rule.write_text(f"{RULE} MEASURES a.v AS loss")
    said = cep("replay", file, "--into", f"{{format: json, path: {tmp_path}/back}}", code=1)
    assert re.search(r"error\[E0721\]: `loss` was string in offset 3, and is double in the rules now", said)
    assert "does not fit" in said
    assert "restore the file" not in said
    assert "begin after it: --from 4" in said
    assert [place.name for place in sorted((tmp_path / "back").iterdir())] == ["batch=run-0"]


def test_what_cannot_be_replayed_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path)
    console = cep("replay", file, "--into", "{format: console}", code=1)
    assert "error[E0721]: sink `{format: console}` is written by Spark" in console
    itself = cep("replay", file, "--into", f"{{format: json, path: {tmp_path}/log}}", code=1)
    assert "is the log that is replayed" in itself
    assert "has no sink `kafka`, but delta" in cep("replay", file, "--into", "kafka", code=1)
    assert "E0404" in cep("replay", file, "--into", "{format: json}", code=1)
    assert "neither an offset nor a time" in cep("replay", file, "--from", "x", "--dry-run", code=2)
    assert "give one of --into, --list and --dry-run" in cep("replay", file, code=2)
    (tmp_path / "log").rename(tmp_path / "moved")
    assert "is empty" in cep("replay", file, "--list", code=1)
    file.write_text(file.read_text().replace("log: log", ""))
    assert "has no log of matches" in cep("replay", file, "--list", code=1)


def test_offsets_that_are_gone_are_said(tmp_path: Path) -> None:
    file = written(tmp_path)
    file.write_text(file.read_text().replace("log: log", "log: {path: log, keep: 1 microsecond}"))
    MatchLog.retain(
        opened := MatchLog(str(tmp_path / "log"), MatchLog(str(tmp_path / "log")).entry(4)), 1 << 60, None
    )
    assert opened.last is not None
    assert cep("replay", file, "--list").splitlines()[0] == "offsets 0 to 3 are not kept"
    assert "begins with offset 4" in cep("replay", file, "--from", "1", "--dry-run", code=1)
    assert cep("replay", file, "--into", "delta") == "wrote 2 rows of 1 micro-batch\n"
