"""The log of matches: a new sink is rebuilt from it, and has exactly the rows of the live ones."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from cep.commands.cli import main
from cep.rule_set import KIND, RETRACT
from tests.java_classes import own_spark
from tests.spark.events import EVENTS_RULE, RULES
from tests.spark.test_pipeline import FINISH, keyed_events, quiet_run, read, write_json, write_pipeline
from tests.spark.test_reload import run_until

SOURCE = "format: json, path: events, max_files_per_trigger: 1"
SINKS = "[{format: json, path: out/json}, {format: delta, path: out/delta}]"
EVENTS = keyed_events(17, 640)
N_FILES = 5
OWN = RULES.replace("FIRST(low.kind) AS kind", "FIRST(low.kind) AS sort")


def written(folder: Path, log: str = "out/log", rules: str = OWN + EVENTS_RULE, more: str = "") -> Path:
    """A pipeline with corrections; the files of its input do not have the order of event time."""
    parts = [EVENTS[at::N_FILES] for at in range(N_FILES)]
    write_json(folder / "events", [event for part in parts for event in part], N_FILES)
    file = write_pipeline(folder, SOURCE, f"log: {log}\n{FINISH}\nwatermark: fastest\n{more}", SINKS, rules)
    late = "late: {format: json, path: out/late, correct_within: 1 day}"
    file.write_text(re.sub(r"^late: .*$", late, file.read_text(), flags=re.MULTILINE))
    return file


def cep(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(main, list(map(str, words)))
    assert result.exit_code == code, result.output
    return result.output


def entries(file: Path, *options: str) -> list[dict[str, Any]]:
    said = cep("replay", file, "--list", "--format", "json", *options)
    return [json.loads(line) for line in said.splitlines()]


def counted(rows: Sequence[dict[str, Any]]) -> Counter[str]:
    """Count rows as a reader sees them: without NULLs."""
    texts = ({name: value for name, value in row.items() if value is not None} for row in rows)
    return Counter(json.dumps(text, sort_keys=True, default=str) for text in texts)


def in_delta(folder: Path) -> Counter[str]:
    return counted(DeltaTable(folder).to_pyarrow_table().to_pylist())


def in_json(folder: Path) -> Counter[str]:
    return counted(read(folder, "json"))


def require_rebuilt(folder: Path, file: Path, name: str) -> None:
    """Replay into new sinks, twice, and compare each with the live one."""
    for target, live in (("json", "out/json"), ("delta", "out/delta")):
        place = folder / f"{name}-{target}"
        settings = f"{{format: {target}, path: {place}}}"
        first = cep("replay", file, "--into", settings)
        assert "already" not in first
        compare = in_json if target == "json" else in_delta
        assert compare(place) == compare(folder / live)
        n = sum(compare(place).values())
        assert first.startswith(f"wrote {n:,} rows of ")
        again = cep("replay", file, "--into", settings)
        assert again.startswith("wrote 0 rows of 0 micro-batches; ")
        assert compare(place) == compare(folder / live)


ENDS = (
    ("spark_runtime.sinks.match_log.MatchLog.append_rows", "before"),
    ("spark_runtime.connectors.delta.sink.DeltaSink.commit", "before"),
    ("spark_runtime.pipeline.micro_batches.write_done", "before"),
)


@pytest.mark.deep(but="after")
@pytest.mark.parametrize("moments", [("after",), ("before", "after")], ids="-".join)
def test_a_sink_that_is_rebuilt_has_the_rows_of_the_live_one_however_runs_ended(
    spark: SparkSession, tmp_path: Path, moments: tuple[str, ...]
) -> None:
    file = written(tmp_path)
    kill = (
        "import sys; from tests.kills.points import Call, plant; from cep.commands.cli import main; "
        "plant(Call('spark_runtime.sinks.match_log', 'MatchLog.append_rows', sys.argv[2]), 2); "
        "main(['run', sys.argv[1]])"
    )
    for moment in moments:
        words = [sys.executable, "-c", kill, str(file), moment]
        # Java outlives the process: it must not hold a pipe that this test reads.
        with (
            (tmp_path / "said").open("w") as said,
            subprocess.Popen(words, env=own_spark(), stderr=said, start_new_session=True) as process,
        ):
            try:
                assert process.wait(timeout=300) == -signal.SIGKILL, (tmp_path / "said").read_text()
            finally:
                os.killpg(process.pid, signal.SIGKILL)
    quiet_run(file)
    rows = read(tmp_path / "out/json", "json")
    assert len([row for row in rows if row[KIND] == RETRACT]) > 10
    assert {row["rule"] for row in rows} == {"silence", "whole"}
    found = entries(file)
    assert [entry["offset"] for entry in found] == list(range(len(found)))
    assert [entry["kind"] for entry in found] == ["rules", *["matches"] * (len(found) - 1)]
    assert sum(entry["rows"] or 0 for entry in found) == len(rows)
    numbers = [entry["micro_batch"] for entry in found[1:]]
    assert numbers == sorted(set(numbers))
    require_rebuilt(tmp_path, file, "again")


@pytest.mark.parametrize(("place", "moment"), ENDS)  # after an append: the test above
def test_a_micro_batch_that_is_repeated_is_in_the_log_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, moment: str
) -> None:
    file = written(tmp_path)
    module, _, name = place.rpartition(".")
    if name == "write_done":
        run_until(file, place, moment, monkeypatch)
    else:
        run_until_method(file, module, name, moment, monkeypatch)
    quiet_run(file)
    require_rebuilt(tmp_path, file, "again")


def run_until_method(file: Path, owner: str, name: str, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a pipeline, and end it at the second call of a method."""
    module, _, kind = owner.rpartition(".")
    method = getattr(getattr(sys.modules.get(module) or __import__(module, fromlist=[kind]), kind), name)
    visits: list[int] = []

    def planted(*given: Any) -> None:
        visits.append(1)
        if len(visits) != 2 or moment == "after":
            method(*given)
        if len(visits) == 2:
            raise RuntimeError("the run ends here")

    with monkeypatch.context() as patched:
        patched.setattr(f"{owner}.{name}", planted)
        with pytest.raises(Exception, match="the run ends here"):
            quiet_run(file)


