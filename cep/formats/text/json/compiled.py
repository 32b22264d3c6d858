"""How the kernel of JSON lines is compiled: again when a source of it has changed."""

from __future__ import annotations

from cep.jit import compiled

kernel = compiled.kernel(compiled.Sources("cep.formats.text.json"))
