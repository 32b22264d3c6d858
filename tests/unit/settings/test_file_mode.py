"""`file_mode`: what it means, and that it holds for what is made meanwhile and no longer."""

import os
from pathlib import Path

import pytest

from cep.errors import InputError, RuleError
from cep.settings.file_mode import PRIVATE, FileMode, parse_file_mode
from cep.spool.folder import identity
from cep.spool.new_files import umask
from spark_runtime.pipeline.pipeline_file import load_pipeline

PIPELINE = """\
streams: {readings: {event_time: ts, schema: {k: string, ts: timestamp, v: double}}}
rules: [r.cep]
source: {stream: readings, format: json, path: events}
sinks: [{format: console}]
mode: batch
"""


@pytest.mark.parametrize(
    ("text", "bits", "umask"),
    [
        ("0600", 0o600, 0o077),
        ("600", 0o600, 0o077),
        ("0640", 0o640, 0o027),
        ("0660", 0o660, 0o007),
        ("0644", 0o644, 0o022),
        ("0666", 0o666, 0o000),
    ],
)
def test_folders_may_be_entered_by_those_who_may_read(text: str, bits: int, umask: int) -> None:
    found = parse_file_mode(text)
    assert found == FileMode(bits)
    assert found is not None
    assert found.umask == umask


@pytest.mark.parametrize("text", ["", "0400", "0750", "0620", "00600", "6000", "private", "0o640", "-600"])
def test_other_modes_are_none(text: str) -> None:
    assert parse_file_mode(text) is None


def test_it_holds_for_what_is_made_meanwhile(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with umask(PRIVATE.umask):
            (tmp_path / "a").mkdir()
            (tmp_path / "a/b").touch()
        (tmp_path / "c").touch()
        made = [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b", "c")]
        assert made == [0o700, 0o600, 0o644]
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    ("setting", "expected"), [("", 0o600), ('file_mode: "0640"', 0o640), ("file_mode: 0640", 0o640)]
)
def test_a_pipeline_has_one(tmp_path: Path, setting: str, expected: int) -> None:
    (tmp_path / "r.cep").write_text("RULE r FROM readings PARTITION BY k PATTERN a DEFINE a AS v > 1")
    (tmp_path / "p.yaml").write_text(PIPELINE + setting)
    assert load_pipeline(tmp_path / "p.yaml").file_mode == FileMode(expected)


def test_another_one_is_refused_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "r.cep").write_text("RULE r FROM readings PARTITION BY k PATTERN a DEFINE a AS v > 1")
    (tmp_path / "p.yaml").write_text(PIPELINE + "file_mode: 0750")
    with pytest.raises(RuleError) as raised:
        load_pipeline(tmp_path / "p.yaml")
    assert str(raised.value) == (
        "error[E0841]: `file_mode` cannot be `0750`\n"
        f"  --> {tmp_path}/p.yaml:6:12\n"
        "   |\n"
        " 6 | file_mode: 0750\n"
        "   |            ^^^^ expected 6, then 0, 4 or 6 for the group and for all others\n"
        "   |\n"
        'help: write for example "0640": the user reads and writes, the group reads'
    )


def test_a_spool_of_another_user_is_not_taken_for_none(tmp_path: Path) -> None:
    spool = tmp_path / "inbox"
    spool.mkdir()
    (spool / "spool.json").write_text("{}")
    spool.chmod(0)
    is_root = os.geteuid() == 0
    try:
        if is_root:  # who may read everything
            os.seteuid(65534)
        with pytest.raises(InputError, match="may not be read by this user") as raised:
            identity(spool)
    finally:
        if is_root:
            os.seteuid(0)
        spool.chmod(0o700)
    assert raised.value.help == "run as the user of the spool, or start the spool with --file-mode 0660"
