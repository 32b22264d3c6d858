"""The errors of this project."""

from __future__ import annotations

import copy
import pickle
import re
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from cep.compiler.compile import compile_sources
from cep.errors import CepError, Diagnostic, RuleError, Source

_ROOT = Path(__file__).parents[2]
_DERIVED = re.compile(r"^class \w+\([^)]*\b(?:Cep|Rule|Input|State|Setup|Gone|GivenEvents)Error\b", re.M)


def _subclasses(kind: type[CepError]) -> set[type[CepError]]:
    return {kind}.union(*map(_subclasses, kind.__subclasses__()))


def _all_errors() -> list[type[CepError]]:
    for package in ("cep", "spark_runtime"):
        for file in (_ROOT / package).rglob("*.py"):
            if _DERIVED.search(file.read_text()):
                import_module(".".join(file.relative_to(_ROOT).with_suffix("").parts))
    return sorted(_subclasses(CepError), key=lambda kind: kind.__qualname__)


def _error_of(kind: type[CepError]) -> CepError:
    if issubclass(kind, RuleError):
        return kind([Diagnostic("W0001", "odd"), Diagnostic("E0101", "wrong", help="mend it")])
    error = kind("E0001", "wrong", "mend it")
    error.add_note("in row 5")
    return error


@pytest.mark.parametrize("kind", _all_errors(), ids=lambda kind: kind.__qualname__)
def test_an_error_is_copied_and_sent_with_all_it_says(kind: type[CepError]) -> None:
    error = _error_of(kind)
    copies = [copy.copy(error), copy.deepcopy(error)]
    copies += [pickle.loads(pickle.dumps(error, of)) for of in range(pickle.HIGHEST_PROTOCOL + 1)]
    for other in copies:
        assert type(other) is kind
        assert (str(other), other.args, vars(other)) == (str(error), error.args, vars(error))


def _wrong_rule(_: object) -> Any:
    return compile_sources([Source("r.cep", "RULE r FROM")], {})


def test_an_error_in_another_process_is_the_same_here() -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool, pytest.raises(RuleError) as raised:
        pool.submit(_wrong_rule, None).result(timeout=60)
    assert raised.value.diagnostics
    assert "r.cep:1" in str(raised.value)
