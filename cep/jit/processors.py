"""Processors for which kernels can be compiled on another machine.

Code that was compiled for a processor may run where the host has all features of this processor, and the same
operating system and architecture. LLVM names both processors and features.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class Processor:
    """A processor that LLVM compiles for.

    Attributes
    ----------
    name
        Its name in `PROCESSORS`.
    triple
        LLVM's name of architecture and operating system. The first part is the architecture.
    model
        LLVM's name of the processor.
    features
        What the host must have, apart from what each processor of the architecture has.
    """

    name: str
    triple: str
    model: str
    features: frozenset[str]


def _x86(level: int, features: frozenset[str]) -> Processor:
    name = f"x86-64-v{level}"
    return Processor(name, "x86_64-unknown-linux-gnu", name, features)


# The levels of the x86-64 psABI, and `xsave`, which LLVM adds.
_V2 = frozenset(("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"))
_V3 = _V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
_V4 = _V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}

PROCESSORS: dict[str, Processor] = {
    made.name: made
    for made in (
        _x86(4, _V4),
        _x86(3, _V3),
        _x86(2, _V2),
        Processor("aarch64", "aarch64-unknown-linux-gnu", "generic", frozenset()),
    )
}
"""The processors by name, of each architecture the one with most features first."""

HOST = "host"
"""In place of a name: this machine's processor, with all of its features."""


@cache
def fitting() -> tuple[str, ...]:
    """Return the names of the processors whose code this machine can run, the most features first."""
    import llvmlite.binding as llvm

    return tuple(fitting_of(llvm.get_process_triple(), host_features()))


def fitting_of(triple: str, features: frozenset[str]) -> Iterator[str]:
    """Yield the names of the processors whose code a machine can run, the most features first.

    `triple`: of the machine, as LLVM names it. `features`: of the machine.
    """
    architecture, *_ = triple.split("-")
    if "linux" in triple:
        for made in PROCESSORS.values():
            if made.triple.startswith(f"{architecture}-") and made.features <= features:
                yield made.name


def host_features() -> frozenset[str]:
    """Return the features of this machine's processor that the operating system allows; none if unknown."""
    import llvmlite.binding as llvm

    try:
        found = llvm.get_host_cpu_features()
    except RuntimeError:
        return frozenset()
    return frozenset(name for name, is_there in found.items() if is_there)
