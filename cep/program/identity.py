"""The meaning of stored state, of each rule and of all rules together, in terms that outlive the program.

`cep.program.fingerprint` computes the `ProgramIdentity` of a `Program`. Snapshots and checkpoints contain it,
so stored state can be read and compared without the program that wrote it.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

FINGERPRINT_BYTES = 16


def fingerprints_in(data: bytes) -> list[bytes]:
    """Return the fingerprints of which `data` consists."""
    return [data[at : at + FINGERPRINT_BYTES] for at in range(0, len(data), FINGERPRINT_BYTES)]


PARTS: Mapping[str, str] = {
    "pattern": "its pattern",
    "conditions": "its conditions",
    "registers": "the order of its registers",
    "measures": "its measures",
    "limits": "its window or limits",
    "columns": "the columns that it reads",
}
"""Part of a rule -> what a message says of rules that differ in it."""

TABLE_PARTS: Mapping[str, str] = {
    "kind": "`replicated` or `static`",
    "key": "`key`",
    "event_time": "`event_time`",
    "tie_break": "`tie_break`",
    "op": "`op`",
}
"""Part of a table -> what a message says of tables that differ in it; other parts are its columns."""

_MOST_TOLD = 3
"""Rules that a message names; it counts the others."""


@dataclass(frozen=True, slots=True)
class StoredRegister:
    """One register of a run: its name for people, its type, and 16 hex digits for what it holds."""

    name: str
    type: str
    meaning: str


@dataclass(frozen=True, slots=True)
class TableIdentity:
    """How a table that a rule joins is declared: each of `TABLE_PARTS` and each column read, 8 hex digits."""

    name: str
    parts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RuleIdentity:
    """The meaning of one rule's stored state. Rules with the same fingerprint can read each other's state.

    `registers` and `parts` show where two rules differ. They contain only the names of tables; `tables` has
    the rest.
    """

    name: str
    fingerprint: bytes  # of all `PARTS` and all of `tables`, without the rule's name
    registers: tuple[StoredRegister, ...]
    states: tuple[str, ...]  # names by number
    parts: tuple[tuple[str, str], ...]  # name of a part, 8 hex digits
    tables: tuple[TableIdentity, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return this object in a form for JSON."""
        return {
            "name": self.name,
            "fingerprint": self.fingerprint.hex(),
            "registers": [[item.name, item.type, item.meaning] for item in self.registers],
            "states": list(self.states),
            "parts": dict(self.parts),
            **({"tables": {item.name: dict(item.parts) for item in self.tables}} if self.tables else {}),
        }

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> RuleIdentity:
        """Return what `to_json` wrote; raises ValueError, KeyError or TypeError for anything else."""
        return cls(
            str(found["name"]),
            _fingerprint(found["fingerprint"]),
            tuple(StoredRegister(str(name), str(kind), str(of)) for name, kind, of in found["registers"]),
            tuple(map(str, found["states"])),
            _digests(found["parts"]),
            tuple(
                TableIdentity(str(name), _digests(parts))
                for name, parts in dict(found.get("tables", {})).items()
            ),
        )

    @cached_property
    def packed(self) -> bytes:
        """The identity as bytes, for snapshots."""
        return packed_json(self.to_json())


