"""A sample of keys. The value of a key alone decides whether the key is in it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import Mask
from cep.errors import InputError
from cep.expression import Type
from cep.program.match_stream import MatchStream
from cep.program.program import Program
from cep.rule_set import RuleSet

BETWEEN = "\x1f"
"""What is between the values of a key in the text that is hashed."""

Column = tuple[str, str]
"""A stream or a rule, and a column of its events or matches."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A share of all keys.

    `share`: more than 0, less than 1. `of_streams`: the columns of each stream whose values decide, in the
    same order for all streams. `of_rules`: the same for the matches of each rule.
    """

    share: float
    of_streams: Mapping[str, tuple[str, ...]]
    of_rules: Mapping[str, tuple[str, ...]]

    def has(self, table: pa.Table, columns: Sequence[str]) -> Mask:
        """Return which rows are in the sample by the values of `columns`; a row with a NULL is not."""
        parts = [table.column(name).cast(pa.string()) for name in columns]
        texts = pc.binary_join_element_wise(*parts, BETWEEN).combine_chunks().dictionary_encode()
        below = self.share * 2**32
        chosen = np.array([_number(text) < below for text in texts.dictionary.to_pylist()] + [False])
        found: Mask = chosen[pc.fill_null(texts.indices, len(texts.dictionary)).to_numpy()]
        return found

    def has_matches(self, matches: pa.Table) -> Mask:
        """Return which matches are in the sample."""
        found = np.zeros(len(matches), np.bool_)
        for rule, columns in self.of_rules.items():
            is_of_rule = pc.equal(matches.column("rule"), rule).to_numpy()
            found[is_of_rule] = self.has(matches.filter(pa.array(is_of_rule)), columns)
        return found


def _number(text: str) -> int:
    """Return 32 bits of a hash that Spark computes, too: ``sha2(text, 256)``."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])


def sample_of(rules: RuleSet, share: float) -> Sample:
    """Return a sample of the keys of `rules`: by the columns that all of them have in their keys.

    So for each rule, either all events of a key are in the sample or none are. A view, which reads no events,
    is sampled by its own key. Raises InputError (E0691): the keys have no column in common.
    """
    programs = [program for program in rules.programs if not program.has_views]
    common = list(_common(rules, programs)) if programs else []
    if programs and not common:
        keys = dict.fromkeys(", ".join(program.key) for program in programs)
        raise InputError(
            "E0691",
            f"the keys of these rules have no column in common to sample by: {'; '.join(keys)}",
            "run the rules of one key, with --only, or leave --sample out",
        )
    of_rules = {
        rule.name: tuple(program.key[_position(of, number)] for of in common)
        for number, program in enumerate(programs)
        for rule in program.rules
    }
    views = [program for program in rules.programs if program.has_views]
    of_rules |= {view.name: tuple(program.key) for program in views for view in program.rules}
    streams = {stream for of in common for stream, column in of if not stream.startswith("#")}
    of_streams = {
        stream: tuple(column for of in common for name, column in sorted(of) if name == stream)
        for stream in sorted(streams & rules.streams.keys())
    }
    return Sample(share, of_streams, of_rules)


def _common(rules: RuleSet, programs: Sequence[Program]) -> Iterator[frozenset[Column]]:
    """Yield the columns that are the same part of the key, of all programs and streams: one of each."""
    for group in _groups(programs):
        streams = [name for name, _ in group if not name.startswith("#")]
        is_whole = all(streams.count(name) == 1 for name in rules.streams)
        if is_whole and all(_positions(group, number) == 1 for number in range(len(programs))):
            yield frozenset(group)


def _groups(programs: Sequence[Program]) -> list[set[Column]]:
    """Return columns and places in keys (``#program``, place) that have the same values, in groups."""
    groups: list[set[Column]] = []
    inner = {rule.name: number for number, program in enumerate(programs) for rule in program.rules}
    for number, program in enumerate(programs):
        streams = {stream.name: stream for stream in program.streams}
        for role, place in product(program.roles, range(len(program.key))):
            new: set[Column] = {(f"#{number}", str(place))}
            stream, column = streams[role.stream], role.key[place]
            if not isinstance(stream, MatchStream):
                new |= {(stream.name, column)} if _is_exact(program, place) else set()
            elif column in programs[inner[stream.name]].key:
                of = inner[stream.name]
                new.add((f"#{of}", str(programs[of].key.index(column))))
            met = [group for group in groups if group & new]
            groups = [group for group in groups if not group & new] + [new.union(*met)]
    return groups


def _is_exact(program: Program, place: int) -> bool:
    """Return whether a value has the same text everywhere; floating-point numbers and times do not."""
    return program.type_of(program.key_columns[place]) in (Type.STRING, Type.BIGINT, Type.BOOLEAN)


def _positions(group: set[Column], number: int) -> int:
    return sum(name == f"#{number}" for name, _ in group)


def _position(group: frozenset[Column], number: int) -> int:
    return next(int(place) for name, place in group if name == f"#{number}")
