"""Static tables of a pipeline: read as wholes, again when they change, and kept for what is repeated."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cep.errors import InputError, StateError
from cep.schema.stream import Field, Stream, TableKind, TableSettings
from spark_runtime.pipeline.checkpoint import KEPT_BATCHES, Checkpoint
from spark_runtime.pipeline.plans import Plans
from spark_runtime.state.pieces import Pieces
from spark_runtime.storage.checkpoint_files import LocalFiles
from spark_runtime.tables.content import Content, checked
from spark_runtime.tables.static import StaticFile, StaticTables
from spark_runtime.wire.plan import Plan

COUNTRIES = Stream(
    "countries",
    (Field("iso", "string"), Field("risk", "bigint")),
    "",
    table=TableSettings(("iso",), TableKind.STATIC, max_rows=3),
)
NOW_S = 2_000_000_000.0


class Tables:
    """A static table in a folder, with a clock that tests set."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "countries.csv"
        self.now_s = NOW_S
        self.checkpoint = folder / "checkpoint"
        self.n_looks = 0

    def write(self, text: str, written_s: float = NOW_S - 60) -> None:
        self.file.write_text(text)
        os.utime(self.file, (written_s, written_s))

    def opened(self) -> StaticTables:
        source = StaticFile(COUNTRIES, str(self.file), "csv")
        files = LocalFiles(str(self.checkpoint))
        folder = str(self.checkpoint)
        return StaticTables(
            {"countries": source}, files, folder, clock=lambda: self.now_s, written=self._written
        )

    def _written(self) -> set[int]:
        self.n_looks += 1
        return Pieces(str(self.checkpoint / "state")).batches()

    def state_of(self, group: int, batch: int) -> Path:
        """Write a file of state."""
        file = self.checkpoint / f"state/{group}/{batch}-0123-77"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        return file

    def keep_new(self, opened: StaticTables, batch: int) -> str:
        """Begin a micro-batch with a content of its own; return its digest."""
        self.write(f"iso,risk\nDE,{batch}\n", NOW_S - 1000 + batch)
        digests = opened.look()
        opened.keep(batch, digests, KEPT_BATCHES)
        return digests["countries"]

    def contents(self) -> set[str]:
        return {place.stem for place in (self.checkpoint / "tables").iterdir()}


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    found = Tables(tmp_path)
    found.write("iso,risk\nDE,1\nNG,9\n")
    return found


def rows(tables: StaticTables) -> list[tuple[str, int]]:
    return [(row["iso"], row["risk"]) for row in tables.now["countries"].rows().to_pylist()]


def test_a_table_is_read_as_a_whole_and_again_when_it_has_changed(tables: Tables) -> None:
    opened = tables.opened()
    opened.load()
    first = opened.look()
    assert rows(opened) == [("DE", 1), ("NG", 9)]
    assert opened.look() == first
    tables.write("iso,risk\nDE,2\n", NOW_S - 30)
    second = opened.look()
    assert second != first
    assert rows(opened) == [("DE", 2)]
    assert sorted(os.listdir(tables.checkpoint / "tables")) == sorted(
        f"{digests['countries']}.arrow" for digests in (first, second)
    )


def test_a_file_with_a_time_in_the_future_is_read_once_it_was_left_alone_for_a_second(
    tables: Tables,
) -> None:
    opened = tables.opened()
    opened.load()
    first = opened.look()
    tables.write("iso,risk\nDE,2\n", NOW_S + 3600)
    assert opened.look() == first
    tables.now_s += 0.9
    tables.write("iso,risk\nDE,3\n", NOW_S + 3601)  # it is still being written
    assert opened.look() == first
    tables.now_s += 0.9
    assert opened.look() == first
    tables.now_s += 0.2
    assert opened.look() != first
    assert rows(opened) == [("DE", 3)]
    tables.write("iso,risk\nDE,4\n", NOW_S - 30)
    opened.look()
    assert rows(opened) == [("DE", 4)]


def test_the_same_rows_are_the_same_content_wherever_they_are_read(tables: Tables) -> None:
    first, again = tables.opened(), tables.opened()
    first.load()
    again.load()
    assert first.look() == again.look()