def _digests(found: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((str(name), str(digest)) for name, digest in dict(found).items())


@dataclass(frozen=True, slots=True)
class StreamOrder:
    """How the events of one stream are distinguished and ordered."""

    stream: str
    event_time: str
    tie_break: tuple[str, ...]
    deduplicate: bool
    meaning: bytes = b""  # of the rule whose matches these events are

    def to_list(self) -> list[Any]:
        """Return this object in a form for JSON."""
        found = [self.stream, self.event_time, list(self.tie_break), self.deduplicate]
        return [*found, self.meaning.hex()] if self.meaning else found

    @classmethod
    def of_list(cls, found: Sequence[Any]) -> StreamOrder:
        """Return what `to_list` wrote; raises ValueError or TypeError for anything else."""
        stream, time, ties, deduplicate, *meaning = found
        return cls(
            str(stream),
            str(time),
            tuple(map(str, ties)),
            bool(deduplicate),
            bytes.fromhex(str(meaning[0])) if meaning else b"",
        )


@dataclass(frozen=True)
class SharedIdentity:
    """The common meaning of the stored state of all rules: key, order, columns of waiting events.

    `predicates` and `derived` give the meaning of the predicate words and the derived columns of waiting
    events. They depend on the order of the rules and are not part of the fingerprint.
    """

    fingerprint: bytes
    key: tuple[tuple[str, str], ...]  # name, type
    roles: tuple[tuple[str, tuple[str, ...]], ...]  # stream, columns of the key
    orders: tuple[StreamOrder, ...]
    predicates: tuple[tuple[str, ...], ...]  # of each word, 16 hex digits for each bit
    derived: tuple[tuple[str, str], ...]  # name of a derived, computed or windowed column, 16 hex digits

    def to_json(self) -> dict[str, Any]:
        """Return this object in a form for JSON."""
        return {
            "fingerprint": self.fingerprint.hex(),
            "key": [list(item) for item in self.key],
            "roles": [[stream, list(columns)] for stream, columns in self.roles],
            "orders": [order.to_list() for order in self.orders],
            "predicates": [list(word) for word in self.predicates],
            "derived": dict(self.derived),
        }

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> SharedIdentity:
        """Return what `to_json` wrote; raises ValueError, KeyError or TypeError for anything else."""
        return cls(
            _fingerprint(found["fingerprint"]),
            tuple((str(name), str(kind)) for name, kind in found["key"]),
            tuple((str(stream), tuple(map(str, columns))) for stream, columns in found["roles"]),
            tuple(map(StreamOrder.of_list, found["orders"])),
            tuple(tuple(map(str, word)) for word in found["predicates"]),
            tuple((str(name), str(digest)) for name, digest in dict(found["derived"]).items()),
        )

    @cached_property
    def packed(self) -> bytes:
        """The identity as bytes, for snapshots."""
        return packed_json(self.to_json())


@dataclass(frozen=True)
class ProgramIdentity:
    """The meaning of the stored state of one program."""

    shared: SharedIdentity
    rules: tuple[RuleIdentity, ...]

    @cached_property
    def fingerprint(self) -> bytes:
        """Computed from the shared fingerprint and the rules' names and fingerprints, in any order."""
        digest = hashlib.sha256(self.shared.fingerprint)
        for rule in sorted(self.rules, key=lambda rule: rule.name):
            digest.update(hashlib.sha256(rule.name.encode()).digest() + rule.fingerprint)
        return digest.digest()[:FINGERPRINT_BYTES]

    def with_shared(self, fingerprint: bytes) -> ProgramIdentity:
        """Return the identity with another shared fingerprint."""
        return replace(self, shared=replace(self.shared, fingerprint=fingerprint))

    @cached_property
    def versions(self) -> dict[str, str]:
        """The version of each rule, by its name: a hash of its meaning, 12 hexadecimal digits.

        It depends on the values of parameters, but not on names, words or other rules.
        """
        return {
            rule.name: hashlib.sha256(self.shared.fingerprint + rule.fingerprint).hexdigest()[:12]
            for rule in self.rules
        }

    def to_json(self) -> dict[str, Any]:
        """Return this object in a form for JSON."""
        return {"shared": self.shared.to_json(), "rules": [rule.to_json() for rule in self.rules]}

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> ProgramIdentity:
        """Return what `to_json` wrote; raises ValueError, KeyError or TypeError for anything else."""
        return cls(SharedIdentity.of_json(found["shared"]), tuple(map(RuleIdentity.of_json, found["rules"])))


def packed_json(value: Mapping[str, Any]) -> bytes:
    """Return `value` as compressed JSON."""
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 9)


_MOST_JSON_BYTES = 1 << 26


