"""Decodes messages of the plug-in pgoutput, protocol version 1, into changes of rows, in columns.

One buffer contains many messages, each after the LSN of its record (8 bytes). All rows are processed
together: tuples are read column by column, for all rows at once.

The protocol: https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64, U8, Mask
from cep.schema.masks import where_true

HEAD = 8
"""Bytes of the LSN before each message."""

POSTGRES_EPOCH_US = 946_684_800_000_000
"""PostgreSQL's epoch, 2000-01-01, in microseconds since 1970."""

INSERT, UPDATE, DELETE, TRUNCATE = b"IUDT"
_BEGIN, _RELATION = b"BR"
_NEW, _KEY, _OLD = b"NKO"
_NULL, _UNCHANGED, _TEXT = b"nut"
_ABSENT = 0

IS_KEY = 1
"""Flag of a column that is part of the replica identity."""


@dataclass(frozen=True, slots=True)
class Relation:
    """The description of a table in the log, valid from one message on.

    - `oid`: its object identifier, which does not change when the table is renamed.
    - `table`: schema and name: ``public.orders``.
    - `columns`: column -> its index in a tuple.
    - `types`: the object identifiers of the types of the columns.
    - `keys`: which columns are part of the replica identity.
    """

    oid: int
    table: str
    columns: dict[str, int]
    types: tuple[int, ...]
    keys: tuple[bool, ...]


class RenamedTableError(Exception):
    """A requested table had another name, that of `relation`, when it was changed."""

    def __init__(self, relation: Relation) -> None:
        super().__init__(relation)
        self.relation = relation