def test_the_log_of_a_stream_whole_is_replayed_from_any_offset_and_time_and_by_rule(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = written(tmp_path)
    quiet_run(file)
    found = entries(file)
    log = tmp_path / "out/log"
    parts = [
        [] if entry["run"] is None else read(log / f"batch={entry['run']}-{entry['micro_batch']}")
        for entry in found
    ]
    assert len(found) > 4
    for offset, entry in enumerate(found):
        wanted = counted([row for part in parts[offset:] for row in part])
        for name, start in (("offset", str(offset)), ("time", entry["written"])):
            place = tmp_path / f"{name}-{offset}"
            cep("replay", file, "--from", start, "--into", f"{{format: parquet, path: {place}}}")
            assert counted(read(place)) == wanted
    rules = Counter((row["rule"], row[KIND]) for part in parts for row in part)
    lines = map(json.loads, cep("replay", file, "--dry-run", "--format", "json").splitlines())
    assert Counter({(line["rule"], line["kind"]): line["rows"] for line in lines}) == rules
    place = tmp_path / "rise"
    cep("replay", file, "--rule", "rise", "--into", f"{{format: csv, path: {place}}}")
    n_lines = sum(len(part.read_text().splitlines()) - 1 for part in place.rglob("part-*"))
    assert n_lines == rules["rise", "match"] + rules["rise", RETRACT]
    told = cep("replay", file, "--from", "2999-01-01", "--dry-run")
    end = f"offset {len(found) - 1}, micro-batch {found[-1]['micro_batch']}"
    assert told == f"no rows; the log ends with {end}\n"


@pytest.mark.deep
def test_the_stream_continues_with_a_sink_that_a_replay_has_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = written(tmp_path)
    aside = tmp_path / "aside"
    aside.mkdir()
    for number in range(N_FILES // 2, N_FILES):
        shutil.move(tmp_path / f"events/part-{number:03}.json", aside)
    text = file.read_text()
    file.write_text(text.replace(FINISH, ""))
    quiet_run(file)
    cep("replay", file, "--into", f"{{format: delta, path: {tmp_path}/out/new}}")
    for part in aside.iterdir():
        shutil.move(part, tmp_path / "events")
    file.write_text(text.replace("sinks: [", "sinks: [{format: delta, path: out/new}, "))
    quiet_run(file)
    assert in_delta(tmp_path / "out/new") == in_delta(tmp_path / "out/delta")
    assert cep("replay", file, "--into", "delta-2").startswith("wrote 0 rows of 0 micro-batches; ")


def test_changed_rules_are_entries_and_rows_keep_the_columns_of_their_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    rules = OWN.replace("40 SECONDS", "4 MINUTES")
    file = written(tmp_path, rules=rules + EVENTS_RULE, more="reload: on change")
    file.write_text(file.read_text().replace(", correct_within: 1 day", ""))
    write_json(tmp_path / "events", EVENTS, N_FILES)
    aside = tmp_path / "aside"
    aside.mkdir()
    for number in range(N_FILES // 2, N_FILES):
        shutil.move(tmp_path / f"events/part-{number:03}.json", aside)
    text = file.read_text()
    file.write_text(text.replace(FINISH, "").replace(", {format: delta, path: out/delta}", ""))
    quiet_run(file)
    (tmp_path / "readings.cep").write_text(rules.replace("COUNT(low.*) AS lows", "COUNT(low.*) * 2 AS twice"))
    for part in aside.iterdir():
        shutil.move(part, tmp_path / "events")
    file.write_text(text.replace(", {format: delta, path: out/delta}", ""))
    quiet_run(file)
    found = entries(file)
    changes = [entry for entry in found if entry["kind"] == "rules"]
    assert len(changes) == 2
    assert len({entry["rules"] for entry in found}) == 2
    assert {path.stem for path in (tmp_path / "out/log/_rules").iterdir()} == {c["rules"] for c in changes}
    cep("replay", file, "--into", f"{{format: json, path: {tmp_path}/again}}")
    rows = read(tmp_path / "again", "json")
    assert in_json(tmp_path / "again") == in_json(tmp_path / "out/json")
    assert {"lows", "twice"} <= set().union(*rows)
    assert any(row["rule"] == "whole" for row in rows)  # a rule that is gone


def test_the_oldest_entries_are_removed_when_the_log_is_too_large(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = written(tmp_path, "{path: out/log, keep: 1 microsecond}")
    quiet_run(file)
    said = cep("replay", file, "--list").splitlines()
    (last,) = entries(file)
    assert said[0] == f"offsets 0 to {last['offset'] - 1} are not kept"
    assert len(list((tmp_path / "out/log").glob("batch=*"))) <= 2  # that of 0 may be empty
    assert "begins with offset" in cep("replay", file, "--from", "1", "--dry-run", code=1)
