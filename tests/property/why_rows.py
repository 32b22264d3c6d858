"""What `cep why` says of window rules and views, on random rules, events and tables.

    python -m tests.property.why_rows --examples 1000

What it says was reported is what a run reports. Each part of HAVING is refused exactly where a rule with this
part alone reports nothing. Events that WHERE refused, taken away, change nothing.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import given as given_a

from cep.compiler import ir
from cep.compiler.automaton.build import build
from cep.compiler.compile import compile_rules
from cep.compiler.lowering.shared import conjuncts
from cep.errors import Source
from cep.language.front_ends import read_rules
from cep.local.given_events import event_table
from cep.program.views import KIND, REVISION
from cep.rule_set import RuleSet
from cep.why.reasons import Period, Reason, WhyRows
from cep.why.rows import RowReplay, row_replay, why_rows
from tests.property.differential import stream_table
from tests.property.strategies.cases import Case, cases_of_windows
from tests.property.views import ViewCase, view_cases

_ALL = 10_000


def of_rule(case: Case, rule: ir.Rule, events: Sequence[dict[str, Any]]) -> RowReplay:
    """Return a window rule of a case, alone, over events."""
    built, _ = build([rule])
    rules = RuleSet(compile_rules([rule], {case.stream.name: case.stream}))
    return row_replay(built, rules, rule.name, {case.stream.name: stream_table(case.stream, events)})


def answers(found: RowReplay) -> dict[tuple[Any, ...], WhyRows]:
    """Return the answer for each key."""
    rows = found.keys.table.group_by(found.keys.table.column_names).aggregate([]).to_pylist()
    keys = [tuple(row.values()) for row in rows]
    return {key: why_rows(found, key, limit=_ALL) for key in keys if None not in key}


def reported_ids(found: RowReplay) -> Counter[str]:
    return Counter(found.matches.column("match_id").to_pylist())


def check_windows(case: Case, counts: Counter[str]) -> None:
    """Check every answer about the window rules of a case; count what was checked."""
    for rule in case.rules:
        found = of_rule(case, rule, case.events)
        told = answers(found)
        windows = [one for answer in told.values() for one in (*answer.reported, *answer.others)]
        ids = Counter(one.match_id or "" for answer in told.values() for one in answer.reported)
        assert ids == reported_ids(found)
        counts["windows"] += len(windows)
        assert rule.windowing is not None
        report = replace(rule.report, suppress_us=0, n_per_day=0)
        parts = [] if rule.windowing.having is None else conjuncts(rule.windowing.having)
        for number, part in enumerate(parts):
            alone = replace(rule, windowing=replace(rule.windowing, having=part), report=report)
            holds = {(one.start_us, one.end_us) for one in windows if not _has_failed(one, number)}
            matches = of_rule(case, alone, case.events).matches
            times = zip(*(matches.column(name).cast("int64").to_pylist() for name in _TIMES), strict=True)
            assert holds == set(times)
            counts["parts of HAVING"] += 1
        for one in windows:
            counts.update(failed.reason for failed in one.failed)
            counts[Reason.SUPPRESSED] += one.removed_by is not None
        refused = [refusal for answer in told.values() for refusal in answer.refused]
        if refused and not case.stream.deduplicate:
            marks = {refusal.event.values["w"] for refusal in refused}
            others = [event for event in case.events if event["w"] not in marks]
            if rule.windowing.where is not None and others:
                assert reported_ids(of_rule(case, rule, others)) == ids
            counts["refused by WHERE"] += len(refused)


_TIMES = ("match_start", "match_end")


def _has_failed(period: Period, number: int) -> bool:
    return number in {failed.part for failed in period.failed}


def check_views(case: ViewCase, counts: Counter[str]) -> None:
    """Check every answer about the views of a case, as a batch."""
    rules = RuleSet(compile_rules(case.rules, case.tables))
    tables = {
        name: event_table(table, case.rows(name, all_of_them=True)) for name, table in case.tables.items()
    }
    built, _ = build(case.rules)
    for view in case.views:
        (tree,), _ = read_rules(Source("view", view.text))
        found = row_replay(built, rules, view.name, tables, tree)
        revisions = found.matches.select([REVISION, KIND, *found.rule.key]).to_pylist()
        for key, told in answers(found).items():
            own = [row for row in revisions if tuple(row[name] for name in found.rule.key) == key]
            assert [one.start_us for one in told.reported] == [
                row[REVISION] for row in own if row[KIND] == "match"
            ]
            ends = {one.end_us for one in told.reported} - {None}
            assert ends <= {row[REVISION] for row in own}
            assert {row[REVISION] for row in own if row[KIND] != "match"} <= ends
            counts["rows"] += len(told.reported)
            counts["times without a row"] += told.n_others
            counts.update(failed.reason for one in told.others for failed in one.failed)


def run(examples: int, first_seed: int) -> Counter[str]:
    """Check window rules and views; return the counts."""
    counts: Counter[str] = Counter()
    chosen = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )

    @seed(first_seed)
    @chosen
    @given_a(cases_of_windows())
    def windows(case: Case) -> None:
        events = tuple(event | {"w": number} for number, event in enumerate(case.events))
        check_windows(replace(case, events=events), counts)

    @seed(first_seed)
    @chosen
    @given_a(view_cases())
    def views(case: ViewCase) -> None:
        check_views(case, counts)

    windows()
    views()
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for name, n in sorted(run(options.examples, options.seed).items()):
        print(f"{name:<24}{n:>8,}")


if __name__ == "__main__":
    main()
