"""What the state of a key group consists of: the largest rules, the keys with the most open runs."""

from __future__ import annotations

import numpy as np

from cep.engine.state.open_runs import keys_of, runs_of_rules
from cep.rule_set import RuleSet
from spark_runtime.state.contents import programs_in

_MOST = 3


def heaviest(data: bytes, rules: RuleSet) -> str:
    """Return, in words, the rules with the most bytes of a state, and the keys with the most runs.

    `data`: the state (`snapshots.encode_state`). Rules with the same streams and key share windows and
    tables. So they are named together.
    """
    bytes_of: list[tuple[int, str]] = []
    runs_of: list[tuple[int, str]] = []
    for part in programs_in(data, rules):
        if part.program is None or part.sections is None:
            bytes_of.append((part.n_bytes, "are retained for corrections"))
            continue
        names = [f"`{rule.name}`" for rule in part.program.rules]
        more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
        bytes_of.append((part.n_bytes, f"are of {', '.join(names[:_MOST])}{more}"))
        keys = keys_of(part.program, part.sections)
        for runs in runs_of_rules(part.program, part.sections):
            if len(runs.slots):
                slots, counts = np.unique(runs.slots, return_counts=True)
                most = int(np.argmax(counts))
                (key,) = keys.slice(int(slots[most]), 1).to_pylist()
                shown = ", ".join(f"{name} = {value}" for name, value in key.items())
                told = f"{shown} has {counts[most]:,} of {len(runs.slots):,} open runs of `{runs.rule.name}`"
                runs_of.append((int(counts[most]), told))
    bytes_of.sort(reverse=True)
    runs_of.sort(reverse=True)
    of_rules = ", ".join(f"{n:,} {told}" for n, told in bytes_of[:_MOST])
    of_keys = "".join(f"; {told}" for _, told in runs_of[:_MOST])
    return f"In a snapshot {of_rules}{of_keys}"
