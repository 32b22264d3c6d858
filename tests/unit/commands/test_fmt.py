"""`cep fmt` changes files that are not in the usual layout, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner, Result

from cep.commands.cli import main

LAID_OUT = "RULE r\nFROM s\nPARTITION BY k\nPATTERN a -> b\n"
OTHER = "rule r from s\n  partition by k pattern a->b"


def fmt(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["fmt", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "same.cep").write_text(LAID_OUT)
    (tmp_path / "other.cep").write_text(OTHER)
    return tmp_path


def test_files_are_written_once(folder: Path) -> None:
    (folder / "other.cep").chmod(0o640)
    before = (folder / "same.cep").stat().st_mtime_ns
    result = fmt(folder)
    assert result.exit_code == 0
    assert result.output == f"changed {folder / 'other.cep'}\nchanged 1 of 2 files\n"
    assert (folder / "other.cep").read_text() == LAID_OUT
    assert (folder / "other.cep").stat().st_mode & 0o777 == 0o640
    assert (folder / "same.cep").stat().st_mtime_ns == before
    assert sorted(path.name for path in folder.iterdir()) == ["other.cep", "same.cep"]
    assert fmt(folder).output == "changed 0 of 2 files\n"


def test_check_names_files_and_writes_none(folder: Path) -> None:
    result = fmt(folder, "--check", "--quiet")
    assert (result.exit_code, result.output) == (1, f"would change {folder / 'other.cep'}\n")
    assert (folder / "other.cep").read_text() == OTHER
    assert fmt(folder / "same.cep", "--check").exit_code == 0


def test_diff_shows_the_change_and_writes_none(folder: Path) -> None:
    result = fmt(folder, "--diff", "--quiet")
    assert result.exit_code == 0
    assert result.output.splitlines()[2:] == [
        "@@ -1,2 +1,4 @@",
        "-rule r from s",
        "-  partition by k pattern a->b",
        *(f"+{line}" for line in LAID_OUT.splitlines()),
    ]
    assert (folder / "other.cep").read_text() == OTHER
    assert fmt(folder, "--diff", "--check").exit_code == 1


def test_a_file_with_a_problem_stays_and_the_others_are_written(folder: Path) -> None:
    (folder / "bad.cep").write_text("RULE r FROM")
    result = fmt(folder)
    assert result.exit_code == 1
    assert "bad.cep:1" in result.output
    assert (folder / "bad.cep").read_text() == "RULE r FROM"
    assert (folder / "other.cep").read_text() == LAID_OUT


def test_line_ends_and_links_stay(folder: Path) -> None:
    (folder / "other.cep").write_bytes(OTHER.replace("\n", "\r\n").encode())
    (folder / "link.cep").symlink_to("other.cep")
    assert fmt(folder / "link.cep").exit_code == 0
    assert (folder / "link.cep").is_symlink()
    assert (folder / "other.cep").read_bytes() == LAID_OUT.replace("\n", "\r\n").encode()
    assert fmt(folder).output == "changed 0 of 2 files\n", "a link to a file is that file"


def _write_to_reader(pipe: Path, process: subprocess.Popen[str]) -> None:
    """Write to a pipe once the process reads it, unless that ends before."""
    while process.poll() is None:
        try:
            descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody reads it yet
            time.sleep(0.01)
            continue
        with os.fdopen(descriptor, "w") as file:
            file.write(OTHER)
        return


@pytest.mark.parametrize("options", [[], ["--diff"]])
def test_a_pipe_is_read_once_and_not_written(folder: Path, options: list[str]) -> None:
    os.mkfifo(folder / "pipe")
    line = [sys.executable, "-m", "cep", "fmt", "pipe", *options]
    with subprocess.Popen(line, cwd=folder, stdout=-1, stderr=-1, text=True) as process:
        try:
            _write_to_reader(folder / "pipe", process)
            output, error = process.communicate(timeout=20)
        finally:
            process.kill()
    if options:
        assert (process.returncode, "+PATTERN a -> b" in output) == (0, True)
    else:
        assert process.returncode == 1
        assert error.startswith("error[E0609]: `pipe` cannot be written: it is no regular file")


_AS_NOBODY = """
import os
import cep.errors, cep.spool.folder, cep.write_errors
from cep.commands.cli import main
main(["fmt", "--diff", "other.cep"], standalone_mode=False)  # which loads what is needed
if os.geteuid() == 0:  # who may write every file
    os.seteuid(65534)
main(["fmt", "other.cep"])
"""


def test_a_file_that_may_not_be_written_stays() -> None:
    with TemporaryDirectory() as folder:  # that of pytest is for one user only
        file = Path(folder, "other.cep")
        file.write_text(OTHER)
        file.chmod(0o444)
        Path(folder).chmod(0o777)
        line = [sys.executable, "-c", _AS_NOBODY]
        done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, file.read_text()) == (1, OTHER), done.stderr
        assert "error[E0617]: " in done.stderr


def test_a_file_that_is_missing_is_reported(folder: Path) -> None:
    result = fmt(folder / "gone.cep")
    assert (result.exit_code, "E0611" in result.output) == (1, True)


def piped(text: bytes, *options: str) -> Result:
    return CliRunner().invoke(main, ["fmt", "-", *options], input=text)


def test_standard_input_is_laid_out_on_standard_output() -> None:
    for text in (OTHER, LAID_OUT):
        result = piped(text.encode())
        assert (result.exit_code, result.stdout, result.stderr) == (0, LAID_OUT, "")
    checked = piped(OTHER.encode(), "--check")
    assert (checked.exit_code, checked.stdout) == (1, "")
    assert checked.stderr == "would change standard input\n"
    assert piped(LAID_OUT.encode(), "--check").exit_code == 0
    assert piped(OTHER.encode(), "--diff").stdout.startswith("--- standard input\n+++ standard input\n")


def test_standard_input_that_is_wrong_is_not_printed() -> None:
    wrong = piped(b"RULE r FROM s PARTITION BY k PATTERN a ->")
    assert (wrong.exit_code, wrong.stdout) == (1, "")
    assert "--> standard input:1:" in wrong.stderr
    assert piped(b"\xff").stderr == (
        "error[E0613]: standard input is not UTF-8 text: byte 1 begins no character\n"
    )
    assert fmt("-", "x.cep").stderr.endswith("Error: - is standard input: give no other files with it\n")