@dataclass(frozen=True, slots=True)
class Cells:
    """The values of one column of n rows: their places in the buffer, and their states.

    `start` and `stop`: int64[n]: the byte range of a text. `state`: uint8[n]: ``t`` a text, ``n`` NULL, ``u``
    unchanged and not in the log, 0 unknown.
    """

    start: I64
    stop: I64
    state: U8

    @classmethod
    def empty(cls, n: int) -> Cells:
        """Return the cells of n rows without known values."""
        return cls(np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.uint8))

    def put(self, rows: Mask | I64, other: Cells) -> None:
        """Set some rows to the values of `other`."""
        self.start[rows], self.stop[rows], self.state[rows] = other.start, other.stop, other.state

    def at(self, rows: Mask | I64) -> Cells:
        """Return the values of some rows."""
        return Cells(self.start[rows], self.stop[rows], self.state[rows])

    def texts(self, data: U8) -> pa.Array:
        """Return the values as texts; other states become NULL."""
        is_text = self.state == _TEXT
        n = int(np.count_nonzero(is_text))
        # The buffer contains the texts in the order of their rows: every second part of it is a text.
        cuts = np.empty(2 * n + 1, np.int64)
        cuts[0:-1:2], cuts[1::2] = self.start[is_text], self.stop[is_text]
        cuts[-1] = cuts[-2] if n else 0
        pieces = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), 2 * n, [None, pa.py_buffer(cuts), pa.py_buffer(data)]
        )
        number = np.cumsum(is_text) - 1
        indices = pa.array(2 * number, pa.int64(), mask=~is_text)
        return pc.cast(pc.cast(pieces.take(indices), pa.binary()), pa.string())

    @property
    def is_unchanged(self) -> Mask:
        """Which values the log omits because they did not change."""
        return np.equal(self.state, _UNCHANGED)

    @property
    def is_absent(self) -> Mask:
        """Which values are unknown."""
        return np.equal(self.state, _ABSENT)


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of n rows, in the order of the log.

    - `data`: the buffer to which cells refer.
    - `kind`: uint8[n]: `INSERT`, `UPDATE`, `DELETE` or `TRUNCATE`.
    - `lsn`: int64[n]: the place of the change in the log.
    - `commit_us`, `transaction`, `number`: int64[n]: the time of its commit, microseconds since 1970; the
      identifier of its transaction; its index among the changes of the transaction, from 0.
    - `relation`: int64[n]: index into `relations`.
    - `after`, `before`: the row after the change and before it, by column. For a deleted row, `after` is the
      old row.
    """

    data: U8
    kind: U8
    lsn: I64
    commit_us: I64
    transaction: I64
    number: I64
    relation: I64
    relations: Sequence[Relation]
    after: dict[str, Cells]
    before: dict[str, Cells]

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(slots=True)
class Decoder:
    """Decodes the messages of a range, portion by portion.

    `start` and `end`: LSNs: the range contains the transactions committed at or after `start` and before
    `end`. `oids`: their object identifiers. `after` and `before`: the requested columns of rows after and
    before changes. `keys`: an update that changes one of these columns is two changes: it deletes the old row
    and inserts the new one.
    """

    start: int
    end: int
    tables: frozenset[str]
    oids: frozenset[int]
    after: Sequence[str]
    before: Sequence[str] = ()
    keys: Sequence[str] = ()
    _relations: dict[int, Relation] = field(default_factory=dict)
    _transaction: tuple[int, int, int] = (0, 0, 0)  # LSN of its commit, time of its commit, identifier
    _n_before: int = 0  # number of changes of the transaction in earlier portions
    _moved: tuple[int, int] = (-1, 0)  # the last transaction of a change, its changes that are two

    def decode(self, messages: Sequence[bytes]) -> Changes:
        """Return the changes in some messages, which follow the last ones.

        Raises RenamedTableError: a requested table had another name when it was changed.
        """
        data = np.frombuffer(b"".join(messages), np.uint8)
        sizes = np.fromiter(map(len, messages), np.int64, len(messages))
        at = np.cumsum(sizes) - sizes + HEAD
        kind = data[at] if len(at) else np.zeros(0, np.uint8)
        is_change = np.isin(kind, (INSERT, UPDATE, DELETE, TRUNCATE))
        begun, number = self._begun(data, at, kind, is_change)
        commits = begun[:, 0]
        versions, relations = self._versions(data, at, kind)
        wanted = is_change & (commits >= self.start) & (commits < self.end)
        wanted &= self._is_ours(data, at, kind, versions, relations, wanted)
        rows = np.flatnonzero(wanted)
        commit_us, transaction = begun[rows, 1], begun[rows, 2]
        found = Changes(
            data=data,
            kind=kind[rows],
            lsn=_whole(data, at[rows] - HEAD, 8),
            commit_us=commit_us,
            transaction=transaction,
            number=number[rows],
            relation=versions[rows],
            relations=relations,
            after={name: Cells.empty(len(rows)) for name in self.after},
            before={
                name: Cells.empty(len(rows)) for name in (*self.before, *(self.after if self.keys else ()))
            },
        )
        self._fill(found, at[rows] + 5)
        if not self.keys:
            return found
        is_moved = _is_moved(found, self.keys)
        return _as_two(found, is_moved, self._n_moved_before(found, is_moved), self.before)

    def _n_moved_before(self, changes: Changes, is_moved: Mask) -> I64:
        """Return how many changes of the same transaction before each change are two."""
        before: I64 = np.cumsum(is_moved) - is_moved
        if len(before) == 0:
            return before
        transaction = changes.transaction
        is_first = np.append(True, transaction[1:] != transaction[:-1])
        place = np.cumsum(is_first) - 1
        begun: I64 = before[is_first]
        if self._moved[0] == transaction[0]:
            begun[0] -= self._moved[1]
        before -= begun[place]
        self._moved = int(transaction[-1]), int(before[-1] + is_moved[-1])
        return before

    def _begun(self, data: U8, at: I64, kind: U8, is_change: Mask) -> tuple[npt.NDArray[np.int64], I64]:
        """Return, for each message, its transaction, int64[n, 3], and the index of its change in it."""
        begins = np.flatnonzero(kind == _BEGIN)
        known = np.empty((len(begins) + 1, 3), np.int64)
        known[0] = self._transaction
        known[1:, 0] = _whole(data, at[begins] + 1, 8)
        known[1:, 1] = _whole(data, at[begins] + 9, 8) + POSTGRES_EPOCH_US
        known[1:, 2] = _whole(data, at[begins] + 17, 4)
        place = np.cumsum(kind == _BEGIN)
        count = np.cumsum(is_change)
        at_begin = np.concatenate([[-self._n_before], count[begins]])
        number = count - 1 - at_begin[place]
        if len(kind):
            self._transaction = (int(known[-1, 0]), int(known[-1, 1]), int(known[-1, 2]))
            self._n_before = int(count[-1] - at_begin[-1])
        return known[place], number

    def _versions(self, data: U8, at: I64, kind: U8) -> tuple[I64, list[Relation]]:
        """Return, for each message, the number of its table's description, or -1."""
        descriptions = np.flatnonzero(kind == _RELATION).tolist()
        is_row = (kind == INSERT) | (kind == UPDATE) | (kind == DELETE)
        identifiers = np.full(len(at), -1, np.int64)
        identifiers[is_row] = _whole(data, at[is_row] + 1, 4)
        versions = np.full(len(at), -1, np.int64)
        relations: list[Relation] = []

        def apply(identifier: int, relation: Relation, since: int) -> None:
            versions[since:][identifiers[since:] == identifier] = len(relations)
            relations.append(relation)

        for identifier, relation in self._relations.items():
            apply(identifier, relation, 0)
        for row in descriptions:
            identifier, relation = _relation(data[at[row] :].data)
            self._relations[identifier] = relation
            apply(identifier, relation, row)
        return versions, relations

    def _is_ours(
        self, data: U8, at: I64, kind: U8, versions: I64, relations: Sequence[Relation], among: Mask
    ) -> Mask:
        """Return which changes belong to a requested table; a TRUNCATE of several belongs to the first."""
        ours = np.array([relation.table in self.tables for relation in relations], bool)
        found = np.zeros(len(at), bool)
        known = versions >= 0
        found[known] = ours[versions[known]]
        for version in np.unique(versions[known & among]).tolist():
            self._require_name(relations[version])
        for row in np.flatnonzero((kind == TRUNCATE) & among).tolist():
            n_tables = int(_whole(data, at[row : row + 1] + 1, 4)[0])
            for identifier in _whole(data, at[row] + 6 + 4 * np.arange(n_tables), 4).tolist():
                relation = self._relations.get(identifier)
                if relation is not None:
                    self._require_name(relation)
                if relation is not None and relation.table in self.tables and not found[row]:
                    found[row] = True
                    versions[row] = next(i for i, known in enumerate(relations) if known is relation)
        return found

    def _require_name(self, relation: Relation) -> None:
        if relation.oid in self.oids and relation.table not in self.tables:
            raise RenamedTableError(relation)

    def _fill(self, changes: Changes, at: I64) -> None:
        """Find the values of changes; `at` is the index of the byte after the table's identifier."""
        is_row = changes.kind != TRUNCATE
        for version in np.unique(changes.relation[is_row]).tolist():
            relation = changes.relations[version]
            rows = np.flatnonzero(is_row & (changes.relation == version))
            _fill_of(changes, relation, rows, at[rows])


