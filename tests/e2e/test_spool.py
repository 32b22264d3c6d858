"""`cep spool` as a user runs it: started, killed, stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from tests.e2e.spool_kills import POINTS, Spool, free_port, run, stored


def test_a_spool_that_is_killed_anywhere_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    kills = [(point, 3) for point in POINTS] + [("", 20), ("half a header", 1)]
    counts = run(tmp_path / "spool", kills)
    assert counts["lost"] == 0
    assert counts["acknowledged"] > 20


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "cep", "spool", *arguments]


def test_a_spool_ends_on_sigterm_and_says_what_it_did(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command("http", "--into", str(tmp_path / "s"), "--port", "0"), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    address = line.partition("listening at ")[2].strip()
    request = urllib.request.Request(f"{address}/x", b'{"id": 1}', {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert (answer.status, json.load(answer)) == (202, {"taken": 1})
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=30)
    assert process.returncode == 0
    assert rest == f"spool {tmp_path / 's'}: 1 taken, 1 written, 1 acknowledged\n"
    status = json.loads((tmp_path / "s" / "status.json").read_text())
    assert (status["protocol"], status["is_running"], status["acknowledged"]) == ("http", False, 1)


def test_two_spools_on_one_folder_and_two_on_one_port_are_refused(tmp_path: Path) -> None:
    port = str(free_port())
    first = subprocess.Popen(
        command("http", "--into", str(tmp_path / "s"), "--port", port), stderr=subprocess.PIPE, text=True
    )
    try:
        assert first.stderr is not None
        assert "listening" in first.stderr.readline()
        same_folder = subprocess.run(
            command("http", "--into", str(tmp_path / "s"), "--port", "0"),
            capture_output=True,
            text=True,
            check=False,
        )
        same_port = subprocess.run(
            command("http", "--into", str(tmp_path / "t"), "--port", port),
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        first.terminate()
        first.communicate(timeout=30)
    assert same_folder.returncode == 1
    assert same_folder.stderr.startswith(
        f"error[E0951]: another spool writes into `{tmp_path / 's'}`: process "
    )
    assert same_port.returncode == 1
    assert same_port.stderr.startswith(f"error[E0954]: nothing can listen at 127.0.0.1:{port}: ")


def test_a_token_that_the_environment_does_not_have_is_told(tmp_path: Path) -> None:
    done = subprocess.run(
        command("http", "--into", str(tmp_path), "--token-env", "NO_SUCH_TOKEN"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        1,
        "error[E0957]: the environment has no variable `NO_SUCH_TOKEN`",
    )


def test_a_spool_that_is_started_again_goes_on(tmp_path: Path) -> None:
    port = free_port()
    spool = Spool(tmp_path / "s", ("http", "--port", str(port)))
    for number in range(2):
        spool.start()
        deadline = time.monotonic() + 60
        while True:
            try:
                body = json.dumps({"id": str(number)}).encode()
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", body, timeout=30).close()
                break
            except OSError:
                assert time.monotonic() < deadline
        assert spool.kill(signal.SIGTERM) == 0
    assert stored(tmp_path / "s") == ["0", "1"]
