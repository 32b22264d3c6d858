"""FROM, PARTITION BY, ON and BY: the streams of a rule, and the columns that partition their events."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from cep.diagnostics.diagnostic import did_you_mean
from cep.diagnostics.report import Reporter
from cep.errors import Span
from cep.expression import Type
from cep.language import ast
from cep.schema.stream import Field, Role, Stream


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The streams, key and roles of a rule. `stream_of` and `role_of` contain the variables that have one."""

    streams: tuple[Stream, ...] = ()
    key: tuple[str, ...] = ()
    roles: tuple[Role, ...] = ()
    stream_of: Mapping[str, Stream] = field(default_factory=dict)
    role_of: Mapping[str, int] = field(default_factory=dict)
    key_types: Mapping[str, Type] = field(default_factory=dict)

    @property
    def has_several_streams(self) -> bool:
        """Whether columns need the name of their stream."""
        return len(self.streams) > 1


def read_partitioning(
    rule: ast.Rule,
    variables: Mapping[str, Span],
    streams: Mapping[str, Stream],
    match_columns: Sequence[str],
    report: Reporter,
    reported: Collection[str] = (),
) -> Partitioning:
    """Return what the clauses of `rule` say about its streams and key; `variables` are those of its pattern.

    No key may have the name of one of `match_columns`. Streams come in the order of their declaration,
    regardless of the order of FROM. Names in FROM that are `reported` are not reported again.
    """
    return _Reader(rule, variables, streams, match_columns, report, reported).read()


def report_no_column(report: Reporter, what: str, stream: Stream, name: ast.Name) -> None:
    """Report that a stream or a table, `what`, has no column of this name."""
    report(
        "E0203",
        f"{what} `{stream.name}` has no column `{name.text}`",
        name.span,
        f"not a column of `{stream.name}`",
        did_you_mean(name.text, [field.name for field in stream.fields], "columns"),
    )


