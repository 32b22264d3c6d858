"""How the engine's kernels are compiled: like all kernels, and again when a source has changed."""

from __future__ import annotations

from cep.jit import compiled
from cep.jit.compiled import inlined, outlined

__all__ = ["inlined", "kernel", "outlined"]

_SOURCES = compiled.Sources(
    "cep.engine.kernels",
    "cep.engine.kernels.columns",
    modules=(("cep.program", "opcodes.py"), ("cep.program", "records.py")),
)

kernel = compiled.kernel(_SOURCES)
