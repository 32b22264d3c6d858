"""Events in the partitions they take part in, as Spark SQL: the plan's side of `cep.engine.prepare`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F  # noqa: N812

from cep.expression import Call, Column, Expression, Literal, Type, substitute, substitute_roles
from cep.program.program import STREAM_COLUMN, Program
from cep.schema.stream import Role, Stream
from spark_runtime.dataflow.predicates import spark_column

_FALSE = Literal(value=False, type=Type.BOOLEAN)
_TRUE = Literal(value=True, type=Type.BOOLEAN)


@dataclass(frozen=True)
class Placement:
    """One way in which an event of a stream takes part in a partition of a program."""

    program: Program
    stream: Stream
    columns: dict[str, Expression]  # column of a prepared batch -> over the columns of the stream
    roles: dict[int, Expression]  # role -> whether the event has it here, over the columns of the stream
    is_placed: SparkColumn  # the event has this key, and not from an earlier role

    @property
    def predicates(self) -> list[tuple[Expression, ...]]:
        """The local predicates of the program over the columns of the stream."""
        return [
            tuple(substitute(substitute_roles(predicate, self.roles), self.columns) for predicate in word)
            for word in self.program.local_predicates(self.stream)
        ]

    def value(self, name: str) -> SparkColumn:
        """Return the column `name` of the prepared batch; NULL if it is of another stream."""
        expression = dict(self.program.derived).get(name) or Column(name, self.program.type_of(name))
        seen = self.program.seen_by(expression, self.stream)
        return F.lit(None) if seen is None else spark_column(substitute(seen, self.columns))


def placements(program: Program, stream: Stream) -> Iterator[Placement]:
    """Yield the placement of each role that events of `stream` have."""
    names = {program.column_of(stream, field.name): Column(field.name, field.type) for field in stream.fields}
    roles = program.roles_of(stream)
    if not roles:
        no_key = {name: Literal(None, program.type_of(name)) for name in program.key_columns}
        no_role = dict.fromkeys(range(len(program.roles)), _FALSE)
        yield Placement(program, stream, {**names, **no_key}, {**no_role}, F.lit(False))
        return
    earlier: list[list[Column]] = []
    for number, role in roles.items():
        key = _key(stream, role)
        columns: dict[str, Expression] = dict(names)
        if not program.is_plain:
            columns |= dict(zip(program.key_columns, key, strict=True))
        has_role = {
            other: _TRUE if other == number else _equal(key, _key(stream, of_other))
            for other, of_other in roles.items()
        }
        if len(program.streams) > 1:
            columns[STREAM_COLUMN] = Literal(program.streams.index(stream), Type.BIGINT)
        has_key = reduce(lambda a, b: a & b, [spark_column(column).isNotNull() for column in key])
        is_placed = reduce(
            lambda a, b: a & b,
            [~F.coalesce(spark_column(_equal(key, other)), F.lit(False)) for other in earlier],
            has_key,
        )
        earlier.append(key)
        yield Placement(program, stream, columns, has_role, is_placed)


def _key(stream: Stream, role: Role) -> list[Column]:
    fields = [field for name in role.key if (field := stream.field(name)) is not None]
    return [Column(field.name, field.type) for field in fields]


def _equal(key: list[Column], other: list[Column]) -> Expression:
    parts = tuple(Call("=", (a, b), Type.BOOLEAN) for a, b in zip(key, other, strict=True))
    return parts[0] if len(parts) == 1 else Call("and", parts, Type.BOOLEAN)
