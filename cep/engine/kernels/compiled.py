"""How the engine's kernels are compiled: as `cep.compiled` says, anew when any source of them has changed."""

from __future__ import annotations

from cep import compiled
from cep.compiled import inlined, outlined

__all__ = ["inlined", "kernel", "outlined"]

_STAMP = compiled.source_stamp(
    "cep.engine.kernels",
    "cep.engine.kernels.columns",
    modules=(("cep", "compiled.py"), ("cep.program", "opcodes.py"), ("cep.program", "records.py")),
)

kernel = compiled.kernel(_STAMP)
