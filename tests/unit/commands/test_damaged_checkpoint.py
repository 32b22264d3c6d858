"""A damaged checkpoint: commands that read it without Spark name the file, and never end with a fault."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from stat import S_ISDIR
from typing import Any

import pytest
from click.testing import CliRunner

import cep.commands.cli
import spark_runtime.doctor
from cep.errors import StateError
from spark_runtime.connectors.files.file_log import FileLog
from spark_runtime.storage.sealed import sealed, unsealed

STORED = Path(__file__).parents[2] / "spark/checkpoints/1"
"""What `cep run` has written: a rule, then a late event under two rules; the last micro-batch is 6."""

FILES = sorted(str(file.relative_to(STORED)) for file in STORED.rglob("*") if file.is_file())

OURS = [name for name in FILES if not name.startswith("query/")]

STREAMS = """
streams:
  transactions:
    event_time: ts
    lateness: 10 seconds
    schema: {tx_id: string, card_id: string, ts: timestamp, amount: double}
"""
RULE = (
    "RULE velocity FROM transactions PARTITION BY card_id PATTERN a WITHIN 5 MINUTES DEFINE a AS amount > 1"
)
PIPELINE = """
rules: [rules]
source: {stream: transactions, format: json, path: in}
sinks: [{format: json, path: out/alerts}]
checkpoint: state
log: out/log
"""

COMMANDS = (
    "state ls state",
    "state show state c1",
    "state top state",
    "gaps state",
    "history state",
    "history state --diff",
    "restore-rules state 0 --dry-run",
    "savepoint state saved",
    "diff --checkpoint state rules",
    "why --checkpoint state --key c1",
    "backfill pipeline.yaml --from 2024-05-01",
    "doctor pipeline.yaml",
)

SAVED = STORED.parents[1] / "savepoints/1"

FOLDERS = sorted(str(file.relative_to(STORED)) for file in [STORED, *STORED.rglob("*")] if file.is_dir())

Damage = Callable[[Path], object]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a pipeline and its checkpoint, which is the current one."""
    return with_pipeline(tmp_path, monkeypatch)


def with_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a pipeline and its checkpoint to a folder; make it the current one, and return it."""
    shutil.copytree(STORED, tmp_path / "state")
    for name in ("rules", "in"):
        (tmp_path / name).mkdir()
    (tmp_path / "streams.yaml").write_text(STREAMS)
    (tmp_path / "rules/vel.cep").write_text(RULE)
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    file = tmp_path / "state/pipeline.json"  # its source is the folder of this pipeline
    file.write_text(sealed(unsealed(file.read_bytes()).replace("/pipeline/in", f"{tmp_path}/in")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(spark_runtime.doctor, "examine_machine", tuple)  # it asks Java
    return tmp_path


def run(command: str) -> tuple[int, str]:
    """Return the exit code and the output of a command."""
    result = CliRunner().invoke(cep.commands.cli.main, command.split())
    shutil.rmtree("saved", ignore_errors=True)
    return result.exit_code, result.output


def parts(file: Path) -> list[bytes]:
    """Return the parts of a file that have a checksum each."""
    data = file.read_bytes()
    return data.splitlines() if file.suffix == ".log" else [data]


def places(found: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each object and array in a value of JSON, with the key of each of its values."""
    keys = found if isinstance(found, dict) else range(len(found) if isinstance(found, list) else 0)
    for key in list(keys):
        yield found, key
        yield from places(found[key])


def wrong_types(text: str) -> Iterator[str]:
    """Yield JSON in which one value has another type, as a file of an earlier version."""
    whole, others = json.loads(text), ("[]", "{}", "null", '"x"')
    yield from others
    for at, key in places(whole):
        before = at[key]
        for other in map(json.loads, others):
            at[key] = other
            yield json.dumps(whole)
        at[key] = before


