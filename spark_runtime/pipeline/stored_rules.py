"""The rules of a run as stored in a checkpoint: texts, streams, and the meaning of each stored state.

The texts and the streams are enough to compile the same rules again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cep.engine.corrections.retained import other_kind
from cep.errors import Source
from cep.program.identity import ProgramIdentity
from cep.rule_set import Corrections, RuleSet
from cep.rulebook import compile_texts
from cep.schema.stream import CsvLayout, DeviceClock, Field, Stream, TableKind, TableSettings

FORMAT = 1


@dataclass(frozen=True)
class StoredRules:
    """The texts of rules, the streams that they read, and the identity of each of their programs.

    `has_corrections`: whether late events correct matches.
    """

    texts: tuple[Source, ...]
    streams: Mapping[str, Stream]
    programs: tuple[ProgramIdentity, ...]
    has_corrections: bool = False

    @classmethod
    def of(cls, texts: tuple[Source, ...], rules: RuleSet) -> StoredRules:
        """Return the stored form of `rules`, which were compiled from `texts`."""
        programs = tuple(program.identity for program in rules.programs)
        return cls(texts, rules.inputs, programs, rules.corrections is not None)

    @cached_property
    def fingerprints(self) -> frozenset[bytes]:
        """The fingerprints of the programs, in any order."""
        return frozenset(program.fingerprint for program in self.programs)

    def reads(self, other: StoredRules) -> bool:
        """Return whether these rules can read the stored state of `other` unchanged.

        Events that are retained for corrections are prepared, which depends on the order of the rules.
        """
        if self.fingerprints != other.fingerprints:
            return False
        if not (self.has_corrections or other.has_corrections):
            return True
        mine, its = (
            [[rule.name for rule in program.rules] for program in of.programs] for of in (self, other)
        )
        return mine == its

    def require_same_kind(self, *, has_corrections: bool) -> None:
        """Raise StateError (E0649) if the stored state was written with corrections and a run has none.

        Or the other way round: the one cannot be converted to the other.
        """
        if self.has_corrections != has_corrections:
            raise other_kind(is_corrected=self.has_corrections)

    @cached_property
    def version(self) -> str:
        """A name for these texts and streams, wherever their files are: 12 hexadecimal digits."""
        texts = [text.text for text in self.texts]
        streams = [_as_json(self.streams[name]) for name in sorted(self.streams)]
        return hashlib.sha256(json.dumps([texts, streams]).encode()).hexdigest()[:12]

    @cached_property
    def versions(self) -> dict[str, str]:
        """The version of each rule by its name (`ProgramIdentity.versions`)."""
        return {name: of for program in self.programs for name, of in program.versions.items()}

    def rule_set(self) -> RuleSet:
        """Return the rules, compiled to read stored state. The bound of corrections is not included."""
        rules = compile_texts(self.texts, self.streams).rule_set
        return rules.with_corrections(Corrections(1)) if self.has_corrections else rules

    def to_json(self) -> str:
        """Return a text for a file."""
        found: dict[str, Any] = {
            "format": FORMAT,
            "texts": [[text.name, text.text] for text in self.texts],
            "streams": [_as_json(stream) for stream in self.streams.values()],
            "programs": [program.to_json() for program in self.programs],
        }
        if self.has_corrections:
            found["has_corrections"] = True
        return json.dumps(found, indent=1)

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> StoredRules:
        """Return the rules that `to_json` wrote; raise ValueError, KeyError or TypeError for other values."""
        streams = [_stream(item) for item in found["streams"]]
        return cls(
            tuple(Source(str(name), str(text)) for name, text in found["texts"]),
            {stream.name: stream for stream in streams},
            tuple(map(ProgramIdentity.of_json, found["programs"])),
            bool(found.get("has_corrections")),
        )


def _as_json(stream: Stream) -> dict[str, Any]:
    found = dataclasses.asdict(stream)
    if stream.table is None:  # as versions without tables wrote it
        del found["table"]
    return found


def _stream(found: Mapping[str, Any]) -> Stream:
    fields = tuple(map(_field, found["fields"]))
    csv = CsvLayout(**{**found["csv"], "columns": tuple(found["csv"]["columns"])})
    clock, table = found["device_clock"], found.get("table")
    read = {
        "fields": fields,
        "tie_break": tuple(found["tie_break"]),
        "csv": csv,
        "device_clock": None if clock is None else DeviceClock(**clock),
        "table": None if table is None else _table(table),
    }
    return Stream(**{**found, **read})


def _field(found: Mapping[str, Any]) -> Field:
    # Versions without elements of arrays wrote none.
    return Field(**{**found, "path": tuple(found["path"]), "element": tuple(found.get("element", ()))})


def _table(found: Mapping[str, Any]) -> TableSettings:
    return TableSettings(**{**found, "key": tuple(found["key"]), "kind": TableKind(found["kind"])})
