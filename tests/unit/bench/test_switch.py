"""The pause of a change of rules, from the times at which micro-batches were committed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cep.compiler.compile import compile_sources
from cep.errors import Source
from cep.program.changes import Verdict, changes_of
from cep.rule_set import RuleSet
from tests.bench.peer_rules import STREAM
from tests.bench.switch import Switch, _switch, rules


def compiled(text: str) -> RuleSet:
    return compile_sources([Source("r.cep", text)], {STREAM.name: STREAM}).rule_set


@pytest.mark.parametrize(("change", "verdict"), [("words", Verdict.WORDS), ("window", Verdict.CHANGED)])
def test_a_change_is_of_one_of_two_rules(change: str, verdict: Verdict) -> None:
    changes = changes_of(compiled(rules()).programs, compiled(rules(change)).programs)
    assert changes.verdicts == {"R1": Verdict.SAME, "R2": verdict}


def test_the_pause_is_between_the_matches_before_and_after_and_the_usual_time_is_of_all_others(
    tmp_path: Path,
) -> None:
    times = {0: 100, 1: 120, 2: 122, 3: 124, 4: 125, 5: 129, 6: 131, 7: 140, 8: 142, 9: 145}
    for number, seconds in times.items():
        file = tmp_path / f"query/commits/{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        os.utime(file, (seconds, seconds))
    # The rules change in micro-batch 6, which has no matches; 5 only reports what is due.
    assert _switch(tmp_path, [0, 1, 2, 3, 4, 7, 8, 9], 6) == Switch(pause=15, usual=2)