def _fill_of(changes: Changes, relation: Relation, rows: I64, at: I64) -> None:
    """Find the values of the changes `rows` of one table."""
    data, width = changes.data, len(relation.types)
    names = {*changes.after, *changes.before} & relation.columns.keys()
    columns = [relation.columns[name] for name in names]
    sign = data[at]
    has_old = sign != _NEW
    old, behind = _walk(data, at[has_old] + 1, width, columns)
    olds = {name: _spread(old[relation.columns[name]], has_old) for name in names}
    has_new = changes.kind[rows] != DELETE
    new_at = at.copy()
    new_at[has_old] = behind
    new, _ = _walk(data, new_at[has_new] + 1, width, columns)
    news = {name: _spread(new[relation.columns[name]], has_new) for name in names}
    is_insert = changes.kind[rows] == INSERT
    for name in names:
        now, was = news[name], olds[name]
        if name in changes.after:
            value = Cells.empty(len(rows))
            value.put(has_new, now.at(has_new))
            # A complete old row contains the values that the new one omits.
            from_old = ~has_new | (now.is_unchanged & (sign == _OLD))
            value.put(from_old, was.at(from_old))
            changes.after[name].put(rows, value)
        if name in changes.before:
            value = Cells.empty(len(rows))
            is_known = has_old & ((sign == _OLD) | relation.keys[relation.columns[name]] | ~has_new)
            value.put(is_known, was.at(is_known))
            if relation.keys[relation.columns[name]]:  # without an old row the key is unchanged
                is_same = ~has_old & has_new & ~is_insert
                value.put(is_same, now.at(is_same))
            value.state[is_insert] = _NULL
            changes.before[name].put(rows, value)


