"""How the kernels of windows are compiled: anew when a source of them has changed."""

from __future__ import annotations

from cep.kernels import compiled
from cep.kernels.compiled import inlined

__all__ = ["inlined", "kernel"]

kernel = compiled.kernel(compiled.source_stamp("cep.engine.context.kernels", "cep.kernels"))
