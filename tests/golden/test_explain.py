"""What `cep explain` says about the rules of the library does not change unseen.

``python -m tests.golden.test_explain`` writes the files anew: read the difference before committing it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cep import picture
from cep.explain import explain
from cep.stages import STAGES, show_stages
from rules.rulebook import compile_rulebook, load_rulebook

_RULES = Path(__file__).parents[2] / "rules"
_FOLDER = Path(__file__).parent / "explain"
_PATHS = sorted(_RULES.glob("*/*.cep"))
_STAGES = Path(__file__).parent / "stages"
_LONG = _RULES / "fraud/card_testing.cep"
"""Shown at every stage."""
_DRAWN = [_LONG, _RULES / "fraud/unanswered_code.cep"]


def _explained(path: Path) -> str:
    compiled = compile_rulebook(load_rulebook([path]))
    (program,) = compiled.programs
    return "\n".join(explain(rule, program) for rule in compiled.rules)


@pytest.mark.parametrize("path", _PATHS, ids=lambda path: path.stem)
def test_an_explanation_is_what_was_reviewed(path: Path) -> None:
    assert _explained(path) == (_FOLDER / f"{path.stem}.txt").read_text()


def test_there_is_a_file_for_each_rule_and_no_other() -> None:
    assert {path.stem for path in _FOLDER.glob("*.txt")} == {path.stem for path in _PATHS}


def _shown() -> dict[str, str]:
    """Return every stage of a rule and pictures of some, by the name of the file that keeps them."""
    rulebook = load_rulebook([_LONG])
    compiled = compile_rulebook(rulebook)
    stages = {f"{stage}.txt": "".join(show_stages(rulebook.sources, compiled, stage)) for stage in STAGES}
    assert "".join(show_stages(rulebook.sources, compiled, "all")) == "".join(stages.values())
    rules = compile_rulebook(load_rulebook(_DRAWN)).rules
    return stages | {"rules.dot": picture.dot(rules), "rules.mmd": picture.mermaid(rules)}


@pytest.mark.parametrize("name", [*(f"{stage}.txt" for stage in STAGES), "rules.dot", "rules.mmd"])
def test_stages_and_pictures_are_what_was_reviewed(name: str) -> None:
    assert _shown()[name] == (_STAGES / name).read_text()


if __name__ == "__main__":
    for path in _PATHS:
        (_FOLDER / f"{path.stem}.txt").write_text(_explained(path))
    for name, text in _shown().items():
        (_STAGES / name).write_text(text)