def packed_json_in(data: bytes | memoryview) -> Mapping[str, Any]:
    """Return what `packed_json` wrote; raises ValueError for anything else."""
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(data, _MOST_JSON_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not unpacking.eof:
        raise ValueError("cut off, or too long")
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _fingerprint(text: str) -> bytes:
    fingerprint = bytes.fromhex(text)
    if len(fingerprint) != FINGERPRINT_BYTES:
        raise ValueError(f"`{text}` is no fingerprint")
    return fingerprint


# ---------------------------------------------------------------- what has changed


def differences(then: Sequence[ProgramIdentity], now: Sequence[ProgramIdentity]) -> str:
    """Return, in one line, which rules differ and how; empty: no rule differs."""
    told = list(_differences(_by_rule(then), _by_rule(now)))
    more = f"; {len(told) - _MOST_TOLD} more" if len(told) > _MOST_TOLD else ""
    return "; ".join(told[:_MOST_TOLD]) + more


_Rules = Mapping[str, tuple[SharedIdentity, RuleIdentity]]


def _by_rule(programs: Sequence[ProgramIdentity]) -> _Rules:
    return {rule.name: (program.shared, rule) for program in programs for rule in program.rules}


def _differences(then: _Rules, now: _Rules) -> Iterator[str]:
    changed: dict[str, list[str]] = {}
    for name in now.keys() & then.keys():
        for table, parts in _table_differences(then[name][1], now[name][1]):
            changed[table] = [*changed.get(table, ()), *parts]
    for table, parts in sorted(changed.items()):
        yield f"table `{table}` has changed: {', '.join(dict.fromkeys(parts))}"
    gone = {name: rule for name, rule in then.items() if name not in now}
    for name, (shared, rule) in now.items():
        if name not in then:
            before = [
                other
                for other, (of_other, identity) in gone.items()
                if (of_other.fingerprint, identity.fingerprint) == (shared.fingerprint, rule.fingerprint)
            ]
            if before:
                del gone[before[0]]
            yield f"rule `{before[0]}` is called `{name}` now" if before else f"rule `{name}` is new"
            continue
        what = [*shared_differences(then[name][0], shared), *rule_differences(then[name][1], rule)]
        if what:
            yield f"rule `{name}` has changed: {', '.join(what)}"
    yield from (f"rule `{name}` is gone" for name in gone)


def shared_differences(then: SharedIdentity, now: SharedIdentity) -> Iterator[str]:
    """Yield the differences in what all rules of a program share."""
    if then.fingerprint == now.fingerprint:
        return
    streams = [tuple(order.stream for order in shared.orders) for shared in (then, now)]
    if streams[0] != streams[1]:
        yield f"it reads {_names(streams[1])} instead of {_names(streams[0])}"
        return
    if then.key != now.key:
        yield f"its key is {_key(now)} instead of {_key(then)}"
    elif then.roles != now.roles:
        yield "its key stands in other columns"
    pairs = list(zip(then.orders, now.orders, strict=True))
    read = [b.stream for a, b in pairs if a.meaning != b.meaning]
    if read:
        yield f"{'a rule' if len(read) == 1 else 'rules'} whose matches it reads: {_names(read)}"
    changed = [b.stream for a, b in pairs if replace(a, meaning=b.meaning) != b]
    if changed:
        yield f"the event time, the tie breakers or `deduplicate` of {_names(changed)}"
    if (then.key, then.roles, then.orders) == (now.key, now.roles, now.orders):
        yield "the types or forms of the columns of its key, event time or tie breakers, or their order"


def rule_differences(then: RuleIdentity, now: RuleIdentity) -> Iterator[str]:
    """Yield the differences between two rules, in words."""
    if then.fingerprint == now.fingerprint:
        return
    before, after = dict(then.parts), dict(now.parts)
    parts = [name for name in PARTS if before.get(name) != after.get(name)]
    if len(then.states) != len(now.states):
        parts = [name for name in parts if name != "pattern"]
        yield f"it has {len(now.states)} states instead of {len(then.states)}"
    tables = list(_table_differences(then, now))  # these are reported separately
    registers = list(_register_differences(then.registers, now.registers))
    if registers:
        parts = [name for name in parts if name != "registers"]
    yield from (PARTS[name] for name in parts)
    yield from registers
    if not parts and not registers and not tables and len(then.states) == len(now.states):
        yield "its meaning"


def _table_differences(then: RuleIdentity, now: RuleIdentity) -> Iterator[tuple[str, list[str]]]:
    """Yield the tables that both rules read and whose declarations differ, with the differences."""
    before = {table.name: dict(table.parts) for table in then.tables}
    for table in now.tables:
        known = before.get(table.name, {})
        parts = [name for name, digest in table.parts if known.get(name, digest) != digest]
        if parts:
            yield table.name, [TABLE_PARTS.get(name, f"column `{name.removeprefix('.')}`") for name in parts]


def _register_differences(then: Sequence[StoredRegister], now: Sequence[StoredRegister]) -> Iterator[str]:
    before, after = set(then), set(now)
    yield from (f"it needs `{held_value(item.name)}`" for item in now if item not in before)
    yield from (f"it no longer needs `{held_value(item.name)}`" for item in then if item not in after)


def held_value(label: str) -> str:
    """Return what a register holds, as it is written in a rule: ``b.x`` is the x of the last event of `b`."""
    if not label.startswith(("LAST(", "FIRST(")) or not label.endswith(", 0)"):
        return label
    value = label.removesuffix(", 0)")
    return f"{value})" if value.startswith("FIRST(") else value.removeprefix("LAST(")


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _key(shared: SharedIdentity) -> str:
    return ", ".join(f"`{name}` ({kind})" for name, kind in shared.key)
