"""The output of `cep explain` for the rules of the library is the reviewed output.

``python -m tests.golden.test_explain`` writes the files again. Read the difference before you commit it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cep.compiler.compile import compile_sources
from cep.errors import Source
from cep.explain import picture
from cep.explain.explain import explain
from cep.explain.stages import STAGES, show_stages
from cep.rulebook import compile_rulebook, load_rulebook
from tests.letters import LETTERS, LetterRule

_RULES = Path(__file__).parents[2] / "rules"
_FOLDER = Path(__file__).parent / "explain"
_PATHS = sorted(_RULES.glob("*/*.cep"))
_STAGES = Path(__file__).parent / "stages"
_LONG = _RULES / "fraud/card_testing.cep"
"""The rule that is shown at every stage."""
_DRAWN = [_LONG, _RULES / "fraud/unanswered_code.cep"]


def _explained(path: Path) -> str:
    compiled = compile_rulebook(load_rulebook([path]))
    return "\n".join(explain(rule) for rule in compiled.rules)


@pytest.mark.parametrize("path", _PATHS, ids=lambda path: path.stem)
def test_an_explanation_is_the_reviewed_text(path: Path) -> None:
    assert _explained(path) == (_FOLDER / f"{path.stem}.txt").read_text()


def _automaton(pattern: str) -> str:
    text = LetterRule(pattern).text()
    compiled = compile_sources([Source("letters", text)], {"letters": LETTERS})
    shown = explain(compiled.rules[0])
    return shown[shown.index("automaton\n") : shown.index("a run remembers")]


def test_states_that_only_count_are_one_line() -> None:
    assert _automaton("h->{100} -> b") == (
        "automaton\n"
        "  0: start\n"
        "       take h -> 1\n"
        "  1: ignores events it cannot take\n"
        "       take h -> 2\n"
        "  2 to 99: the same, each a step further\n"
        "  100: ignores events it cannot take\n"
        "       take b -> match\n"
    )
    assert _automaton("(a b)->{50}") == (
        "automaton\n"
        "  0: start\n"
        "       take a -> 1\n"
        "  1: the very next event\n"
        "       take b -> 2\n"
        "  2: ignores events it cannot take\n"
        "       take a -> 3\n"
        "  3 to 98: the same as 1 to 2, in turn, each a step further\n"
        "  99: the very next event\n"
        "       take b -> match\n"
    )


def test_a_few_equal_states_are_shown_one_by_one_and_targets_keep_their_numbers() -> None:
    assert _automaton("a{4} b").count("take a") == 4
    assert _automaton("a->{3,100} -> b") == (
        "automaton\n"
        "  0: start\n"
        "       take a -> 1\n"
        "  1: ignores events it cannot take\n"
        "       take a -> 2\n"
        "  2: ignores events it cannot take\n"
        "       take a -> 3, 4\n"
        "  3: ignores events it cannot take\n"
        "       take a -> 5, 4\n"
        "  4: ignores events it cannot take\n"
        "       take b -> match\n"
        "  5: ignores events it cannot take\n"
        "       take a -> 6, 4\n"
        "  6 to 99: the same, each a step further\n"
        "  100: ignores events it cannot take\n"
        "       take a -> 4\n"
    )


def test_numbers_of_unbounded_states_are_shown_as_ranges() -> None:
    def runs(pattern: str) -> str:
        text = LetterRule(pattern).text()
        compiled = compile_sources([Source("letters", text)], {"letters": LETTERS})
        (line,) = re.findall("a run in state (.*) \\(no WITHIN\\)", explain(compiled.rules[0]))
        return str(line)

    assert runs("a b->{6} a->{7} b") == "2 to 6, 8 to 13"
    assert runs("(a b)->{50}") == "2, 4, 6, 8, ..., 98"


def test_there_is_a_file_for_each_rule_and_no_other() -> None:
    assert {path.stem for path in _FOLDER.glob("*.txt")} == {path.stem for path in _PATHS}


def _shown() -> dict[str, str]:
    """Return every stage of a rule and pictures of some rules, by the name of the reviewed file."""
    compiled = compile_rulebook(load_rulebook([_LONG]))
    stages = {f"{stage}.txt": "".join(show_stages(compiled, stage)) for stage in STAGES}
    assert "".join(show_stages(compiled, "all")) == "".join(stages.values())
    rules = compile_rulebook(load_rulebook(_DRAWN)).rules
    return stages | {"rules.dot": picture.dot(rules), "rules.mmd": picture.mermaid(rules)}


@pytest.mark.parametrize("name", [*(f"{stage}.txt" for stage in STAGES), "rules.dot", "rules.mmd"])
def test_stages_and_pictures_are_the_reviewed_ones(name: str) -> None:
    assert _shown()[name] == (_STAGES / name).read_text()


if __name__ == "__main__":
    for path in _PATHS:
        (_FOLDER / f"{path.stem}.txt").write_text(_explained(path))
    for name, text in _shown().items():
        (_STAGES / name).write_text(text)