class _Reader:
    def __init__(
        self,
        rule: ast.Rule,
        variables: Mapping[str, Span],
        streams: Mapping[str, Stream],
        match_columns: Sequence[str],
        report: Reporter,
        reported: Collection[str],
    ) -> None:
        self.rule = rule
        self.reported = reported
        self.variables = variables
        self.declared = {name: stream for name, stream in streams.items() if stream.table is None}
        self.tables = streams.keys() - self.declared.keys()
        self.match_columns = match_columns
        self.report = report
        self.streams: dict[str, Stream] = {}
        self.bound: list[ast.KeyPart] = []  # parts of the key whose columns BY gives
        self.types: dict[str, tuple[Type, str]] = {}  # key -> its type, and the column that has it
        self.definitions: dict[str, ast.Definition] = {}
        for definition in rule.definitions:
            self.definitions.setdefault(definition.variable.text, definition)

    def read(self) -> Partitioning:
        self.streams = self.read_streams()
        columns = [self.key_columns(number, part) for number, part in enumerate(self.rule.key)]
        stream_of = self.streams_of_variables()
        roles_of = self.roles_of_variables(stream_of, columns)
        found = {role for role in roles_of.values() if role is not None}
        if self.bound:
            self.check_every_stream_has_a_role(stream_of)
        else:
            found = {
                Role(stream, tuple(part[stream] for part in columns))
                for stream in self.streams
                if all(stream in part for part in columns)
            }
        order = list(self.streams)
        roles = tuple(sorted(found, key=lambda role: (order.index(role.stream), role.key)))
        key = tuple(part.name.text for part in self.rule.key)
        is_plain = len(self.streams) == 1 and all(role.key == key for role in roles)
        return Partitioning(
            tuple(self.streams.values()),
            key,
            () if is_plain else roles,
            stream_of,
            {} if is_plain else {name: roles.index(role) for name, role in roles_of.items() if role in found},
            {name: kind for name, (kind, _) in self.types.items()},
        )

    # FROM

    def read_streams(self) -> dict[str, Stream]:
        names: list[str] = []
        for name in self.rule.streams:
            if name.text in names:
                self.report(
                    "E0230",
                    f"stream `{name.text}` is in FROM twice",
                    name.span,
                    "already there",
                    "name it once",
                )
            elif name.text in self.tables:
                self.report(
                    "E0221",
                    f"`{name.text}` is a table, not a stream",
                    name.span,
                    "its versions are no events of a rule",
                    f"name the stream in FROM, and the table after it: JOIN {name.text} ON column",
                )
            elif name.text not in self.declared and name.text not in self.reported:
                self.report(
                    "E0201",
                    f"there is no stream `{name.text}`",
                    name.span,
                    "not declared in the streams file",
                    did_you_mean(name.text, self.declared, "streams"),
                )
            names.append(name.text)
        known = {name for name in names if name not in self.reported}
        return {name: stream for name, stream in self.declared.items() if name in known}

    def stream_in_from(self, name: ast.Name, column: str = "") -> Stream | None:
        """Return the stream of FROM with this name, or None after a report; `column` follows its dot."""
        if name.text not in self.streams and name.text not in {other.text for other in self.rule.streams}:
            self.report(
                "E0231",
                f"`{name.text}` is not a stream of this rule",
                name.span,
                "not in FROM",
                f"put the column in backticks: `{name.text}.{column}`"
                if self.is_dotted(name.text, column)
                else did_you_mean(name.text, self.streams, "streams of the rule"),
            )
        return self.streams.get(name.text)

    def is_dotted(self, name: str, column: str) -> bool:
        """Return whether a stream of the rule has a column with both names and a dot between them."""
        return any(stream.field(f"{name}.{column}") is not None for stream in self.streams.values())

    # PARTITION BY

    def key_columns(self, number: int, part: ast.KeyPart) -> dict[str, str]:
        """Return the column of each stream for part `number` of the key; none if BY gives it."""
        name = part.name
        if any(other.name.text == name.text for other in self.rule.key[:number]):
            self.report(
                "E0305", f"`{name.text}` is in the key twice", name.span, "already there", "name it once"
            )
        if name.text.casefold() in self.match_columns:
            self.report(
                "E0214",
                f"every match has a column `{name.text.casefold()}` already",
                name.span,
                "this name is taken in the output",
                "give the column another name in the stream",
            )
        if len(self.streams) < len(self.rule.streams):
            return {}  # a stream is unknown, and so are its columns
        if part.columns[0].variable is None:
            return self.common_columns(part)
        return self.paired_columns(part)

    def common_columns(self, part: ast.KeyPart) -> dict[str, str]:
        name = part.name
        having = [stream for stream in self.streams.values() if stream.field(name.text) is not None]
        lacking = [stream for stream in self.streams.values() if stream not in having]
        if not having and any(definition.key for definition in self.rule.definitions):
            self.bound.append(part)
        elif not having:
            report_no_column(self.report, "stream", next(iter(self.streams.values())), name)
        elif lacking:
            pairs = [f"{stream.name}.{name.text}" for stream in having]
            pairs += [f"{stream.name}.column" for stream in lacking]
            self.report(
                "E0233",
                f"`{name.text}` is a column of `{having[0].name}`, but not of `{lacking[0].name}`",
                name.span,
                f"`{lacking[0].name}` has no such column",
                f"name a column of each stream: {' = '.join(pairs)}",
            )
        return {
            stream.name: name.text
            for stream in having
            if self.can_be_key(name.text, stream, stream.field(name.text), name.span)
        }

    def paired_columns(self, part: ast.KeyPart) -> dict[str, str]:
        found: dict[str, str] = {}
        for column in part.columns:
            assert column.variable is not None
            stream = self.stream_in_from(column.variable, column.name.text)
            if stream is None:
                continue
            if stream.name in found:
                self.report(
                    "E0233",
                    f"two columns of `{stream.name}` in one key",
                    column.span,
                    f"`{found[stream.name]}` is there already",
                    "for a key in several columns of a stream, write PARTITION BY with a new name, "
                    "and BY column after each variable",
                )
                continue
            known = stream.field(column.name.text)
            if known is None:
                report_no_column(self.report, "stream", stream, column.name)
            elif self.can_be_key(part.name.text, stream, known, column.span):
                found[stream.name] = known.name
        named = {column.variable.text for column in part.columns if column.variable is not None}
        lacking = [name for name in self.streams if name not in named]
        if any(
            self.is_dotted(column.variable.text, column.name.text)
            for column in part.columns
            if column.variable
        ):
            lacking = []  # a column without backticks, as reported
        if lacking:
            self.report(
                "E0233",
                f"this key has no column of `{lacking[0]}`",
                part.span,
                "every stream in FROM needs one",
                f"add = {lacking[0]}.column",
            )
        return found

    def can_be_key(self, key: str, stream: Stream, column: Field | None, span: Span) -> bool:
        """Check that the type of a key's column can be compared exactly and is the same everywhere."""
        assert column is not None
        if column.type in (Type.DOUBLE, Type.OPAQUE):
            is_double = column.type is Type.DOUBLE
            self.report(
                "E0214",
                f"`{column.name}` is {column.ddl.upper()} and cannot be a key",
                span,
                f"{'numbers with fractions' if is_double else 'values with parts'} are not compared exactly",
                "use a column of whole numbers, text, time or BOOLEAN",
            )
            return False
        kind, other = self.types.setdefault(key, (column.type, f"{stream.name}.{column.name}"))
        if kind is not column.type:
            self.report(
                "E0234",
                f"`{stream.name}.{column.name}` is {column.type.upper()}, `{other}` is {kind.upper()}",
                span,
                "values of different types are never equal",
                "use columns of one type, or change the type of one in the streams file",
            )
            return False
        return True

    # DEFINE: ON and BY

    def streams_of_variables(self) -> dict[str, Stream]:
        found: dict[str, Stream] = {}
        for name in self.variables:
            definition = self.definitions.get(name)
            if definition is not None and definition.stream is not None:
                stream = self.stream_in_from(definition.stream)
                if stream is not None:
                    found[name] = stream
            elif len(self.rule.streams) == 1:
                if self.streams:
                    found[name] = next(iter(self.streams.values()))
            elif definition is not None:
                names = " or ".join(other.text for other in self.rule.streams)
                self.report(
                    "E0232",
                    f"`{name}` is an event of which stream?",
                    definition.variable.span,
                    "this rule reads several streams",
                    f"write {name} ON {names}",
                )
        return found

    def roles_of_variables(
        self, stream_of: Mapping[str, Stream], columns: Sequence[Mapping[str, str]]
    ) -> dict[str, Role | None]:
        """Return the role of every variable that has one; None: its role has a problem."""
        roles: dict[str, Role | None] = {}
        for name, span in self.variables.items():
            definition = self.definitions.get(name)
            stream = stream_of.get(name)
            if self.bound:
                roles[name] = self.role_by(name, span, definition, stream, columns)
                continue
            if definition is not None and definition.key and len(self.streams) == len(self.rule.streams):
                self.report(
                    "E0236",
                    f"the key of `{name}` is there already",
                    definition.key[0].span,
                    "PARTITION BY names columns",
                    "leave BY out, or write PARTITION BY with a name that is no column",
                )
            if stream is not None and all(stream.name in part for part in columns):
                roles[name] = Role(stream.name, tuple(part[stream.name] for part in columns))
        return roles

    def check_every_stream_has_a_role(self, stream_of: Mapping[str, Stream]) -> None:
        used = {stream.name for stream in stream_of.values()}
        for name in self.rule.streams:
            if name.text in self.streams and name.text not in used and len(self.rule.streams) > 1:
                keys = ", ".join(f"`{part.name.text}`" for part in self.bound)
                self.report(
                    "E0235",
                    f"nothing says which column of `{name.text}` is {keys}",
                    name.span,
                    "no variable is of this stream",
                    f"leave it out, or write variable ON {name.text} BY column",
                )

    def role_by(
        self,
        name: str,
        span: Span,
        definition: ast.Definition | None,
        stream: Stream | None,
        columns: Sequence[Mapping[str, str]],
    ) -> Role | None:
        keys = ", ".join(f"`{part.name.text}`" for part in self.bound)
        if definition is None or not definition.key:
            self.report(
                "E0235",
                f"nothing says which column of `{name}` is {keys}",
                span if definition is None else definition.variable.span,
                "needs BY",
                f"write {name} BY column" if len(self.streams) == 1 else f"write {name} ON stream BY column",
            )
            return None
        given = definition.key
        if len(given) != len(self.bound):
            columns_of = ", ".join(f"column_{number}" for number in range(1, len(self.bound) + 1))
            self.report(
                "E0236",
                f"`{name}` has {_columns(len(given))} after BY, not {len(self.bound)}",
                Span(given[0].span.start, given[-1].span.end),
                f"{_columns(len(self.bound))}, for {keys}",
                f"write {name} BY {'column' if len(self.bound) == 1 else f'({columns_of})'}",
            )
            return None
        if stream is None:
            return None
        by = {part.name.text: column for part, column in zip(self.bound, given, strict=True)}
        key: list[str] = []
        for part, common in zip(self.rule.key, columns, strict=True):
            column = by.get(part.name.text)
            if column is None:
                key += [common[stream.name]] if stream.name in common else []
                continue
            known = stream.field(column.text)
            if known is None:
                report_no_column(self.report, "stream", stream, column)
            elif self.can_be_key(part.name.text, stream, known, column.span):
                key.append(known.name)
        return Role(stream.name, tuple(key)) if len(key) == len(self.rule.key) else None


def _columns(count: int) -> str:
    return "1 column" if count == 1 else f"{count} columns"
