"""How the kernels of windows are compiled: again when one of their sources has changed."""

from __future__ import annotations

from cep.jit import compiled
from cep.jit.compiled import inlined

__all__ = ["inlined", "kernel"]

kernel = compiled.kernel(
    compiled.Sources("cep.engine.windows.kernels", modules=(("cep.program", "window_functions.py"),))
)
