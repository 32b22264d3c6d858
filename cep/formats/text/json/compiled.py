"""How the kernel of JSON lines is compiled: as `cep.compiled` says, anew when a source of it has changed."""

from __future__ import annotations

from cep import compiled

kernel = compiled.kernel(compiled.source_stamp("cep.formats.text.json", modules=(("cep", "compiled.py"),)))