@pytest.mark.parametrize(
    ("text", "code", "fact"),
    [
        ("iso,risk\nDE,1\nNG,many\n", "E0712", "countries.csv:3"),
        ("iso,risk\n,1\n", "E0712", "key is NULL"),
        ("iso,risk\na,1\nb,1\nc,1\nd,1\n", "E0619", "more than 3 rows"),
        ("other\nDE\n", "E0604", "iso"),
    ],
)
def test_a_file_that_is_no_table_is_an_error_before_anything_runs(
    tables: Tables, text: str, code: str, fact: str
) -> None:
    tables.write(text)
    with pytest.raises(InputError, match=fact) as caught:
        tables.opened().load()
    assert caught.value.code == code


def test_a_file_that_is_missing_is_an_error_before_anything_runs(tables: Tables) -> None:
    tables.file.unlink()
    with pytest.raises(InputError) as caught:
        tables.opened().load()
    assert caught.value.code == "E0601"


@pytest.mark.parametrize("text", ["iso,risk\nDE,2\nNG", "iso,ri", "iso,risk\nDE,x\n", None])
def test_while_a_stream_runs_what_cannot_be_used_leaves_the_last_content(
    tables: Tables, text: str | None
) -> None:
    opened = tables.opened()
    opened.load()
    before = opened.look()
    if text is None:
        tables.file.unlink()
    else:
        tables.write(text, NOW_S - 30)
    assert opened.look() == before == opened.look()
    assert opened.counts().stale_tables == {"countries": 1}
    (line,) = opened.status()
    assert line.startswith("table countries: ")
    assert line.endswith("; what was read before still counts")
    tables.write("iso,risk\nFR,3\n", NOW_S - 20)
    assert opened.look() != before
    assert list(opened.status()) == []
    assert opened.counts().stale_tables == {"countries": 1}


def test_a_file_that_was_just_written_is_left_for_the_next_micro_batch(tables: Tables) -> None:
    opened = tables.opened()
    opened.load()
    before = opened.look()
    tables.write("iso,risk\nDE,5\n", NOW_S - 0.2)
    assert opened.look() == before
    tables.now_s += 1
    assert opened.look() != before
    assert opened.counts().stale_tables == {}


def test_a_micro_batch_that_is_repeated_has_what_it_had(tables: Tables) -> None:
    before = tables.opened()
    before.load()
    digests = before.look()
    plan = Plan.of_json(Plan((), tables=digests).to_json())
    tables.write("iso,risk\nFR,3\n")
    after = tables.opened()
    after.load()
    ((digest, file, _),) = after.told(plan.tables).values()
    assert Content.of_bytes(Path(file).read_bytes()) == before.now["countries"]
    assert checked("countries", digest, Path(file).read_bytes()) == before.now["countries"]
    Path(file).write_bytes(b"x")
    with pytest.raises(StateError) as caught:
        after.told(plan.tables)
    assert caught.value.code == "E0713"
    Path(file).unlink()
    with pytest.raises(StateError) as caught:
        after.told(plan.tables)
    assert caught.value.code == "E0713"


def test_contents_that_no_kept_plan_names_are_removed(tables: Tables) -> None:
    opened = tables.opened()
    opened.load()
    for number in range(6):
        tables.write(f"iso,risk\nDE,{number}\n", NOW_S - 50 + number)
        digests = opened.look()
        opened.keep(number, digests, 3)
    assert len(os.listdir(tables.checkpoint / "tables")) == 3


def test_a_plan_without_tables_is_written_as_before() -> None:
    assert "tables" not in Plan(()).to_json()


def test_contents_that_files_of_state_used_are_kept_as_long_as_these_exist(tables: Tables) -> None:
    opened = tables.opened()
    opened.load()
    early = tables.state_of(3, 1), tables.state_of(11, 4)
    digests = [tables.keep_new(opened, batch) for batch in range(21)]
    assert tables.contents() == {digests[1], digests[4], *digests[18:]}
    early[0].unlink()
    digests += [tables.keep_new(opened, batch) for batch in range(21, 37)]
    assert tables.contents() == {digests[4], *digests[34:]}
    opened = tables.opened()  # a run that starts looks at once
    opened.load()
    early[1].unlink()
    digests += [tables.keep_new(opened, 37)]
    assert tables.contents() == set(digests[35:])


