"""Event pattern rules: language, compiler, engine, command. Knows nothing of Spark.

The names in `__all__` are stable; everything else may move. A name is loaded when it is first used, so
`import cep` loads neither Arrow nor numba.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cep.counts import Counts
    from cep.errors import CepError, Diagnostic, InputError, RuleError, SetupError, StateError
    from cep.formats.files import BadFile, Format
    from cep.local.find_matches import find_matches
    from cep.local.match_file import Result, match_file
    from cep.rule_set import RuleSet
    from cep.rulebook import load_rules
    from cep.schema.stream import DeviceClock, Field, Stream
    from cep.settings.schema_file import load_streams
    from cep.why.given import find_reasons

__all__ = [
    "BadFile",
    "CepError",
    "Counts",
    "DeviceClock",
    "Diagnostic",
    "Field",
    "Format",
    "InputError",
    "Result",
    "RuleError",
    "RuleSet",
    "SetupError",
    "StateError",
    "Stream",
    "find_matches",
    "find_reasons",
    "load_rules",
    "load_streams",
    "match_file",
]

_MODULES = {
    **dict.fromkeys(
        ("CepError", "Diagnostic", "InputError", "RuleError", "SetupError", "StateError"), "cep.errors"
    ),
    **dict.fromkeys(("BadFile", "Format"), "cep.formats.files"),
    **dict.fromkeys(("DeviceClock", "Field", "Stream"), "cep.schema.stream"),
    **dict.fromkeys(("Result", "match_file"), "cep.local.match_file"),
    "Counts": "cep.counts",
    "RuleSet": "cep.rule_set",
    "find_matches": "cep.local.find_matches",
    "find_reasons": "cep.why.given",
    "load_rules": "cep.rulebook",
    "load_streams": "cep.settings.schema_file",
}
"""Public name -> the module that has it."""


def __getattr__(name: str) -> object:
    """Load a public name (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module `cep` has no `{name}`")
    value: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