def damages(file: Path) -> Iterator[tuple[str, Damage]]:
    """Yield names and ways to damage a file."""
    data, random = file.read_bytes(), Random(file.name)

    def folder_instead(place: Path) -> None:
        place.unlink()
        place.mkdir()

    def with_bytes(new: bytes) -> Damage:
        return lambda place: place.write_bytes(new)

    yield "missing", Path.unlink
    yield "a folder", folder_instead
    yield "empty", with_bytes(b"")
    yield "deep", with_bytes(b"[" * 5000)
    yield "deep in a text", with_bytes(json.dumps({"6": ["[" * 5000, {}, False, {}]}).encode())
    yield "a long number", with_bytes(b"9" * 5000)
    for length in random.sample(range(len(data)), 2):
        yield f"truncated to {length}", with_bytes(data[:length])
    for at in random.sample(range(len(data)), 3):
        for new in (data[at] ^ 1 << random.randrange(8), ord("?")):
            yield f"byte {at} is {new}", with_bytes(data[:at] + bytes([new]) + data[at + 1 :])


def written(folder: Path) -> dict[Path, tuple[bool, int, int]]:
    """Return whether each file and folder is a folder, its length and when it was written."""
    told = {place.relative_to(folder): place.stat() for place in folder.rglob("*")}
    return {
        name: (True, 0, 0) if S_ISDIR(of.st_mode) else (False, of.st_size, of.st_mtime_ns)
        for name, of in told.items()
    }


def restore(folder: Path, sound: Path) -> None:
    """Make a folder the same as a sound one. Few files differ: to copy all of them takes half of the test."""
    found, wanted = written(folder), written(sound)
    for name in found.keys() - wanted.keys() | {name for name in wanted if found.get(name) != wanted[name]}:
        place = folder / name
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
    for name in wanted:
        if not (folder / name).exists():
            if wanted[name][0]:
                (folder / name).mkdir(parents=True)
            else:
                shutil.copy2(sound / name, folder / name)


