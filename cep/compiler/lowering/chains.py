"""Rules that read the matches of rules: the order of their lowering, and the meaning of the matches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from cep.compiler import ir
from cep.expression import Type
from cep.program.fingerprint import rule_meaning
from cep.program.match_stream import MatchStream
from cep.program.program import Program

T = TypeVar("T")


def in_reading_order(items: Iterable[T], rule_of: Callable[[T], ir.Rule]) -> list[T]:
    """Return `items` with each rule after those whose matches it reads, otherwise in their order."""
    waiting = list(items)
    ordered: list[T] = []
    names = {rule_of(item).name for item in waiting}
    while waiting:
        ready = [item for item in waiting if not names & {stream.name for stream in rule_of(item).matches}]
        assert ready, "the analysis refuses cycles"
        ordered += ready
        names -= {rule_of(item).name for item in ready}
        waiting = [item for item in waiting if rule_of(item).name in names]
    return ordered


def exact_measures(rules: Iterable[ir.Rule]) -> dict[str, frozenset[str]]:
    """Return by name the rules that others read, with their BIGINT measures that are DOUBLE in another rule.

    The matches of a program are one table, in which such a measure is DOUBLE. A rule that reads it gets the
    exact BIGINT only if it is BIGINT in all rules of the program.
    """
    every = list(rules)
    read = {stream.name for rule in every for stream in rule.matches}
    wide = {(rule.streams, rule.key, name) for rule in every for name in _measures_of(rule, Type.DOUBLE)}
    found = {
        rule.name: frozenset(
            name for name in _measures_of(rule, Type.BIGINT) if (rule.streams, rule.key, name) in wide
        )
        for rule in every
        if rule.name in read
    }
    return {name: measures for name, measures in found.items() if measures}


def _measures_of(rule: ir.Rule, kind: Type) -> list[str]:
    return [measure.name for measure in rule.measures if measure.expression.type is kind]


def with_meaning(streams: Iterable[MatchStream], programs: Iterable[Program]) -> Mapping[str, MatchStream]:
    """Return `streams` by name, each with what its matches mean if its rule is in one of `programs`."""
    source_of = {rule.name: program for program in programs for rule in program.rules}
    return {
        stream.name: replace(stream, meaning=rule_meaning(source_of[stream.name], stream.name))
        if stream.name in source_of
        else stream
        for stream in streams
    }
