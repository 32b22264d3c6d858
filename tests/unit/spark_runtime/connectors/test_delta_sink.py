"""Delta tables as a sink: what a reader of the table sees, whatever has crashed. Its server is the disk."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from cep.errors import InputError
from spark_runtime.connectors.delta.settings import DeltaSpec
from spark_runtime.sinks.protocol import Guarantee, MicroBatch, TableSink
from spark_runtime.wire.output import DEAD, LATE, MATCH
from tests.spark.test_sink_contract import CONTEXT, OUTPUTS, tell_what_they_have, write

KINDS = pytest.mark.parametrize("kind", [MATCH, LATE, DEAD])


def opened(place: Path, kind: str, **settings: object) -> TableSink:
    sink = DeltaSpec(str(place), **settings).open(OUTPUTS[kind], CONTEXT)  # type: ignore[arg-type]
    sink.check()
    return sink


def rows(place: Path, kind: str) -> pa.Table:
    return DeltaTable(place / "stream=s" if kind == LATE else place).to_pyarrow_table()


def there(place: Path, kind: str) -> list[int]:
    return sorted(rows(place, kind).column("position" if kind == DEAD else "id").to_pylist())


def put(sink: TableSink, kind: str, batch: MicroBatch, ids: list[int]) -> None:
    sink.begin(batch)
    write(None, sink, kind, batch, ids)
    sink.commit(batch)


@KINDS
def test_what_was_committed_is_there(tmp_path: Path, kind: str) -> None:
    sink = opened(tmp_path / "t", kind)
    assert isinstance(sink, TableSink)
    assert sink.guarantee is Guarantee.EXACTLY_ONCE
    for number, ids in enumerate(([1, 2, 3], [], [4])):
        put(sink, kind, MicroBatch("run", number), ids)
    sink.close()
    assert there(tmp_path / "t", kind) == [1, 2, 3, 4]
    assert rows(tmp_path / "t", kind).schema.equals(OUTPUTS[kind].schema)


@KINDS
@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("is_committed", [False, True])
def test_a_micro_batch_that_comes_again_after_a_crash_is_there_once(
    tmp_path: Path, kind: str, is_written: bool, is_committed: bool
) -> None:
    sink, batch = opened(tmp_path / "t", kind), MicroBatch("run", 1)
    sink.begin(batch)
    if is_written:
        write(None, sink, kind, batch, [1, 2, 3])
    if is_committed:
        sink.commit(batch)
    again = opened(tmp_path / "t", kind)
    put(again, kind, batch, [3, 2, 1])
    put(again, kind, MicroBatch("run", 2), [4])
    assert there(tmp_path / "t", kind) == [1, 2, 3, 4]


def test_a_run_that_was_taken_for_dead_writes_nothing_twice(tmp_path: Path) -> None:
    zombie, sink = (opened(tmp_path / "t", DEAD) for _ in range(2))
    zombie.begin(MicroBatch("run", 0))
    write(None, zombie, DEAD, MicroBatch("run", 0), [1])
    put(sink, DEAD, MicroBatch("run", 0), [1])
    with pytest.raises(InputError, match="E0879"):
        zombie.commit(MicroBatch("run", 0))
    assert there(tmp_path / "t", DEAD) == [1]


@KINDS
def test_what_it_has_of_a_stream_is_told(tmp_path: Path, kind: str) -> None:
    tell_what_they_have(None, lambda: opened(tmp_path / "t", kind), kind)


def test_streams_and_outputs_do_not_meet_in_one_table(tmp_path: Path) -> None:
    for run, ids in (("a", [1]), ("b", [2])):
        put(opened(tmp_path / "t", DEAD), DEAD, MicroBatch(run, 0), ids)
    for _ in range(2):  # each batch writes what it finds
        put(opened(tmp_path / "t", DEAD), DEAD, MicroBatch(None, 0), [3])
    assert there(tmp_path / "t", DEAD) == [1, 2, 3, 3]


def test_files_are_parted_and_columns_of_yours_are_null(tmp_path: Path) -> None:
    more = OUTPUTS[MATCH].schema.append(pa.field("note", pa.string()))
    DeltaTable.create(tmp_path / "t", Schema.from_arrow(more), partition_by=["k"])
    put(opened(tmp_path / "t", MATCH, partition_by=("k",)), MATCH, MicroBatch("run", 0), [1])
    assert rows(tmp_path / "t", MATCH).select(["id", "note"]).to_pylist() == [{"id": 1, "note": None}]
    assert (tmp_path / "t" / "k=k").is_dir()


def test_others_may_write_the_table_meanwhile(tmp_path: Path) -> None:
    sink = opened(tmp_path / "t", DEAD)
    sink.begin(MicroBatch("run", 0))
    write(None, sink, DEAD, MicroBatch("run", 0), [1])
    other = pa.Table.from_pylist(
        [{"reason": "r", "source": "s", "position": 9, "raw": None}], OUTPUTS[DEAD].schema
    )
    write_deltalake(tmp_path / "t", other, mode="append")
    sink.commit(MicroBatch("run", 0))
    assert there(tmp_path / "t", DEAD) == [1, 9]


def test_what_does_not_fit_is_told_before_the_run(tmp_path: Path) -> None:
    def refusal(**settings: object) -> tuple[str, str]:
        with pytest.raises(InputError) as caught:
            opened(tmp_path / "t", MATCH, **settings)
        return caught.value.code, caught.value.args[0]

    columns = ", ".join(OUTPUTS[MATCH].schema.names)
    assert refusal(partition_by=("nothing",)) == (
        "E0873",
        "`partition_by` names the column `nothing`, which is not there",
    )
    assert "match_id" in columns
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "file").write_text("x")
    assert refusal() == ("E0872", f"`{tmp_path}/t` has files and is no Delta table")
    (tmp_path / "t" / "file").unlink()
    schema = OUTPUTS[MATCH].schema
    DeltaTable.create(tmp_path / "t", Schema.from_arrow(schema.remove(schema.get_field_index("id"))))
    assert refusal() == ("E0873", f"the Delta table `{tmp_path}/t` has no column `id`")
    number = schema.get_field_index("id")
    changed = schema.set(number, pa.field("id", pa.string()))
    DeltaTable.create(tmp_path / "t", Schema.from_arrow(changed), mode="overwrite")
    assert refusal() == (
        "E0873",
        f"the Delta table `{tmp_path}/t` has a column `id` of type string, its values are of type long",
    )
    DeltaTable.create(tmp_path / "t", Schema.from_arrow(schema), mode="overwrite")
    assert refusal(partition_by=("k",)) == (
        "E0873",
        f"the Delta table `{tmp_path}/t` is partitioned by nothing",
    )


def test_a_folder_that_cannot_be_made_is_told_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("a file")
    with pytest.raises(InputError, match="E0618"):
        opened(tmp_path / "t", MATCH)


def test_secrets_of_an_object_store_are_shown_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = DeltaSpec("s3://bucket/t", (), (("AWS_SECRET_ACCESS_KEY", "${CEP_TEST_SECRET}"),))
    with pytest.raises(InputError, match="E0853"):
        spec.open(OUTPUTS[MATCH], CONTEXT).check()
    monkeypatch.setenv("CEP_TEST_SECRET", "s3cret")
    assert "s3cret" not in repr(spec) + repr(spec.open(OUTPUTS[MATCH], CONTEXT))
