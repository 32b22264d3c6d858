"""``make wheel``: builds a wheel with compiled kernels in dist/.

The kernels are for processors, not for the machine that builds. An installation compiles nothing if it has
the minor version of Python that runs this, and the versions of numba and numpy in requirements.lock. Any
other installation compiles. The wheel is built from a copy in build/wheel, which keeps the kernels: they are
compiled again only if their sources have changed.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPY = ROOT / "build" / "wheel"
CARRIED = COPY / "cep" / "jit" / "carried"
PROCESSORS = ("x86-64-v3", "aarch64")


def copy() -> None:
    """Copy what a wheel is built from; keep kernels of an earlier build."""
    kept = COPY.with_name("kernels")
    if CARRIED.exists():
        CARRIED.rename(kept)
    shutil.rmtree(COPY, ignore_errors=True)
    COPY.mkdir(parents=True)
    for name in ("cep", "spark_runtime", "rules"):
        shutil.copytree(ROOT / name, COPY / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, COPY)
    if kept.exists():
        kept.rename(CARRIED)


def carry_kernels() -> None:
    """Compile the kernels that the copy does not carry yet, and write them into it."""
    sys.path.insert(0, str(COPY))
    from cep.commands.package import kernels

    written = set()
    for name, data in kernels(PROCESSORS, quiet=False):
        path = COPY / "cep" / "jit" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        written.add(path)
    for path in {*CARRIED.rglob("*.kernel")} - written:
        path.unlink()  # of a kernel that does not exist any more


def build() -> str:
    """Build the wheel and return its name, which pip prefers to that of a wheel for all Pythons."""
    from setuptools import build_meta

    (ROOT / "dist").mkdir(exist_ok=True)
    os.chdir(COPY)
    tag = "--python-tag=cp{}{}".format(*sys.version_info[:2])
    return build_meta.build_wheel(
        str(ROOT / "dist"), {"--global-option": ["--quiet"], "--build-option": [tag]}
    )


def main() -> None:
    """Build it."""
    copy()
    carry_kernels()
    name = build()
    print(f"dist/{name} ({(ROOT / 'dist' / name).stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
