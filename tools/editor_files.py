"""Write the files of editors that are generated: the grammar by which they color rules, and the schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cep.commands.schemas import NAMES, schema
from cep.editor.keywords import textmate

FOLDER = Path(__file__).parents[1] / "editors/vscode"


def files() -> dict[Path, dict[str, Any]]:
    """Return the contents of each generated file."""
    schemas = {FOLDER / f"schemas/{name}.schema.json": schema(name) for name in NAMES}
    return {FOLDER / "syntaxes/cep.tmLanguage.json": textmate(), **schemas}


def text(content: dict[str, Any]) -> str:
    """Return the text of a file."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for file, content in files().items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text(content), encoding="utf-8")
