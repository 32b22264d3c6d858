"""Notebooks without Jupyter: a cell is run in this process, and its last expression is what it shows."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cells of a notebook that contain code."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def outputs(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell; return its outputs as Jupyter stores them: the text of its value, and the HTML if any."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    if not isinstance(last, ast.Expr):
        return []
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    if value is None:
        return []
    data = {"text/plain": lines(repr(value))}
    if hasattr(value, "_repr_html_"):
        data["text/html"] = lines(value._repr_html_())
    return [{"data": data, "execution_count": None, "metadata": {}, "output_type": "execute_result"}]


def lines(text: str) -> list[str]:
    """Return the lines of a text with their ends, as a notebook contains them."""
    return text.splitlines(keepends=True)


def written(notebook: dict[str, Any]) -> str:
    """Return the text of a notebook's file, after each cell was run in the current folder."""
    names: dict[str, Any] = {}
    for cell in code_cells(notebook):
        cell["outputs"] = outputs("".join(cell["source"]), names)
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def loaded(file: Path) -> dict[str, Any]:
    """Return the contents of a notebook's file."""
    notebook: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return notebook
