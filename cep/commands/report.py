"""The page of `cep backtest --report`: its contents, from the alerts, `cep why` and the sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cep.rule_set import KIND, RETRACT, REVISION

if TYPE_CHECKING:
    import pyarrow as pa

    from cep.backtest.figures import Figures, Truth
    from cep.backtest.history import Backtest
    from cep.backtest.page import Opening, Part, Section
    from cep.commands.history import Given, Runner
    from cep.expression import Expression
    from cep.local.replay import Replay
    from cep.why.reasons import Why, WhyRows
    from cep.why.rows import RowReplay

_MOST_ALERTS = 10
"""Alerts of a rule that open their time line."""

_MOST_KEYS = 10
_MOST_NAMES = 3
_MOST_DAYS = 366
"""Days that have a bar; of more, the last ones."""


def write_report(
    file: Path,
    given: Given,
    runner: Runner,
    found: Backtest,
    truth: Truth | None,
    swept: Sequence[tuple[Mapping[str, str], Figures]],
) -> None:
    """Write the page."""
    from cep.backtest.figures import range_text
    from cep.backtest.page import page
    from cep.write_errors import replacing

    names = ", ".join(found.names) if len(found.names) <= _MOST_NAMES else f"{len(found.names)} rules"
    sections = [*_overview(found, truth), *_sweeps(swept), *_rules(given, runner, found)]
    text = page(f"Alerts of {names}", range_text(found), sections)
    with replacing(file) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def _overview(found: Backtest, truth: Truth | None) -> Iterator[Section]:
    """Yield the figures, the alerts by day, the keys with the most alerts."""
    from cep.backtest.charts import alerts_by_day
    from cep.backtest.figures import figure_cells, figures_of
    from cep.backtest.history import DAY_US, day_of
    from cep.backtest.page import Picture, Section, Table

    figures = figures_of(found, truth)
    heading, cells = figure_cells([("rule", one.rule, one) for one in figures])
    yield Section("Rules", "", [Table(heading, cells)])
    alerts = found.alerts
    by_rule: dict[str, Counter[str]] = {one.rule: Counter() for one in figures}
    keys: Counter[tuple[str, str]] = Counter()
    for rule, key, end_us in zip(
        *(alerts[name].to_pylist() for name in ("rule", "key", "end_us")), strict=True
    ):
        by_rule[rule][day_of(end_us)] += 1
        keys[(rule, key)] += 1
    last = max(found.from_us, found.to_us - 1)
    days = [day_of(day * DAY_US) for day in range(found.from_us // DAY_US, last // DAY_US + 1)][-_MOST_DAYS:]
    about = "The date in UTC on which the match ends; each rule has its own scale."
    yield Section("Alerts by day", about, [Picture(alerts_by_day(by_rule, days))])
    rows = [[f"{rule}: {key}", f"{n:,}"] for (rule, key), n in keys.most_common(_MOST_KEYS)]
    yield Section("Keys with the most alerts", "", [Table(["rule: key", "alerts"], rows)])


def _sweeps(swept: Sequence[tuple[Mapping[str, str], Figures]]) -> Iterator[Section]:
    """Yield the curves of each rule with a parameter."""
    from cep.backtest.charts import curves
    from cep.backtest.page import Picture, Section

    for rule in dict.fromkeys(one.rule for _, one in swept):
        rows = [(", ".join(values.values()), one) for values, one in swept if one.rule == rule]
        names = ", ".join(next(values for values, one in swept if one.rule == rule))
        drawn = curves(f"{rule}, by {names}", rows)
        yield Section(f"{rule}: {names}", "Each point is a run over all events.", [Picture(drawn)])


def _rules(given: Given, runner: Runner, found: Backtest) -> Iterator[Section]:
    """Yield for each rule its funnel, and its latest alerts, each with its time line and its `why`."""
    import pyarrow.compute as pc

    from cep.backtest.page import Section, Words
    from cep.local.replay import Replay, typed_tables
    from cep.why.shown import funnel_text
    from cep.why.summary import funnel

    tables = typed_tables(found.rules, {name: runner.chunks[name] for name in found.rules.inputs})
    for rule in found.names:
        alerts = found.matches.filter(pc.equal(found.matches["rule"], rule))
        parts: list[Part] = []
        replay = _replay(given, rule, tables)
        if isinstance(replay, Replay):  # windows and views have no steps
            parts.append(Words(funnel_text(funnel(replay))))
        kinds = dict(next(one.measures for one in found.rules.rules if one.name == rule))
        parts += _alerts(alerts, kinds, replay)
        shown = min(len(parts) - isinstance(replay, Replay), _MOST_ALERTS)
        about = "" if not shown else f"The latest alerts, {shown} at most, open their time line."
        yield Section(rule, about, parts)


def _replay(given: Given, rule: str, tables: Mapping[str, pa.Table]) -> Replay | RowReplay:
    from cep.compiler.automaton.build import Built
    from cep.rulebook import compile_rulebook
    from cep.why.rows import prepared

    compiled = compile_rulebook(given.book(), [rule], given.parameters)
    built = [Built(one.typed, one.automaton) for one in compiled.rules]
    of_rule = {name: tables[name] for name in compiled.rule_set.inputs}
    tree = next(one.tree for one in compiled.rules if one.name == rule)
    return prepared(built, compiled.rule_set, rule, of_rule, tree)


def _alerts(
    matches: pa.Table, measures: Mapping[str, Expression], replay: Replay | RowReplay
) -> list[Opening]:
    """Return the latest alerts of a rule, each with the part of the page that it opens. The rows of a view
    share ids.
    """
    rows: dict[tuple[str, datetime], dict[str, Any]] = {}
    for row in matches.to_pylist():
        if row.get(KIND) != RETRACT:
            rows.setdefault((row["match_id"], row["match_end"]), row)
    return [_alert(row, measures, replay) for row in list(rows.values())[-_MOST_ALERTS:]]


def _alert(row: Mapping[str, Any], kinds: Mapping[str, Expression], replay: Replay | RowReplay) -> Opening:
    from cep.backtest.page import Opening, Picture, Words
    from cep.explain.timeline import timeline
    from cep.expression import Type
    from cep.output.terminal import cell, intervals
    from cep.why.answer import why
    from cep.why.picture import spans_of, spans_of_rows
    from cep.why.rows import RowReplay, why_rows
    from cep.why.shown import as_text

    names = list(row)
    key = [cell(row[name]) for name in names[1 : names.index("match_id")] if row[name] is not None]
    measures = [
        f"{name} {cell(intervals(row[name]) if kind.type is Type.INTERVAL else row[name])}"
        for name, kind in kinds.items()
        if row[name] is not None and name not in (REVISION, KIND)
    ]
    title = "  ".join([f"{row['match_end']:%Y-%m-%d %H:%M:%S}", ", ".join(key), ", ".join(measures)])
    tree = replay.tree
    key_columns = replay.rule.key if isinstance(replay, RowReplay) else replay.watched.program.key
    values = tuple(_key_value(row[name]) for name in key_columns)
    own: Why | WhyRows
    if isinstance(replay, RowReplay):
        at_us = _key_value(row["match_start"])
        answer = why_rows(replay, values, at_us, limit=0)
        chosen = tuple(one for one in answer.reported if one.start_us == at_us)
        own = replace(answer, reported=chosen)
        spans = list(spans_of_rows(own))
    else:
        found = why(replay, values, limit=0)
        matches = tuple(one for one in found.matches if one.match_id == row["match_id"])
        own = replace(found, matches=matches, attempts=())
        spans = list(spans_of(own))
    streams = replay.streams if isinstance(replay, RowReplay) else replay.watched.program.streams
    text = as_text(own, None if tree is None else tree.source, streams)
    drawn = timeline(spans, f"{row['rule']}, {', '.join(key)}")
    return Opening(title, [Picture(drawn), Words(text)])


def _key_value(value: Any) -> Any:
    """Return a value of a key as prepared events have it."""
    from cep.local.replay import time_of

    return time_of(value.isoformat()) if hasattr(value, "isoformat") else value