def test_a_content_that_was_valid_for_long_is_kept_for_any_file_of_that_time(tables: Tables) -> None:
    opened = tables.opened()
    opened.load()
    before = opened.look()
    for batch in range(50):
        opened.keep(batch, before, KEPT_BATCHES)
    assert tables.n_looks == 0, "nothing could be deleted"
    noted = json.loads((tables.checkpoint / "tables.json").read_text())
    assert noted == [[0, [before["countries"]]]]
    state = [tables.state_of(3, batch) for batch in (30, 49, 50)]
    later = [tables.keep_new(opened, batch) for batch in range(50, 52)]
    for batch in range(52, 200):
        opened.keep(batch, {"countries": later[1]}, KEPT_BATCHES)
        if batch in (100, 150):
            state.pop(0).unlink()
        expected = {later[0], later[1], *([before["countries"]] if batch < 150 else [])}
        assert tables.contents() - {before["countries"]} == {*later}
        assert tables.contents() >= expected
    assert tables.contents() == {*later}
    assert 5 < tables.n_looks <= 148 / 16 + 2, "files of state are listed in each micro-batch"


def test_what_a_killed_run_noted_of_a_micro_batch_that_never_ran_is_replaced(tables: Tables) -> None:
    opened = tables.opened()
    opened.load()
    digests = [tables.keep_new(opened, batch) for batch in range(5)]
    tables.write("iso,risk\nFR,3\n")
    opened = tables.opened()
    opened.load()
    now = opened.look()["countries"]
    opened.keep(4, {"countries": now}, KEPT_BATCHES)
    spans = json.loads((tables.checkpoint / "tables.json").read_text())
    assert spans[-1] == [4, [now]]
    assert digests[4] not in str(spans)
    assert tables.contents() == {*digests[2:4], now}


def test_contents_of_a_checkpoint_without_notes_are_kept_as_long_as_its_plans(tables: Tables) -> None:
    opened = tables.opened()
    opened.load()
    tables.keep_new(opened, 6)
    old = tables.contents()
    (tables.checkpoint / "tables.json").unlink()
    opened = tables.opened()
    opened.load()
    for batch in (7, 8):
        tables.keep_new(opened, batch)
        assert tables.contents() > old
    tables.keep_new(opened, 9)
    assert tables.contents().isdisjoint(old)


def test_notes_are_written_with_the_plan_and_with_a_plan_that_is_repeated(tables: Tables) -> None:
    opened = tables.opened()
    opened.load()
    files = LocalFiles(str(tables.checkpoint))
    checkpoint = Checkpoint(str(tables.checkpoint), "run", 2, files)
    plan = Plans(checkpoint, opened, -1).written(0, Plan([]))
    notes = tables.checkpoint / "tables.json"
    noted = notes.read_text()
    assert json.loads(noted) == [[0, [plan.tables["countries"]]]]
    notes.unlink()  # of an earlier version
    tables.write("iso,risk\nFR,3\n")
    opened = tables.opened()
    opened.load()
    assert Plans(checkpoint, opened, -1).repeated(0) == plan
    assert notes.read_text() == noted
    assert len(tables.contents()) == 2


def test_while_files_of_state_cannot_be_listed_no_content_is_deleted(tables: Tables) -> None:
    opened = tables.opened()
    opened.load()

    def refused() -> set[int]:
        raise PermissionError("state")

    opened.written = refused
    digests = {tables.keep_new(opened, batch) for batch in range(8)}
    assert tables.contents() == digests


def test_damaged_notes_are_an_error(tables: Tables) -> None:
    opened = tables.opened()
    opened.load()
    (tables.checkpoint / "tables.json").write_text("[[0, 1")
    with pytest.raises(StateError, match=r"E0702.*tables.json.*is damaged"):
        opened.keep(0, opened.look(), KEPT_BATCHES)
