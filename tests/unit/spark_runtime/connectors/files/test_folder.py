"""What a stream plans to read of a folder: each byte once, whatever happens to the files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cep.counts import Counts
from cep.errors import InputError, StateError
from cep.formats.ahead import AheadGuard
from cep.formats.dead_letter import MISPLACED_QUOTE
from cep.formats.files import BadFile, Format, Reading
from cep.formats.path_names import path_pattern
from cep.formats.protocol import MAX_RECORD_LINES
from cep.schema.stream import COMMA_SEPARATED, CsvLayout, Field, Stream
from spark_runtime.connectors.files.file_log import FileLog
from spark_runtime.connectors.files.source import FileRange, FolderPlanner, FolderSource
from spark_runtime.connectors.files.time_span import time_span
from spark_runtime.event_time.partitions import TimeSpan

STREAM = Stream("s", (Field("id", "bigint"), Field("ts", "timestamp")), "ts")


def lines(*ids: int) -> str:
    return "".join(f'{{"id":{number},"ts":"2024-05-01T00:00:00Z"}}\n' for number in ids)


def source(
    folder: Path, max_files: int | None = None, *, holds: bool = False, file_format: Format = Format.JSON
) -> FolderSource:
    return FolderSource(
        STREAM,
        str(folder / "in"),
        file_format,
        Reading(on_bad_file=BadFile.QUARANTINE),
        str(folder / "checkpoint/files/s.log"),
        max_files,
        holds,
    )


def put(folder: Path, name: str, text: str, seconds: float = 0) -> Path:
    file = folder / "in" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    if seconds:
        os.utime(file, (seconds, seconds))
    return file


class Reader:
    """A query that reads what is planned, in a new process each time."""

    def __init__(self, planned: FolderSource) -> None:
        self.source = planned
        self.offset = 0
        self.counts = Counts()
        self.dead: list[tuple[str, int]] = []

    def batch(self, planner: FolderPlanner | None = None) -> list[int]:
        """Read one micro-batch; return the ids."""
        planner = planner or self.source.planner()
        end = planner.latest(self.offset)
        ids: list[int] = []
        for _, part in planner.ranges(self.offset, end):
            ids += self.read(part)
        self.offset = end
        return ids

    def read(self, part: FileRange) -> list[int]:
        ids: list[int] = []
        for chunk in self.source.read(part, AheadGuard(STREAM.max_ahead_us), self.counts):
            ids += chunk.events.column("id").to_pylist()
            self.dead += [(row["reason"], row["position"]) for row in chunk.dead_letters.to_pylist()]
        return ids


def test_files_come_by_the_time_of_their_last_change_then_by_name(tmp_path: Path) -> None:
    put(tmp_path, "c.json", lines(3), 1000)
    put(tmp_path, "b.json", lines(2), 2000)
    put(tmp_path, "a.json", lines(1), 2000)
    put(tmp_path, "_hidden.json", lines(9))
    put(tmp_path, ".hidden.json", lines(9))
    (tmp_path / "in/inside").mkdir()
    assert Reader(source(tmp_path)).batch() == [3, 1, 2]


@pytest.mark.parametrize("ending", [".tmp", ".part", "._COPYING_", "~"])
def test_a_file_is_read_once_if_it_is_renamed_when_it_is_complete(tmp_path: Path, ending: str) -> None:
    reader = Reader(source(tmp_path))
    put(tmp_path, f"a.json{ending}", lines(1))
    assert reader.batch() == []
    (tmp_path / f"in/a.json{ending}").rename(tmp_path / "in/a.json")
    assert (reader.batch(), reader.batch()) == ([1], [])


def test_files_that_seem_incomplete_at_the_end_of_a_run_are_counted(tmp_path: Path) -> None:
    put(tmp_path, "a.json", lines(1))
    partial = [str(put(tmp_path, name, lines(2))) for name in ("b.json.tmp", "c.json~")]
    for name in ("_d.json.tmp", ".e.json.swp"):  # markers
        put(tmp_path, name, lines(2))
    (tmp_path / "in/f.tmp").mkdir()
    counts = Counts()
    source(tmp_path).planner().close(counts)
    assert counts == Counts(partial=dict.fromkeys(partial, 1))


def test_a_file_with_an_old_time_is_as_new_as_any(tmp_path: Path) -> None:
    reader = Reader(source(tmp_path))
    put(tmp_path, "new.json", lines(1), 1_700_000_000)
    assert reader.batch() == [1]
    put(tmp_path, "old.json", lines(2), 1_600_000_000)
    assert reader.batch() == [2]


def test_a_micro_batch_has_at_most_so_many_files(tmp_path: Path) -> None:
    for number in range(5):
        put(tmp_path, f"{number}.json", lines(number), 1000 + number)
    reader = Reader(source(tmp_path, 2))
    assert [reader.batch() for _ in range(4)] == [[0, 1], [2, 3], [4], []]


def test_what_is_there_at_the_start_is_all_once_a_run_stops_at_now(tmp_path: Path) -> None:
    put(tmp_path, "a.json", lines(1), 1000)
    put(tmp_path, "b.json", lines(2), 2000)
    reader = Reader(source(tmp_path, 1))
    planner = reader.source.planner()
    planner.stop_at_now()
    put(tmp_path, "c.json", lines(3))
    assert [reader.batch(planner) for _ in range(3)] == [[1], [2], []]
    assert reader.batch() == [3]


def test_lines_that_are_added_to_a_file_are_read_once(tmp_path: Path) -> None:
    reader = Reader(source(tmp_path))
    file = put(tmp_path, "a.json", lines(1, 2))
    assert reader.batch() == [1, 2]
    with file.open("a") as more:
        more.write(lines(3) + "no event\n")
    assert reader.batch() == [3]
    assert reader.dead == [("not a JSON object", 4)]
    assert reader.batch() == []
    assert reader.counts == Counts()


def test_the_header_of_a_csv_file_holds_for_lines_that_are_added(tmp_path: Path) -> None:
    reader = Reader(source(tmp_path, file_format=Format.CSV))
    file = put(tmp_path, "a.csv", "ts,id\n2024-05-01,1\n")
    assert reader.batch() == [1]
    with file.open("a") as more:
        more.write("2024-05-01,2\n2024-05-01,x\n")
    assert reader.batch() == [2]
    assert reader.dead == [("field `id` is not of type bigint: x", 4)]


def test_a_live_stream_waits_for_the_end_of_a_line(tmp_path: Path) -> None:
    reader = Reader(source(tmp_path, holds=True))
    text = lines(1, 2)
    file = put(tmp_path, "a.json", text[:-10])
    assert reader.batch() == [1]
    assert reader.source.planner().look().open_lines == ["a.json"]
    assert reader.batch() == []
    file.write_text(text)
    assert reader.batch() == [2]
    assert reader.dead == []


def test_a_run_that_ends_takes_a_last_line_without_an_end(tmp_path: Path) -> None:
    reader = Reader(source(tmp_path))
    file = put(tmp_path, "a.json", lines(1, 2).rstrip("\n"))
    assert reader.batch() == [1, 2]
    with file.open("a") as more:
        more.write("\n" + lines(3))
    assert reader.batch() == [3]
    assert reader.dead == []


def test_a_line_that_was_cut_by_the_end_of_a_run_is_two_dead_letters(tmp_path: Path) -> None:
    reader = Reader(source(tmp_path))
    text = lines(1, 2, 3)
    file = put(tmp_path, "a.json", text[:60])
    assert reader.batch() == [1]
    file.write_text(text)
    assert reader.batch() == [3]
    assert reader.dead == [("not a JSON object", 2), ("not a JSON object", 2)]


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_a_file_that_is_another_than_the_one_read_is_named_and_not_read(tmp_path: Path, name: str) -> None:
    import gzip

    def write(text: str, seconds: float) -> None:
        data = gzip.compress(text.encode(), mtime=0) if name.endswith("gz") else text.encode()
        file = put(tmp_path, name, "")
        file.write_bytes(data)
        os.utime(file, (seconds, seconds))

    reader = Reader(source(tmp_path))
    write(lines(1, 2), 1000)
    assert reader.batch() == [1, 2]
    write(lines(1, 2), 2000)  # only touched
    assert reader.source.planner().look().changed == []
    for text in (lines(5, 6), lines(5, 6, 7), lines(5)):
        write(text, 3000)
        assert reader.batch() == []
        assert reader.source.planner().look().changed == [name]


def test_a_file_that_goes_before_it_is_read_is_named(tmp_path: Path) -> None:
    reader = Reader(source(tmp_path))
    file = put(tmp_path, "a.json", lines(1))
    planner = reader.source.planner()
    ((_, part),) = planner.ranges(0, planner.latest(0))
    file.unlink()
    assert reader.read(part) == []
    assert reader.counts == Counts(gone={str(file): 1})


def test_a_link_that_leads_nowhere_is_named_at_the_end_unless_it_was_read(tmp_path: Path) -> None:
    put(tmp_path, "a.json", lines(1))
    kept = put(tmp_path, "../kept.json", lines(2))
    (tmp_path / "in/b.json").symlink_to(kept)
    lost = tmp_path / "in/c.json"
    lost.symlink_to("/mnt/gone/c.json")
    reader = Reader(source(tmp_path))
    reader.source.check()
    planner = reader.source.planner()
    assert sorted(reader.batch(planner)) == [1, 2]
    kept.unlink()
    planner.close(reader.counts)
    assert reader.counts == Counts(gone={str(lost): 1})
    with pytest.raises(InputError, match=r"\.json` is a link"):  # a batch reads all of its input
        replace(reader.source, log="").check()


def test_files_that_are_empty_at_the_end_are_counted_once_in_a_run(tmp_path: Path) -> None:
    put(tmp_path, "a.json", lines(1))
    empty, grown = put(tmp_path, "b.json", ""), put(tmp_path, "c.json", "")
    put(tmp_path, "_done", "")
    reader = Reader(source(tmp_path))
    planner = reader.source.planner()
    assert (reader.batch(planner), reader.batch(planner)) == ([1], [])
    grown.write_text(lines(2))
    assert reader.batch(planner) == [2]
    planner.close(reader.counts)
    assert reader.counts == Counts(empty={str(empty): 1})
    again = Counts()
    grown.write_text("")  # it was read, so it has changed
    reader.source.planner().close(again)
    assert again == Counts(empty={str(empty): 1}, changed={str(grown): 1})


def test_a_file_that_shrinks_before_it_is_read_is_named_and_read(tmp_path: Path) -> None:
    reader = Reader(source(tmp_path))
    file = put(tmp_path, "a.json", lines(1, 2))
    planner = reader.source.planner()
    ((_, part),) = planner.ranges(0, planner.latest(0))
    file.write_text(lines(1))
    assert reader.read(part) == [1]
    assert reader.counts == Counts(changed={str(file): 1})


def test_lines_that_are_added_between_planning_and_reading_belong_to_the_next_micro_batch(
    tmp_path: Path,
) -> None:
    reader = Reader(source(tmp_path))
    file = put(tmp_path, "a.json", lines(1))
    planner = reader.source.planner()
    ((_, part),) = planner.ranges(0, planner.latest(0))
    with file.open("a") as more:
        more.write(lines(2))
    assert reader.read(part) == [1]
    reader.offset = 1
    assert reader.batch() == [2]
    assert reader.counts == Counts()


def test_what_was_planned_before_a_crash_comes_again_in_the_same_order(tmp_path: Path) -> None:
    put(tmp_path, "a.json", lines(1), 3000)
    planner = source(tmp_path, 1).planner()
    assert planner.latest(0) == 1
    put(tmp_path, "b.json", lines(2), 1000)  # older, but seen later
    reader = Reader(source(tmp_path, 1))
    assert [reader.batch() for _ in range(3)] == [[1], [2], []]


def test_an_entry_that_was_not_written_to_its_end_is_not_there(tmp_path: Path) -> None:
    put(tmp_path, "a.json", lines(1), 1000)
    reader = Reader(source(tmp_path))
    assert reader.batch() == [1]
    log = Path(reader.source.log)
    log.write_bytes(log.read_bytes() + b'["b.json",0,4')
    put(tmp_path, "b.json", lines(2))
    assert reader.batch() == [2]
    assert [entry.name for entry in FileLog.load(log).entries] == ["a.json", "b.json"]


def test_a_run_remembers_no_more_of_a_file_that_is_followed_for_long(tmp_path: Path) -> None:
    file = put(tmp_path, "a.json", lines(0))
    reader = Reader(source(tmp_path))
    planner = reader.source.planner()
    assert reader.batch(planner) == [0]
    for number in range(1, 50):
        with file.open("a") as more:
            more.write(lines(number))
        assert reader.batch(planner) == [number]
        planner.commit(reader.offset)
        assert (planner.log.entries, planner.log.end) == ([], number + 1)
    assert len(FileLog.load(planner.log.path).entries) == 50
    again = reader.source.planner()
    again.commit(reader.offset)  # as a run that continues does
    assert again.log.entries == []
    assert reader.batch(again) == []


def test_the_times_of_input_are_found_once_and_forgotten_when_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examined = []

    def counted(path: str, *given: Any, **named: Any) -> TimeSpan:
        examined.append(path)
        return time_span(path, *given, **named)

    monkeypatch.setattr("spark_runtime.connectors.files.source.time_span", counted)
    planner = source(tmp_path).planner()
    ahead = AheadGuard(STREAM.max_ahead_us)
    for number in range(3):
        put(tmp_path, f"{number}.json", lines(number), 1000 + number)
        end = planner.latest(number)
        assert planner.unread_after(end, ahead) == {}
        planner.spans(number, end, ahead)
        assert planner.unread_after(number, ahead)  # as a plan does that bounds the watermark
        planner.commit(end)
        assert planner._spans == {}
    assert [Path(path).name for path in examined] == ["0.json", "1.json", "2.json"]


def test_what_is_planned_is_remembered_until_it_is_written(tmp_path: Path) -> None:
    for number in range(3):
        put(tmp_path, f"{number}.json", lines(number), 1000 + number)
    planner = source(tmp_path, 1).planner()
    reader = Reader(planner.source)
    assert [reader.batch(planner), planner.latest(1)] == [[0], 2]
    planner.commit(1)
    assert [entry.name for entry in planner.log.entries] == ["1.json"]
    assert [reader.batch(planner), reader.batch(planner)] == [[1], [2]]


def test_a_list_that_is_shorter_than_the_query_says_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "a.json", lines(1))
    reader = Reader(source(tmp_path))
    reader.batch()
    Path(reader.source.log).unlink()
    with pytest.raises(StateError, match=r"E0702.*has 0 entries; the query has read 1"):
        reader.batch()


def test_a_damaged_list_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "a.json", lines(1))
    reader = Reader(source(tmp_path))
    reader.batch()
    Path(reader.source.log).write_text("damaged\n")
    with pytest.raises(StateError, match=r"E0702.*the list of files that were read, is damaged"):
        reader.batch()


def test_one_file_is_a_source_of_its_own(tmp_path: Path) -> None:
    file = put(tmp_path, "a.json", lines(1))
    put(tmp_path, "b.json", lines(2))
    only = FolderSource(STREAM, str(file), Format.JSON, Reading(), str(tmp_path / "log"))
    reader = Reader(only)
    assert reader.batch() == [1]
    with file.open("a") as more:
        more.write(lines(3))
    assert reader.batch() == [3]


def csv_source(folder: Path, layout: CsvLayout = COMMA_SEPARATED, *, holds: bool = True) -> FolderSource:
    planned = source(folder, holds=holds, file_format=Format.CSV)
    fields = (*STREAM.fields, Field("note", "string"))
    return replace(planned, stream=replace(STREAM, fields=fields, csv=layout))


def test_a_live_stream_waits_for_the_end_of_a_quoted_field(tmp_path: Path) -> None:
    reader = Reader(csv_source(tmp_path))
    file = put(tmp_path, "a.csv", 'id,ts,note\n1,2024-05-01,x\n2,2024-05-01,"a\n')
    assert reader.batch() == [1]
    with file.open("a") as end:
        end.write("b\nc")
    assert reader.batch() == []
    with file.open("a") as end:
        end.write('"\n3,2024-05-01,"""y"""\n4,20')
    assert reader.batch() == [2, 3]
    with file.open("a") as end:
        end.write("24-05-01,z\n")
    assert reader.batch() == [4]
    assert reader.dead == []


def test_a_misplaced_quote_holds_a_live_stream_for_so_many_lines_only(tmp_path: Path) -> None:
    reader = Reader(csv_source(tmp_path))
    rows = "".join(f"{number},2024-05-01,x\n" for number in range(3, 3 + MAX_RECORD_LINES))
    file = put(tmp_path, "a.csv", 'id,ts,note\n1,2024-05-01,x\n2,2024-05-01,5" pipe\n')
    assert reader.batch() == [1]
    with file.open("a") as end:
        end.write(rows)
    assert reader.batch() == list(range(3, 3 + MAX_RECORD_LINES))
    assert reader.dead == [(MISPLACED_QUOTE, 3)]
    with file.open("a") as end:
        end.write('200,2024-05-01,"one\nmore"\n')
    assert reader.batch() == [200]


def test_a_quote_that_means_nothing_holds_nothing(tmp_path: Path) -> None:
    reader = Reader(csv_source(tmp_path, CsvLayout(quote="")))
    put(tmp_path, "a.csv", 'id,ts,note\n1,2024-05-01,5" pipe\n')
    assert reader.batch() == [1]


def test_utf16_is_read_whole(tmp_path: Path) -> None:
    reader = Reader(csv_source(tmp_path, CsvLayout(encoding="utf-16")))
    file = put(tmp_path, "a.csv", "")
    file.write_text("id,ts,note\n1,2024-05-01,ä\n2,2024-05-01,中\n", encoding="utf-16")
    assert reader.batch() == [1, 2]
    file.write_text("id,ts,note\n1,2024-05-01,ä\n2,2024-05-01,中\n3,2024-05-01,\n", encoding="utf-16")
    assert reader.batch() == []
    assert reader.source.planner().look().changed == ["a.csv"]


def test_a_pattern_is_a_source_whose_new_files_are_read_with_the_columns_of_their_names(
    tmp_path: Path,
) -> None:
    place = f"{tmp_path}/in/{{note}}/*.jsonl"
    stream = replace(STREAM, fields=(*STREAM.fields, Field("note", "string")))
    planned = replace(
        source(tmp_path), path=place, stream=stream, reading=Reading(pattern=path_pattern(place))
    )
    reader = Reader(planned)
    assert reader.batch() == []
    (tmp_path / "in/x").mkdir(parents=True)
    (tmp_path / "in/y").mkdir()
    file = put(tmp_path, "x/a.jsonl", lines(1), 1000)
    put(tmp_path, "y/a.jsonl", lines(2), 2000)
    put(tmp_path, "y/a.csv", "no")
    put(tmp_path, "a.jsonl", lines(9))
    planner = planned.planner()
    notes = [
        note
        for _, part in planner.ranges(0, planner.latest(0))
        for chunk in planned.read(part, AheadGuard(STREAM.max_ahead_us), reader.counts)
        for note in chunk.events.column("note").to_pylist()
    ]
    assert notes == ["x", "y"]
    assert [entry.name for entry in planner.log.entries] == ["x/a.jsonl", "y/a.jsonl"]
    reader.offset = 2
    with file.open("a") as end:
        end.write(lines(3))
    assert reader.batch() == [3]


def refusal(found: FolderSource) -> str:
    try:
        found.check()
    except InputError as error:
        return error.code
    return ""


def test_a_folder_whose_files_were_read_and_removed_is_none_to_refuse_once_the_stream_has_begun(
    tmp_path: Path,
) -> None:
    first, later = source(tmp_path), replace(source(tmp_path), has_begun=True)
    (tmp_path / "in").mkdir()
    assert (refusal(first), refusal(later)) == ("E0603", "")
    put(tmp_path, "a.json", "")  # an empty file is no event either
    assert (refusal(first), refusal(later)) == ("E0603", "")
    alone = replace(later, path=str(tmp_path / "in/a.json"))
    assert (refusal(replace(alone, has_begun=False)), refusal(alone)) == ("E0603", "")
    put(tmp_path, "a.json", lines(1))
    assert (refusal(first), refusal(later)) == ("", "")
    read = Reader(later)
    assert read.batch() == [1]
    (tmp_path / "in/a.json").unlink()
    assert read.batch() == []
    put(tmp_path, "b.json", lines(2))
    assert read.batch() == [2]


def test_a_folder_that_is_missing_is_refused_at_any_time(tmp_path: Path) -> None:
    later = replace(source(tmp_path), has_begun=True)
    assert refusal(later) == "E0601"
    pattern = path_pattern(f"{tmp_path}/in/{{id}}.json")
    of_pattern = replace(later, path=f"{tmp_path}/in/{{id}}.json", reading=Reading(pattern=pattern))
    assert refusal(of_pattern) == "E0601"
    (tmp_path / "in").mkdir()
    assert (refusal(of_pattern), refusal(replace(of_pattern, has_begun=False))) == ("", "E0601")


def test_a_name_that_is_not_utf_8_is_one_clear_error(tmp_path: Path) -> None:
    put(tmp_path, "a.json", lines(1))
    try:
        put(tmp_path, os.fsdecode(b"b\xff.json"), lines(2))
    except OSError:
        pytest.skip("this file system has no such names")
    told = rf"E0606.*the name of `{tmp_path}/in/b\\xff.json` is not UTF-8"
    for has_begun in (False, True):
        planned = source(tmp_path, 1, holds=has_begun)
        planned.check()  # of a file that is refused, a dead letter remains
        fails = replace(planned, reading=Reading(), has_begun=has_begun)
        with pytest.raises(InputError, match=told):
            fails.check()
    reader = Reader(source(tmp_path, 1))
    planner = reader.source.planner()
    found = [reader.batch(planner) for _ in range(3)]
    assert sorted(found) == [[], [], [1]]
    assert len(reader.dead) == 1
    assert reader.dead[0][0].startswith("the file is refused from here on: E0606, the name of `")
    assert len(planner.spans(0, 2, AheadGuard(STREAM.max_ahead_us))) == 1
    assert planner.unread_after(0, AheadGuard(STREAM.max_ahead_us))
