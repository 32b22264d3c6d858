"""How the kernel for JSON lines is compiled: again when one of its sources has changed."""

from __future__ import annotations

from cep.jit import compiled

kernel = compiled.kernel(compiled.Sources("cep.formats.text.json"))
