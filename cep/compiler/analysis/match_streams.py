"""MATCHES OF: the rules whose matches a rule reads, and these matches as a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cep.compiler import ir
from cep.compiler.aggregates import is_list
from cep.compiler.analysis.partitioning import Partitioning
from cep.diagnostics.diagnostic import did_you_mean
from cep.diagnostics.report import Reporter
from cep.expression import Aggregate, Type
from cep.language import ast
from cep.program.match_stream import MatchStream, match_stream
from cep.schema.stream import Stream


@dataclass(frozen=True, slots=True)
class Known:
    """The streams that a rule can name in FROM, and the names in FROM that need no further report."""

    streams: Mapping[str, Stream]
    reported: frozenset[str] = frozenset()


class MatchStreams:
    """The rules that are analyzed together, and the matches of those that are already typed."""

    def __init__(self, rules: Sequence[ast.Rule], streams: Mapping[str, Stream]) -> None:
        self.streams = streams
        self.rules: dict[str, ast.Rule] = {}
        for rule in rules:
            self.rules.setdefault(rule.name.text, rule)
        self.made: dict[str, MatchStream | None] = {}  # None: a match can come at any time after its end
        self.cycles = {name: self._cycle(name) for name, rule in self.rules.items() if rule.matches}

    def rules_read(self, rule: ast.Rule) -> tuple[str, ...]:
        """Return the names of the rules whose matches `rule` reads."""
        return tuple(
            name.text
            for number, name in enumerate(rule.streams)
            if name.text in self.rules and _may_be_rule(rule, number)
        )

    def in_reading_order(self, rules: Sequence[ast.Rule]) -> list[int]:
        """Return the places in `rules`, each one after those that it reads; those of a cycle come last."""
        waiting = list(range(len(rules)))
        ordered: list[int] = []
        while waiting:
            names = {rules[at].name.text for at in waiting}
            ready = {at for at in waiting if not names.intersection(self.rules_read(rules[at]))}
            if not ready:
                return ordered + waiting
            ordered += sorted(ready)
            waiting = [at for at in waiting if at not in ready]
        return ordered

    def known_to(self, rule: ast.Rule, report: Reporter) -> Known:
        """Return what `rule` can name in FROM; report problems with the names of rules in it."""
        reported = frozenset(
            name.text
            for number, name in enumerate(rule.streams)
            if self._is_refused(rule, number, name, report)
        )
        # By name, not in the order of the rules: it decides the order of events of one instant.
        read = sorted(set(self.rules_read(rule)) - reported)
        found = {name: made for name in read if (made := self.made.get(name)) is not None}
        if not rule.matches:
            return Known(self.streams, reported)
        return Known({**self.streams, **found}, reported | (set(read) - found.keys()))

    def add(self, rule: ir.Rule, partitioning: Partitioning) -> None:
        """Allow rules to read the matches of `rule`, which is sound."""
        self.made[rule.name] = stream_of_matches(rule, partitioning.key_types)

    def _is_refused(self, rule: ast.Rule, number: int, name: ast.Name, report: Reporter) -> bool:
        """Report a problem with a name in FROM that is, or should be, the name of a rule."""
        is_rule, is_stream = name.text in self.rules, name.text in self.streams
        if not _may_be_rule(rule, number):
            if is_stream or not is_rule:
                return False
            report(
                "E0201",
                f"there is no stream `{name.text}`",
                name.span,
                "the name of a rule",
                f"write MATCHES OF {name.text} to read the matches of this rule",
            )
        elif is_rule and is_stream:
            report(
                "E0237",
                f"`{name.text}` is a rule and a stream",
                name.span,
                "which of them is meant?",
                "give the rule another name",
            )
        elif number in rule.matches and not is_rule:
            report(
                "E0238",
                f"there is no rule `{name.text}`",
                name.span,
                "a stream, not a rule" if is_stream else "none of the rules that are compiled together",
                f"write {name.text} before MATCHES OF"
                if is_stream
                else did_you_mean(name.text, self.rules.keys() - {rule.name.text}, "rules"),
            )
        elif not is_rule and not is_stream:
            moving = [stream.name for stream in self.streams.values() if stream.table is None]
            report(
                "E0201",
                f"there is no stream and no rule `{name.text}`",
                name.span,
                "not declared in the streams file, and not the name of a rule",
                did_you_mean(name.text, [*moving, *self.rules], "streams and rules"),
            )
        elif is_rule and name.text in self.cycles.get(rule.name.text, ()):
            self._report_cycle(rule, name, report)
        elif is_rule and self.rules[name.text].is_shadow and not rule.is_shadow:
            report(
                "E0249",
                f"`{rule.name.text}` reads the matches of `{name.text}`, which alert nobody",
                name.span,
                "a shadow rule",
                f"give `{rule.name.text}` STATUS shadow, too, or let `{name.text}` be live",
            )
        elif is_rule and self.made.get(name.text, ...) is None:
            report(
                "E0239",
                f"the matches of `{name.text}` can come any time after they end",
                name.span,
                "they wait for runs that nothing ends",
                f"add WITHIN and a time to `{name.text}`, or leave its MATCH and AFTER MATCH clauses out",
            )
        else:
            return False
        return True

    def _report_cycle(self, rule: ast.Rule, name: ast.Name, report: Reporter) -> None:
        """Report once, at the first rule of a cycle, that it reads its own matches."""
        cycle = self.cycles[rule.name.text]
        order = list(self.rules)
        if rule.name.text != min(cycle, key=order.index) or name.text != cycle[0]:
            return
        report(
            "E0240",
            f"rule `{rule.name.text}` reads its own matches",
            name.span,
            f"`{rule.name.text}` reads " + ", which reads ".join(f"`{item}`" for item in cycle),
            "let one of these rules read streams only",
        )

    def _cycle(self, start: str) -> tuple[str, ...]:
        """Return the names on the shortest path from a rule back to itself, without the start; or nothing."""
        ways: list[tuple[str, ...]] = [(name,) for name in self.rules_read(self.rules[start])]
        seen: set[str] = set()
        for way in ways:  # it grows
            if way[-1] == start:
                return way
            if way[-1] not in seen:
                seen.add(way[-1])
                ways += [(*way, name) for name in self.rules_read(self.rules[way[-1]])]
        return ()


def _may_be_rule(rule: ast.Rule, number: int) -> bool:
    """Return whether MATCHES OF precedes the name at place `number` of FROM or an earlier name."""
    return bool(rule.matches) and number >= rule.matches[0]


def stream_of_matches(rule: ir.Rule, key_types: Mapping[str, Type]) -> MatchStream | None:
    """Return the matches of `rule` as a stream; None: nothing bounds how long after its end a match comes.

    `key_types` has the type of each of `rule.key`. Measures that are lists are not columns.
    """
    held_us = _held_us(rule)
    if held_us is None:
        return None
    key = [(name, key_types[name]) for name in rule.key]
    measures = [(item.name, item.expression.type) for item in rule.measures if not _is_list(item)]
    return match_stream(rule.name, key, measures, held_us)


def _is_list(measure: ir.Measure) -> bool:
    return isinstance(measure.expression, Aggregate) and is_list(measure.expression.kind)


def _held_us(rule: ir.Rule) -> int | None:
    """Return how long after its end a match may be found, in microseconds; None: without a bound.

    MATCH EARLIEST reports a match at the instant at which it is complete, which is never after its end. So
    does MATCH ALL unless its skip clause prunes. All other matches wait for runs that did not start later.
    Such a run ends with its window, at most a window after the start of the match, and so at most a window
    after its end.
    """
    if rule.selection is ir.Selection.EARLIEST:
        return 0
    if rule.selection is ir.Selection.ALL and rule.skip.kind is ir.SkipKind.NO_SKIP:
        return 0
    return rule.window.span_us if isinstance(rule.window, ir.Window) else None
