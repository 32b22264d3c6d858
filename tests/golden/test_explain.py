"""What `cep explain` says about the rules of the library does not change unseen.

``python -m tests.golden.test_explain`` writes the files anew: read the difference before committing it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cep.explain import explain
from rules.rulebook import compile_rulebook, load_rulebook

_RULES = Path(__file__).parents[2] / "rules"
_FOLDER = Path(__file__).parent / "explain"
_PATHS = sorted(_RULES.glob("*/*.cep"))


def _explained(path: Path) -> str:
    compiled = compile_rulebook(load_rulebook([path]))
    (program,) = compiled.programs
    return "\n".join(explain(rule, program) for rule in compiled.rules)


@pytest.mark.parametrize("path", _PATHS, ids=lambda path: path.stem)
def test_an_explanation_is_what_was_reviewed(path: Path) -> None:
    assert _explained(path) == (_FOLDER / f"{path.stem}.txt").read_text()


def test_there_is_a_file_for_each_rule_and_no_other() -> None:
    assert {path.stem for path in _FOLDER.glob("*.txt")} == {path.stem for path in _PATHS}


if __name__ == "__main__":
    for path in _PATHS:
        (_FOLDER / f"{path.stem}.txt").write_text(_explained(path))
