"""`cep state` shows the state of any rules, and showing it changes nothing."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import pytest
from click.testing import CliRunner

import cep.commands.state
from cep.commands.cli import main
from cep.engine.chains.chain import Chain
from cep.engine.state.open_runs import keys_of
from spark_runtime.event_time.reached import Reached
from spark_runtime.state.contents import StoredGroup, StoredState, programs_in
from spark_runtime.state.snapshots import encode_state
from tests.deep import n_cases
from tests.property.kept_state import inputs_of, play
from tests.property.strategies.late import drawn


def test_the_state_of_random_rules_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: Counter[str] = Counter()
    for number in range(n_cases(30)):
        random = Random(f"shown {number}")
        case = drawn(random)
        rules = case.rule_set() if random.random() < 0.3 else case.rule_set().with_corrections(None)
        chain = Chain(rules)
        for given in inputs_of(case, rules)[:-1]:
            play(chain, given)
        data = encode_state(chain.matchers, 1)
        group = StoredGroup(0, len(data), False, tuple(programs_in(data, rules)))
        monkeypatch.setattr(
            cep.commands.state,
            "stored_state_of",
            lambda checkpoint, rules=rules, group=group: StoredState((), rules, Reached(), iter([group])),
        )
        keys = {
            ",".join(str(value) for value in key.values())
            for part in group.programs
            if part.program is not None and part.sections is not None
            for key in keys_of(part.program, part.sections).to_pylist()
        }
        for words in (["ls"], ["top"], *(["show", key] for key in sorted(keys) if key)):
            command = ["state", words[0], "--format", "json", "--", "checkpoint", *words[1:]]
            result = CliRunner().invoke(main, command)
            assert result.exit_code == 0, (number, words, result.output)
            assert result.stdout == CliRunner().invoke(main, command).stdout
            kinds.update(next(iter(json.loads(line))) for line in result.stdout.splitlines())
    assert kinds.keys() >= {"rule", "window_of", "windowed_value", "row_of", "suppressed", "windows", "table"}
