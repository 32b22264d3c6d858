"""What new rules know of the past when they begin, in the micro-batch that takes over the state.

<folder>/<key group>            their state (`snapshots`)
<folder>/<key group>.matches    matches of the past that the micro-batch reports, as an Arrow stream
<folder>/written                what is written to fill gaps with corrections (`Written`), as an Arrow stream
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from cep.engine.corrections.filled_gaps import Written
from cep.errors import StateError
from cep.rule_set import RuleSet
from spark_runtime.state.snapshots import Past, divided_state
from spark_runtime.wire.key_groups import labels
from spark_runtime.wire.packer import groups_of

_WRITTEN, _REACHED = "written", b"reached_us"


@dataclass(frozen=True, slots=True)
class WarmRules:
    """Rules that begin with a past.

    `folder`: a folder that the driver and all executors see. `from_us`: they know the events at or after it;
    None: all.
    """

    folder: str
    rules: frozenset[str]
    from_us: int | None = None

    def past(self, group: int) -> Past:
        """Return the past in a key group. Raises StateError: it is missing (E0702)."""
        return Past(self._read(str(group)), self.rules, self._written())

    def _written(self) -> Written | None:
        if not (Path(self.folder) / _WRITTEN).exists():
            return None
        try:
            found = pa.ipc.open_stream(self._read(_WRITTEN)).read_all()
            return Written(int(found.schema.metadata[_REACHED]), found)
        except (pa.ArrowInvalid, KeyError, TypeError) as error:
            raise self._damaged(_WRITTEN, "is damaged") from error

    def matches(self, group: int) -> Iterator[pa.Table]:
        """Yield the matches of the past that a key group reports. Raises StateError: they are cut off."""
        if (Path(self.folder) / f"{group}.matches").exists():
            try:
                for batch in pa.ipc.open_stream(self._read(f"{group}.matches")):
                    yield pa.Table.from_batches([batch])
            except pa.ArrowInvalid as error:
                raise self._damaged(f"{group}.matches", "is cut off") from error

    def _read(self, name: str) -> bytes:
        try:
            return (Path(self.folder) / name).read_bytes()
        except OSError as error:
            raise self._damaged(name, f"cannot be read: {error.strerror}") from error

    def _damaged(self, name: str, fact: str) -> StateError:
        return StateError(
            "E0702",
            f"`{self.folder}/{name}`, the past of new rules, {fact}",
            "restore the checkpoint directory as a whole",
        )


def write_warm(
    folder: Path,
    data: bytes,
    rules: RuleSet,
    n_groups: int,
    matches: pa.Table | None,
    written: Written | None = None,
) -> None:
    """Write a past.

    `data`: the state of `rules` in one key group. `n_groups`: the number of key groups among which it is
    divided. `matches`: the matches to report, those with the same id by one key group; None: there are none.
    `written`: see `Past`.
    """
    folder.mkdir(parents=True)
    names = labels(n_groups, n_groups)
    for label, part in zip(
        names, divided_state(data, rules, groups_of(rules, n_groups), n_groups), strict=True
    ):
        (folder / str(label)).write_bytes(part.data)
    if written is not None:
        _write_stream(
            folder / _WRITTEN, written.matches.replace_schema_metadata({_REACHED: str(written.reached_us)})
        )
    if matches is None:
        return
    ids = matches.column("match_id").combine_chunks().dictionary_encode()
    number_of = np.asarray(ids.indices) * n_groups // max(len(ids.dictionary), 1)
    for number, label in enumerate(names):
        part_of = matches.filter(pa.array(number_of == number))
        if part_of.num_rows:
            _write_stream(folder / f"{label}.matches", part_of)


def _write_stream(place: Path, table: pa.Table) -> None:
    with pa.OSFile(str(place), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
