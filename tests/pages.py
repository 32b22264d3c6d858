"""Examples of the pages of documentation: their blocks, and what commands print."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from types import ModuleType

from click.testing import CliRunner

import cep.commands.cli

DOCS = Path(__file__).parents[1] / "docs"


def blocks(page: str, kind: str) -> list[str]:
    """Return what is in the blocks of a kind (``yaml``, ``cep``, ``console``) of a page's text."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def shown_commands(page: str) -> list[tuple[str, str]]:
    """Return the arguments of each command ``cep`` of a page's text, and what it prints there."""
    text = "".join(blocks(page, "console"))
    return re.findall(r"^\$ cep (.*)\n((?:(?!\$).*\n)*)", text, re.MULTILINE)


def cep_prints(command: str) -> str:
    """Return what the command ``cep`` prints with these arguments."""
    result = CliRunner().invoke(cep.commands.cli.main, shlex.split(command), prog_name="cep")
    assert result.exit_code == 0, result.output
    return result.stdout


def loaded_tool(name: str) -> ModuleType:
    """Return a script of the folder `tools`, loaded as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCS.parent / f"tools/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