def _is_moved(changes: Changes, keys: Sequence[str]) -> Mask:
    """Return which changes are updates that change a key."""
    is_moved = np.zeros(len(changes), bool)
    for name in keys:
        now, was = (side[name].texts(changes.data) for side in (changes.after, changes.before))
        is_moved |= where_true(pc.not_equal(now, was))
    is_moved &= changes.kind == UPDATE
    return is_moved


def _as_two(changes: Changes, is_moved: Mask, n_before: I64, before: Sequence[str]) -> Changes:
    """Return changes in which an update of a key deletes the old row, and then inserts the new one.

    `n_before`: how many of the transaction's earlier changes are two: later changes have higher numbers.
    """
    rows = np.repeat(np.arange(len(changes)), np.where(is_moved, 2, 1))
    is_new = np.append(False, rows[1:] == rows[:-1])[: len(rows)]
    is_old = is_moved[rows] & ~is_new
    kind = np.where(is_old, DELETE, np.where(is_new, INSERT, changes.kind[rows])).astype(np.uint8)
    after = {name: cells.at(rows) for name, cells in changes.after.items()}
    for name, cells in after.items():
        cells.put(is_old, changes.before[name].at(rows[is_old]))
    olds = {name: changes.before[name].at(rows) for name in before}
    for cells in olds.values():
        cells.state[is_new | (is_old & cells.is_absent)] = _NULL
    return replace(
        changes,
        kind=kind,
        lsn=changes.lsn[rows],
        commit_us=changes.commit_us[rows],
        transaction=changes.transaction[rows],
        number=(changes.number + n_before)[rows] + is_new,
        relation=changes.relation[rows],
        after=after,
        before=olds,
    )


def _walk(data: U8, at: I64, width: int, columns: Sequence[int]) -> tuple[dict[int, Cells], I64]:
    """Return the cells of some columns of tuples that start at `at`, and the ends of the tuples."""
    at = at + 2  # skips the number of columns, which the table gives
    found = {}
    for column in range(width):
        if len(at) == 0:
            break
        state = data[at]
        is_text = state == _TEXT
        size = np.zeros(len(at), np.int64)
        size[is_text] = _whole(data, at[is_text] + 1, 4)
        start = at + np.where(is_text, 5, 1)
        stop = start + size
        if column in columns:
            found[column] = Cells(start, stop, state)
        at = stop
    return {column: found.get(column, Cells.empty(0)) for column in columns}, at


def _spread(cells: Cells, rows: Mask) -> Cells:
    """Return cells for all rows, given those of `rows`."""
    found = Cells.empty(len(rows))
    found.put(rows, cells)
    return found


def _whole(data: U8, at: I64, n_bytes: int) -> I64:
    """Return the big-endian integers of `n_bytes` at some places."""
    found = np.zeros(len(at), np.int64)
    for number in range(n_bytes):
        found = (found << 8) | data[at + number]
    return found


def _relation(message: memoryview) -> tuple[int, Relation]:
    """Return the identifier of a table and its description."""
    [identifier] = struct.unpack_from(">I", message, 1)
    namespace, at = _text(message, 5)
    name, at = _text(message, at)
    [n_columns] = struct.unpack_from(">h", message, at + 1)
    at += 3
    columns, types, keys = {}, [], []
    for number in range(n_columns):
        keys.append(bool(message[at] & IS_KEY))
        column, at = _text(message, at + 1)
        columns[column] = number
        types.append(struct.unpack_from(">I", message, at)[0])
        at += 8
    # An empty text means the schema `pg_catalog`.
    table = f"{namespace or 'pg_catalog'}.{name}"
    return identifier, Relation(identifier, table, columns, tuple(types), tuple(keys))


def _text(message: memoryview, at: int) -> tuple[str, int]:
    """Return a text that ends with a zero byte, and the place after it."""
    end = at
    while message[end]:
        end += 1
    return bytes(message[at:end]).decode(), end + 1