_opened: list[str] = []
"""The files that this process has opened while `reading` waits for them."""


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Return, for each file of a checkpoint, the commands that open it.

    What a file contains is nothing to the others: without this, the tests of damage take twice as long.
    """
    is_waiting = True
    # A hook cannot be removed. It has even the files that are opened by `os.open`.
    sys.addaudithook(lambda event, of: _opened.append(str(of[0])) if is_waiting and event == "open" else None)
    readers: dict[str, set[str]] = {name: set() for name in FILES}
    with pytest.MonkeyPatch.context() as patched:
        folder = with_pipeline(tmp_path_factory.mktemp("sound"), patched)
        for command in COMMANDS:
            _opened.clear()
            run(command)
            for name in {os.path.relpath(place, folder / "state") for place in _opened} & readers.keys():
                readers[name].add(command)
    is_waiting = False
    return readers


def test_each_file_is_read_by_some_command_but_what_only_spark_reads(reading: dict[str, set[str]]) -> None:
    unread = {name for name, commands in reading.items() if not commands}
    assert {name.partition("/")[0] for name in unread} <= {"plan", "query"}
    assert all(any(name in of for of in reading.values()) for name in COMMANDS)


@pytest.mark.parametrize("name", FILES)
def test_damage_is_never_a_fault(folder: Path, reading: dict[str, set[str]], name: str) -> None:
    faults = []
    shutil.copytree("state", "sound")  # with the times of the files
    for damage, apply in damages(folder / "sound" / name):
        apply(folder / "state" / name)
        for command in COMMANDS:
            if (folder / "state" / name).is_file() and command not in reading[name]:
                continue
            code, output = run(command)
            if code == 70 or "Traceback" in output:
                faults.append((damage, command, output))
        restore(folder / "state", folder / "sound")
    assert not faults


_VERSION, _BYPASSES = 0x20080522, 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


@contextmanager
def denied(place: Path) -> Iterator[None]:
    """Let nobody read a file or a folder, not even root."""
    mode, header, of_root = place.stat().st_mode, (ctypes.c_uint32 * 2)(_VERSION, 0), (ctypes.c_uint32 * 6)()
    is_root = os.geteuid() == 0
    if is_root and sys.platform != "linux":
        pytest.skip("root may read everything")
    libc = ctypes.CDLL(None)
    place.chmod(0)
    if is_root:
        assert libc.capget(header, of_root) == 0
        without = (ctypes.c_uint32 * 6)(*of_root)
        without[0] &= ~_BYPASSES  # what is effective; all of it remains permitted
        assert libc.capset(header, without) == 0
    try:
        yield
    finally:
        if is_root:
            assert libc.capset(header, of_root) == 0
        place.chmod(mode & 0o7777)


ALL_COMMANDS = (*COMMANDS, "backfill pipeline.yaml --gaps", "backfill pipeline.yaml --discard")


@pytest.mark.parametrize("name", [*FOLDERS, *FILES])
def test_what_may_not_be_read_is_never_a_fault(folder: Path, name: str) -> None:
    found = {}
    with denied(folder / "state" / name):
        for command in ALL_COMMANDS:
            found[command] = run(command)
    assert not [of for of in found.items() if of[1][0] == 70 or "Traceback" in of[1][1]]
    if name == ".":
        told = re.compile(
            r"error\[E0(702|617)\]: `[^`]*state[^`]*` cannot be (read|written): Permission denied\n"
        )
        assert [command for command, (_, output) in found.items() if not told.search(output)] == []
        assert "error[E0702]: `state` cannot be read: Permission denied\n" in found["state ls state"][1]


@pytest.mark.parametrize("name", [".", "savepoint.json", "rules.json", "groups"])
@pytest.mark.parametrize(
    "command",
    [
        "state ls given",
        "diff --checkpoint given rules",
        "why --checkpoint given --key c1",
        "restore given new",
        "restore given new --pipeline pipeline.yaml",
    ],
)
def test_a_savepoint_that_may_not_be_read_is_named(folder: Path, name: str, command: str) -> None:
    shutil.copytree(SAVED, folder / "given")
    with denied(folder / "given" / name):
        code, output = run(command)
    assert code == 1
    assert re.search(r"error\[E07(02|14)\]: `given[^`]*` cannot be read: Permission denied\n", output)
    assert "help: let the user who runs this read it" in output
    assert "copy the savepoint again" not in output
    assert not (folder / "new").exists()


def test_doctor_asks_the_source_although_the_checkpoint_may_not_be_read(folder: Path) -> None:
    with denied(folder / "state/query"):
        code, output = run("doctor pipeline.yaml")
    lines = output.splitlines()
    told = lines[lines.index("PROBLEM checkpoint") + 1]
    assert (code, told.strip()) == (
        1,
        f"error[E0702]: `{folder}/state/query/commits` cannot be read: Permission denied",
    )
    assert "ok      source transactions (json)" in lines


@pytest.mark.parametrize("command", ["state ls above/state", "gaps above/state", "history above/state"])
def test_a_folder_above_that_may_not_be_read_is_never_a_fault(folder: Path, command: str) -> None:
    shutil.copytree(STORED, folder / "above/state")
    with denied(folder / "above"):
        code, output = run(command)
    assert code == 1
    assert re.search(r"error\[E0702\]: `above[^`]*` cannot be read: Permission denied\n", output)


def test_a_folder_for_matches_that_may_not_be_read_is_named(folder: Path) -> None:
    (folder / "apart").mkdir()
    command = "backfill pipeline.yaml --matches apart --into apart"
    with denied(folder / "apart"):
        assert "error[E0617]: `apart` cannot be written: Permission denied\n" in run(command)[1]
    (folder / "apart").rmdir()
    (folder / "apart").touch()
    assert "error[E0618]: `apart` cannot be written: a file" in run(command)[1]


def test_a_past_that_may_not_be_removed_is_not_told_as_removed(folder: Path) -> None:
    (folder / "state/backfill/prepared").mkdir(parents=True)
    (folder / "state/backfill/prepared/a").touch()
    with denied(folder / "state/backfill/prepared"):
        code, output = run("backfill pipeline.yaml --discard")
    assert (code, "E0617" in output) == (1, True)
    assert run("backfill pipeline.yaml --discard") == (0, "removed the past that was prepared\n")
    assert run("backfill pipeline.yaml --discard") == (0, "nothing was prepared\n")


@pytest.mark.parametrize("name", ["done.json", "gaps.json", "pipeline.json"])
def test_a_value_of_another_type_is_never_a_fault(folder: Path, name: str) -> None:
    file, faults = folder / "state" / name, []
    for text in wrong_types(unsealed(file.read_bytes())):
        file.write_text(text)
        for command in (
            "state ls state",
            "gaps state",
            "savepoint state saved",
            "diff --checkpoint state rules",
        ):
            code, output = run(command)
            if code == 70:
                faults.append((text, command, output))
    assert not faults


@pytest.mark.parametrize(
    ("name", "before", "after", "command"),
    [
        ("done.json", "1714557826000000", "1714559873930688", "state ls state"),  # one bit of the watermark
        ("done.json", "[1714557826", "[17145578?6", "savepoint state saved"),
        ("rules/0.json", "amount > 100", "aMount > 100", "history state --diff"),
        ("rules/0.json", "amount > 100", "aMount > 100", "restore-rules state 0 --dry-run"),
        ("rules/1.json", "amount > 100", "amount > 500", "state ls state"),
        ("gaps.json", "1714557603000000", "1714557603000001", "gaps state"),
        ("pipeline.json", '"key_groups": 2', '"key_groups": 3', "state ls state"),
        ("course.log", "1714557593", "1714557594", "backfill pipeline.yaml --from 2024-05-01"),
    ],
)
def test_a_change_that_is_still_valid_is_noticed_and_the_file_is_named(
    folder: Path, name: str, before: str, after: str, command: str
) -> None:
    file = folder / "state" / name
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))
    code, output = run(command)
    assert code == 1
    assert "E0702" in output
    assert name in output


@pytest.mark.parametrize("name", OURS)
def test_no_bit_of_a_file_changes_unnoticed(name: str) -> None:
    for line in parts(STORED / name):
        written = json.loads(unsealed(line))
        for at in range(len(line)):
            for bit in range(8):
                changed = line[:at] + bytes([line[at] ^ 1 << bit]) + line[at + 1 :]
                try:
                    assert (
                        json.loads(unsealed(changed)) == written
                    )  # the end of the checksum as another space
                except ValueError:
                    continue
                assert at == len(line) - 1


@pytest.mark.parametrize("command", COMMANDS)
def test_files_of_earlier_versions_have_no_checksum_and_are_read_as_before(
    folder: Path, command: str
) -> None:
    sound = run(command)
    for name in OURS:
        file = folder / "state" / name
        lines = list(map(unsealed, parts(file)))
        file.write_text("\n".join(lines) + "\n" * name.endswith(".log"))
        assert " \t" not in file.read_text()
    shutil.rmtree(folder / "state/backfill", ignore_errors=True)
    assert sound[0] in (0, 3), sound[1]
    code, output = run(command)
    a_length = re.compile(r"[0-9,]+ bytes")  # of a savepoint: it has the list of files as it is
    assert (code, a_length.sub("", output)) == (sound[0], a_length.sub("", sound[1]))


def test_a_line_of_the_files_that_were_read_does_not_change_unnoticed(folder: Path) -> None:
    file = folder / "state/files/transactions.log"
    assert [entry.end for entry in FileLog.load(file).entries] == [1610, 1701, 1701]
    file.write_text(file.read_text().replace("1610", "1611"))
    with pytest.raises(StateError, match=r"E0702.*transactions\.log.*is damaged"):
        FileLog.load(file)


def test_a_sealed_text_is_the_same_json_for_who_knows_no_checksum() -> None:
    for text in ('{"a": [1, null]}', "1.5", "[]", '"text  "'):
        assert json.loads(sealed(text)) == json.loads(text)
        assert unsealed(sealed(text).encode()) == text


@pytest.mark.parametrize("number", [0, 1])
def test_a_missing_generation_is_named_by_what_needs_it(folder: Path, number: int) -> None:
    (folder / f"state/rules/{number}.json").unlink()
    found = {command: run(command) for command in ("gaps state", "history state", "savepoint state saved")}
    if number == 0:
        assert all("E0702" in output and "rules/0.json" in output for _, output in found.values())
    else:  # that the last one is missing shows in what is of its rules
        assert all("E0702" in found[command][1] for command in ("gaps state", "savepoint state saved"))


def test_a_fault_of_a_check_is_not_printed_by_its_thread_but_raised(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(pipeline: object) -> str:
        raise KeyError(0)

    monkeypatch.setattr(spark_runtime.doctor, "_check_checkpoint", fails)
    code, output = run("doctor pipeline.yaml")
    assert (code, "internal error: KeyError: 0" in output) == (70, True)
