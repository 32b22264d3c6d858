"""Commands keep freed memory, in large pages where many are free and addresses are not limited."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from cep.commands.kept_memory import are_taken_back, free_large_pages

ZONES = """\
Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      3
Node 0, zone   Normal  46569 109110  62058  27667  15811   5339    900    378    374    379   1971
"""

MEMORY = r"""
import re
from pathlib import Path

from cep.commands import kept_memory

kept_memory.free_large_pages = lambda: FREE
kept_memory.are_taken_back = lambda: TAKEN
kept_memory.keep_memory()
import numpy as np

def resident():
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) >> 10

before = resident()
big = np.ones(10_000_000)  # 76 MiB: glibc would request it from the system, and return it
place = big.ctypes.data
del big
again = np.empty(10_000_000)
flags = re.findall(r"\[heap\]\n(?:[^\n]*\n)*?VmFlags: ([^\n]*)", Path("/proc/self/smaps").read_text())
has_large = any("hg" in of_mapping.split() for of_mapping in flags)
print(before < 100, again.ctypes.data == place, resident() - before >= 70, has_large)
"""

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these functions")


def printed(free: int, addresses: int | None = None, *, are_taken: bool = False) -> str:
    """Return what `MEMORY` prints if so many large pages are free, and so many addresses are allowed."""
    code = MEMORY.replace("FREE", str(free)).replace("TAKEN", str(are_taken))
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=False,
        env={name: value for name, value in os.environ.items() if name != "NUMPY_MADVISE_HUGEPAGE"},
        preexec_fn=None if addresses is None
        else lambda: resource.setrlimit(resource.RLIMIT_AS, (addresses, addresses)),
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.strip()


@glibc
def test_freed_memory_is_used_again_whatever_pages_the_system_has() -> None:
    assert printed(free=1024) == "True True True True"
    assert printed(free=1023) == "True True True False"
    assert printed(free=1024, are_taken=True) == "True True True False"


@glibc
def test_a_process_with_limited_addresses_reserves_none() -> None:
    assert printed(free=1024, addresses=900 << 20) == "True True True False"


def test_the_pages_that_are_free_are_counted(tmp_path: Path) -> None:
    state = tmp_path / "buddyinfo"
    state.write_text(ZONES)
    small = 4096 / os.sysconf("SC_PAGE_SIZE")
    assert small != 1 or free_large_pages(state) == 1 + 2 * 3 + 379 + 2 * 1971
    state.write_text(ZONES.replace("1971", "many"))
    assert free_large_pages(state) == 0
    assert free_large_pages(tmp_path / "missing") == 0


@pytest.mark.parametrize(
    ("kind", "features", "expected"),
    [
        ("0x0005", "0110010", True),
        ("0x0005", "0110001", False),
        ("0x0002", "0110010", False),
        ("x", "", False),
    ],
)
def test_a_host_that_takes_free_pages_back_is_noticed(
    tmp_path: Path, kind: str, features: str, expected: bool
) -> None:
    for name, of_kind in (("virtio0", "none"), ("virtio1", kind)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "device").write_text(f"{of_kind}\n")
        (tmp_path / name / "features").write_text(f"{features}\n")
    assert are_taken_back(tmp_path) is expected
    assert not are_taken_back(tmp_path / "missing")
